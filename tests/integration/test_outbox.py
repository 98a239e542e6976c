"""The outbox on a real database: claims, leases, order per booking, parking and the operators' repairs (D9, D10)."""

import asyncio
import json
import random
from collections import defaultdict
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from db import outbox
from db.outbox import Delivery, OutboxRecord
from db.unit_of_work import Pool, UnitOfWork
from tests import outbox_rows
from tests.outbox_rows import Admin

TOPIC = "pin.crm.booking-expired.v1"


async def claim(pool: Pool, token: UUID, *, limit: int = 1000, lease: float = 20.0) -> list[OutboxRecord]:
    """One claim in a transaction of its own, as a publisher makes it."""
    async with UnitOfWork(pool) as connection:
        return await outbox.claim(connection, limit, lease, token)


async def settle(pool: Pool, token: UUID, records: list[OutboxRecord]) -> int:
    """As if Kafka had acknowledged these records."""
    async with UnitOfWork(pool) as connection:
        return await outbox.settle(connection, token, [Delivery(record.id, 0, record.id) for record in records])


async def park(pool: Pool, record: OutboxRecord, token: UUID) -> bool:
    """As if Kafka could never take this record."""
    async with UnitOfWork(pool) as connection:
        return await outbox.park(connection, token, record.id, "1048600 bytes, too large")


async def publish_all(pool: Pool, sent: list[OutboxRecord], total: int) -> None:
    """A publisher that takes its time, until `total` records are sent."""
    while len(sent) < total:
        token = uuid4()
        records = await claim(pool, token, limit=random.randint(1, 40))
        sent += records
        await asyncio.sleep(random.uniform(0, 0.005))
        assert await settle(pool, token, records) == len(records)


async def test_claim_takes_the_oldest_and_leases_by_the_databases_clock(pool: Pool, admin: Admin) -> None:
    """D9: a claim takes the oldest records up to its limit, counts the attempt, and leases them by the database's clock."""
    ids = await outbox_rows.fill(admin, 5, TOPIC)
    records = await claim(pool, uuid4(), limit=3, lease=20)
    assert [record.booking_id for record in records] == ids[:3]
    assert [(record.key, record.attempts) for record in records] == [(str(booking_id), 1) for booking_id in ids[:3]]
    left = await admin.fetch(
        "SELECT extract(epoch FROM claimed_until - now()) AS s FROM crm.outbox WHERE claim_token IS NOT NULL"
    )
    assert len(left) == 3
    assert all(15 < row["s"] <= 20 for row in left)


async def test_claim_holds_one_record_per_booking(pool: Pool, admin: Admin) -> None:
    """D9: a booking's second record can be claimed only when its first is settled."""
    first, second = await outbox_rows.fill(admin, 2, TOPIC, versions=2)
    token = uuid4()
    records = await claim(pool, token)
    assert [record.booking_id for record in records] == [first, second]
    assert await claim(pool, uuid4()) == []
    assert await settle(pool, token, records[:1]) == 1
    assert [(record.booking_id, record.id) for record in await claim(pool, uuid4())] == [(first, records[0].id + 2)]


async def test_many_publishers_and_writers_keep_every_bookings_order(pool: Pool, admin: Admin, database: Any) -> None:
    """D9, L2: eight publishers beside writers that commit in any order take each record once, each booking's in order."""
    sent: list[OutboxRecord] = []
    writers = [await asyncpg.connect(database.admin) for _ in range(3)]
    bookings = [[uuid4() for _ in range(40)] for _ in writers]

    async def write(connection: Admin, ids: list[UUID]) -> None:
        for version in range(2, 6):
            async with connection.transaction():
                await outbox_rows.put(connection, [outbox_rows.row(booking_id, version, TOPIC) for booking_id in ids])
                await asyncio.sleep(random.uniform(0, 0.03))

    await asyncio.gather(*map(write, writers, bookings), *(publish_all(pool, sent, 480) for _ in range(8)))
    await asyncio.gather(*(writer.close() for writer in writers))
    assert len(sent) == len({record.id for record in sent}) == 480
    ids = defaultdict(list)
    for record in sent:
        ids[record.booking_id].append(record.id)
    assert all(order == sorted(order) for order in ids.values())
    assert await outbox_rows.states(admin) == {"published": 480, "parked": 0, "skipped": 0, "claimed": 0, "waiting": 0}


