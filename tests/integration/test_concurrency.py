"""Several workers, several managers, the same bookings."""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from db import commands
from db.commands import By
from db.errors import DatabaseError, VersionConflictError
from db.unit_of_work import Pool, UnitOfWork, open_pool
from domain.booking import Booking, BookingError, TerminalBookingError
from domain.events import Phase
from tests import floor
from tests.floor import MINUTE, Admin


async def _decide(pool: Pool, booking_id: UUID, at: datetime, decide: Callable[[Booking], None]) -> Booking:
    async with UnitOfWork(pool) as connection:
        return await commands.command(connection, booking_id, decide, _by(at))


def _by(at: datetime) -> By:
    return By(actor="manager", action="Play", at=at, request="request-1")


async def test_x5_parallel_instances(database: Any, admin: Admin) -> None:
    """X5, R2: four instances at once: each row is processed once, and there is one event per booking."""
    now = await floor.clock(admin)
    await floor.add(admin, 1000, now - MINUTE)
    pools = [await open_pool(database.worker, size=2) for _ in range(4)]
    runs = [floor.expire(pool, now, size=40, run_id=f"run-{n}-{i}") for n in range(7) for i, pool in enumerate(pools)]
    batches = await asyncio.gather(*runs)
    await asyncio.gather(*(pool.close() for pool in pools))
    assert sum(batch.counts.expired for batch in batches) == 1000
    assert await floor.statuses(admin) == {"ReserveExpired": 1000}
    assert (await floor.written(admin))["outbox"] == 1000
    assert await admin.fetchval("SELECT count(DISTINCT aggregate_id) FROM crm.outbox") == 1000


async def test_x6_extended_before_the_batch(database: Any, pool: Pool, admin: Admin) -> None:
    """X6, D23: a late extension of a booking that is still active counts, and the worker leaves it alone."""
    now = await floor.clock(admin)
    [booking_id] = await floor.add(admin, 1, now - MINUTE)
    managers = await open_pool(database.crm_app)
    await _decide(managers, booking_id, now, lambda booking: booking.extend(now + MINUTE, now))
    await managers.close()
    assert (await floor.expire(pool, now)).counts.expired == 0
    audit = await admin.fetch("SELECT version, actor, action, from_status, to_status FROM crm.booking_audit")
    assert [tuple(row) for row in audit] == [(2, "manager", "Play", "Reserved", "Reserved")]


async def test_x6_a_command_in_flight_is_skipped_without_waiting(database: Any, pool: Pool, admin: Admin) -> None:
    """X6, A3: a row under a manager's command is skipped, the batch does not wait; next time it is Booked and not due."""
    now = await floor.clock(admin)
    ids = await floor.add(admin, 3, now - MINUTE)
    managers = await open_pool(database.crm_app)
    async with UnitOfWork(managers) as connection, asyncio.timeout(5):
        await commands.command(connection, ids[1], lambda booking: booking.confirm(now + MINUTE, now), _by(now))
        batch = await floor.expire(pool, now)
    await managers.close()
    assert (batch.counts.expired, batch.counts.skipped_locked) == (2, 1)
    assert (await floor.expire(pool, now, batch_no=2)).counts.expired == 0
    assert await floor.statuses(admin) == {"ReserveExpired": 2, "Booked": 1}


async def test_x6_the_loser_gets_a_version_conflict(database: Any, pool: Pool, admin: Admin) -> None:
    """R3, D16: a manager who read before the worker committed gets a conflict, and on rereading a terminal booking."""
    now = await floor.clock(admin)
    [booking_id] = await floor.add(admin, 1, now - MINUTE)
    managers = await open_pool(database.crm_app)

    async def lose() -> None:
        async with UnitOfWork(managers) as connection:
            booking = await commands.read(connection, booking_id)
            was = booking.status
            booking.cancel(now)
            await floor.expire(pool, now)
            await commands.write(connection, booking, was, _by(now))

    with pytest.raises(VersionConflictError):
        await lose()
    with pytest.raises(TerminalBookingError):
        await _decide(managers, booking_id, now, lambda booking: booking.cancel(now))
    await managers.close()
    assert (await floor.written(admin))["audit"] == 1


