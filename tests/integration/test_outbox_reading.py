"""The outbox as operators look at it, and many records requeued at once (issue 4 section 4)."""

from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import uuid4

import pytest

from db import gauges, outbox_reading
from db.outbox import UnknownRecordError, requeue_parked
from db.outbox_reading import Filter
from db.reading import reading
from db.unit_of_work import Pool, UnitOfWork, open_pool
from tests import outbox_rows
from tests.conftest import Database
from tests.floor import Admin


@pytest.fixture
async def operator(database: Database) -> AsyncIterator[Pool]:
    """The command's own kind of pool, with the operators' role."""
    opened = await open_pool(database.operator)
    yield opened
    opened.terminate()


async def a_full_outbox(admin: Admin) -> list[int]:
    """Published, waiting, parked (two reasons, two tenants) and skipped records; the ids of the parked ones."""
    await outbox_rows.fill(admin, 6, "topic-a")
    await outbox_rows.fill(admin, 2, "topic-b")
    ids = [row["id"] for row in await admin.fetch("SELECT id FROM crm.outbox ORDER BY id")]
    await admin.execute("UPDATE crm.outbox SET published_at = now() WHERE id = $1", ids[0])
    await admin.execute("UPDATE crm.outbox SET skipped_at = now() WHERE id = $1", ids[1])
    await admin.execute("UPDATE crm.outbox SET parked_at = now(), park_reason = 'Too large: 2 MB' WHERE id = ANY ($1)", ids[2:4])
    await admin.execute("UPDATE crm.outbox SET parked_at = now(), park_reason = 'no text' WHERE id = $1", ids[7])
    await admin.execute("UPDATE crm.outbox SET recorded_at = now() - interval '1 hour' WHERE id = $1", ids[4])
    return [*ids[2:4], ids[7]]


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        (Filter(), 6),
        (Filter(state="parked"), 3),
        (Filter(state="waiting"), 3),
        (Filter(topic="topic-b"), 2),
        (Filter(error="too LARGE"), 2),
        (Filter(error="%"), 0),
        (Filter(older_than=timedelta(minutes=10)), 1),
        (Filter(state="parked", older_than=timedelta(minutes=10)), 0),
        (Filter(tenant=uuid4()), 0),
    ],
)
async def test_outbox_filters(admin: Admin, operator: Pool, wanted: Filter, count: int) -> None:
    """Issue 4, outbox list: by state, topic, tenant, age and reason; what is published or given up is never listed."""
    parked = await a_full_outbox(admin)
    async with reading(operator) as connection:
        found = await outbox_reading.find(connection, wanted, 50)
        first = await outbox_reading.find(connection, wanted, 2)
    assert len(found) == count
    assert first == found[:2]
    assert {record.id for record in found if record.parked_at} <= set(parked)


async def test_parked_ones_are_found_however_many_wait(admin: Admin, operator: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 4, outbox list: `--parked` finds each one that `status` counts, also behind more than are looked through."""
    monkeypatch.setattr(outbox_reading, "SEARCHED", 5)
    await outbox_rows.fill(admin, 20, "topic")
    last = await admin.fetchval("SELECT id FROM crm.outbox ORDER BY aggregate_id DESC LIMIT 1")
    await admin.execute("UPDATE crm.outbox SET parked_at = now(), park_reason = 'Too large' WHERE id = $1", last)
    async with reading(operator) as connection:
        found = await outbox_reading.find(connection, Filter(state="parked"), 50)
        counted = (await gauges.read(connection)).outbox_parked
    assert ([record.id for record in found], counted) == ([last], 1)


async def test_outbox_show(admin: Admin, operator: Pool) -> None:
    """Issue 4, outbox show: payload as text, even where it is none; what holds it back and what waits behind it."""
    await outbox_rows.fill(admin, 1, "topic", versions=3)
    ids = [row["id"] for row in await admin.fetch("SELECT id FROM crm.outbox ORDER BY id")]
    lease = "claim_token = gen_random_uuid(), claimed_until = now() + interval '1 hour'"
    await admin.execute(f"UPDATE crm.outbox SET payload = '\\xff41', {lease} WHERE id = $1", ids[1])
    async with reading(operator) as connection:
        shown = await outbox_reading.show(connection, ids[1])
    assert (shown.payload, shown.in_flight, shown.held_back_by, shown.waiting_behind) == ("\\xffA", True, ids[0], 1)
    assert shown.headers["ce_id"] == str(shown.event_id)


async def test_requeueing_many(admin: Admin, operator: Pool) -> None:
    """Issue 4, outbox requeue: only parked ones move, and each leaves an act with before and after, in the same transaction."""
    parked = await a_full_outbox(admin)
    every = [row["id"] for row in await admin.fetch("SELECT id FROM crm.outbox ORDER BY id")]
    async with UnitOfWork(operator) as connection:
        assert await requeue_parked(connection, every, "ann", "limit raised") == 3
    acts = await admin.fetch(
        "SELECT target, actor, reason, details -> 'before' ->> 'park_reason' AS was FROM crm.operator_actions"
    )
    assert [act["target"] for act in acts] == [f"outbox/{each}" for each in parked]
    assert {(act["actor"], act["reason"]) for act in acts} == {("ann", "limit raised")}
    assert [act["was"] for act in acts] == ["Too large: 2 MB"] * 2 + ["no text"]
    assert (await outbox_rows.states(admin))["parked"] == 0


async def test_no_such_record(operator: Pool) -> None:
    """Issue 4, bad input: an unknown id is said as such."""
    with pytest.raises(UnknownRecordError, match="outbox record 42 does not exist"):
        async with reading(operator) as connection:
            await outbox_reading.show(connection, 42)
