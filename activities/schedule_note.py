"""The words in the schedule's note: what it does, always; below that who paused or resumed it, when and why."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

NOTE: Final = (
    "Every minute: releases bookings whose timer ran out. Owner: PIN Platform (CRM squad). "
    "Runbook: runbooks/booking-expiration.md"
)
LONGEST: Final = 500
"""Characters that are kept of what somebody typed."""

_OPEN: Final = "somebody resumes it: booking-expiration schedule resume"
_FORMAT: Final = "%Y-%m-%d %H:%M:%S UTC"
_MOMENT: Final = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
_PAUSED: Final = re.compile(
    rf"\n\nPaused by (?P<by>[^\n]*?) at (?P<at>{_MOMENT}): (?P<reason>[^\n]*)"
    rf"\nUntil (?:(?P<until>{_MOMENT}), then it resumes by itself \(mark (?P<mark>[0-9a-f]+)\)|{re.escape(_OPEN)})\Z"
)


@dataclass(frozen=True, slots=True)
class Pause:
    """Who paused the schedule, when (UTC, if known) and why; `until` and `mark` only where a timer will resume it."""

    by: str
    at: datetime | None
    reason: str
    until: datetime | None = None
    mark: str | None = None


def paused(pause: Pause) -> str:
    """The note of a paused schedule. By and reason are put on one line, so that the last line is always ours."""
    end = f"{moment(pause.until)}, then it resumes by itself (mark {pause.mark})" if pause.until else _OPEN
    return f"{NOTE}\n\nPaused by {one_line(pause.by)} at {moment(pause.at)}: {one_line(pause.reason)}\nUntil {end}"


def resumed(by: str, at: datetime, reason: str) -> str:
    """The note of a schedule that runs again."""
    return f"{NOTE}\n\nResumed by {one_line(by)} at {moment(at)}: {one_line(reason)}"


def read(note: str) -> Pause | None:
    """The pause that a note tells of; None for any other note, as the Web UI writes them."""
    if not (found := _PAUSED.search(note)):
        return None
    until = found["until"]
    return Pause(found["by"], _read(found["at"]), found["reason"], _read(until) if until else None, found["mark"])


def one_line(text: str) -> str:
    """The text without line breaks, escape sequences or others that cannot be seen, such as NUL, or stored: lone surrogates."""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())


def kept(text: str) -> str:
    """What somebody typed into a form, as it can be kept and shown anywhere: one line, and not a long one."""
    line = one_line(text)
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def moment(at: datetime | None) -> str:
    """A moment for people: UTC, to the second."""
    return at.astimezone(UTC).strftime(_FORMAT) if at else "an unknown moment"


def _read(text: str) -> datetime:
    return datetime.strptime(text, _FORMAT).replace(tzinfo=UTC)
