"""The recorded session's stage: the real worker, bookings, and what goes wrong there."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import NAMESPACE_URL, UUID, uuid4, uuid5

import asyncpg
import psutil
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from temporalio.client import Client

from contracts import topic
from devstack import addresses, ports
from devstack.demo_cycles import next_minute
from devstack.demo_place import Place
from devstack.errors import StackError
from devstack.launcher import tail
from devstack.stack import Stack
from operators import pollers

ROOT: Final = Path(__file__).resolve().parent.parent
HOST: Final = "crm-worker-1"
"""The worker's machine as the transcript calls it: a document must not tell where it was made."""

# The worker as it is; only its machine's name, which Temporal shows as the worker's identity, is another one.
_WORKER: Final = (
    "import runpy, socket, sys; socket.gethostname = lambda: sys.argv[1]; "
    "sys.path.insert(0, sys.argv[2]); runpy.run_path(sys.argv[2] + '/worker.py', run_name='__main__')"
)
_START: Final = 120.0
_STOP: Final = 30.0
_TOO_CLOSE: Final = 4.0
"""Seconds before the full minute in which the session rather waits: the schedule's own tick would get in between."""

TENANTS: Final = ("Linden Park", "North Harbour", "Old Mill Quarter", "Skyline Homes")


class Stage:
    """One session's stack. All methods raise `StackError` when something does not come about."""

    def __init__(self, place: Place, stack: Stack, admin: "asyncpg.Connection[asyncpg.Record]", client: Client) -> None:
        self.place = place
        self.client = client
        self._admin = admin
        self._stack = stack
        self._worker: subprocess.Popen[bytes] | None = None
        self._kafka: list[str] = []
        self._started = 0

    async def start_worker(self) -> None:
        """Start a worker and wait until it works."""
        self._started += 1
        log = self._log()
        command = [sys.executable, "-c", _WORKER, HOST, str(ROOT)]
        self._worker = self._stack.launcher.start(command, log, stop="SIGTERM=18,SIGKILL=5", env=self.place.addresses)
        await self._until(lambda: '"worker started"' in log.read_text(), f"the worker is not ready.\n{tail(log)}")

    async def stop_worker(self) -> None:
        """As a roll-out does it: SIGTERM, and it finishes what it has in hand."""
        if self._worker is None:
            return
        self._stack.launcher.let_go(self._worker)
        self._worker.terminate()
        try:
            await asyncio.to_thread(self._worker.wait, _STOP)
        except subprocess.TimeoutExpired:
            raise StackError(f"the worker did not end within {_STOP:.0f} seconds.\n{tail(self._log())}") from None
        if self._worker.returncode:
            raise StackError(f"the worker ended with exit code {self._worker.returncode}.\n{tail(self._log())}")
        self._worker = None

    def check(self) -> None:
        """Raise when a server or the worker is gone."""
        self._stack.launcher.check()

    async def book(self, count: int, status: str = "Reserved", *, over: timedelta = timedelta(0)) -> list[UUID]:
        """Bookings that are due, their deadlines evenly spread over the time until now; the oldest first."""
        now: datetime = await self._admin.fetchval("SELECT clock_timestamp()")
        ids = [uuid4() for _ in range(count)]
        rows = [_booking(each, number, status, now - over * (count - number) / count) for number, each in enumerate(ids)]
        columns = ("id", "tenant_id", "deal_id", "property_object_id", "status", "reserve_expires_at", "booking_expires_at")
        await self._admin.copy_records_to_table("bookings", schema_name="crm", columns=columns, records=rows)
        return ids

    async def freeze_deal(self, booking: UUID) -> None:
        """A rule of the CRM's that nobody thought through: this booking refuses every change (P0001, D6)."""
        await self._admin.execute(f"""
            CREATE FUNCTION crm.session_rule() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN RAISE EXCEPTION 'deal is under legal review, booking must not change'; END $$;
            CREATE TRIGGER session_rule BEFORE UPDATE ON crm.bookings
            FOR EACH ROW WHEN (OLD.id = '{booking}') EXECUTE FUNCTION crm.session_rule()""")

    async def unfreeze_deal(self) -> None:
        """The CRM's team takes the rule back."""
        await self._admin.execute("DROP TRIGGER session_rule ON crm.bookings; DROP FUNCTION crm.session_rule()")

    async def slow_down(self, status: str) -> None:
        """Half a second for each booking of this status: a batch that one can watch."""
        await self._admin.execute(f"""
            CREATE FUNCTION crm.session_slow() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN PERFORM pg_sleep(0.5); RETURN NEW; END $$;
            CREATE TRIGGER session_slow BEFORE UPDATE ON crm.bookings
            FOR EACH ROW WHEN (OLD.status = '{status}') EXECUTE FUNCTION crm.session_slow()""")

    async def speed_up(self) -> None:
        """As fast as before."""
        await self._admin.execute("DROP TRIGGER session_slow ON crm.bookings; DROP FUNCTION crm.session_slow()")

    async def stop_kafka(self) -> None:
        """Kill the broker."""
        process = self._stack.launcher.server(self._stack.logs / "kafka.log")
        self._kafka = psutil.Process(process.pid).cmdline()
        self._stack.launcher.let_go(process)
        process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(process.wait)

    async def start_kafka(self) -> None:
        """Bring it back on the same data."""
        with (self._stack.folder / "kafka.properties").open("a") as properties:
            # Its controller would otherwise wait nine seconds for the killed broker, which is itself.
            properties.write("broker.session.timeout.ms=1000\nbroker.heartbeat.interval.ms=200\n")
        self._stack.launcher.start(self._kafka, self._stack.logs / "kafka.log", stop="SIGKILL=5")
        port = int(self.place.url(addresses.KAFKA).rpartition(":")[2])
        await self._until(lambda: ports.answers(port), "Kafka did not come back")
        await asyncio.sleep(3)  # the partitions' leader is elected

    async def limit_records(self, size: int) -> None:
        """What the topic takes at most, in bytes."""
        admin = AIOKafkaAdminClient(**self.place.kafka())
        await admin.start()
        try:
            limit = {
                **topic.CONFIGURATION,
                "min.insync.replicas": "1",
                "max.message.bytes": str(size),
            }  # what is left out is reset
            await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, self.place.settings.topic, limit)])
        finally:
            await admin.close()

    async def number(self, question: str, *values: object) -> int:
        """What the database counts."""
        return int(await self._admin.fetchval(question, *values) or 0)

    async def nobody_polls(self) -> None:
        """Return when the server has noticed that the worker is gone, which takes it more than a minute."""
        for _ in range(120):
            if not any(poller.live for poller in await pollers.of(self.client, self.place.settings.task_queue)):
                return
            await asyncio.sleep(1)
        raise StackError("somebody polls the task queue, though no worker runs")

    async def quiet(self) -> None:
        """Return when no cycle runs and the next tick is some seconds away."""
        handle = self.client.get_schedule_handle(self.place.settings.schedule_id)
        for _ in range(1000):
            left = (next_minute() - datetime.now(UTC)).total_seconds()
            if left > _TOO_CLOSE and not (await handle.describe()).info.running_actions:
                return
            await asyncio.sleep(0.3)
        raise StackError("a cycle does not end")

    async def cycle(self) -> None:
        """Let one cycle run, as the next minute would."""
        await self.quiet()
        await self.client.get_schedule_handle(self.place.settings.schedule_id).trigger()
        await self.cycle_over()

    async def cycle_over(self) -> None:
        """Return when the cycle that was triggered last is over."""
        await asyncio.sleep(0.5)
        await self.quiet()

    def _log(self) -> Path:
        return self._stack.logs / f"worker-{self._started}.log"

    async def _until(self, true: Callable[[], bool], problem: str) -> None:
        deadline = asyncio.get_running_loop().time() + _START
        while not true():
            if asyncio.get_running_loop().time() > deadline:
                raise StackError(problem)
            await asyncio.sleep(0.1)


def _booking(booking: UUID, number: int, status: str, deadline: datetime) -> tuple[object, ...]:
    tenant = uuid5(NAMESPACE_URL, TENANTS[number * number % len(TENANTS) if number % 3 else 0])
    times = (None, deadline) if status == "Booked" else (deadline, None)
    return (booking, tenant, uuid4(), uuid4(), status, *times)


@asynccontextmanager
async def staged(place: Place, stack: Stack) -> AsyncIterator[Stage]:
    """The stage with its connections."""
    admin = await asyncpg.connect(place.url(addresses.ADMIN), timeout=10)
    try:
        stage = Stage(place, stack, admin, await place.temporal())
        yield stage
        await stage.stop_worker()
    finally:
        await admin.close()


def neutral(found: Mapping[str, str]) -> dict[str, str]:
    """What the commands are told: the stack's addresses, and a name for who types."""
    return {**found, "BOOKING_EXPIRATION_ACTOR": "anna"}
