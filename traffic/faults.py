"""What goes wrong on purpose, around every full minute, when the cycle is at work."""

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final, TypeAlias

import asyncpg
import psutil

from devstack import ports
from devstack.addresses import KAFKA
from traffic.fleet import Fleet

Admin: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Step: TypeAlias = tuple[float, Callable[[], Awaitable[None]]]
_AHEAD: Final = 5
_OUTAGE: Final = 6.0
"""Seconds that the broker is away."""


# Our own connections, which only look, are the administrator's.
_CUT: Final = """
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
     WHERE datname = current_database() AND usename IN ('booking_expiration_worker', 'crm_app', 'chessboard')"""


class Faults:
    """Each minute a worker is killed and connections are cut; each second one a consumer is killed; Kafka is restarted."""

    def __init__(self, fleet: Fleet, admin: Admin, rng: random.Random, tell: Callable[[str], None]) -> None:
        self.done: Counter[str] = Counter()
        self._fleet, self._admin, self._rng, self._tell = fleet, admin, rng, tell

    async def run(self) -> None:
        """Until cancelled. Seconds are counted from the full minute."""
        await self._first()
        for minute in range(1, 1_000_000):
            await asyncio.sleep((60 - _AHEAD - datetime.now(UTC).timestamp()) % 60)
            began = asyncio.get_running_loop().time() + _AHEAD
            async with asyncio.TaskGroup() as faults:
                for at, fault in self._plan(minute):
                    faults.create_task(_at(began + at, fault))

    async def _first(self) -> None:
        """Something of everything in the first minute, so that a short run has it too; the broker is not away at the tick."""
        await asyncio.sleep(5)
        await self._cut()
        left = (60 - datetime.now(UTC).timestamp()) % 60
        if left < 2 * _OUTAGE + _AHEAD:
            await asyncio.sleep(left + self._rng.uniform(0.05, 1.0))
            await self._kill_worker()
            await asyncio.sleep(_OUTAGE)
        await self._restart_kafka()

    def _plan(self, minute: int) -> list[Step]:
        """Mostly while the cycle runs; the broker goes away after the first, fourth, … tick, and before the third, sixth, …."""
        rng = self._rng
        steps: list[Step] = [
            (rng.uniform(0.05, 1.0), self._kill_worker),
            (rng.uniform(0.05, 0.8) if minute % 2 == 0 else rng.uniform(5, 9), self._cut),
        ]
        if minute % 2 == 0:
            steps.append((rng.uniform(0.3, 1.5), self._kill_consumer))
        if minute % 3 == 0:
            steps.append((-3.0, self._restart_kafka))
        elif minute % 3 == 1:
            steps.append((12.0, self._restart_kafka))
        return steps

    async def _kill_worker(self) -> None:
        self._replace("worker")

    async def _kill_consumer(self) -> None:
        self._replace("chessboard")

    def _replace(self, kind: str) -> None:
        name = self._rng.choice(self._fleet.names(kind))
        self._fleet.replace(name)
        self._note(f"{name} killed")

    async def _cut(self) -> None:
        """Never two at once: the plan has one in a minute."""
        count = await self._admin.fetchval(_CUT)
        self._note("database connections cut", f"{count} database connections cut")

    async def _restart_kafka(self) -> None:
        """Killed, away for some seconds, and back on the same data; only a broker of ours."""
        stack = self._fleet.stack
        log = stack.logs / "kafka.log"
        if not log.exists():
            return
        process = stack.launcher.server(log)
        command = psutil.Process(process.pid).cmdline()
        stack.launcher.let_go(process)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self._note("Kafka killed")
        try:
            await asyncio.sleep(_OUTAGE)
        finally:  # at the end of the run too: the last events must still go out
            self._start_kafka(command)
        while not ports.answers(int(stack.addresses[KAFKA].rpartition(":")[2])):  # noqa: ASYNC110 # it has no event of ours
            await asyncio.sleep(0.1)
        self._tell("Kafka is back")

    def _start_kafka(self, command: list[str]) -> None:
        stack = self._fleet.stack
        # Its controller would otherwise wait nine seconds for the killed broker, which is itself.
        with (stack.folder / "kafka.properties").open("a") as properties:
            properties.write("broker.session.timeout.ms=1000\nbroker.heartbeat.interval.ms=200\n")
        stack.launcher.start(command, stack.logs / "kafka.log", stop="SIGTERM=10,SIGKILL=5")

    def _note(self, what: str, text: str | None = None) -> None:
        self.done[what] += 1
        self._tell(text or what)


async def _at(moment: float, fault: Callable[[], Awaitable[None]]) -> None:
    """Do it at this moment of the event loop's clock."""
    await asyncio.sleep(moment - asyncio.get_running_loop().time())
    await fault()
