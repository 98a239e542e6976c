"""One batch on a real database: the specification's own tests and the decisions behind them."""

import json
from datetime import UTC, timedelta
from typing import Any

import asyncpg
import pytest

from activities import expire_batch
from db import bookings
from db.errors import StaleClaimError, TooManyRefusalsError
from db.unit_of_work import Pool
from domain.events import Phase
from tests import floor
from tests.floor import MINUTE, Admin


async def test_x1_empty_batch_changes_nothing(pool: Pool, admin: Admin) -> None:
    """X1: nothing past its deadline is a success without events or mutations, ledger included."""
    now = await floor.clock(admin)
    await floor.add(admin, 5, now + MINUTE)
    before = await admin.fetchval("SELECT pg_current_wal_lsn()::text || xmin::text FROM crm.bookings LIMIT 1")
    batch = await floor.expire(pool, now)
    assert (batch.counts.expired, batch.counts.poison, batch.counts.skipped_locked) == (0, 0, 0)
    assert await floor.statuses(admin) == {"Reserved": 5}
    assert set((await floor.written(admin)).values()) == {0}
    assert before.endswith(await admin.fetchval("SELECT xmin::text FROM crm.bookings LIMIT 1"))


@pytest.mark.parametrize("status", ["Reserved", "AwaitingPayment"])
async def test_x2_reserve_expired(pool: Pool, admin: Admin, status: str) -> None:
    """X2, P2: a due reserve becomes ReserveExpired at AsOf, version + 1, with audit, card and event of phase Reserve."""
    now = await floor.clock(admin)
    [booking_id] = await floor.add(admin, 1, now - MINUTE, status)
    await floor.expire(pool, now)
    row = await admin.fetchrow("SELECT * FROM crm.bookings")
    assert row is not None
    assert (row["status"], row["expired_at"], row["updated_at"], row["version"]) == ("ReserveExpired", now, now, 2)
    audit = await admin.fetchrow("SELECT * FROM crm.booking_audit")
    assert tuple(audit or ()) == (booking_id, 2, "system", "Expire", status, "ReserveExpired", now, "run-1")
    card = await admin.fetchrow("SELECT deal_id, booking_id, booking_version, kind, at FROM crm.deal_timeline_cards")
    assert tuple(card or ()) == (row["deal_id"], booking_id, 2, "ReserveExpired", now)
    event = json.loads(await admin.fetchval("SELECT payload FROM crm.outbox"))
    assert (event["BookingId"], event["Phase"]) == (str(booking_id), "Reserve")


async def test_x3_booking_expired(pool: Pool, admin: Admin) -> None:
    """X3, A6: a due booking becomes BookingExpired; the outbox row carries the whole envelope."""
    now = await floor.clock(admin)
    [booking_id] = await floor.add(admin, 1, now - MINUTE, "Booked")
    batch = await floor.expire(pool, now, Phase.BOOKING)
    assert batch.counts.expired == 1
    assert await floor.statuses(admin) == {"BookingExpired": 1}
    row = await admin.fetchrow("SELECT * FROM crm.outbox")
    assert row is not None
    assert (row["aggregate_type"], row["aggregate_id"], row["aggregate_version"]) == ("Booking", booking_id, 2)
    assert (row["topic"], row["contract_version"], row["correlation_id"]) == (floor.TOPIC, 1, "run-1")
    assert (row["occurred_at"], row["published_at"], row["attempts"]) == (now, None, 0)
    headers = json.loads(row["headers"])
    assert (headers["ce_id"], headers["ce_subject"]) == (str(row["event_id"]), str(booking_id))
    assert json.loads(row["payload"])["ExpiredAt"] == now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def test_x4_partial_failure(pool: Pool, admin: Admin) -> None:
    """X4, D6: the poison row is left out, remembered and due; the rest of its batch is committed."""
    now = await floor.clock(admin)
    ids = await floor.add(admin, 9, now - MINUTE)
    await floor.poison(admin, [ids[4]])
    batch = await floor.expire(pool, now)
    assert (batch.counts.expired, batch.counts.poison_ids) == (8, [ids[4]])
    assert await floor.statuses(admin) == {"ReserveExpired": 8, "Reserved": 1}
    assert await floor.written(admin) == {"audit": 8, "cards": 8, "outbox": 8, "ledger": 1, "refusals": 1}
    await floor.expire(pool, now, run_id="run-2")
    refusal = await admin.fetchrow("SELECT booking_id, phase, reason, times FROM crm.expiration_refusals")
    assert tuple(refusal or ()) == (ids[4], "Reserve", "database: poison booking (SQLSTATE P0001)", 2)


