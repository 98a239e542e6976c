"""How moments, ages and answers are written: for people, and for programs."""

import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID


def moment(at: datetime | None) -> str:
    """A moment for people: UTC, to the second; `never` for None."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ") if at else "never"


def age(length: timedelta | float) -> str:
    """A length of time in its two greatest units: `3 min 4 s`, `2 d 5 h`; what is negative counts as 0."""
    seconds = max(int(length.total_seconds() if isinstance(length, timedelta) else length), 0)
    days, hours, minutes = seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"


def number(count: int, one: str, many: str = "") -> str:
    """A count with its noun: `1 cycle`, `1,204 cycles`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def paused(actor: str, until: datetime | None, reason: str) -> str:
    """Who paused a phase, until when, and why, as it is said wherever a pause is shown."""
    return f"paused by {actor} until {moment(until) if until else 'somebody resumes it'}: {reason}"


def plain(value: Any) -> Any:
    """The value as JSON can carry it: dataclasses as objects, moments as RFC 3339 in UTC, ids as text, lengths in seconds."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, list | tuple | set):
        return [plain(each) for each in value]
    return value
