"""`booking-expiration explain BOOKING`: why this booking did or did not expire, and what to do now."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from db import controls, holders, overview, server, story
from db.holders import Holder, LockState, RowLock
from db.reading import reading
from db.story import Announcement
from db.unit_of_work import Connection
from operators import arguments, frame, sources, verdict, words
from operators.frame import Json
from operators.history import audit_table, found_in
from operators.sources import Schedule
from operators.verdict import Facts, Finding
from settings import OperatorSettings

BookingId = Annotated[str, typer.Argument(metavar="BOOKING", help="The booking's id.")]


def explain(booking: BookingId, *, as_json: Json = False) -> None:
    """Say why a booking did or did not expire, all that is kept about it, and what to do now. Reads only."""
    booking_id, given = arguments.identifier(booking, "BOOKING"), frame.settings()
    known, unreadable = frame.run(_read(given, booking_id))
    findings = verdict.judge(known)
    if as_json:
        frame.print_json(as_data(known, findings, unreadable))
    else:
        frame.console.print(Group(*_shown(known, findings)))
    sources.report(unreadable)


async def _read(given: OperatorSettings, booking_id: UUID) -> tuple[Facts, dict[str, str]]:
    """Both sources at once; without the database there is nothing to explain, without Temporal only the schedule is unknown."""
    known, schedule, unreadable = await sources.beside_schedule(found_in(given, _facts(given, booking_id)), given)
    return replace(known, schedule=schedule), unreadable


async def _facts(given: OperatorSettings, booking_id: UUID) -> Facts:
    async with frame.database(given) as pool, reading(pool) as connection:
        return await facts(connection, booking_id, given.batch_size)


async def facts(connection: Connection, booking_id: UUID, batch_size: int) -> Facts:
    """All that the database knows; the schedule is Temporal's. Raises `UnknownBookingError`."""
    now, told = await server.clock(connection), await story.read(connection, booking_id)
    phase, deadline, before = told.booking.phase, told.booking.deadline, 0
    if phase is not None and deadline is not None and deadline < now:
        before = await story.due_before(connection, phase, deadline, booking_id)
    return Facts(
        now=now,
        story=told,
        lock=await holders.of_booking(connection, booking_id),
        cycle=await overview.last_cycle(connection),
        pauses=await controls.paused(connection, now),
        hold=await controls.hold(connection, now),
        due_before=before,
        batch_size=batch_size,
    )


def as_data(facts: Facts, findings: Sequence[Finding], unreadable: dict[str, str]) -> dict[str, Any]:
    """The same for programs; the keys are a contract (docs/commands.md)."""
    told, overdue = facts.story, facts.overdue
    booking = words.plain(told.booking)
    del booking["events"]  # of this process, not of the booking
    return {
        "at": words.plain(facts.now),
        "booking": {**booking, "phase": told.booking.phase, "deadline": words.plain(told.booking.deadline)},
        "overdue_seconds": None if overdue is None else overdue.total_seconds(),
        "verdict": words.plain(findings),
        "lock": words.plain(facts.lock),
        "refusals": words.plain(told.refusals),
        "audit": words.plain(told.audit),
        "timeline": words.plain(told.cards),
        "outbox": words.plain(told.records),
        "backlog": {"before": facts.due_before, "cycles": facts.cycles_before + 1 if facts.is_due else 0},
        "cycle": words.plain(facts.cycle),
        "paused_phases": words.plain(facts.pauses),
        "hold": words.plain(facts.hold),
        "schedule": words.plain(facts.schedule),
        "unreadable": unreadable,
    }


def _shown(facts: Facts, findings: Sequence[Finding]) -> Iterator[Any]:
    told = facts.story
    yield Panel(Group(*_verdict(findings)), title=Text(f"booking {told.booking.id}"), title_align="left")
    facts_table = Table(show_header=False)
    for name, text in _rows(facts):
        facts_table.add_row(name, Text(text))
    yield facts_table
    if told.audit:
        yield audit_table(told.audit)


def _verdict(findings: Sequence[Finding]) -> Iterator[Text]:
    for number, finding in enumerate(findings):
        yield Text(finding.what if not number else f"Also: {finding.what}", style="bold" if not number else "")
        yield Text(f"  Now: {finding.do}")
        yield Text(f"  See: {finding.runbook}", style="dim")


def _rows(facts: Facts) -> Iterator[tuple[str, str]]:
    booking, told = facts.story.booking, facts.story
    yield "status", f"{booking.status}, version {booking.version}, changed {words.moment(booking.updated_at)}"
    yield "tenant, deal, object", f"{booking.tenant_id}, {booking.deal_id}, {booking.property_object_id}"
    if facts.overdue is not None:
        ago = f"{words.age(facts.overdue)} ago" if facts.is_due else f"in {words.age(-facts.overdue)}"
        yield "deadline", f"{words.moment(booking.deadline)}, {ago}; the database's clock says {words.moment(facts.now)}"
    yield "row lock", _lock(facts.lock)
    if facts.is_due:
        yield "due before it", f"{facts.due_before:,}, at {facts.batch_size:,} a cycle"
    for refusal in told.refusals:
        times = words.number(refusal.times, "time")
        yield "refused", f"{times} as {refusal.phase}, last {words.moment(refusal.last_seen_at)}: {refusal.reason}"
    for card in told.cards:
        yield "timeline", f"{card.kind} at {words.moment(card.at)}, on deal {card.deal_id}"
    for record in told.records:
        yield f"outbox record {record.id}", _record(record)
    cycle = facts.cycle
    ended, success = words.moment(cycle.finished_at), words.moment(cycle.success_at)
    yield "last cycle", f"{cycle.outcome or 'none'}, ended {ended}, last success {success}"
    yield "schedule", _schedule_says(facts.schedule)


def _lock(lock: RowLock) -> str:
    held = ", ".join(map(_holder, lock.holders))
    text = {
        LockState.FREE: "nobody holds it",
        LockState.HELD: f"held by {held}",
        LockState.UNCLEAR: f"by several at once, or by nobody; these have locks on bookings just now: {held}",
    }[lock.state]
    return text if lock.sees_all else f"{text}; since when, only a role with pg_read_all_stats may see"


def _holder(holder: Holder) -> str:
    if holder.pid is None:
        return "a prepared transaction (see pg_prepared_xacts)"
    since = f", since {words.moment(holder.since)}" if holder.since else ""
    return f"{holder.application or 'no name'} (session {holder.pid}, {holder.role}{since})"


def _record(record: Announcement) -> str:
    attempts = words.number(record.attempts, "attempt")
    if record.published_at:
        place = f"{record.topic}, partition {record.kafka_partition}, offset {record.kafka_offset}"
        return f"published {words.moment(record.published_at)} to {place}, after {attempts}; event {record.event_id}"
    if record.skipped_at:
        return f"given up {words.moment(record.skipped_at)}; event {record.event_id}"
    if record.parked_at:
        return f"parked {words.moment(record.parked_at)}: {record.park_reason}; event {record.event_id}"
    return f"to be published to {record.topic}, after {attempts}; event {record.event_id}"


def _schedule_says(schedule: Schedule | None) -> str:
    if schedule is None:
        return "not read"
    if not schedule.exists:
        return "there is none"
    if schedule.paused:
        gone = "; but the timer is gone that would resume it" if schedule.timer_runs is False else ""
        return f"paused: {schedule.note}{gone}"
    return sources.USED_UP if schedule.used_up else f"next run {words.moment(schedule.next_run)}"
