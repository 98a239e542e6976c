"""Publishing to a real Kafka from a real outbox: bytes, outcomes, outages, cancels (D9 to D12, traps 31 to 33)."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from temporalio.testing import ActivityEnvironment

from activities.messages import PublishOrder, PublishOutcome
from activities.publish_outbox import PublishOutbox, publish
from db.errors import DatabaseRefusedError
from db.unit_of_work import Pool
from domain import events
from domain.events import BookingExpired, Phase
from publishing import Delivered, KafkaOptions, Outcome, Publisher, Record, Rejected, Unavailable
from tests import outbox_rows
from tests.outbox_rows import MOMENT, Admin

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "wire_record_v1.json").read_text())
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
NAMED = list(enumerate("badce", 1))
DONE = {"parked": 0, "skipped": 0, "claimed": 0, "waiting": 0}


@pytest.fixture
def servers(addresses: Mapping[str, str]) -> str:
    """The broker's address."""
    return addresses["KAFKA_BOOTSTRAP_SERVERS"]


@pytest.fixture
async def publisher(servers: str) -> AsyncIterator[Publisher]:
    """A publisher that leaves no task behind."""
    before = asyncio.all_tasks()
    opened = Publisher(KafkaOptions(bootstrap_servers=servers))
    yield opened
    await opened.close()
    assert [task for task in asyncio.all_tasks() - before if "aiokafka" in repr(task.get_coro())] == []


class Message:
    """A record to send that is in no outbox."""

    topic: str
    headers = '{"ce_id": "1"}'

    def __init__(self, topic: str, payload: bytes = b"{}", key: str = "k") -> None:
        self.topic, self.payload, self.key = topic, payload, key


def kinds(outcomes: list[Outcome]) -> list[str]:
    """The outcomes' names."""
    return [type(outcome).__name__ for outcome in outcomes]


async def test_the_wire_record_is_the_golden_one_byte_by_byte(
    pool: Pool, admin: Admin, publisher: Publisher, topic: str, servers: str
) -> None:
    """D12: key, value and headers as a consumer reads them equal the golden file, order included."""
    booking, tenant, deal, place, event_id = (UUID(f"{kind}0000000-0000-4000-8000-00000000000{n}") for n, kind in NAMED)
    event = BookingExpired(booking, tenant, deal, place, Phase.RESERVE, MOMENT, "Reserved", "ReserveExpired", 2)
    run_id, contract = "0198c7f0-0000-7000-8000-000000000006", "pin.crm.booking-expired.v1"
    headers = events.headers(event_id, booking, MOMENT, topic=contract, correlation_id=run_id) | {"traceparent": TRACE}
    text = json.dumps(headers)
    row = (event_id, "Booking", booking, 2, tenant, topic, 1, events.payload(event), text, run_id, MOMENT)
    await outbox_rows.put(admin, [row])
    assert (await publish(pool, publisher, 10)).published_count == 1
    [record] = await outbox_rows.consume(servers, topic)
    assert (record.key, record.value) == (GOLDEN["key"].encode(), GOLDEN["value"].encode())
    assert list(record.headers) == [(name, value.encode()) for name, value in GOLDEN["headers"]]


async def test_everything_committed_goes_out_in_order(
    pool: Pool, admin: Admin, publisher: Publisher, topic: str, servers: str
) -> None:
    """T3, D9: each record reaches Kafka once, a booking's in order; the outbox knows partition and offset of each."""
    await outbox_rows.fill(admin, 1500, topic, versions=2)
    result = await publish(pool, publisher, 20)
    assert (result.published_count, result.parked_count, result.outcome) == (3000, 0, PublishOutcome.DRAINED)
    sent = await outbox_rows.consume(servers, topic)
    rows = await admin.fetch("SELECT event_id::text, kafka_partition, kafka_offset FROM crm.outbox ORDER BY id")
    places = {outbox_rows.header(record, "ce_id"): (record.partition, record.offset) for record in sent}
    assert places == {row["event_id"]: (row["kafka_partition"], row["kafka_offset"]) for row in rows}
    assert len(sent) == 3000
    half = {row["event_id"]: index for index, row in enumerate(rows)}
    order = [(record.key, half[outbox_rows.header(record, "ce_id")]) for record in sent]
    assert all(second > first for key, first, second in by_key(order))
    assert await admin.fetchval("SELECT max(attempts) FROM crm.outbox") == 1


