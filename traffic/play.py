"""One run: start the processes, seed, let the managers work, follow everything, and say at the end what it came to."""

import asyncio
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias

import asyncpg
from rich.console import Console

from db.unit_of_work import Pool, open_pool
from devstack import addresses
from devstack.demo_place import Place
from devstack.stack import Stack
from traffic import slo
from traffic.checker import Bounds, Checker
from traffic.faults import Faults
from traffic.fleet import Fleet
from traffic.floor import Floor, Wrong
from traffic.model import Model
from traffic.topic import Topic

Admin: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
_STATUS_EVERY: Final = 10
_FIGURES_EVERY: Final = 60
_SETTLING: Final = 30.0
_SETTLING_AFTER_FAULTS: Final = 120.0
"""Seconds at the end for what is committed to be published, read and free."""

_AFTER_FAULTS: Final = Bounds(expiry=240.0, free=200.0, arrival=60.0)
"""With faults a cycle may fail and the next ones catch up: late is what is later than that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to play. `minutes` None: until a stop is asked for. `rate` in commands a minute, `due` per phase and minute."""

    slo: bool
    faults: bool
    minutes: float | None
    size: int
    rate: float
    due: int
    workers: int
    consumers: int
    seed: int


class Play:
    """One run on servers that are up."""

    def __init__(self, options: Options, place: Place, running: Stack, say: Callable[[str], None]) -> None:
        self._options, self._place, self._stack = options, place, running
        self._console, self._raw = Console(width=130, highlight=False), say
        self._model = Model(random.Random(options.seed), options.due)  # noqa: S311 # not a secret
        self._checker = Checker(
            self._model, Topic(place.settings.topic), _AFTER_FAULTS if options.faults else Bounds(), self._alarm
        )
        self._fleet = Fleet(place, running)
        self._cycles = slo.Cycles()
        self._faults: Faults | None = None
        self._floor: Floor

    async def run(self) -> bool:
        """The whole run; whether all was right."""
        stop = asyncio.Event()
        for which in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(which, stop.set)
        async with self._connected() as (crm, chessboard, admin, looking, breaking):
            self._floor = Floor(self._model, crm, chessboard, self._checker.found)
            self._model.ahead = await admin.fetchval("SELECT clock_timestamp()") - datetime.now(UTC)
            await self._fleet.start(self._options.workers, self._options.consumers)
            await self._floor.seed(self._options.size)
            self._say(_headline(self._options))
            await self._play(admin, looking, breaking, stop)
            self._fleet.stop()
            return self._report(await slo.spans(admin))

    async def _play(self, admin: Admin, looking: Admin, breaking: Admin, stop: asyncio.Event) -> None:
        """Managers, checker and faults side by side until the time is over; then the rest is waited for."""
        still = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(self._checker.topic.follow(self._place.kafka()))
            showing = group.create_task(self._show(looking))
            checking = group.create_task(self._checker.run(admin, still))
            selling = group.create_task(self._floor.run(self._options.rate, stop))
            faults = group.create_task(self._break(breaking)) if self._options.faults else None
            with suppress(TimeoutError):
                async with asyncio.timeout(self._options.minutes and self._options.minutes * 60):
                    await stop.wait()
            stop.set()
            if faults:
                faults.cancel()
                await asyncio.wait([faults])
            await selling
            still.set()
            await checking
            self._say("The floor is closed; what is committed still becomes free")
            await self._settle(admin)
            for task in (reading, showing):
                task.cancel()

    async def _settle(self, admin: Admin) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (_SETTLING_AFTER_FAULTS if self._options.faults else _SETTLING)
        while not await self._checker.settled(admin):
            if loop.time() > deadline:
                self._checker.found(Wrong("not settled", "the end", "events are not out, not read, or objects are not free"))
                break
            await asyncio.sleep(0.5)
        await self._checker.round(admin)

    async def _break(self, admin: Admin) -> None:
        self._faults = Faults(self._fleet, admin, random.Random(self._options.seed), self._say)  # noqa: S311 # not a secret
        await self._faults.run()

    async def _show(self, looking: Admin) -> None:
        """A line from time to time; and the processes must be alive."""
        for second in range(1, 100_000_000):
            await asyncio.sleep(1)
            self._fleet.check()
            await self._cycles.look(looking)
            if second % _STATUS_EVERY == 0:
                self._say(self._status())
            if second % _FIGURES_EVERY == 0 and (measured := await slo.spans(looking)):
                self._say("p50, p99, max: " + "; ".join(f"{s.name} {s.p50:.2f}, {s.p99:.2f}, {s.most:.2f} s" for s in measured))

    def _status(self) -> str:
        done, model, checker = self._floor.done, self._model, self._checker
        commands = ", ".join(f"{name} {done[name]}" for name in ("Reserve", "Confirm", "Extend", "Cancel", "Complete"))
        return (
            f"{model.size} active, {len(model.free)} free, {checker.expired} expired; {commands}, too late {self._floor.lost}; "
            f"cycles {len(self._cycles.seconds)}; checked {checker.rounds} times, wrong {len(checker.wrong)}"
        )

    def _report(self, measured: list[slo.Span]) -> bool:
        checker, options = self._checker, self._options
        self._say(self._status())
        self._console.print(slo.table(measured))
        cycles = ", ".join(f"{count} {outcome}" for outcome, count in Counter(self._cycles.outcomes.values()).items())
        self._say(f"Cycles: {len(self._cycles.seconds)} seen to end, the longest {self._cycles.longest:.2f} s: {cycles}")
        if self._faults:
            self._say("Faults: " + ", ".join(f"{what} {count}" for what, count in sorted(self._faults.done.items())))
        self._say(f"Kafka: {len(checker.topic.seen)} events, {checker.topic.copies} second copies")
        goals = list(slo.goals(measured, self._cycles.longest)) if options.slo else []
        for goal in goals:
            self._say(f"{'ok    ' if goal.kept else 'MISSED'} {goal.text}")
        commands = sum(self._floor.done.values()) + self._floor.lost
        verdict = f"{len(checker.wrong)} wrong states" if checker.wrong else "nothing wrong"
        self._say(f"Checker: {verdict} in {checker.rounds} rounds; {commands} commands, {checker.expired} expiries followed")
        return not checker.wrong and (options.faults or all(goal.kept for goal in goals))

    def _alarm(self, wrong: Wrong) -> None:
        self._say(f"WRONG  {wrong.rule}: {wrong.subject}: {wrong.detail}")

    def _say(self, text: str) -> None:
        self._raw(f"{datetime.now(UTC):%H:%M:%S}  {text}")

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[tuple[Pool, Pool, Admin, Admin, Admin]]:
        """The CRM's pool, the chessboard's, and three connections that may do everything: each is used by one task alone."""
        crm = await open_pool(self._place.url(addresses.CRM), size=6, application="traffic")
        chessboard = await open_pool(self._place.url(addresses.CHESSBOARD), size=4, application="traffic")
        url = self._place.url(addresses.ADMIN)
        admins = [await asyncpg.connect(url, server_settings={"jit": "off"}) for _ in range(3)]
        try:
            yield crm, chessboard, admins[0], admins[1], admins[2]
        finally:
            crm.terminate()
            chessboard.terminate()
            for admin in admins:
                await admin.close()


def _headline(options: Options) -> str:
    until = f"{options.minutes:g} minutes" if options.minutes else "until Ctrl-C"
    bounds = (
        f"{options.size} active bookings, {options.rate:.0f} commands a minute, at most {options.due} of a phase due per minute"
    )
    processes = f"{options.workers} workers, {options.consumers} consumers"
    return f"Seed {options.seed}: {bounds}, {processes}, {until}{', with faults' if options.faults else ''}"