async def test_a_smaller_id_that_commits_later_is_not_missed(pool: Pool, admin: Admin, database: Any) -> None:
    """D9: ids commit out of order, so there is no last-id cursor."""
    late = await asyncpg.connect(database.admin)
    transaction = late.transaction()
    await transaction.start()
    await outbox_rows.fill(late, 1, TOPIC)
    await outbox_rows.fill(admin, 1, TOPIC)
    token = uuid4()
    [early] = await claim(pool, token)
    await settle(pool, token, [early])
    await transaction.commit()
    await late.close()
    [found] = await claim(pool, uuid4())
    assert found.id < early.id


async def test_a_row_under_somebodys_lock_is_skipped_with_its_booking(pool: Pool, admin: Admin) -> None:
    """D9: a claim never waits; while a booking's first record is locked, its second one stays back too."""
    first, second = await outbox_rows.fill(admin, 2, TOPIC, versions=2)
    async with admin.transaction():
        await admin.execute("SELECT 1 FROM crm.outbox WHERE aggregate_id = $1 ORDER BY id LIMIT 1 FOR UPDATE", first)
        assert [record.booking_id for record in await claim(pool, uuid4())] == [second]


async def test_an_expired_lease_is_taken_over_and_a_late_settle_changes_nothing(pool: Pool, admin: Admin) -> None:
    """D9: after its lease a record belongs to the next publisher; the old token can neither settle, release nor park it."""
    await outbox_rows.fill(admin, 1, TOPIC)
    old, new = uuid4(), uuid4()
    [record] = await claim(pool, old, lease=0.5)
    assert await claim(pool, new, lease=20) == [] or pytest.fail("the lease was not kept")
    await asyncio.sleep(0.6)
    [again] = await claim(pool, new)
    assert (again.id, again.event_id, again.attempts) == (record.id, record.event_id, 2)
    assert await settle(pool, old, [record]) == 0
    assert not await park(pool, record, old)
    async with UnitOfWork(pool) as connection:
        assert await outbox.release(connection, old, [record.id]) == 0
    assert await admin.fetchval("SELECT claim_token FROM crm.outbox") == new
    assert await settle(pool, new, [again]) == 1


async def test_settle_writes_where_kafka_put_each_record(pool: Pool, admin: Admin) -> None:
    """D9: one settle writes publication, partition and offset of every record, and ends the claim."""
    await outbox_rows.fill(admin, 3, TOPIC)
    token = uuid4()
    records = await claim(pool, token)
    async with UnitOfWork(pool) as connection:
        deliveries = [Delivery(record.id, number, 70 + number) for number, record in enumerate(records)]
        assert await outbox.settle(connection, token, deliveries[::-1]) == 3
        assert await outbox.settle(connection, token, []) == 0
    rows = await admin.fetch("SELECT kafka_partition, kafka_offset, claim_token, published_at FROM crm.outbox ORDER BY id")
    assert [tuple(row)[:3] for row in rows] == [(0, 70, None), (1, 71, None), (2, 72, None)]
    assert all(row["published_at"] for row in rows)


async def test_an_outage_takes_the_attempt_back_and_never_parks(pool: Pool, admin: Admin) -> None:
    """D9, D10: a record is never parked by a count: thirty outages leave it waiting with no attempt counted."""
    await outbox_rows.fill(admin, 2, TOPIC)
    for _ in range(30):
        token = uuid4()
        records = await claim(pool, token)
        assert [record.attempts for record in records] == [1, 1]
        async with UnitOfWork(pool) as connection:
            assert await outbox.release(connection, token, [record.id for record in records]) == 2
    assert await outbox_rows.states(admin) == {"published": 0, "parked": 0, "skipped": 0, "claimed": 0, "waiting": 2}


