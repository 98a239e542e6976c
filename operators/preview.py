"""`booking-expiration preview`: who would expire, now or at a given moment, and how long it would take. Reads only."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import typer
from rich.table import Table
from rich.text import Text

from db import controls, due, server
from db.controls import Hold, Pause
from db.due import DueBooking, PhaseDue
from db.reading import reading
from domain.events import Phase
from operators import arguments, frame, sources, words
from operators.frame import Json
from operators.sources import Schedule
from settings import OperatorSettings

SHOWN: Final = 20
"""The oldest bookings, and the largest groups, that are listed."""

By = Literal["tenant", "phase", "hour"]
AsOf = Annotated[
    str | None, typer.Option("--as-of", metavar="MOMENT", help="At this moment instead of now: 2026-07-01T12:00:00Z.")
]
OnlyPhase = Annotated[str | None, typer.Option("--phase", metavar="Reserve|Booking", help="Only one of the two phases.")]
GroupedBy = Annotated[By, typer.Option("--by", help="What the table counts by; hour: of the deadline, UTC.")]


@dataclass(frozen=True, slots=True)
class Preview:
    """What would expire at `as_of` (UTC) if nothing else happened until then; `now` by the database's clock.

    `cycles`: how many minutes' cycles it takes, one batch of `batch_size` per phase each; poison never expires. `pauses` and
    `hold` as they are at `as_of`; `schedule`: None where nobody could tell, and then `unreadable` says why.
    """

    now: datetime
    as_of: datetime
    batch_size: int
    phases: Sequence[PhaseDue]
    groups: dict[str, int]
    groups_complete: bool
    oldest: Sequence[DueBooking]
    pauses: Sequence[Pause] = ()
    hold: Hold = field(default_factory=Hold)
    schedule: Schedule | None = None
    unreadable: dict[str, str] = field(default_factory=dict)

    @property
    def cycles(self) -> int:
        """The phases share a cycle, so the larger one decides."""
        return max((-(-(phase.total - phase.poison) // self.batch_size) for phase in self.phases), default=0)

    @property
    def waits_for(self) -> Iterator[tuple[str, str]]:
        """What must be over before those cycles do it: the code that `explain` has for it, and in words."""
        if (schedule := self.schedule) is not None:
            if not schedule.exists:
                yield "no_schedule", "there is a schedule"
            elif schedule.paused:
                yield "schedule_paused", "the schedule is no longer paused"
            elif schedule.used_up:
                yield "schedule_used_up", "the schedule has runs left"
        due_phases = {each.phase for each in self.phases if each.total > each.poison}
        for pause in self.pauses:
            if pause.phase in due_phases:
                yield "phase_paused", f"{pause.phase} is no longer paused"
        if self.hold.on:
            passing = f"; {words.number(self.hold.allowance, 'booking')} may pass before" if self.hold.allowance else ""
            yield "held", f"the hold of more than {self.hold.limit:,} is over or released{passing}"


def preview(*, as_of: AsOf = None, phase: OnlyPhase = None, by: GroupedBy = "tenant", as_json: Json = False) -> None:
    """Show who would expire, without locks or writes: totals, the largest groups, the oldest 20, how many cycles it takes."""
    moment = None if as_of is None else arguments.moment(as_of, "--as-of")
    phases = list(Phase) if phase is None else [arguments.phase(phase)]
    given = frame.settings()
    told, schedule, unreadable = frame.run(sources.beside_schedule(_read(given, moment, phases, by), given))
    found = replace(told, schedule=schedule, unreadable=unreadable)
    if as_json:
        frame.print_json(as_data(found, by))
    else:
        _show(found, by)
    sources.report(unreadable)


async def _read(given: OperatorSettings, moment: datetime | None, phases: Sequence[Phase], by: By) -> Preview:
    async with frame.database(given) as pool, reading(pool) as connection:
        now = await server.clock(connection)
        as_of, groups, oldest = moment or now, Counter[str](), []
        counted = [await due.count(connection, phase, as_of) for phase in phases]
        for phase in phases:
            oldest += await due.oldest(connection, phase, as_of, SHOWN)
            if by != "phase":
                groups.update(await due.groups(connection, by, phase, as_of))
        pauses, hold = await controls.paused(connection, max(now, as_of)), await controls.hold(connection, as_of)
    if by == "phase":
        groups.update({each.phase.value: each.total for each in counted if each.total})
    return Preview(
        now=now,
        as_of=as_of,
        batch_size=given.batch_size,
        phases=counted,
        groups=dict(sorted(groups.items()) if by == "hour" else groups.most_common()),
        groups_complete=by == "phase" or all(each.total <= due.GROUPED for each in counted),
        oldest=sorted(oldest, key=lambda booking: (booking.deadline, booking.id))[:SHOWN],
        pauses=pauses,
        hold=hold,
    )


def as_data(found: Preview, by: By) -> dict[str, Any]:
    """The same for programs; the keys are a contract (docs/commands.md)."""
    return {
        "now": words.plain(found.now),
        "as_of": words.plain(found.as_of),
        "batch_size": found.batch_size,
        "cycles": found.cycles,
        "waits_for": [{"code": code, "what": what} for code, what in found.waits_for],
        "phases": {
            each.phase.value: {
                "total": each.total,
                "counted_all": each.total < due.COUNTED,
                "poison": each.poison,
                "oldest": words.plain(each.oldest),
            }
            for each in found.phases
        },
        "by": by,
        "groups": found.groups,
        "groups_complete": found.groups_complete,
        "oldest": words.plain(found.oldest),
        "unreadable": found.unreadable,
    }


def _show(found: Preview, by: By) -> None:
    out = frame.console
    when = "now" if found.as_of == found.now else f"at {words.moment(found.as_of)}"
    out.print(Text(f"Would expire {when} (database's clock: {words.moment(found.now)}); nothing is changed by looking:"))
    for line in _totals(found):
        out.print(Text(line))
    if not found.oldest:
        return
    if by != "phase":
        out.print(_groups(found, by))
    out.print(_oldest(found))
    if poison := next((each.id for each in found.oldest if each.refusal), None):
        out.print(Text(f"Why poison does not expire: booking-expiration explain {poison}"))


def _totals(found: Preview) -> Iterator[str]:
    for each in found.phases:
        more = " or more" if each.total >= due.COUNTED else ""
        poison = f", of which {each.poison:,} known as poison will not" if each.poison else ""
        since = f", the oldest due since {words.moment(each.oldest)}" if each.oldest else ""
        yield f"  {each.phase}: {words.number(each.total, 'booking')}{more}{poison}{since}"
    cycles, batch = words.number(found.cycles, "cycle"), f"{found.batch_size:,} of each phase a minute"
    once = " and ".join(what for _, what in found.waits_for)
    yield f"  takes {cycles} ({batch}){f', once {once}' if once else ''}" if found.cycles else "  no cycle has anything to do"


def _groups(found: Preview, by: By) -> Table:
    table = Table(by if found.groups_complete else f"{by} (of the first {due.GROUPED:,} of a phase)", "bookings")
    for key, count in list(found.groups.items())[:SHOWN]:
        table.add_row(Text(key), f"{count:,}")
    if left := found.groups.keys() - list(found.groups)[:SHOWN]:
        table.add_row(f"{len(left):,} more", f"{sum(found.groups[key] for key in left):,}")
    return table


def _oldest(found: Preview) -> Table:
    table = frame.table("booking", "deadline", "overdue", "status", "tenant", whole=("booking",))
    table.title, table.title_justify = f"the oldest {len(found.oldest)}; tenants by the beginning of their id", "left"
    for each in found.oldest:
        status = Text(each.status).append(", poison", style="red") if each.refusal else Text(each.status)
        overdue = words.age(found.as_of - each.deadline)
        table.add_row(Text(str(each.id)), words.moment(each.deadline), overdue, status, f"{str(each.tenant_id)[:8]}…")
    return table
