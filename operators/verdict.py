"""Why a booking did or did not expire, and what to do now: a pure decision over what was read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from db.controls import Hold, Pause
from db.holders import LockState, RowLock
from db.overview import LastCycle
from db.story import Announcement, Refused, Story
from domain.booking import EXPIRED
from domain.events import Phase
from operators import sources, words
from operators.sources import Schedule

STALE: Final = timedelta(minutes=5)
"""Without a completed cycle for as long, cycles are what is wrong (O5)."""

PATIENCE: Final = timedelta(minutes=2)
"""A due booking waits for the next minute's tick and for that cycle's end; longer than this, something keeps it."""

_BOOKINGS: Final = "runbooks/booking-expiration.md"
_OUTBOX: Final = "runbooks/outbox-backlog.md"


@dataclass(frozen=True, slots=True)
class Facts:
    """What was read of one booking and of the job at `now`, the database's clock (UTC). `schedule`: None where nobody could tell.

    `due_before`: due bookings that the claim takes first; `batch_size`: rows per phase and cycle.
    """

    now: datetime
    story: Story
    lock: RowLock = field(default_factory=lambda: RowLock(LockState.FREE, (), sees_all=True))
    cycle: LastCycle = field(default_factory=LastCycle)
    pauses: Sequence[Pause] = ()
    hold: Hold = field(default_factory=Hold)
    schedule: Schedule | None = None
    due_before: int = 0
    batch_size: int = 200

    @property
    def overdue(self) -> timedelta | None:
        """How long ago the deadline of the present phase passed; negative before it, None for a terminal booking."""
        deadline = self.story.booking.deadline
        return None if deadline is None else self.now - deadline

    @property
    def is_due(self) -> bool:
        """Whether the next cycle would take it if nothing kept it (D3)."""
        return self.overdue is not None and self.overdue > timedelta(0)

    @property
    def cycles_before(self) -> int:
        """How many whole batches of its phase go first."""
        return self.due_before // self.batch_size


@dataclass(frozen=True, slots=True)
class Finding:
    """One answer: a code for programs, what is the matter, what to do now, and the section of the runbook."""

    code: str
    what: str
    do: str
    runbook: str


def judge(facts: Facts) -> list[Finding]:
    """Everything that explains the booking's state, the weightiest first; never nothing."""
    booking = facts.story.booking
    if booking.status in EXPIRED.values():
        return [_expired(facts)]
    if booking.phase is None:
        return [_ended(facts)]
    overdue = facts.overdue
    if overdue is None:
        text = f"The booking is {booking.status} without a deadline for its phase: no cycle ever finds it."
        return [Finding("no_deadline", text, "Wake the owner: the table refuses such a row.", f"{_BOOKINGS}#look-up-a-booking")]
    obstacles = list(_stopped(facts, booking.phase))
    if not facts.is_due:
        return [_not_due(facts, -overdue, obstacles)]
    return [*obstacles, *_refused(facts, booking.phase), *_held_up(facts)] or [_next(facts, booking.phase, overdue)]


def _expired(facts: Facts) -> Finding:
    booking = facts.story.booking
    record = next((each for each in facts.story.records if each.aggregate_version == booking.version), None)
    text = f"The booking expired at {words.moment(booking.expired_at)}"
    if not any(entry.version == booking.version and entry.action == "Expire" for entry in facts.story.audit):
        text += ", and no audit row says so: somebody changed the row by hand."
        return Finding("expired_without_audit", text, "Tell the owner; do not touch the row.", f"{_BOOKINGS}#look-up-a-booking")
    if record is None:
        text += ", and the outbox holds no event of it: it was removed there, or never written."
        return Finding("expired_without_event", text, "Tell the owner: consumers may not have heard.", f"{_OUTBOX}#first-look")
    return _announced(f"{text}, as it should", record, facts.now)