async def test_a_parked_record_holds_back_only_its_own_booking(pool: Pool, admin: Admin) -> None:
    """D10: parking leaves an audit row of actor system; the other bookings go on, this one's later records wait."""
    first, second = await outbox_rows.fill(admin, 2, TOPIC, versions=2)
    token = uuid4()
    bad, good = await claim(pool, token)
    assert await park(pool, bad, token)
    assert await settle(pool, token, [good]) == 1
    assert [record.booking_id for record in await claim(pool, uuid4())] == [second]
    action = await admin.fetchrow("SELECT actor, action, target, reason, details FROM crm.operator_actions")
    assert action is not None
    assert tuple(action)[:4] == ("system", "park_record", f"outbox/{bad.id}", "1048600 bytes, too large")
    details = json.loads(action["details"])
    assert details == {"event_id": str(bad.event_id), "booking_id": str(first), "attempts": 1}


async def parked_one(pool: Pool, admin: Admin) -> OutboxRecord:
    """The first of two records of one booking, parked."""
    await outbox_rows.fill(admin, 1, TOPIC, versions=2)
    token = uuid4()
    [record] = await claim(pool, token)
    await park(pool, record, token)
    return record


async def test_requeue_lets_a_parked_record_go_out_before_its_bookings_next(pool: Pool, admin: Admin) -> None:
    """D10: an operator's requeue is audited with before and after, under the operator's own database role."""
    record = await parked_one(pool, admin)
    async with admin.transaction():
        await admin.execute("SET LOCAL ROLE booking_expiration_operator")
        await outbox.requeue(admin, record.id, "olga", "limit raised")  # type: ignore[arg-type] # a plain connection serves as well
    assert [again.id for again in await claim(pool, uuid4())] == [record.id]
    action = await admin.fetchrow("SELECT * FROM crm.operator_actions ORDER BY id DESC LIMIT 1")
    assert action is not None
    assert (action["actor"], action["action"], action["reason"]) == ("olga", "requeue_record", "limit raised")
    details = json.loads(action["details"])
    assert details["before"]["park_reason"] == "1048600 bytes, too large"
    assert details["after"] == {"parked_at": None, "park_reason": None, "skipped_at": None}


async def test_skip_gives_a_record_up_and_lets_its_bookings_next_go(pool: Pool, admin: Admin) -> None:
    """D10: a skipped record is never published, the next one of its booking is; both states are in the audit row."""
    record = await parked_one(pool, admin)
    async with admin.transaction():
        await admin.execute("SET LOCAL ROLE booking_expiration_operator")
        await outbox.skip(admin, record.id, "olga", "sent by hand")  # type: ignore[arg-type] # a plain connection serves as well
    assert [later.id for later in await claim(pool, uuid4())] == [record.id + 1]
    details = json.loads(await admin.fetchval("SELECT details FROM crm.operator_actions ORDER BY id DESC LIMIT 1"))
    assert (details["event_id"], details["booking_id"]) == (str(record.event_id), record.key)
    assert details["before"]["skipped_at"] is None
    assert details["after"]["skipped_at"] is not None


