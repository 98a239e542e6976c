"""What the Web UI shows of a running cycle or drain: the same facts as their query `progress`, in markdown."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from activities.drain_messages import DrainProgress
from activities.messages import CycleProgress
from activities.schedule_note import one_line

RUNBOOK: Final = "runbooks/booking-expiration.md"


def failed(failures: Sequence[str]) -> str:
    """The end of a failed run's message: which step, why, and what to do."""
    return f"Failed: {'; '.join(dict.fromkeys(failures))}. What to do: {RUNBOOK}, section Cycle failed."


def of_cycle(progress: CycleProgress, runbook_url: str = "") -> str:
    """Step, counts so far, backlog, poison, parked records, what comes next. `runbook_url`: where the runbooks can be read."""
    lines = [f"**{progress.step}**" + (f", next: {progress.next_step}" if progress.next_step else "")]
    if progress.reason:
        lines += ["", f"**Attention:** {plain(progress.reason)}"]
    section = "Cycle failed" if progress.failures else "Held" if progress.held else ""
    lines += [
        "",
        f"- Reserve: {progress.reserve_expired} expired, {progress.reserve_backlog} were due at the start",
        f"- Booking: {progress.booking_expired} expired, {progress.booking_backlog} were due at the start",
        f"- AsOf: {progress.as_of.isoformat() if progress.as_of else 'not read yet'}",
        f"- held by somebody else and skipped: {progress.skipped_locked}",
        f"- published: {progress.published}, parked now: {progress.parked}, parked in all: {progress.parked_records}",
        *_poison(progress.poison_count, progress.poison_ids),
        *(f"- failed: {plain(failure)}" for failure in progress.failures),
        _runbook(runbook_url, section),
    ]
    return "\n".join(lines)


def of_drain(progress: DrainProgress, runbook_url: str = "") -> str:
    """Step, how far the cap is used up, what is left, rate and time left, limits."""
    done, limits = progress.so_far, progress.limits
    left = "not known yet" if progress.seconds_left is None else f"about {progress.seconds_left:.0f} s"
    lines = [f"**{progress.step}**"]
    if progress.reason:
        lines += ["", f"**Attention:** {plain(progress.reason)}"]
    lines += [
        "",
        f"- Reserve: {done.reserve_expired} expired, {progress.reserve_backlog} due now",
        f"- Booking: {done.booking_expired} expired, {progress.booking_backlog} due now",
        f"- {done.expired} of at most {limits.cap} in {done.batches} batches, {progress.pace(' bookings')}, left: {left}",
        f"- batches at once: {limits.lanes}, time budget: {limits.time_budget:.0f} s, pause: {limits.pause:.0f} s",
        f"- published: {done.published}, parked: {done.parked}",
        *_poison(sum(done.poison.values()), done.poison_ids),
        *(f"- failed: {plain(failure)}" for failure in progress.failures),
        _runbook(runbook_url, "While a drain runs"),
    ]
    return "\n".join(lines)


def _runbook(url: str, section: str) -> str:
    """Where to read on: a link, where the settings say what it leads to."""
    title = f"{RUNBOOK}, {section}" if section else RUNBOOK
    anchor = f"#{section.lower().replace(' ', '-')}" if section else ""
    return f"- runbook: [{title}]({url.rstrip('/')}/{RUNBOOK}{anchor})" if url else f"- runbook: {title}"


def _poison(count: int, ids: Sequence[UUID]) -> list[str]:
    """How many, and the first ones by id, each to be given to `explain`."""
    if not ids:
        return ["- poison: none"]
    first = f", the first {len(ids)}" if count > len(ids) else ""
    return [f"- poison: {count}{first}: {' '.join(f'`{each}`' for each in ids)}; why: `booking-expiration explain ID`"]


def plain(words: str) -> str:
    """An operator's or a server's words as one line of text: no markdown of theirs."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>|#" else letter for letter in one_line(words))
