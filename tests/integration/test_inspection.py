"""What operators read: right numbers, no locks, the lock's holder, and plans that ten million rows do not change (issue 4)."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID, uuid4

import asyncpg
import pytest

from db import controls, due, holders, overview, story
from db.commands import UnknownBookingError
from db.errors import DatabaseRefusedError, DatabaseUnavailableError
from db.holders import LockState
from db.job_state import finished
from db.privileges import NEEDS
from db.reading import reading
from db.server import OPERATOR
from db.unit_of_work import Pool, UnitOfWork, open_pool
from domain.events import Phase
from tests import floor
from tests.conftest import Database
from tests.floor import MINUTE, Admin

HOUR = timedelta(hours=1)


@pytest.fixture
async def operator(database: Database) -> AsyncIterator[Pool]:
    """The command's own kind of pool, with the operators' role."""
    opened = await open_pool(database.operator)
    yield opened
    opened.terminate()


@pytest.fixture
async def manager(database: Database) -> AsyncIterator[Admin]:
    """Another program's session, with a name."""
    connection = await asyncpg.connect(database.crm_app, server_settings={"application_name": "import job"})
    yield connection
    connection.terminate()


async def lock_of(pool: Pool, booking_id: UUID) -> holders.RowLock:
    """What the operators' role sees of a booking's lock."""
    async with reading(pool) as connection:
        return await holders.of_booking(connection, booking_id)


async def test_overview(admin: Admin, pool: Pool, operator: Pool) -> None:
    """Issue 4, status: backlog, poison, last cycle, pause, allowance and migrations of one moment."""
    now = await floor.clock(admin)
    poison = await floor.add(admin, 1, now - HOUR)
    await floor.poison(admin, poison)
    await floor.expire(pool, now)
    await floor.add(admin, 3, now - MINUTE, "Booked")
    async with UnitOfWork(pool) as connection:
        await finished(connection, "run-1", "completed", {"ReserveExpiredCount": 2})
    async with UnitOfWork(operator) as connection:
        await controls.pause(connection, Phase.BOOKING, now, None, actor="ann", reason="why")
    await admin.execute("UPDATE crm.safety_catch SET allowance = 7, hold_above = 3")
    async with reading(operator) as connection:
        seen = await overview.read(connection)
    assert (seen.reading.reserve_backlog, seen.reading.booking_backlog, seen.reading.poison) == (1, 3, 1)
    assert seen.hold == controls.Hold(limit=3, allowance=7, on=True)
    assert [(pause.phase, pause.actor) for pause in seen.pauses] == [(Phase.BOOKING, "ann")]
    assert (seen.cycle.outcome, seen.cycle.counts, list(seen.missing_migrations)) == ("completed", {"ReserveExpiredCount": 2}, [])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("DROP SCHEMA crm CASCADE", "apply the migrations: dbmate"),
        ("DROP TABLE crm.phase_pauses", "apply the migrations: dbmate"),
        (
            "REVOKE SELECT ON crm.schema_migrations FROM booking_expiration_operator",
            "permission denied for table schema_migrations",
        ),
    ],
    ids=["unmigrated", "half migrated", "no grant"],
)
async def test_what_a_database_lacks_is_named(admin: Admin, operator: Pool, change: str, says: str) -> None:
    """Issue 4, status: the command that applies the migrations, or the missing grant; never that a transaction is aborted."""
    await admin.execute(change)
    with pytest.raises(DatabaseRefusedError, match=says):
        async with reading(operator) as connection:
            await overview.read(connection)


async def test_a_job_that_never_ran(operator: Pool) -> None:
    """Issue 4, status: a fresh database has no last cycle, and that is no error."""
    async with reading(operator) as connection:
        assert await overview.last_cycle(connection) == overview.LastCycle()


@pytest.mark.parametrize("statement", ["UPDATE crm.outbox SET attempts = 0", "SELECT id FROM crm.outbox FOR UPDATE"])
async def test_a_reading_can_neither_write_nor_lock(operator: Pool, statement: str) -> None:
    """Issue 4: the server itself refuses a write or a row lock in a command that only looks."""
    with pytest.raises((DatabaseRefusedError, DatabaseUnavailableError), match="read-only"):
        async with reading(operator) as connection:
            await connection.execute(statement)


