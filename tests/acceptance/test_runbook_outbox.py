"""runbooks/outbox-backlog.md: every command, in the state that its section describes (issue 4, section 6)."""

from aiokafka.admin import AIOKafkaAdminClient

from tests import floor, outbox_rows
from tests.acceptance.command import WHY, call
from tests.acceptance.process import World, soon
from tests.acceptance.proxy import a_proxy
from tests.acceptance.runbook import OUTBOX, Reader, listed, reads
from tests.floor import MINUTE, Admin

TOO_LARGE = "1200000 bytes with key and headers, more than the 1000000 that Kafka takes"


async def waiting(admin: Admin, world: World, count: int, *, versions: int = 1) -> list[int]:
    """Records that wait for ten minutes; their ids."""
    await outbox_rows.fill(admin, count, world.topic, versions=versions)
    await admin.execute("UPDATE crm.outbox SET recorded_at = now() - interval '10 minutes'")
    return [row["id"] for row in await admin.fetch("SELECT id FROM crm.outbox ORDER BY id")]


async def parked(admin: Admin, world: World, count: int, *, versions: int = 1) -> list[int]:
    """Records that were set aside, one of each of as many bookings; their ids."""
    ids = (await waiting(admin, world, count, versions=versions))[:count]
    await admin.execute("UPDATE crm.outbox SET parked_at = now(), park_reason = $1 WHERE id = ANY ($2)", TOO_LARGE, ids)
    return ids


@reads(OUTBOX, "First look")
async def test_first_look(reader: Reader) -> None:
    """Issue 4, section 6: with nothing to go out it is said, and Kafka is ok."""
    await reader.world.start()
    await reader.types("0 records to go out", "0 records set aside", "No such record waits", '"kafka": "ok"')


@reads(OUTBOX, "Outbox backlog over 1000")
async def test_outbox_backlog(reader: Reader, admin: Admin) -> None:
    """Issue 4, section 6: 1,100 wait, Kafka is well: a triggered cycle publishes them."""
    await reader.world.start()
    await reader.world.result()
    await listed(reader.world, "Completed")
    await waiting(admin, reader.world, 1_100)
    await reader.types("1,100 records to go out, the oldest for 10", "PublishedCount 0")
    await reader.types("triggered")
    await soon(lambda: admin.fetchval("SELECT bool_and(published_at IS NOT NULL) FROM crm.outbox"), "all published")


@reads(OUTBOX, "Outbox oldest over 5 min")
async def test_outbox_oldest(reader: Reader, admin: Admin) -> None:
    """Issue 4, section 6: a parked record holds back a later one of its booking; lists and record show it, until both are out."""
    [record] = await parked(admin, reader.world, 1, versions=2)
    await reader.types(f"{record + 1}", "waits", "parked: 1200000 bytes", "waiting behind 1", RECORD_ID=record)
    await call(reader.world, "outbox", "requeue", str(record), *WHY)
    await reader.world.start()
    assert (await reader.world.result())["PublishedCount"] == 2
    await reader.types("No such record waits")


@reads(OUTBOX, "Parked record")
async def test_parked_record(reader: Reader, admin: Admin) -> None:
    """Issue 4, section 6: shown with its reason, requeued alone and with others, published by the next cycle, explained."""
    [booking] = await floor.add(admin, 1, await floor.clock(admin) - MINUTE)
    await reader.world.start()
    await reader.world.result()
    await admin.execute("UPDATE crm.outbox SET published_at = NULL, kafka_partition = NULL, kafka_offset = NULL")
    record, *_ = await parked(admin, reader.world, 3)
    await reader.types(TOO_LARGE, "park reason", RECORD_ID=record)
    await reader.types("requeued 1 record", RECORD_ID=record)
    await reader.types("requeued 2 records")
    assert (await reader.world.result())["PublishedCount"] == 4
    await reader.types("No such record waits, and none is set aside", "Kafka has its event since", BOOKING_ID=booking)


@reads(OUTBOX, "Events published late")
async def test_events_published_late(reader: Reader, admin: Admin) -> None:
    """Issue 4, section 6: some still wait for minutes: they are listed, beside cycles that complete."""
    await reader.world.start()
    await reader.world.result()
    await listed(reader.world, "Completed")
    await waiting(admin, reader.world, 2)
    await reader.types("waits", "completed")


@reads(OUTBOX, "Broker down")
async def test_broker_down(reader: Reader, admin: Admin) -> None:
    """Issue 4, section 6: Kafka cannot be reached: it is said, the event waits, and goes out when Kafka is back."""
    await floor.add(admin, 1, await floor.clock(admin) - MINUTE)
    async with a_proxy(reader.world.servers["KAFKA_BOOTSTRAP_SERVERS"]) as broker:
        reader.settings = {"KAFKA_BOOTSTRAP_SERVERS": broker.address}
        await broker.cut()
        worker = await reader.world.start(**reader.settings)
        assert (await reader.world.result())["Outcome"] == "completed"
        await worker.said("broker unavailable")
        await reader.types('"status": "unready"', "FAIL Kafka", "waits")
        await broker.open()
        await reader.world.result()
        await reader.types("No such record waits")


@reads(OUTBOX, "Give a record up")
async def test_give_a_record_up(reader: Reader, admin: Admin) -> None:
    """Issue 4, section 6: it says what nobody will hear, asks, and gives the record up."""
    [record] = await parked(admin, reader.world, 1)
    await reader.types("This cannot be taken back", f"skipped outbox record {record}", "stays taken", RECORD_ID=record)
    assert (await outbox_rows.states(admin))["skipped"] == 1


@reads(OUTBOX, "Make the topic")
async def test_make_the_topic(reader: Reader) -> None:
    """Issue 4, section 6: made as the contract has it; what one broker cannot give is the only difference, and is told."""
    name = f"{reader.world.topic}.new"
    reader.settings = {"BOOKING_EXPIRATION_TOPIC": name}
    await reader.types(f"topic {name}: created")
    said = await reader.types("replicas: 1, not 3", "min.insync.replicas: 1, not 2", code=1)
    assert said.count("topic ") == 2
    admin = AIOKafkaAdminClient(bootstrap_servers=reader.world.servers["KAFKA_BOOTSTRAP_SERVERS"])
    await admin.start()
    await admin.delete_topics([name])
    await admin.close()


@reads(OUTBOX, "See what was done to records")
async def test_see_what_was_done(reader: Reader, admin: Admin) -> None:
    """Issue 4, section 6: a requeued record is listed with who and why."""
    [record] = await parked(admin, reader.world, 1)
    await call(reader.world, "outbox", "requeue", str(record), *WHY)
    await reader.types("requeue_record", f"outbox/{record}", "INC-7: for the test")


@reads(OUTBOX, "Find an event in Kafka")
async def test_find_an_event(reader: Reader, admin: Admin) -> None:
    """Issue 4, section 6: topic, partition and offset of a published event."""
    [booking] = await floor.add(admin, 1, await floor.clock(admin) - MINUTE)
    await reader.world.start()
    await reader.world.result()
    await reader.types(f"to {reader.world.topic}, partition", "offset", BOOKING_ID=booking)