@pytest.mark.parametrize(
    ("state", "operation", "error"),
    [
        ("id = id + 1000", outbox.requeue, outbox.UnknownRecordError),
        ("published_at = now()", outbox.requeue, outbox.AlreadyPublishedError),
        ("published_at = now()", outbox.skip, outbox.AlreadyPublishedError),
        ("skipped_at = now()", outbox.requeue, outbox.AlreadySkippedError),
        ("skipped_at = now()", outbox.skip, outbox.AlreadySkippedError),
        ("attempts = 1", outbox.requeue, outbox.NotParkedError),
        ("claim_token = gen_random_uuid(), claimed_until = now() + '9 s'", outbox.skip, outbox.RecordInFlightError),
    ],
)
async def test_a_repair_that_makes_no_sense_is_refused(
    pool: Pool, admin: Admin, state: str, operation: Any, error: type[Exception]
) -> None:
    """D10: the refusal names the record and says why; nothing is changed and nothing audited."""
    await outbox_rows.fill(admin, 1, TOPIC)
    record_id = await admin.fetchval("SELECT id FROM crm.outbox")
    if error is outbox.UnknownRecordError:
        record_id += 1000
    else:
        await admin.execute(f"UPDATE crm.outbox SET {state}")  # the test's own constants
    with pytest.raises(error, match=f"outbox record {record_id}"):
        async with UnitOfWork(pool) as connection:
            await operation(connection, record_id, "olga", "by mistake")
    assert await admin.fetchval("SELECT count(*) FROM crm.operator_actions") == 0


BIG = """
    INSERT INTO crm.outbox (event_id, aggregate_type, aggregate_id, aggregate_version, tenant_id, topic, contract_version,
                            payload, headers, correlation_id, occurred_at, published_at, claim_token, claimed_until)
    SELECT gen_random_uuid(), 'Booking', gen_random_uuid(), 2, gen_random_uuid(), 'pin.crm.booking-expired.v1', 1, '{}', '{}',
           'run', now(), CASE WHEN n <= $1::int THEN now() END, CASE WHEN leased THEN gen_random_uuid() END,
           CASE WHEN leased THEN now() + interval '1 hour' END
      FROM generate_series(1, $1::int + $3::int) AS n, LATERAL (SELECT n > $1::int AND n <= $1 + $2::int AS leased) AS _"""


@pytest.mark.parametrize("statistics", ["none", "fresh", "from before the backlog"])
async def test_claim_is_cheap_beside_many_published_and_leased_records(admin: Admin, statistics: str) -> None:
    """D9: a claim reads pages in proportion to what it takes and what others hold, not to the table, whatever the statistics."""
    await admin.execute("ALTER TABLE crm.outbox SET (autovacuum_enabled = off)")
    if statistics == "from before the backlog":
        await admin.execute(BIG, 60_000, 0, 0)
        await admin.execute("VACUUM ANALYZE crm.outbox")
    await admin.execute(BIG, 60_000, 2_000, 20_000)
    if statistics == "fresh":
        await admin.execute("ANALYZE crm.outbox")
    for mode in ("force_custom_plan", "force_generic_plan"):
        await admin.execute(f"SET plan_cache_mode = {mode}")
        plan = await explain(admin, outbox._CLAIM, uuid4(), 20.0, 1000)
        assert plan["Actual Rows"] == 1000
        # Finding them, not writing them: whether a version fits into its page depends on what was rolled back there before.
        # Per record taken: three pages to probe for its booking's oldest, one to walk, one to lock; and the way past leases.
        found = max(part["Shared Hit Blocks"] + part["Shared Read Blocks"] for part in plan["Plans"])
        assert found < 7 * 1000, json.dumps(plan)


async def explain(admin: Admin, statement: str, *arguments: object) -> dict[str, Any]:
    """The top of the plan, run for real and rolled back."""
    transaction = admin.transaction()
    await transaction.start()
    plan = json.loads(await admin.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", *arguments))
    await transaction.rollback()
    return dict(plan[0]["Plan"])


async def test_settle_and_release_probe_by_id_whatever_their_length(admin: Admin) -> None:
    """D9: settling two thousand records never turns into a scan of the outbox."""
    await admin.execute(BIG, 60_000, 0, 0)
    ids = [row["id"] for row in await admin.fetch("SELECT id FROM crm.outbox ORDER BY id LIMIT 2000")]
    for statement, arguments in ((outbox._SETTLE, (ids, ids, ids)), (outbox._RELEASE, (ids,))):
        text = json.dumps(await explain(admin, statement, uuid4(), *arguments))
        assert "Seq Scan" not in text
        assert "outbox_pkey" in text