def by_key(order: list[tuple[bytes, int]]) -> list[tuple[bytes, int, int]]:
    """The two places of each key, in the order of reading."""
    seen: dict[bytes, list[int]] = {}
    for key, place in order:
        seen.setdefault(key, []).append(place)
    return [(key, first, second) for key, (first, second) in seen.items()]


async def test_two_publishers_share_the_work(pool: Pool, admin: Admin, topic: str, servers: str) -> None:
    """D9: two workers with a producer each send every record once, and each booking's in order."""
    await outbox_rows.fill(admin, 400, topic, versions=3)
    publishers = [Publisher(KafkaOptions(bootstrap_servers=servers)) for _ in range(2)]
    results = await asyncio.gather(*(publish(pool, publisher, 20, claim_size=50) for publisher in publishers))
    await asyncio.gather(*(publisher.close() for publisher in publishers))
    while (await outbox_rows.states(admin))["waiting"]:  # one may have stopped while the other held the rest
        results.append(await publish(pool, publishers[0], 5))
    assert sum(result.published_count for result in results) == 1200
    sent = await outbox_rows.consume(servers, topic)
    ids = {row["e"]: row["id"] for row in await admin.fetch("SELECT event_id::text AS e, id FROM crm.outbox")}
    order: dict[bytes, list[int]] = {}
    for record in sent:
        order.setdefault(record.key, []).append(ids[outbox_rows.header(record, "ce_id")])
    assert len(sent) == 1200
    assert all(places == sorted(places) for places in order.values())


async def test_a_record_too_large_is_parked_alone(
    pool: Pool, admin: Admin, publisher: Publisher, topic: str, servers: str
) -> None:
    """D10, trap 32: only the record that can never go is set aside; its mates go out, and so does what comes later."""
    await outbox_rows.fill(admin, 20, topic)
    await admin.execute("UPDATE crm.outbox SET payload = convert_to(repeat('x', 1000001), 'UTF8') WHERE id = 7")
    result = await publish(pool, publisher, 10)
    assert (result.published_count, result.parked_count, result.outcome) == (19, 1, PublishOutcome.DRAINED)
    await outbox_rows.fill(admin, 5, topic)
    assert (await publish(pool, publisher, 10)).published_count == 5
    row = await admin.fetchrow("SELECT id, attempts, park_reason FROM crm.outbox WHERE parked_at IS NOT NULL")
    assert tuple(row or ())[:2] == (7, 1)
    assert "bytes with key and headers" in await admin.fetchval("SELECT reason FROM crm.operator_actions WHERE actor = 'system'")
    assert len(await outbox_rows.consume(servers, topic)) == 24


@pytest.fixture
async def small_topic(servers: str, topic: str) -> str:
    """A topic whose own limit is below ours: 3,000 bytes a batch, and one partition."""
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    await admin.create_topics([NewTopic(f"{topic}.small", 1, 1, topic_configs={"max.message.bytes": "3000"})])
    await admin.close()
    return f"{topic}.small"


async def test_a_record_only_the_broker_finds_too_large_is_found_among_its_mates(
    pool: Pool, admin: Admin, publisher: Publisher, small_topic: str, servers: str
) -> None:
    """D10, trap 32: a refused batch is taken apart, so that one record is parked and nineteen are delivered, in one drain."""
    await outbox_rows.fill(admin, 20, small_topic)
    await admin.execute("UPDATE crm.outbox SET payload = convert_to(repeat('x', 4000), 'UTF8') WHERE id = 7")
    result = await publish(pool, publisher, 20)
    assert (result.published_count, result.parked_count, result.outcome) == (19, 1, PublishOutcome.DRAINED)
    assert await admin.fetchval("SELECT park_reason FROM crm.outbox WHERE id = 7") == await admin.fetchval(
        "SELECT reason FROM crm.operator_actions"
    )
    assert len(await outbox_rows.consume(servers, small_topic)) == 19