def _announced(text: str, record: Announcement, now: datetime) -> Finding:
    if record.published_at is not None:
        place = f"{record.topic}, partition {record.kafka_partition}, offset {record.kafka_offset}"
        text += f"; Kafka has its event since {words.moment(record.published_at)} ({place})."
        do = "Nothing here. If the object is still taken, ask the chessboard's team, and give them that place in the topic."
        return Finding("expired_published", text, do, f"{_OUTBOX}#find-an-event-in-kafka")
    if record.skipped_at is not None:
        text += f"; its event was given up at {words.moment(record.skipped_at)}: consumers never hear of it."
        do = "booking-expiration history --operator says who did that and why; the object is freed by hand at the chessboard."
        return Finding("expired_skipped", text, do, f"{_OUTBOX}#parked-record")
    if record.parked_at is not None:
        text += f"; its event (outbox record {record.id}) is parked: {record.park_reason}."
        again = f"booking-expiration outbox requeue {record.id} --reason WHY"
        do = f"booking-expiration outbox show {record.id}; once the cause is gone: {again}"
        return Finding("expired_parked", text, do, f"{_OUTBOX}#parked-record")
    attempts = words.number(record.attempts, "attempt")
    text += f"; its event (outbox record {record.id}) waits to be published, after {attempts}."
    if now - record.occurred_at <= PATIENCE:
        return Finding("expired_waiting", text, "Wait: each cycle publishes.", f"{_OUTBOX}#first-look")
    return Finding(
        "expired_not_published", text, "booking-expiration status: is Kafka away?", f"{_OUTBOX}#outbox-oldest-over-5-min"
    )


def _ended(facts: Facts) -> Finding:
    booking, last = facts.story.booking, facts.story.audit[-1] if facts.story.audit else None
    who = f", by {last.actor}" if last and last.to_status == booking.status else ""
    text = f"The booking is {booking.status} since {words.moment(booking.updated_at)}{who}: it never changes again."
    return Finding("ended", text, "Nothing: such a booking does not expire.", f"{_BOOKINGS}#look-up-a-booking")


def _not_due(facts: Facts, ahead: timedelta, obstacles: Sequence[Finding]) -> Finding:
    booking = facts.story.booking
    deadline, left = words.moment(booking.deadline), words.age(ahead)
    text = f"The booking is not due: its deadline is {deadline}, in {left} by the database's clock."
    if obstacles:
        return Finding("not_due", f"{text} Then this will matter: {obstacles[0].what}", obstacles[0].do, obstacles[0].runbook)
    do = "Nothing: the first cycle after the deadline takes it."
    return Finding("not_due", text, do, f"{_BOOKINGS}#look-up-a-booking")


def _stopped(facts: Facts, phase: Phase) -> Iterator[Finding]:
    """What stops all bookings, or all of its phase."""
    schedule = facts.schedule
    if schedule is not None and not schedule.exists:
        yield Finding(
            "no_schedule",
            "There is no schedule: no cycle starts.",
            "booking-expiration schedule apply",
            f"{_BOOKINGS}#bring-the-schedule-back",
        )
    elif schedule is not None and schedule.paused:
        why = f"by {schedule.pause.by}: {schedule.pause.reason}" if schedule.pause else schedule.note or "without a reason"
        do = "Ask whoever paused it; then booking-expiration schedule resume --reason WHY"
        yield Finding("schedule_paused", f"The schedule is paused, {why}.", do, f"{_BOOKINGS}#schedule-paused")
    elif schedule is not None and schedule.used_up:
        what = f"The schedule starts no cycle any more: {sources.USED_UP}."
        yield Finding("schedule_used_up", what, sources.renew(schedule.schedule_id), f"{_BOOKINGS}#bring-the-schedule-back")
    for pause in (each for each in facts.pauses if each.phase is phase):
        what = f"The phase {phase} is {words.paused(pause.actor, pause.until, pause.reason)}."
        do = f"Ask {pause.actor}; then booking-expiration phase resume {phase} --reason WHY"
        yield Finding("phase_paused", what, do, f"{_BOOKINGS}#schedule-paused")
    if facts.hold.on:
        limit, left = f"{facts.hold.limit:,}", words.number(facts.hold.allowance, "booking")
        what = f"The safety catch holds all expiry back: more than {limit} bookings are due at once; {left} may still pass."
        do = "booking-expiration preview: are these deadlines meant? Only then booking-expiration release-hold"
        yield Finding("held", what, do, f"{_BOOKINGS}#held")
    yield from _no_cycle(facts)