async def test_trap_42_an_attempt_beside_its_own_retry(pool: Pool, admin: Admin) -> None:
    """D7, trap 42: both report the one batch that there was, because the second waits for the first one's key."""
    now = await floor.clock(admin)
    await floor.add(admin, 300, now - MINUTE)
    batches = await asyncio.gather(*(floor.expire(pool, now, size=50) for _ in range(3)))
    assert [batch.counts.expired for batch in batches] == [50, 50, 50]
    assert sorted(batch.repeated for batch in batches) == [False, True, True]
    assert await floor.statuses(admin) == {"ReserveExpired": 50, "Reserved": 250}


async def test_workers_and_managers_hammer_the_same_bookings(database: Any, admin: Admin) -> None:
    """R2, R3: 10 s of three workers and six managers on the same rows leave no double, early or gapped transition."""
    ids = await floor.add(admin, 400, await floor.clock(admin) + timedelta(milliseconds=300))
    workers, managers = await open_pool(database.worker, size=3), await open_pool(database.crm_app, size=6)
    until = asyncio.get_running_loop().time() + 10
    players = [_worker(workers, n, until) for n in range(3)] + [_manager(managers, ids, n, until) for n in range(6)]
    done = await asyncio.gather(*players)
    await asyncio.gather(workers.close(), managers.close())
    assert min(done) > 20, "everybody had a share in it"
    early = """SELECT count(*) FROM crm.bookings WHERE expired_at IS NOT NULL
               AND expired_at <= CASE status WHEN 'ReserveExpired' THEN reserve_expires_at ELSE booking_expires_at END"""
    gaps = """SELECT count(*) FROM crm.bookings b
              WHERE version - 1 <> (SELECT count(*) FROM crm.booking_audit WHERE booking_id = b.id)"""
    expired = "SELECT count(*) FROM crm.bookings WHERE expired_at IS NOT NULL"
    assert [await admin.fetchval(early), await admin.fetchval(gaps)] == [0, 0]
    wrote = await floor.written(admin)
    assert wrote["outbox"] == wrote["cards"] == await admin.fetchval(expired) > 0
    assert await admin.fetchval("SELECT count(*) FROM crm.booking_audit WHERE action = 'Expire'") == wrote["outbox"]


async def _worker(pool: Pool, number: int, until: float) -> int:
    total = 0
    for batch_no in count(1):
        if asyncio.get_running_loop().time() > until:
            break
        async with UnitOfWork(pool) as connection:
            as_of = await connection.fetchval("SELECT clock_timestamp()")
        for phase in Phase:
            batch = await floor.expire(pool, as_of, phase, size=5, run_id=f"worker-{number}", batch_no=batch_no)
            total += batch.counts.expired
    return total


async def _manager(pool: Pool, ids: list[UUID], seed: int, until: float) -> int:
    """Extends and confirms by a blink, cancels now and then, and books again what came free, so that it never ends."""
    dice, done = random.Random(seed), 0
    while asyncio.get_running_loop().time() < until:
        with suppress(BookingError, DatabaseError):
            async with UnitOfWork(pool) as connection:
                at = await connection.fetchval("SELECT clock_timestamp()")
                deadline = at + timedelta(milliseconds=dice.randint(1, 400))
                move = dice.choices([Booking.extend, Booking.confirm], [5, 1])[0]
                await commands.command(connection, dice.choice(ids), partial(_apply, move, deadline, at), _by(at))
            done += 1
        if dice.random() < 0.3:
            ids.append(await _book_again(pool, at, dice))
    return done


def _apply(move: Callable[[Booking, datetime, datetime], None], deadline: datetime, at: datetime, booking: Booking) -> None:
    move(booking, deadline, at)


async def _book_again(pool: Pool, at: datetime, dice: random.Random) -> UUID:
    booking_id = uuid4()
    with suppress(DatabaseError, asyncpg.PostgresError):
        async with UnitOfWork(pool) as connection:
            await connection.execute(
                "INSERT INTO crm.bookings (id, tenant_id, deal_id, property_object_id, status, reserve_expires_at) "
                "VALUES ($1, $1, $1, $1, 'Reserved', $2)",
                booking_id,
                at + timedelta(milliseconds=dice.randint(1, 300)),
            )
    return booking_id
