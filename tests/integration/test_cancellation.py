"""A stop at any moment: the batch is whole or not there, and nothing of it is left behind (L5, X7)."""

import asyncio
import random
from typing import Any

import pytest

from db.errors import DatabaseUnavailableError
from db.reading import reading
from db.unit_of_work import Pool, UnitOfWork, open_pool
from tests import floor
from tests.floor import MINUTE, Admin

IN_TRANSACTION = """SELECT count(*) FROM pg_stat_activity
                    WHERE datname = current_database() AND usename = 'booking_expiration_worker' AND state <> 'idle'"""


async def test_x7_200_random_cancellations(pool: Pool, admin: Admin) -> None:
    """X7, trap 11: after a cancel anywhere, what was reported is what the database says; no transaction or lock is left."""
    now, dice, took = await floor.clock(admin), random.Random(7), 0.012
    await floor.add(admin, 200 * 5, now - MINUTE)
    outcomes = []
    for n in range(200):
        batch = asyncio.create_task(floor.expire(pool, now, size=5, run_id=f"run-{n}"))
        await asyncio.wait({batch}, timeout=dice.uniform(0, took))
        batch.cancel()
        [reported] = await asyncio.gather(batch, return_exceptions=True)
        committed = await admin.fetchval("SELECT count(*) FROM crm.expiration_batches WHERE run_id = $1", f"run-{n}")
        assert committed == (0 if isinstance(reported, asyncio.CancelledError) else 1), f"cancel {n}: {reported!r}"
        outcomes.append(committed)
        took *= 0.95 if committed else 1.05  # however busy the machine is, about half of the cancels come before the COMMIT
    assert 20 < sum(outcomes) < 180, "cancels must land on both sides of the COMMIT"
    assert await admin.fetchval(IN_TRANSACTION) == 0
    assert (await floor.written(admin))["outbox"] == 5 * sum(outcomes)
    assert [pool.get_idle_size(), pool.get_size()] == [pool.get_size()] * 2


async def test_trap_11_commit_is_the_point_of_no_return(pool: Pool, admin: Admin) -> None:
    """Trap 11: a cancel during COMMIT is not an error, because the batch is done."""
    now = await floor.clock(admin)
    await floor.add(admin, 3, now - MINUTE)
    await admin.execute("""
        CREATE FUNCTION crm.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON crm.expiration_batches DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION crm.slow()""")
    batch = asyncio.create_task(floor.expire(pool, now))
    await asyncio.sleep(0.3)
    batch.cancel()
    assert (await batch).counts.expired == 3
    assert await floor.statuses(admin) == {"ReserveExpired": 3}


@pytest.mark.parametrize("limit", [None, 5.0])
async def test_a_cancel_during_the_commit_of_a_reading_is_a_cancel(pool: Pool, limit: float | None) -> None:
    """What looks again and again ends when it is cancelled, whenever that is; with or without a time limit around it."""

    async def look() -> None:
        while True:
            async with asyncio.timeout(limit), reading(pool) as connection:
                await connection.fetchval("SELECT 1")
                asyncio.get_running_loop().call_soon(looking.cancel)  # it comes while COMMIT is under way

    looking = asyncio.create_task(look())
    assert await asyncio.wait({looking}, timeout=10) == ({looking}, set())
    assert looking.cancelled()


async def test_trap_28_a_connection_that_timed_out_is_not_used_again(database: Any, admin: Admin) -> None:
    """Trap 28: a statement past its time limit ends the batch as `unavailable`, and its connection for good."""
    pool = await open_pool(database.worker, size=1, command_timeout=0.5)
    before = await pool.fetchval("SELECT pg_backend_pid()")
    now = await floor.clock(admin)
    async with admin.transaction():
        await admin.execute("LOCK TABLE crm.bookings")
        with pytest.raises(DatabaseUnavailableError, match="TimeoutError"):
            await floor.expire(pool, now)
    assert await pool.fetchval("SELECT pg_backend_pid()") != before
    await pool.close()


async def test_waiting_for_a_connection_has_a_limit(database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool whose connections are all busy is an error that heals, not an endless wait."""
    monkeypatch.setattr("db.unit_of_work.ACQUIRE_TIMEOUT", 0.2)
    pool = await open_pool(database.worker, size=1)
    async with UnitOfWork(pool):
        with pytest.raises(DatabaseUnavailableError):
            async with UnitOfWork(pool):
                pass
    await pool.close()


async def test_a_cancel_while_the_pool_is_busy_stays_a_cancel(database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap 11: BEGIN cannot be interrupted, but when it fails in the end the cancel is what the caller hears of."""
    monkeypatch.setattr("db.unit_of_work.ACQUIRE_TIMEOUT", 0.3)
    pool = await open_pool(database.worker, size=1)

    async def begin() -> None:
        async with UnitOfWork(pool):
            pass

    async with UnitOfWork(pool):
        waiting = asyncio.create_task(begin())
        await asyncio.sleep(0.1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    await pool.close()


async def test_a_failed_block_leaves_nothing(pool: Pool, admin: Admin) -> None:
    """T4: any error inside the unit of work undoes all of it."""
    now = await floor.clock(admin)

    async def fail() -> None:
        async with UnitOfWork(pool) as connection:
            await connection.execute("INSERT INTO crm.job_state (job, last_started_at) VALUES ('x', $1)", now)
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        await fail()
    assert await admin.fetchval("SELECT count(*) FROM crm.job_state") == 0
    assert await admin.fetchval(IN_TRANSACTION) == 0


async def test_r4_a_lost_connection_rolls_back_and_the_next_call_works(pool: Pool, admin: Admin) -> None:
    """R4: a backend that is ended in the middle of a batch costs that attempt only."""
    now = await floor.clock(admin)
    await floor.add(admin, 3, now - MINUTE)

    async def lose() -> None:
        async with UnitOfWork(pool) as connection:
            pid = await connection.fetchval("SELECT pg_backend_pid()")
            await admin.execute("SELECT pg_terminate_backend($1, 5000)", pid)
            await connection.execute("SELECT 1")

    with pytest.raises(DatabaseUnavailableError):
        await lose()
    assert (await floor.expire(pool, now)).counts.expired == 3