async def test_a_refusal_quotes_no_row(pool: Pool, admin: Admin) -> None:
    """O1: the server's message is kept, which names the constraint; its detail, which quotes the row, is nowhere written."""
    now = await floor.clock(admin)
    await admin.execute("""
        ALTER TABLE crm.bookings ADD client text DEFAULT 'Anna Petrova',
                                 ADD CONSTRAINT never CHECK (status <> 'ReserveExpired')""")
    await floor.add(admin, 1, now - MINUTE)
    batch = await floor.expire(pool, now)
    said = 'database: new row for relation "bookings" violates check constraint "never" (SQLSTATE 23514)'
    assert [refusal.reason for refusal in batch.refusals] == [said]
    assert await admin.fetchval("SELECT reason FROM crm.expiration_refusals") == said


async def test_deferred_constraint_is_poison_too(pool: Pool, admin: Admin) -> None:
    """D6: a check that speaks only at COMMIT is found as well, and costs its own row only."""
    now = await floor.clock(admin)
    ids = await floor.add(admin, 3, now - MINUTE)
    await floor.poison(admin, [ids[0]])
    await admin.execute("""
        DROP TRIGGER refuse ON crm.bookings;
        CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON crm.bookings DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION crm.refuse()""")
    batch = await floor.expire(pool, now)
    assert (batch.counts.expired, batch.counts.poison_ids) == (2, [ids[0]])


async def test_500_poison_rows_at_the_head_let_200_good_ones_expire(pool: Pool, admin: Admin) -> None:
    """D6: poison never uses up the batch."""
    now = await floor.clock(admin)
    await floor.poison(admin, await floor.add(admin, 500, now - 2 * MINUTE))
    await floor.add(admin, 250, now - MINUTE)
    batch = await floor.expire(pool, now)
    assert (batch.counts.expired, batch.counts.poison, len(batch.counts.poison_ids)) == (200, 500, 20)
    assert len({refusal.booking_id for refusal in batch.refusals}) == 500
    assert await floor.statuses(admin) == {"ReserveExpired": 200, "Reserved": 550}


