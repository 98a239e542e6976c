"""`booking-expiration status`: everything that tells whether the job is well, on one screen."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from db import migrations, overview
from db.overview import LastCycle, Overview
from db.reading import reading
from domain.events import Phase
from operators import frame, pollers, sources, words
from operators.frame import Json
from operators.pollers import Poller
from operators.sources import Schedule
from operators.verdict import PATIENCE, STALE
from settings import OperatorSettings

LATE: Final = PATIENCE.total_seconds()
"""As the ages that are read: bookings, and their events after them, wait for the next minute's cycle and no longer."""

MANY: Final = {"bookings": 100, "records": 1000}
"""Backlogs that alert (O5, O6)."""


@dataclass(frozen=True, slots=True)
class Status:
    """What was read; None where the source could not be read, and then `unreadable` says why."""

    at: datetime | None
    database: Overview | None
    schedule: Schedule | None
    pollers: Sequence[Poller] | None
    unreadable: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the screen; `well` is None where nobody knows."""

    name: str
    well: bool | None
    text: str


def status(*, as_json: Json = False) -> None:
    """Show schedule, last cycle, backlog, pauses, outbox, workers and schema. Exit code 1 only when a source cannot be read."""
    found = frame.run(_read(frame.settings()))
    if as_json:
        frame.print_json(as_data(found))
    else:
        frame.console.print(_table(lines(found)))
    sources.report(found.unreadable)


async def _read(given: OperatorSettings) -> Status:
    unreadable: dict[str, str] = {}
    seen, temporal = await asyncio.gather(
        sources.attempt("database", _database(given), given, unreadable),
        sources.attempt("temporal", _temporal(given), given, unreadable),
    )
    schedule, polling = temporal or (None, None)
    return Status(seen.reading.at if seen else None, seen, schedule, polling, unreadable)


async def _database(given: OperatorSettings) -> Overview:
    async with frame.database(given) as pool, reading(pool) as connection:
        return await overview.read(connection)


async def _temporal(given: OperatorSettings) -> tuple[Schedule, list[Poller]]:
    client = await frame.frontend()
    return await asyncio.gather(sources.schedule(client, given.schedule_id), pollers.of(client, given.task_queue))


def lines(found: Status) -> list[Line]:
    """The screen, line by line."""
    now = found.at or datetime.now(UTC)
    return [
        *(_schedule_line(found.schedule, now) if found.schedule else [Line("schedule", None, "not read")]),
        *(_database_lines(found.database) if found.database else [Line("database", None, "not read")]),
        *(_worker_lines(found.pollers) if found.pollers is not None else [Line("workers", None, "not read")]),
    ]


def _schedule_line(schedule: Schedule, now: datetime) -> Iterator[Line]:
    if not schedule.exists:
        yield Line("schedule", False, "does not exist: no cycle starts. booking-expiration schedule apply")
        return
    runs = f"last run {words.moment(schedule.last_run)}, next {words.moment(schedule.next_run) if schedule.next_run else 'none'}"
    if schedule.paused:
        why = f"paused by {schedule.pause.by}: {schedule.pause.reason}" if schedule.pause else f"paused: {schedule.note}"
        yield Line("schedule", False, f"{why}{_until(schedule, now)}; {runs}")
    elif schedule.used_up:
        yield Line("schedule", False, f"{sources.USED_UP}; {runs}. {sources.renew(schedule.schedule_id)}")
    else:
        yield Line("schedule", True, f"running; {runs}")


def _until(schedule: Schedule, now: datetime) -> str:
    """The end of a pause, and what has become of it: without its timer, or without a worker, nobody resumes it."""
    if schedule.pause is None or schedule.pause.until is None:
        return ""
    end = words.moment(schedule.pause.until)
    if not schedule.timer_runs:
        return f", until somebody resumes it: its timer, for {end}, is gone"
    return f", until {end}" + (" (over, and nothing has resumed it: does a worker poll?)" if schedule.pause.until < now else "")


def _database_lines(seen: Overview) -> Iterator[Line]:
    now, read, paused = seen.reading.at, seen.reading, {pause.phase: pause for pause in seen.pauses}
    yield _cycle_line(seen.cycle, now)
    for phase, waiting, oldest in (
        (Phase.RESERVE, read.reserve_backlog, read.reserve_oldest_due),
        (Phase.BOOKING, read.booking_backlog, read.booking_oldest_due),
    ):
        text = f"{waiting:,} overdue, the oldest for {words.age(oldest)}" if waiting else "nothing overdue"
        yield Line(f"backlog {phase}", waiting <= MANY["bookings"] and oldest <= LATE, text)
        if pause := paused.get(phase):
            yield Line(f"phase {phase}", False, words.paused(pause.actor, pause.until, pause.reason))
    if seen.hold.on or seen.hold.allowance:
        left = f"{words.number(seen.hold.allowance, 'booking')} may still pass"
        held = f"expiry is held: more than {seen.hold.limit:,} bookings are due" if seen.hold.on else "not held any more"
        yield Line("hold", not seen.hold.on, f"{held}; {left}")
    yield Line("poison", not read.poison, f"{words.number(read.poison, 'booking')} refused to expire")
    text = f"{words.number(read.outbox_backlog, 'record')} to go out"
    text += f", the oldest for {words.age(read.outbox_oldest)}" if read.outbox_backlog else ""
    yield Line("outbox", read.outbox_backlog <= MANY["records"] and read.outbox_oldest <= LATE, text)
    yield Line("outbox parked", not read.outbox_parked, f"{words.number(read.outbox_parked, 'record')} set aside")
    yield _schema_line(seen)


def _cycle_line(cycle: LastCycle, now: datetime) -> Line:
    if cycle.finished_at is None:
        return Line("last cycle", False, "none has ended yet")
    counts = cycle.counts
    done = f"{counts.get('ReserveExpiredCount', 0)} Reserve and {counts.get('BookingExpiredCount', 0)} Booking expired"
    text = f"{cycle.outcome} {words.age(now - cycle.finished_at)} ago: {done}"
    if cycle.outcome != "completed":
        text += f"; the last success {f'{words.age(now - cycle.success_at)} ago' if cycle.success_at else 'never'}"
    fresh = cycle.success_at is not None and now - cycle.success_at <= STALE
    return Line("last cycle", fresh and cycle.outcome == "completed", text)


def _schema_line(seen: Overview) -> Line:
    newest = seen.reading.schema_version or "none"
    if seen.missing_migrations:
        return Line("schema", False, f"version {newest}; not applied: {', '.join(seen.missing_migrations)}")
    return Line("schema", True, f"version {newest}, all {len(migrations.known())} known migrations applied")


def _worker_lines(found: Sequence[Poller]) -> Iterator[Line]:
    for kind in pollers.KINDS:
        known = [poller for poller in found if poller.kind == kind]
        polling = [poller for poller in known if poller.live] or known[:1]
        text = ", ".join(f"{poller.identity} ({words.age(poller.seconds_ago)} ago)" for poller in polling[:5])
        text += f" and {len(polling) - 5} more" if len(polling) > 5 else ""  # noqa: PLR2004 # as many as a line holds
        live = any(poller.live for poller in polling)
        nobody = f"nobody polls: start a worker{f'; the last one was {text}' if text else ''}"
        yield Line(f"workers, {kind}", live, text if live else nobody)


def _table(shown: Sequence[Line]) -> Table:
    table = Table(show_header=False)
    for line in shown:
        mark, style = {True: ("ok", "green"), False: ("attention", "bold red"), None: ("unknown", "bold yellow")}[line.well]
        table.add_row(Text(mark, style=style), line.name, Text(line.text))  # an operator's words are no markup
    return table


def as_data(found: Status) -> dict[str, Any]:
    """The same for programs; the keys are a contract (docs/commands.md)."""
    seen = found.database
    return {
        "at": words.plain(found.at),
        "schedule": words.plain(found.schedule),
        "cycle": words.plain(seen.cycle) if seen else None,
        "phases": _phases(seen) if seen else None,
        "hold": {"held": seen.hold.on, "limit": seen.hold.limit, "allowance": seen.hold.allowance} if seen else None,
        "poison": seen.reading.poison if seen else None,
        "outbox": {
            "waiting": seen.reading.outbox_backlog,
            "oldest_seconds": seen.reading.outbox_oldest,
            "parked": seen.reading.outbox_parked,
        }
        if seen
        else None,
        "workers": words.plain(found.pollers),
        "schema": {"version": seen.reading.schema_version, "missing": list(seen.missing_migrations)} if seen else None,
        "attention": [line.name for line in lines(found) if line.well is False],
        "unreadable": found.unreadable,
    }


def _phases(seen: Overview) -> dict[str, Any]:
    pauses = {pause.phase: pause for pause in seen.pauses}
    return {
        phase.value: {"backlog": backlog, "oldest_seconds": oldest, "paused": words.plain(pauses.get(phase))}
        for phase, backlog, oldest in (
            (Phase.RESERVE, seen.reading.reserve_backlog, seen.reading.reserve_oldest_due),
            (Phase.BOOKING, seen.reading.booking_backlog, seen.reading.booking_oldest_due),
        )
    }