async def test_a_refused_record_does_not_fail_what_others_send_at_the_same_time(
    publisher: Publisher, small_topic: str, topic: str
) -> None:
    """Trap 32: after a refusal the producer is replaced; a send that shared it is delivered on the next one."""
    bad = [Message(small_topic), Message(small_topic, b"x" * 4000)]
    good = [Message(name, key=f"k{number}") for number in range(200) for name in (topic, small_topic)]
    first, second = await asyncio.gather(publisher.send(bad), publisher.send(good))
    assert kinds(first) == ["Delivered", "Rejected"]
    assert set(kinds(second)) == {"Delivered"}


async def test_a_record_with_bad_encoding_is_parked(pool: Pool, admin: Admin, publisher: Publisher, topic: str) -> None:
    """D10: headers that are no text can never be sent."""
    await outbox_rows.fill(admin, 2, topic)
    await admin.execute("""UPDATE crm.outbox SET headers = '{"ce_id": 1}' WHERE id = 1""")
    result = await publish(pool, publisher, 10)
    assert (result.published_count, result.parked_count) == (1, 1)


async def test_a_missing_topic_is_an_outage_with_its_name(pool: Pool, admin: Admin, publisher: Publisher, topic: str) -> None:
    """Trap 33, D10: a topic that is not there ends the drain in seconds and is said by name; nothing is parked or counted."""
    await outbox_rows.fill(admin, 3, "no.such.topic")
    await outbox_rows.fill(admin, 3, topic)
    started = time.monotonic()
    result = await publish(pool, publisher, 20)
    assert time.monotonic() - started < 5
    assert (result.published_count, result.outcome) == (3, PublishOutcome.BROKER_UNAVAILABLE)
    assert "topic no.such.topic does not exist" in result.reason == publisher.last_error
    assert await outbox_rows.states(admin) == {"published": 3, "parked": 0, "skipped": 0, "claimed": 0, "waiting": 3}
    assert await admin.fetchval("SELECT sum(attempts) FROM crm.outbox WHERE published_at IS NULL") == 0


async def test_a_broker_that_is_down_is_a_result_and_not_an_error(pool: Pool, admin: Admin, topic: str) -> None:
    """D10, S8: nothing listens; the activity returns at once with the reason, and the records wait without a mark."""
    await outbox_rows.fill(admin, 3, topic)
    publisher = Publisher(KafkaOptions(bootstrap_servers="127.0.0.1:1"))
    step = PublishOutbox(pool, publisher)
    result = await ActivityEnvironment().run(step.publish_outbox, PublishOrder(time_budget=5))
    await publisher.close()
    assert result.outcome is PublishOutcome.BROKER_UNAVAILABLE
    assert "127.0.0.1" in result.reason
    assert await outbox_rows.states(admin) == {"published": 0, **DONE, "waiting": 3}
    assert await admin.fetchval("SELECT sum(attempts) FROM crm.outbox") == 0


async def test_the_activity_publishes_within_its_budget(pool: Pool, admin: Admin, publisher: Publisher, topic: str) -> None:
    """D9, D13: the step returns counts; with no time left it says so and touches nothing."""
    await outbox_rows.fill(admin, 3, topic)
    none = await publish(pool, publisher, 0)
    assert (none.published_count, none.outcome) == (0, PublishOutcome.OUT_OF_TIME)
    done = await ActivityEnvironment().run(PublishOutbox(pool, publisher).publish_outbox, PublishOrder(time_budget=5))
    assert (done.published_count, done.outcome) == (3, PublishOutcome.DRAINED)