async def test_too_many_refusals_fail_the_step(pool: Pool, admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    """D6: more poison than the limit is a bug, and nothing of the batch stays."""
    monkeypatch.setattr(expire_batch, "MAX_REFUSALS", 10)
    now = await floor.clock(admin)
    await floor.poison(admin, await floor.add(admin, 11, now - MINUTE))
    with pytest.raises(TooManyRefusalsError, match="more than 10 Reserve bookings refused"):
        await floor.expire(pool, now)
    assert set((await floor.written(admin)).values()) == {0}


async def test_d3_comparison_is_strict_to_the_microsecond(pool: Pool, admin: Admin) -> None:
    """D3: due at AsOf is not expired, one microsecond earlier is."""
    now = await floor.clock(admin)
    await floor.add(admin, 1, now)
    earlier = await floor.add(admin, 1, now - timedelta(microseconds=1))
    batch = await floor.expire(pool, now)
    assert [booking.id for booking in batch.expired] == earlier


async def test_l3_oldest_deadlines_first_and_never_more_than_the_batch(pool: Pool, admin: Admin) -> None:
    """L3, A3, A5: a batch takes the oldest deadlines, then ids, and writes its events in that order."""
    now = await floor.clock(admin)
    young, old = await floor.add(admin, 3, now - MINUTE), await floor.add(admin, 3, now - 2 * MINUTE)
    batch = await floor.expire(pool, now, size=5)
    assert [booking.id for booking in batch.expired] == [*old, *young[:2]]
    assert [row["aggregate_id"] for row in await admin.fetch("SELECT aggregate_id FROM crm.outbox ORDER BY id")] == [
        *old,
        *young[:2],
    ]


async def test_i3_one_batch_serves_all_tenants(pool: Pool, admin: Admin) -> None:
    """I3, A1: a scan across tenants; each event carries its own booking's tenant, the actor is `system`."""
    now = await floor.clock(admin)
    await floor.add(admin, 20, now - MINUTE)
    await floor.expire(pool, now)
    pairs = "SELECT count(*) FROM crm.outbox o JOIN crm.bookings b ON b.id = o.aggregate_id AND b.tenant_id = o.tenant_id"
    assert await admin.fetchval(pairs) == 20
    assert await admin.fetchval("SELECT count(DISTINCT tenant_id) FROM crm.outbox") == 20
    assert await admin.fetchval("SELECT array_agg(DISTINCT actor) FROM crm.booking_audit") == ["system"]


async def test_d5_rows_held_by_others_are_counted(pool: Pool, admin: Admin, database: Any) -> None:
    """D5: all due rows that others hold count when the batch is short; within the claimed window when it is full."""
    now = await floor.clock(admin)
    first, later = await floor.add(admin, 10, now - 2 * MINUTE), await floor.add(admin, 10, now - MINUTE)
    manager = await asyncpg.connect(database.crm_app)
    async with manager.transaction():
        await manager.execute("UPDATE crm.bookings SET updated_at = now() WHERE id = ANY ($1)", [*first[:3], *later[-2:]])
        full = await floor.expire(pool, now, size=8)
        short = await floor.expire(pool, now, batch_no=2)
    await manager.close()
    assert (full.counts.expired, full.counts.skipped_locked) == (8, 3)
    assert (short.counts.expired, short.counts.skipped_locked) == (7, 5)


async def test_d7_a_retry_reports_what_was_committed(pool: Pool, admin: Admin) -> None:
    """D7: the same batch asked for again answers from the ledger and expires nothing more."""
    now = await floor.clock(admin)
    await floor.add(admin, 30, now - MINUTE)
    first = await floor.expire(pool, now, size=10)
    again = await floor.expire(pool, now, size=10)
    assert (again.counts, again.repeated, again.expired) == (first.counts, True, [])
    assert await floor.statuses(admin) == {"ReserveExpired": 10, "Reserved": 20}


async def test_d26_a_row_that_changed_under_the_lock_rolls_the_batch_back(
    pool: Pool, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D26: a claim that did not lock (played by a mock: the lock makes it impossible) is caught by the write."""
    claim = bookings.claim

    async def careless(*args: Any) -> Any:
        claimed = await claim(*args)
        claimed[0].version -= 1
        return claimed

    now = await floor.clock(admin)
    await floor.add(admin, 3, now - MINUTE)
    monkeypatch.setattr(bookings, "claim", careless)
    with pytest.raises(StaleClaimError, match="only 2 of 3"):
        await floor.expire(pool, now)
    assert set((await floor.written(admin)).values()) == {0}
    assert await floor.statuses(admin) == {"Reserved": 3}


async def test_two_statements_between_begin_and_commit(pool: Pool, admin: Admin) -> None:
    """The good path: lock, look-up, claim, write, count; no statement per row (trap 38)."""
    now = await floor.clock(admin)
    await floor.add(admin, 50, now - MINUTE)
    await floor.expire(pool, now, size=10)  # a new connection asks for the types of the arguments once
    said: list[str] = []
    async with pool.acquire() as connection:
        connection.add_query_logger(lambda record: said.append(record.query.split()[0]))
    await floor.expire(pool, now, batch_no=2)
    assert said == ["BEGIN", "SELECT", "SELECT", "SELECT", "WITH", "WITH", "COMMIT;"]
    assert await floor.statuses(admin) == {"ReserveExpired": 50}