async def test_due_counts(admin: Admin, pool: Pool, operator: Pool) -> None:
    """Issue 4, preview; D3: what is due before the moment, strictly; known poison is told apart."""
    now = await floor.clock(admin)
    poison = await floor.add(admin, 2, now - 2 * HOUR)
    await floor.poison(admin, poison)
    await floor.expire(pool, now)
    await floor.add(admin, 3, now - HOUR, "AwaitingPayment")
    await floor.add(admin, 4, now + HOUR, "Booked")
    async with reading(operator) as connection:
        seen = [await due.count(connection, phase, at) for phase in Phase for at in (now, now + HOUR, now + HOUR + MINUTE)]
        oldest = await due.oldest(connection, Phase.RESERVE, now, 3)
    assert [(each.total, each.poison) for each in seen] == [(5, 2), (5, 2), (5, 2), (0, 0), (0, 0), (4, 0)]
    assert [each.id in poison and each.refusal is not None for each in oldest] == [True, True, False]


async def test_due_groups(admin: Admin, operator: Pool) -> None:
    """Issue 4, preview --by: per tenant, and per hour of the deadline in UTC, whatever the server's time zone."""
    now = (await floor.clock(admin)).replace(minute=30, second=0)
    await floor.add(admin, 2, now - HOUR)
    await floor.add(admin, 3, now - 2 * HOUR)
    await admin.execute("UPDATE crm.bookings SET tenant_id = '00000000-0000-0000-0000-000000000001'")
    async with reading(operator) as connection:
        await connection.execute("SET LOCAL timezone = 'Asia/Kolkata'")
        by = {each: await due.groups(connection, each, Phase.RESERVE, now) for each in ("tenant", "hour")}
    assert by["tenant"] == {"00000000-0000-0000-0000-000000000001": 5}
    assert by["hour"] == {f"{now - 2 * HOUR:%Y-%m-%dT%H}:00Z": 3, f"{now - HOUR:%Y-%m-%dT%H}:00Z": 2}


