"""What people type, read strictly: a mistake is one line on standard error with an example, and exit code 2."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final, NoReturn
from uuid import UUID

import typer

from activities.schedule_note import LONGEST, one_line
from domain.events import Phase

EXAMPLE: Final = "2026-07-01T12:00:00Z"
LONGEST_PAUSE: Final = timedelta(days=7)
_SPAN: Final = re.compile(r"(?:(\d{1,5})d)?(?:(\d{1,5})h)?(?:(\d{1,5})m)?(?:(\d{1,7})s)?", re.ASCII)
_ID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_GREATEST: Final = 2**63 - 1


def refuse(message: str) -> NoReturn:
    """One line on standard error, exit code 2: wrong use."""
    typer.echo(message, err=True)
    raise typer.Exit(2)


def moment(text: str, option: str) -> datetime:
    """An instant (UTC) from ISO 8601 with its offset; a time without one would mean another moment on another machine."""
    try:
        given = datetime.fromisoformat(text.strip())
    except ValueError:
        refuse(f"{option}: {text!r} is no moment; for example {EXAMPLE}")
    if given.tzinfo is None:
        refuse(f"{option}: {text!r} does not say in which time zone; for example {EXAMPLE} or 2026-07-01T14:00:00+02:00")
    try:
        return given.astimezone(UTC)
    except OverflowError:
        refuse(f"{option}: {text!r} is out of range; for example {EXAMPLE}")


def span(text: str, option: str) -> timedelta:
    """A length of time above zero, written as 30s, 10m, 2h, 1d or 1h30m."""
    found = _SPAN.fullmatch(text.strip())
    parts = [int(part or 0) for part in found.groups()] if found else []
    if not (seconds := sum(part * unit for part, unit in zip(parts, (86_400, 3600, 60, 1), strict=False))):
        refuse(f"{option}: {text!r} is no length of time; for example 10m, 90s, 2h or 1h30m")
    return timedelta(seconds=seconds)


def pause_length(text: str | None) -> timedelta | None:
    """How long a pause may last (`--for`), up to 7 days; None where somebody will end it."""
    length = None if text is None else span(text, "--for")
    if length and length > LONGEST_PAUSE:
        refuse(f"--for: {text!r} is more than 7d; a pause that long needs somebody who ends it: leave --for out")
    return length


def identifier(text: str, what: str) -> UUID:
    """A UUID as it is printed everywhere."""
    if not _ID.fullmatch(text.strip()):
        refuse(f"{what}: {text!r} is no id; for example 4f1c2d3e-5a6b-4c7d-8e9f-0a1b2c3d4e5f")
    return UUID(text.strip())


def phase(text: str, option: str = "--phase") -> Phase:
    """One of the two phases, in any case."""
    for each in Phase:
        if text.strip().lower() == each.lower():
            return each
    refuse(f"{option}: {text!r} is no phase; it is Reserve or Booking")


def between(value: int, low: int, high: int, option: str) -> int:
    """The number, if it is in these bounds."""
    if not low <= value <= high:
        refuse(f"{option}: {value} is not from {low} to {high:,}")
    return value


def record_id(text: str) -> int:
    """The id of an outbox record: a whole number from 1 on."""
    if not re.fullmatch(r"\d{1,19}", text, re.ASCII) or not 1 <= int(text) <= _GREATEST:
        refuse(f"{text!r} is no id of an outbox record; `booking-expiration outbox list` shows some")
    return int(text)


def workflow_id(text: str | None) -> str | None:
    """A workflow's id as Temporal lists it; None where none was given."""
    if text is not None and not text.strip():
        refuse("WORKFLOW_ID: it is empty; `booking-expiration cycle list` and the Web UI show some")
    return text


def reason(text: str) -> str:
    """Why, on one line; not nothing, and no longer than `LONGEST`."""
    if not (given := one_line(text)):
        refuse('--reason: say why, in a few words; for example --reason "INC-123: limit raised"')
    if len(given) > LONGEST:
        refuse(f"--reason: {len(given):,} characters are too many; say why in up to {LONGEST}")
    return given


def actor(login: str) -> str:
    """Who acts, by the login name at this machine, on one line and no longer than `LONGEST`."""
    if len(given := one_line(login)) > LONGEST:
        refuse(f"the login name has {len(given):,} characters: say who acts, in up to 100, by BOOKING_EXPIRATION_ACTOR")
    return given
