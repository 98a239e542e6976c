"""A Kafka that is killed, frozen, or whose answers get lost; each on a broker of its own (D9 to D11, traps 31 and 32)."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import psutil
import pytest
from aiokafka import client as aiokafka_client
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from activities.messages import PublishOutcome, PublishResult
from activities.publish_outbox import publish
from db.unit_of_work import Pool
from devstack import kafka, ports, stack
from devstack.launcher import Launcher
from publishing import KafkaOptions, Publisher
from tests import outbox_rows
from tests.outbox_rows import Admin

pytestmark = pytest.mark.xdist_group("a broker of its own")  # one broker for all of them
ALL_OUT = {"parked": 0, "skipped": 0, "claimed": 0, "waiting": 0}


class Broker:
    """A real broker that can be killed, started again on the same data and port, frozen, and thawed."""

    def __init__(self, launcher: Launcher, folder: Path) -> None:
        self._launcher, self._log, self._properties = launcher, folder / "kafka.log", folder / "kafka.properties"
        self.servers = kafka.start(launcher, folder, folder, cache=stack.HOME, preferred=False, durable=False, say=print)
        self._process = launcher._servers[-1][0]
        self._command = psutil.Process(self._process.pid).cmdline()
        if "kafka.Kafka" not in self._command:
            pytest.skip("needs Apache Kafka: the emulator's data does not outlive it")

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.servers.rpartition(":")[2])

    def signal(self, which: signal.Signals) -> None:
        """As an operator's `kill` would."""
        os.kill(self._process.pid, which)

    def kill(self) -> None:
        """No goodbye; returns when its port is free."""
        self.signal(signal.SIGKILL)
        self._process.wait()

    def start(self) -> None:
        """The same command on the same data; returns when it takes connections."""
        # Its controller would wait nine seconds for the killed broker, which is itself.
        with self._properties.open("a") as properties:
            properties.write("broker.session.timeout.ms=1000\nbroker.heartbeat.interval.ms=200\n")
        self._process = self._launcher.start(self._command, self._log)
        self._launcher.wait_until(lambda: ports.answers(self.port), "Kafka", self._log, seconds=30, process=self._process)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for this module, gone at its end."""
    launcher = Launcher()
    try:
        yield Broker(launcher, tmp_path_factory.mktemp("broker"))
    finally:
        launcher.close()


@pytest.fixture
async def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    """A topic of this test's own on that broker."""
    name = f"chaos.{abs(hash(request.node.name))}"
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.servers)
    await admin.start()
    await admin.create_topics([NewTopic(name, 3, 1)])
    await admin.close()
    return name


@pytest.fixture
async def publisher(broker: Broker) -> AsyncIterator[Publisher]:
    """A publisher with a short deadline, which leaves neither task nor socket behind."""
    opened = Publisher(KafkaOptions(bootstrap_servers=broker.servers), send_timeout=1.5)
    yield opened
    await opened.close()
    assert left_behind(broker) == ([], [])


def left_behind(broker: Broker) -> tuple[list[str], list[Any]]:
    """Tasks of aiokafka, and this process's open connections to the broker."""
    tasks = [repr(task) for task in asyncio.all_tasks() if "aiokafka" in repr(task.get_coro())]
    sockets = [
        wire
        for wire in psutil.Process().net_connections("tcp")
        if wire.raddr and wire.raddr.port == broker.port and wire.fd != -1
    ]
    return tasks, sockets


async def until_published(admin: Admin) -> None:
    """Wait until the first records are out."""
    while not (await outbox_rows.states(admin))["published"]:  # noqa: ASYNC110 # the database tells
        await asyncio.sleep(0.01)


async def drain_until_empty(pool: Pool, publisher: Publisher, admin: Admin) -> list[PublishResult]:
    """Cycle after cycle, as the schedule would."""
    results: list[PublishResult] = []
    async with asyncio.timeout(60):
        while (await outbox_rows.states(admin))["waiting"]:
            results.append(await publish(pool, publisher, 10, claim_size=200))
            await asyncio.sleep(0.1)
    return results


async def first_copies(broker: Broker, topic: str, admin: Admin) -> dict[str, list[int]]:
    """Per key, the outbox ids in the order in which a consumer that drops known event ids sees them."""
    ids = {row["e"]: row["id"] for row in await admin.fetch("SELECT event_id::text AS e, id FROM crm.outbox")}
    seen: dict[str, list[int]] = {}
    for record in await outbox_rows.consume(broker.servers, topic):
        known = seen.setdefault(record.key.decode(), [])
        if (record_id := ids[outbox_rows.header(record, "ce_id")]) not in known:
            known.append(record_id)
    return seen


async def test_a_broker_killed_and_restarted_loses_nothing_and_keeps_order(
    pool: Pool, admin: Admin, publisher: Publisher, broker: Broker, topic: str
) -> None:
    """D9, D11: kill -9 in the middle of publishing; every record arrives, each booking's in order, none parked."""
    await outbox_rows.fill(admin, 1000, topic, versions=3)
    draining = asyncio.create_task(publish(pool, publisher, 20, claim_size=200))
    await until_published(admin)
    await asyncio.to_thread(broker.kill)
    result = await draining
    assert result.outcome is PublishOutcome.BROKER_UNAVAILABLE
    assert 0 < result.published_count < 3000
    await asyncio.to_thread(broker.start)
    await drain_until_empty(pool, publisher, admin)
    assert await outbox_rows.states(admin) == {"published": 3000, **ALL_OUT}
    copies = await first_copies(broker, topic, admin)
    assert len(copies) == 1000
    assert all(len(ids) == 3 and ids == sorted(ids) for ids in copies.values())


