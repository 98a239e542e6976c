"""A record of the topic as the chessboard reads it: an expiry, or the reason why it is none (docs/contract.md)."""

import json
import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias
from uuid import UUID

VERSION: Final = "1"
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_MOMENT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z")
_PHASES: Final = ("Reserve", "Booking")

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class Reason(StrEnum):
    """Why a record was set aside; the words stand in the database."""

    MALFORMED = "Malformed"
    UNKNOWN_VERSION = "UnknownVersion"
    WRONG_TYPE = "WrongType"
    UNKNOWN_OBJECT = "UnknownObject"
    REUSED_EVENT_ID = "ReusedEventId"
    REFUSED = "RefusedByDatabase"
    UNREADABLE = "Unreadable"


class Record(NamedTuple):
    """What Kafka gave us. `unreadable` is the client's error where it could not even take the record apart."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    unreadable: str | None = None

    def header(self, name: str) -> str | None:
        """A header's text; None where there is none, or it is no text."""
        return next((_text(value) for key, value in self.headers if key == name), None)


@dataclass(frozen=True, slots=True)
class Expiry:
    """A booking expired: what the chessboard needs of `BookingExpiredEvent` (A6)."""

    event_id: UUID
    booking_id: UUID
    object_id: UUID
    expired_at: datetime


class Refusal(NamedTuple):
    """The record is set aside; `detail` is for people, in printable ASCII."""

    reason: Reason
    detail: str


Parsed: TypeAlias = Expiry | Refusal


class _MalformedError(ValueError):
    """Some part of the record is not as the contract says."""


def parse(record: Record, event_type: str) -> Parsed:
    """Read one record. Type and version come first: of another one nothing else can be judged.

    Unknown headers and unknown fields are ignored, so that version 1 may grow.
    """
    if record.unreadable is not None:
        return Refusal(Reason.UNREADABLE, ascii(record.unreadable))
    headers = dict(record.headers)  # of two headers with one name the last counts, as in Kafka's own clients
    if (found := headers.get("ce_type")) != event_type.encode():
        return Refusal(Reason.WRONG_TYPE, f"ce_type is {_shown(found)}, not {event_type}")
    if (found := headers.get("ContractVersion")) != VERSION.encode():
        return Refusal(Reason.UNKNOWN_VERSION, f"ContractVersion is {_shown(found)}, not {VERSION}")
    try:
        return _expiry(record, headers)
    except _MalformedError as error:
        return Refusal(Reason.MALFORMED, str(error))


def _expiry(record: Record, headers: dict[str, bytes | None]) -> Expiry:
    event_id = _uuid("header ce_id", _text(headers.get("ce_id")))
    fields = _object(record.value)
    ids = {name: _uuid(name, fields.get(name)) for name in ("BookingId", "TenantId", "DealId", "PropertyObjectId")}
    if fields.get("Phase") not in _PHASES:
        _refuse(f"Phase is {_shown(fields.get('Phase'))}, not Reserve or Booking")
    if _text(record.key) != str(ids["BookingId"]):
        _refuse(f"key is {_shown(record.key)}, not the BookingId: records of one booking may be out of order")
    return Expiry(event_id, ids["BookingId"], ids["PropertyObjectId"], _moment(fields.get("ExpiredAt")))


def _object(value: bytes | None) -> dict[str, Any]:
    if value is None:
        _refuse("the record has no value")
    try:
        # Decoded first: json.loads would guess other encodings. A deep nest exhausts its stack.
        fields = json.loads(value.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        _refuse(f"the value is no JSON in UTF-8: {ascii(str(error))[:200]}")
    return fields if isinstance(fields, dict) else _refuse("the value is JSON, but no object")


def _uuid(name: str, value: object) -> UUID:
    if not isinstance(value, str) or not _UUID.fullmatch(value):
        _refuse(f"{name} is {_shown(value)}, not a UUID in lowercase")
    return UUID(value)


def _moment(value: object) -> datetime:
    if isinstance(value, str) and _MOMENT.fullmatch(value):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            pass  # a 30th of February
    return _refuse(f"ExpiredAt is {_shown(value)}, not a moment such as 2026-03-01T12:00:00.000000Z")


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _shown(value: object) -> str:
    return "missing" if value is None else ascii(value)[:80]


def _refuse(detail: str) -> NoReturn:
    raise _MalformedError(detail)