def _no_cycle(facts: Facts) -> Iterator[Finding]:
    """A hold and a pause explain themselves: a cycle that ended so shows, as a completed one does, that cycles run."""
    cycle = facts.cycle
    since = cycle.finished_at if cycle.outcome in ("held", "paused") else cycle.success_at
    if cycle.outcome == "failed":
        what = f"The last cycle failed, {words.age(facts.now - (cycle.finished_at or facts.now))} ago."
        yield Finding(
            "cycle_failed", what, "Read its message in the Web UI, or in the worker's log.", f"{_BOOKINGS}#cycle-failed"
        )
    elif since is None or facts.now - since > STALE:
        ago = f"for {words.age(facts.now - since)}" if since else "yet"
        what, do = f"No cycle has completed {ago}.", "booking-expiration status: does a worker poll, does the schedule fire?"
        yield Finding("no_successful_cycle", what, do, f"{_BOOKINGS}#no-successful-cycle")


def _refused(facts: Facts, phase: Phase) -> Iterator[Finding]:
    """A refusal counts as long as neither the booking nor its deadline changed after it."""
    if refusal := _last_refusal(facts, phase):
        often = words.number(refusal.times, "time")
        what = f"It is refused as poison, {often}, last at {words.moment(refusal.last_seen_at)}: {refusal.reason}."
        do = "Not by hand: whoever owns the rule that refuses it decides. The other bookings expire past it."
        yield Finding("poison", what, do, f"{_BOOKINGS}#poison-booking-does-not-expire")


def _last_refusal(facts: Facts, phase: Phase) -> Refused | None:
    booking = facts.story.booking
    since = max(moment for moment in (booking.deadline, booking.updated_at) if moment is not None)
    return next((each for each in facts.story.refusals if each.phase is phase and each.last_seen_at >= since), None)


def _held_up(facts: Facts) -> Iterator[Finding]:
    """What passes over this booking, or takes others first."""
    if facts.lock.state is LockState.HELD:
        holder = facts.lock.holders[0]
        who = (
            f"session {holder.pid} ({holder.application or 'no name'}, role {holder.role})"
            if holder.pid
            else "a prepared transaction"
        )
        since = f"since {words.moment(holder.since)}" if holder.since else "since when is not visible to our role"
        what = f"Its row is locked by {who}, {since}: cycles pass over it."
        do = "Wait for it to end. If it does not: ask its owner, or a database administrator to end that session."
        yield Finding("locked", what, do, f"{_BOOKINGS}#backlog-over-100")
    if facts.cycles_before:
        wait = words.number(facts.cycles_before + 1, "cycle")
        what = f"{words.number(facts.due_before, 'due booking')} go first: its turn comes in about {wait}, one a minute."
        do = "Wait, or catch up on purpose: booking-expiration drain"
        yield Finding("backlog", what, do, f"{_BOOKINGS}#backlog-over-100")


def _next(facts: Facts, phase: Phase, overdue: timedelta) -> Finding:
    text = f"The booking is due for {words.age(overdue)}"
    if overdue <= PATIENCE:
        return Finding("next_cycle", f"{text}: the next cycle takes it.", "Wait a minute.", f"{_BOOKINGS}#look-up-a-booking")
    if facts.lock.state is LockState.UNCLEAR:
        pids = ", ".join(str(holder.pid or "a prepared transaction") for holder in facts.lock.holders)
        what = f"{text}. Several sessions at once may hold its row; those with locks on bookings now: {pids}."
        do = "Ask again in a minute: sessions that stay in the list are the ones to end."
        return Finding("perhaps_locked", what, do, f"{_BOOKINGS}#backlog-over-100")
    what = f"{text}, and nothing that can be seen keeps it: cycles complete, phase {phase} runs, nobody holds its row."
    do = "Ask again after the next cycle; if it is still there, wake the owner."
    return Finding("overdue", what, do, f"{_BOOKINGS}#oldest-overdue-over-5-min")