async def test_a_frozen_broker_is_given_up_in_time_and_used_again_when_it_thaws(
    pool: Pool, admin: Admin, publisher: Publisher, broker: Broker, topic: str
) -> None:
    """Trap 31: SIGSTOP bounds a drain by the send deadline, tasks and sockets are gone; after SIGCONT all is delivered."""
    await outbox_rows.fill(admin, 50, topic)
    assert (await publish(pool, publisher, 10)).published_count == 50
    await outbox_rows.fill(admin, 50, topic)
    broker.signal(signal.SIGSTOP)
    try:
        for _ in range(2):  # with the old producer, and while making a new one
            started = time.monotonic()
            result = await publish(pool, publisher, 10)
            assert time.monotonic() - started < 12
            assert (result.outcome, result.published_count) == (PublishOutcome.BROKER_UNAVAILABLE, 0)
            assert left_behind(broker) == ([], [])
        assert await publisher.check() is not None
    finally:
        broker.signal(signal.SIGCONT)
    assert await admin.fetchval("SELECT sum(attempts) FROM crm.outbox WHERE published_at IS NULL") == 0
    await drain_until_empty(pool, publisher, admin)
    assert len(await first_copies(broker, topic, admin)) == 100
    assert await publisher.check() is None


async def test_a_cancel_does_not_wait_for_a_frozen_broker(
    pool: Pool, admin: Admin, publisher: Publisher, broker: Broker, topic: str
) -> None:
    """L5, trap 31: with the broker frozen a cancel still ends within three seconds and leaves no lease."""
    patient = Publisher(KafkaOptions(bootstrap_servers=broker.servers))
    await outbox_rows.fill(admin, 20, topic)
    assert (await publish(pool, patient, 10)).published_count == 20
    await outbox_rows.fill(admin, 20, topic)
    broker.signal(signal.SIGSTOP)
    try:
        draining = asyncio.create_task(publish(pool, patient, 20))
        await asyncio.sleep(0.3)
        draining.cancel()
        started = time.monotonic()
        with suppress(asyncio.CancelledError):
            await draining
        assert draining.cancelled()
        assert time.monotonic() - started < 6
        assert await outbox_rows.states(admin) == {"published": 20, **ALL_OUT, "waiting": 20}
        await patient.close()
    finally:
        broker.signal(signal.SIGCONT)
    await drain_until_empty(pool, publisher, admin)


class DeafWire:
    """Between the producer and the broker: requests always pass, answers only while `deaf` is off."""

    def __init__(self, target: int) -> None:
        self._target, self.deaf, self.lost = target, False, 0
        self._server: asyncio.Server

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connect, ports.HOST, 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(ports.HOST, self._target)
        await asyncio.gather(self._pass(reader, far_writer, answers=False), self._pass(far_reader, writer, answers=True))

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, answers: bool) -> None:
        with suppress(OSError):
            while data := await source.read(65_536):
                if answers and self.deaf:
                    self.lost += len(data)
                else:
                    sink.write(data)
        sink.close()


@pytest.fixture
async def wire(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DeafWire]:
    """All of aiokafka's client connections go through it, although the broker advertises its own address."""
    connect = aiokafka_client.create_conn
    async with DeafWire(broker.port) as deaf_wire:

        async def through_the_wire(host: str, _port: int, **arguments: Any) -> Any:
            return await connect(host, deaf_wire.port, **arguments)

        monkeypatch.setattr(aiokafka_client, "create_conn", through_the_wire)
        yield deaf_wire


async def test_a_lost_acknowledgement_gives_a_byte_identical_duplicate(
    pool: Pool, admin: Admin, broker: Broker, topic: str, wire: DeafWire
) -> None:
    """D11: Kafka has the record and its yes is lost past the deadline: it goes out again with the same id, key and bytes."""
    publisher = Publisher(KafkaOptions(bootstrap_servers=broker.servers), send_timeout=1.0)
    await outbox_rows.fill(admin, 1, topic)
    await publisher.send([Warm(topic)])
    wire.deaf = True
    result = await publish(pool, publisher, 10)
    assert (result.outcome, result.published_count) == (PublishOutcome.BROKER_UNAVAILABLE, 0)
    assert wire.lost > 0
    wire.deaf = False
    assert (await publish(pool, publisher, 10)).published_count == 1
    await publisher.close()
    first, second = [record for record in await outbox_rows.consume(broker.servers, topic) if record.key != b"warm"]
    assert (first.key, first.value, first.headers) == (second.key, second.value, second.headers)


async def test_a_lost_acknowledgement_within_the_deadline_makes_no_duplicate(broker: Broker, topic: str, wire: DeafWire) -> None:
    """D11: while the producer lives, its retry of an unanswered request is recognised by the broker."""
    publisher = Publisher(KafkaOptions(bootstrap_servers=broker.servers))
    await publisher.send([Warm(topic)])
    wire.deaf = True
    sending = asyncio.create_task(publisher.send([Warm(topic, "once")]))
    await asyncio.sleep(0.5)
    wire.deaf = False
    [outcome] = await sending
    await publisher.close()
    sent = [record for record in await outbox_rows.consume(broker.servers, topic) if record.key == b"once"]
    assert [(record.partition, record.offset) for record in sent] == [tuple(outcome)]


class Warm:
    """A record that makes the producer connect."""

    payload, headers = b"{}", "{}"

    def __init__(self, topic: str, key: str = "warm") -> None:
        self.topic, self.key = topic, key