async def test_a_database_that_refuses_is_an_error_and_leaves_no_lane_behind(
    pool: Pool, admin: Admin, publisher: Publisher, topic: str
) -> None:
    """R4: what the database says is no outage of the broker; the first lane's error ends the others."""
    await outbox_rows.fill(admin, 10, topic)
    await admin.execute("REVOKE UPDATE (published_at) ON crm.outbox FROM booking_expiration_worker")
    before = asyncio.all_tasks()
    with pytest.raises(DatabaseRefusedError, match="permission denied"):
        await publish(pool, publisher, 10)
    assert [task for task in asyncio.all_tasks() - before if "lane" in repr(task.get_coro())] == []
    assert (await outbox_rows.states(admin))["claimed"] == 10  # sent and not settled: the lease ends by itself


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.05, 0.1, 0.15, 0.2])
async def test_a_cancel_settles_what_kafka_has_and_releases_the_rest(  # noqa: PLR0917 # fixtures
    pool: Pool, admin: Admin, publisher: Publisher, topic: str, servers: str, delay: float
) -> None:
    """L5, X7: after a cancel the outbox and Kafka agree at once, no lease is left, and the next drain repeats nothing."""
    await outbox_rows.fill(admin, 3000, topic)
    draining = asyncio.create_task(publish(pool, publisher, 20, claim_size=100))
    await asyncio.sleep(delay)
    draining.cancel()
    started = time.monotonic()
    await asyncio.wait([draining])
    assert time.monotonic() - started < 6
    assert draining.cancelled() or draining.result().published_count == 3000
    states = await outbox_rows.states(admin)
    assert (states["claimed"], len(await outbox_rows.consume(servers, topic))) == (0, states["published"])
    done = [await publish(pool, publisher, 20)]
    while done[-1].outcome is PublishOutcome.BROKER_UNAVAILABLE and len(done) < 10:  # on a busy machine, for a second (D10)
        done.append(await publish(pool, publisher, 20))
    assert sum(each.published_count for each in done) == 3000 - states["published"]
    events = [outbox_rows.header(record, "ce_id") for record in await outbox_rows.consume(servers, topic)]
    assert (len(set(events)), len(events) == 3000 or len(done) > 1) == (3000, True)


async def test_a_settle_that_never_happened_repeats_the_same_bytes(
    pool: Pool, admin: Admin, publisher: Publisher, topic: str, servers: str
) -> None:
    """D11: when the process dies between Kafka's yes and the outbox's, the duplicate has the same id, key, value, headers."""
    await outbox_rows.fill(admin, 5, topic)
    await publish(pool, publisher, 10)
    await admin.execute("UPDATE crm.outbox SET published_at = NULL, claim_token = gen_random_uuid(), claimed_until = now()")
    assert (await publish(pool, publisher, 10)).published_count == 5
    copies: dict[str, list[tuple[Any, ...]]] = {}
    for record in await outbox_rows.consume(servers, topic):
        copies.setdefault(outbox_rows.header(record, "ce_id"), []).append((record.key, record.value, record.headers))
    assert len(copies) == 5
    assert all(first == second for first, second in copies.values())


async def test_check_says_what_keeps_us_from_publishing(servers: str, topic: str) -> None:
    """Trap 33: ready when broker and topic are there; else the missing one is named, within the probe's time."""
    cases: list[tuple[str, str, Callable[[str | None], bool]]] = [
        (servers, topic, lambda problem: problem is None),
        (servers, "no.such.topic", lambda problem: "no.such.topic" in (problem or "")),
        ("127.0.0.1:1", topic, lambda problem: "127.0.0.1" in (problem or "")),
    ]
    for address, name, expected in cases:
        publisher = Publisher(KafkaOptions(bootstrap_servers=address), topic=name)
        for _ in range(3):  # a loaded broker may not know a topic yet that it has just made
            if expected(problem := await publisher.check()):
                break
        await publisher.close()
        assert expected(problem), problem
        assert publisher.last_error == problem


async def test_after_close_nothing_is_sent(servers: str, topic: str) -> None:
    """Trap 31: a closed publisher makes no new producer, and what it is asked to send stays in the outbox."""
    publisher = Publisher(KafkaOptions(bootstrap_servers=servers))
    record: Record = Message(topic)
    assert kinds(await publisher.send([record])) == [Delivered.__name__]
    await publisher.close()
    await publisher.close()
    assert kinds(await publisher.send([record])) == [Unavailable.__name__]
    assert len(await outbox_rows.consume(servers, topic)) == 1


async def test_records_of_one_key_keep_their_order_in_one_send(publisher: Publisher, topic: str, servers: str) -> None:
    """D9: a publisher never reorders a key, even when asked to send several of its records at once."""
    outcomes = await publisher.send([Message(topic, str(number).encode()) for number in range(500)])
    assert not any(isinstance(outcome, Rejected | Unavailable) for outcome in outcomes)
    assert [int(record.value) for record in await outbox_rows.consume(servers, topic)] == list(range(500))