async def test_counting_is_bounded(admin: Admin, operator: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 4, speed: a mass update that makes everything due costs a preview no more than its bound."""
    monkeypatch.setattr(due, "COUNTED", 4)
    monkeypatch.setattr(due, "GROUPED", 3)
    now = await floor.clock(admin)
    await floor.add(admin, 9, now - HOUR)
    async with reading(operator) as connection:
        assert (await due.count(connection, Phase.RESERVE, now)).total == 4
        assert sum((await due.groups(connection, "tenant", Phase.RESERVE, now)).values()) == 3


async def test_looking_and_expiring_do_not_meet(admin: Admin, pool: Pool, operator: Pool, manager: Admin) -> None:
    """Issue 4: a preview neither waits for a lock nor holds one that a worker's batch would skip or wait for."""
    now = await floor.clock(admin)
    ids = await floor.add(admin, 5, now - HOUR)
    transaction = manager.transaction()
    await transaction.start()
    await manager.execute("SELECT id FROM crm.bookings WHERE id = $1 FOR UPDATE", ids[0])
    async with asyncio.timeout(5), reading(operator) as connection:
        assert (await due.count(connection, Phase.RESERVE, now)).total == 5
        await due.oldest(connection, Phase.RESERVE, now, 20)
        batch = await floor.expire(pool, now)
    assert (batch.counts.expired, batch.counts.skipped_locked) == (4, 1)


async def test_position_in_the_backlog(admin: Admin, pool: Pool, operator: Pool) -> None:
    """Issue 4, explain: how many the claim takes first; refused ones never use up a batch (D6)."""
    now = await floor.clock(admin)
    await floor.poison(admin, await floor.add(admin, 2, now - 3 * HOUR))
    await floor.expire(pool, now)
    older = await floor.add(admin, 3, now - 2 * HOUR)
    mine = (await floor.add(admin, 3, now - HOUR))[1]
    async with reading(operator) as connection:
        before = [await story.due_before(connection, Phase.RESERVE, at, each) for at, each in
                  ((now - HOUR, mine), (now - 2 * HOUR, older[0]))]  # fmt: skip
    assert before == [4, 0]


async def test_a_story_holds_everything(admin: Admin, pool: Pool, operator: Pool) -> None:
    """Issue 4, explain: an expired booking's audit, timeline card and outbox record are all of its last version."""
    now = await floor.clock(admin)
    booking_id = (await floor.add(admin, 1, now - HOUR))[0]
    await floor.expire(pool, now)
    async with reading(operator) as connection:
        told = await story.read(connection, booking_id)
    assert (told.booking.status, told.booking.version) == ("ReserveExpired", 2)
    assert [(entry.version, entry.actor, entry.action) for entry in told.audit] == [(2, "system", "Expire")]
    assert [card.kind for card in told.cards] == ["ReserveExpired"]
    assert [(record.aggregate_version, record.published_at) for record in told.records] == [(2, None)]


async def test_no_such_booking(operator: Pool) -> None:
    """Issue 4, bad input: an unknown id is said as such."""
    with pytest.raises(UnknownBookingError, match="there is no booking"):
        async with reading(operator) as connection:
            await story.read(connection, uuid4())


@pytest.mark.parametrize("lock", ["FOR UPDATE", "FOR KEY SHARE", "FOR NO KEY UPDATE"])
@pytest.mark.parametrize("savepoint", [False, True], ids=["plain", "savepoint"])
async def test_the_holder_of_a_lock(admin: Admin, operator: Pool, manager: Admin, lock: str, savepoint: bool) -> None:  # noqa: FBT001 # a parameter of the test
    """D5, issue 4, explain: who holds a row's lock is named with session, program, role and since when; others are free."""
    ids = await floor.add(admin, 2, await floor.clock(admin))
    async with manager.transaction():
        if savepoint:
            await manager.execute("SAVEPOINT inner_one")
        await manager.execute(f"SELECT id FROM crm.bookings WHERE id = $1 {lock}", ids[0])
        held, free = await lock_of(operator, ids[0]), await lock_of(operator, ids[1])
    assert (held.state, free.state, held.sees_all) == (LockState.HELD, LockState.FREE, True)
    holder = held.holders[0]
    assert (holder.pid, holder.application, holder.role) == (manager.get_server_pid(), "import job", "crm_app")
    assert holder.since is not None


async def test_a_lock_that_is_over(admin: Admin, operator: Pool, manager: Admin) -> None:
    """D5: what an ended or aborted transaction leaves in the row is no holder."""
    booking_id = (await floor.add(admin, 1, await floor.clock(admin)))[0]
    transaction = manager.transaction()
    await transaction.start()
    await manager.execute("SELECT id FROM crm.bookings FOR UPDATE")
    await transaction.rollback()
    assert await admin.fetchval("SELECT xmax::text <> '0' FROM crm.bookings")
    assert (await lock_of(operator, booking_id)).state is LockState.FREE


async def test_several_holders_are_said_as_such(database: Database, admin: Admin, operator: Pool, manager: Admin) -> None:
    """D5: several holders of one row cannot be told from none, so the sessions that could be are named, and no one is accused."""
    booking_id = (await floor.add(admin, 1, await floor.clock(admin)))[0]
    other = await asyncpg.connect(database.crm_app)
    async with manager.transaction(), other.transaction():
        for session in (manager, other):
            await session.execute("SELECT id FROM crm.bookings FOR KEY SHARE")
        seen = await lock_of(operator, booking_id)
    assert seen.state is LockState.UNCLEAR
    assert {holder.pid for holder in seen.holders} == {manager.get_server_pid(), other.get_server_pid()}
    await other.close()


async def test_a_role_that_may_not_see_everything(admin: Admin, database: Database, manager: Admin) -> None:
    """D5: without pg_read_all_stats the holder is named all the same, and it is said that since when is hidden."""
    booking_id = (await floor.add(admin, 1, await floor.clock(admin)))[0]
    await admin.execute("GRANT SELECT ON ALL TABLES IN SCHEMA crm TO chessboard; GRANT USAGE ON SCHEMA crm TO chessboard")
    pool = await open_pool(database.chessboard)
    async with manager.transaction():
        await manager.execute("SELECT id FROM crm.bookings FOR UPDATE")
        seen = await lock_of(pool, booking_id)
    pool.terminate()
    assert (seen.state, seen.sees_all) == (LockState.HELD, False)
    assert [(holder.application, holder.since) for holder in seen.holders] == [("import job", None)]


async def test_the_documented_grants_are_the_real_ones(admin: Admin) -> None:
    """Issue 4: what a refusal tells the operator that the role needs is what the migrations grant it."""
    rows = await admin.fetch("""
        SELECT c.relname AS name, has_any_column_privilege('booking_expiration_operator', c.oid, 'INSERT') AS inserts,
               array_remove(array_agg(CASE WHEN has_column_privilege('booking_expiration_operator', c.oid, a.attnum, 'UPDATE')
                                           THEN a.attname::text END ORDER BY a.attnum), NULL) AS updates
          FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
         WHERE c.relnamespace = 'crm'::regnamespace AND c.relkind = 'r' GROUP BY 1, 2""")
    documented = {name: rights[1] for name, rights in NEEDS[OPERATOR].items() if len(rights) > 1}
    real = {row["name"]: "INSERT" if row["inserts"] else f"UPDATE ({', '.join(row['updates'])})" for row in rows}
    assert {name: can for name, can in real.items() if can != "UPDATE ()"} == documented
