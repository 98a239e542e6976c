"""The demo's play: seed, start the worker, trigger the catch-up, wait for the minute, check the sums."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from rich.console import Console

from db.commands import By, command
from db.unit_of_work import Pool, UnitOfWork, open_pool
from devstack import addresses, demo_ending, demo_floor, demo_grid
from devstack.demo_cycles import Cycles, Events, next_minute
from devstack.demo_floor import Floor
from devstack.demo_place import BATCH_SIZE, Place
from devstack.demo_view import Screen
from devstack.errors import StackError
from devstack.launcher import tail
from devstack.stack import Stack

ROOT: Final = Path(__file__).resolve().parent.parent
_PAUSE: Final = 1.5
"""Seconds between two triggered cycles, so that one can follow."""

_HOLD_CYCLES: Final = 2
_HOLD_SECONDS: Final = 12.0
"""How long the manager keeps the row locked: the role's own time-outs would end it soon after (trap 24)."""

_STOP: Final = 20.0
_NOTE_EVERY: Final = 10.0
_MOST_CYCLES: Final = 8
_START: Final = 40.0
"""Seconds that a process gets to say that it is ready."""

_FREE: Final = 20.0
"""Seconds in which the last expired booking's flat must be free."""


class Play:
    """One performance. `right` says how it ended: None while it plays, then whether the sums are right."""

    def __init__(self, place: Place, stack: Stack, console: Console) -> None:
        self.place = place
        self.logs = stack.logs
        self.screen = Screen(console, Events(place.settings.topic))
        self.cycles: Cycles
        self.ending: demo_ending.Ending
        self.right: bool | None = None
        self._launcher = stack.launcher
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    async def run(self, *, stay: bool, afterwards: Callable[["Play"], None] | None) -> None:
        """The whole play. Raises `StackError` and what the clients raise."""
        async with self._pools() as (crm, operator, chessboard), asyncio.TaskGroup() as group:
            floor = await self._open(crm, operator, chessboard)
            await self._start_processes()
            events = self.screen.events.follow(self.place.kafka())
            works = (self.cycles.follow(), events, self._measure(operator), self._look(chessboard, operator))
            watching = [group.create_task(work) for work in works]
            await self._catch_up(group, crm, floor)
            await self._tick()
            self.right = await self._check(operator, chessboard, floor)
            if afterwards:
                await asyncio.to_thread(afterwards, self)
            if stay:
                await self._stay()
            for task in watching:
                task.cancel()

    def check(self) -> None:
        """Raise `StackError` when the worker, the chessboard or a server is gone."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                raise StackError(f"the {name} ended by itself (exit code {process.returncode}).\n{tail(self._log(name))}")
        self._launcher.check()

    def stop(self) -> None:
        """Leave the picture and let both finish what they have in hand, before their servers go."""
        self.screen.end()
        alive = {name: process for name, process in self._processes.items() if process.poll() is None}
        for process in alive.values():
            process.terminate()
        for name, process in alive.items():
            if process.wait(timeout=_STOP):
                raise StackError(f"the {name} ended with exit code {process.returncode}.\n{tail(self._log(name))}")

    @asynccontextmanager
    async def _pools(self) -> AsyncIterator[tuple[Pool, Pool, Pool]]:
        """The managers' connections, an operator's, who may read all of the CRM, and the chessboard's."""
        async with AsyncExitStack() as opened:
            pools = []
            for name in (addresses.CRM, addresses.OPERATOR, addresses.CHESSBOARD):
                pools.append(await open_pool(self.place.url(name), size=2, application="demo"))
                opened.callback(pools[-1].terminate)
            yield pools[0], pools[1], pools[2]

    async def _open(self, crm: Pool, operator: Pool, chessboard: Pool) -> Floor:
        """Fill the floor and say where everything is."""
        client = await self.place.temporal()
        self.cycles = Cycles(client, self.place.settings.schedule_id, lambda: demo_floor.backlog(operator), self.screen.cycle)
        floor = await demo_floor.seed(crm)
        await demo_floor.make_poison(self.place.url(addresses.ADMIN), floor.poison)
        await demo_grid.seed(chessboard, floor.holders)
        self.screen.names, self.screen.grid.flats = floor.names, floor.flats
        self.screen.seeded = self.screen.now = await demo_floor.statuses(operator)
        self.screen.backlog = await demo_floor.backlog(operator)
        await self.screen.grid.look(chessboard, operator)
        self.screen.begin()
        ui = self.place.web_ui
        self.screen.link("Web UI", f"{ui}/schedules/{self.place.settings.schedule_id}" if ui else "set TEMPORAL_UI_URL to see it")
        self.screen.link("Floor", f"{len(floor.names)} bookings of {', '.join(demo_floor.TENANTS)}")
        self.screen.say(f"{self.screen.backlog} bookings are overdue, {demo_floor.WATCHED} more become due one by one")
        self.screen.say(f"Poison: {floor.names[floor.poison]} refuses any change, as a bug would")
        self.screen.note(self.screen.grid.line())
        return floor

    async def _start_processes(self) -> None:
        """The worker, and the consumer that frees the flats."""
        for name, program in (("worker", [sys.executable, str(ROOT / "worker.py")]), ("chessboard", demo_grid.CONSUMER)):
            self._processes[name] = self._launcher.start(
                program, self._log(name), stop="SIGTERM=18,SIGKILL=5", env=self.place.addresses
            )
        worker = await self._ready("worker", "worker started")
        self.screen.link("Worker", f"python worker.py, {worker['web']}/readyz")
        chessboard = await self._ready("chessboard", "chessboard started")
        self.screen.link("Chessboard", f"python -m chessboard run, {chessboard['web']}/readyz")

    async def _ready(self, name: str, event: str) -> dict[str, str]:
        deadline = asyncio.get_running_loop().time() + _START
        while not (started := self._said(name, event)):
            if asyncio.get_running_loop().time() > deadline:
                raise StackError(f"the {name} was not ready after {_START:.0f} seconds.\n{tail(self._log(name))}")
            await asyncio.sleep(0.1)
        return started

    def _log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def _said(self, name: str, event: str) -> dict[str, str]:
        """A process's first log line of this kind, or nothing yet."""
        for line in self._log(name).read_text(encoding="utf-8", errors="replace").splitlines():
            if f'"{event}"' in line:
                said: dict[str, str] = json.loads(line)
                return said
        return {}

    async def _catch_up(self, group: asyncio.TaskGroup, crm: Pool, floor: Floor) -> None:
        """Trigger cycles until one had room left in its reserve batch (L3); a manager is in the way of the first ones."""
        locked = asyncio.Event()
        manager = group.create_task(self._extend(crm, floor, locked))
        await locked.wait()
        self.screen.say(f"Triggering cycles instead of waiting: each takes {BATCH_SIZE} of a phase at most")
        while (await self.cycles.another()).result.reserve_expired_count >= BATCH_SIZE or len(self.cycles.done) <= _HOLD_CYCLES:
            if len(self.cycles.done) >= _HOLD_CYCLES:
                await manager
            if len(self.cycles.done) >= _MOST_CYCLES:
                raise StackError(f"the overdue bookings are not worked off after {_MOST_CYCLES} cycles")
            await asyncio.sleep(_PAUSE)

    async def _extend(self, crm: Pool, floor: Floor, locked: asyncio.Event) -> None:
        """A manager's Extend that is late to commit: the row is locked, so the worker skips it without waiting (A3, R3)."""
        name = floor.names[floor.locked]
        async with UnitOfWork(crm) as connection:
            now = await connection.fetchval("SELECT clock_timestamp()")
            by = By(actor="manager", action="Extend", at=now, request="demo")
            await command(connection, floor.locked, lambda booking: booking.extend(now + timedelta(days=2), now), by)
            self.screen.say(f"Locked: a manager is extending {name}, and has not committed yet")
            locked.set()
            until = asyncio.get_running_loop().time() + _HOLD_SECONDS
            while not (done := len(self.cycles.done)) or (done < _HOLD_CYCLES and asyncio.get_running_loop().time() < until):
                await connection.execute("SELECT 1")  # an idle transaction would be ended by the server
                await asyncio.sleep(0.3)
        self.screen.say(f"The manager commits: {name} has two more days")

    async def _tick(self) -> None:
        """What became due meanwhile is taken by the schedule's own tick, on the full minute (L1)."""
        tick = next_minute()
        self.screen.say(f"Caught up. More become due; the schedule itself fires at {tick:%H:%M:%S}")
        telling = asyncio.create_task(self._tell_waiting())
        try:
            while not (cycle := await self.cycles.next_after(len(self.cycles.done), patience=100)).on_the_minute:
                continue
        finally:
            telling.cancel()
        taken = cycle.result.reserve_expired_count + cycle.result.booking_expired_count
        self.screen.say(f"The tick came and took the {taken} bookings that had become due meanwhile")

    async def _tell_waiting(self) -> None:
        while True:
            await asyncio.sleep(_NOTE_EVERY)
            left = (next_minute() - datetime.now(UTC)).seconds
            self.screen.note(f"{self.screen.backlog} bookings are due by now; the tick comes in {left} s")

    async def _check(self, operator: Pool, chessboard: Pool, floor: Floor) -> bool:
        await self.screen.events.wait_for((await demo_floor.sums(operator, floor)).expired)
        held = {object_id: booking_id for object_id, booking_id in floor.holders.items() if booking_id}
        deadline = asyncio.get_running_loop().time() + _FREE
        while (objects := await demo_grid.at_the_end(chessboard, operator, held)).wrong:
            if asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(0.2)
        sums = await demo_floor.sums(operator, floor)
        self.ending = demo_ending.Ending(sums, objects, self.screen.events, self.cycles.done, set(floor.active))
        await self.screen.grid.look(chessboard, operator)
        self.screen.measured(await demo_floor.statuses(operator), await demo_floor.backlog(operator))
        self.screen.end()
        self.screen.show(self.ending.panel(), self.ending.lines())
        return self.ending.right

    async def _stay(self) -> None:
        """Until Enter, or the end of standard input; cycles go on meanwhile and are told."""
        around = demo_ending.look_around(self.place, self.cycles.done[-1])
        self.screen.show("", [line for name, text in around for line in (f"{name}:", f"    {text}")])
        self.screen.show("[bold]Everything stays up and goes on: press Enter to stop.[/bold]")
        pressed = asyncio.Event()
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), pressed.set)
        await pressed.wait()
        sys.stdin.readline()

    async def _look(self, chessboard: Pool, operator: Pool) -> None:
        while True:
            await self.screen.grid.look(chessboard, operator)
            await asyncio.sleep(0.2)

    async def _measure(self, operator: Pool) -> None:
        while True:
            self.screen.measured(await demo_floor.statuses(operator), await demo_floor.backlog(operator))
            await asyncio.sleep(0.5)
