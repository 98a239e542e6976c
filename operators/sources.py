"""Reading from the database and from Temporal side by side: one of them being away does not hide what the other one knows."""

import asyncio
import io
from collections.abc import Awaitable, Callable, Mapping
from contextlib import redirect_stderr
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, Generic, TypeVar

import typer
from temporalio.api.schedule.v1 import ScheduleState
from temporalio.api.workflowservice.v1 import DescribeScheduleResponse

from activities import schedule_note, schedule_state
from activities.schedule_note import Pause
from activities.schedule_state import Frontend
from connections import TemporalUnreachableError
from operators import frame, refusals, timer
from settings import OperatorSettings

T = TypeVar("T")

SCHEDULE_WITHIN: Final = 5.0
"""Seconds that the schedule may keep what the database has told waiting."""

USED_UP: Final = "its limited number of runs is used up"


@dataclass(frozen=True, slots=True)
class Schedule:
    """The schedule that starts the cycles; moments in UTC. Without it, `exists` is False and the rest says nothing.

    `timer_runs`: whether what shall end a pause is there; None where nobody gave the pause an end.
    """

    schedule_id: str = ""
    exists: bool = False
    paused: bool = False
    note: str = ""
    pause: Pause | None = None
    timer_runs: bool | None = None
    used_up: bool = False
    last_run: datetime | None = None
    next_run: datetime | None = None


def used_up(state: ScheduleState) -> bool:
    """Whether the schedule starts no run any more, because somebody gave it a number of them and that is reached."""
    return bool(state.limited_actions and not state.remaining_actions)


def renew(schedule_id: str) -> str:
    """What to type then: `schedule apply` alone keeps an operator's limit (D1), and resuming does not lift it."""
    return f"temporal schedule delete --schedule-id {schedule_id} && booking-expiration schedule apply"


async def schedule(client: Frontend, schedule_id: str) -> Schedule:
    """The schedule as Temporal has it. Raises `RPCError`."""
    described = await schedule_state.describe(client, schedule_id)
    if described is None:
        return Schedule(schedule_id)
    found = _schedule(schedule_id, described)
    return replace(found, timer_runs=await timer.runs(client, found.pause))


def _schedule(schedule_id: str, described: DescribeScheduleResponse) -> Schedule:
    state, info = described.schedule.state, described.info
    ran = [action.actual_time.ToDatetime(UTC) for action in info.recent_actions]
    coming = [moment.ToDatetime(UTC) for moment in info.future_action_times]
    return Schedule(
        schedule_id=schedule_id,
        exists=True,
        paused=state.paused,
        note=state.notes,
        pause=schedule_note.read(state.notes) if state.paused else None,
        used_up=used_up(state),
        last_run=max(ran, default=None),
        next_run=None if state.paused else min(coming, default=None),
    )


@dataclass(frozen=True, slots=True)
class Loaded(Generic[T]):
    """Settings, or what is wrong with them, one line each."""

    value: T | None
    mistakes: list[str] = field(default_factory=list)

    @property
    def unset(self) -> bool:
        """Whether nothing is wrong but that they are not given here."""
        return bool(self.mistakes) and all(": is not set" in line for line in self.mistakes)


def loaded(load: Callable[[], T]) -> Loaded[T]:
    """What `load` returns; where it would end the process with its lines on standard error, those lines."""
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            return Loaded(load())
    except SystemExit:
        return Loaded(None, [line.removeprefix("settings: ") for line in said.getvalue().splitlines()])


async def beside_schedule(work: Awaitable[T], given: OperatorSettings) -> tuple[T, Schedule | None, dict[str, str]]:
    """What `work` reads of the database, and at the same time the schedule: None where Temporal is away, and then why.

    Raises what `work` raises: without the database there is nothing to tell.
    """
    unreadable: dict[str, str] = {}
    looking = asyncio.ensure_future(attempt("temporal", _own_schedule(given), given, unreadable))
    try:
        found = await work
    except BaseException:
        looking.cancel()
        await asyncio.wait([looking])
        raise
    return found, await looking, unreadable


async def _own_schedule(given: OperatorSettings) -> Schedule:
    """Within a few seconds or not at all: what the database has told must not wait for it."""
    try:
        async with asyncio.timeout(SCHEDULE_WITHIN):
            return await schedule(await frame.frontend(), given.schedule_id)
    except TimeoutError:
        raise TemporalUnreachableError(f"no answer within {SCHEDULE_WITHIN:.0f} s") from None


async def attempt(source: str, work: Awaitable[T], given: OperatorSettings, unreadable: dict[str, str]) -> T | None:
    """What the source answers, or None and one line in `unreadable` that says why."""
    try:
        return await work
    except refusals.EXPECTED as error:
        unreadable[source] = refusals.line(error, lambda: given)
    return None


def report(unreadable: Mapping[str, str]) -> None:
    """Which sources could not be read and why, one line each on standard error, and exit code 1; nothing where all were."""
    for source, why in sorted(unreadable.items()):
        frame.say(f"{source} could not be read: {why}", err=True)
    if unreadable:
        raise typer.Exit(1)
