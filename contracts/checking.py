"""What is wrong with a record, by the contract of BookingExpiredEvent version 1, in words for whoever produced it (D12).

As strict as the JSON Schemas beside this file, which a test compares it with; and it looks at what they cannot say: that key,
subject and time repeat what the payload says.
"""

import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final, TypeAlias

from contracts.wire import Wire
from domain.events import AGGREGATE_TYPE, CONTRACT_VERSION, SOURCE, Phase

TYPE: Final = "pin.crm.booking-expired.v1"
_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_MOMENT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z")
_TRACE: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")

Judge: TypeAlias = Callable[[Any], str | None]
"""None when the value is right, else what it should be."""


def _id(value: Any) -> str | None:
    return None if isinstance(value, str) and _ID.fullmatch(value) else "a UUID in lowercase"


def _moment(value: Any) -> str | None:
    if isinstance(value, str) and _MOMENT.fullmatch(value):
        try:
            datetime.fromisoformat(value)
        except ValueError:
            return "a moment that exists"
        return None
    return "UTC with six decimals and Z, such as 2026-03-01T12:00:00.123456Z"


def _one_of(*words: str) -> Judge:
    return lambda value: None if value in words else " or ".join(words)


def _trace(value: Any) -> str | None:
    return None if isinstance(value, str) and _TRACE.fullmatch(value) else "a W3C traceparent, or left out"


FIELDS: Final[dict[str, Judge]] = {
    "BookingId": _id,
    "TenantId": _id,
    "DealId": _id,
    "PropertyObjectId": _id,
    "Phase": _one_of(*(phase.value for phase in Phase)),
    "ExpiredAt": _moment,
}
HEADERS: Final[dict[str, Judge]] = {
    "ce_id": _id,
    "ce_source": _one_of(SOURCE),
    "ce_type": _one_of(TYPE),
    "ce_specversion": _one_of("1.0"),
    "ce_time": _moment,
    "ce_subject": _id,
    "content-type": _one_of("application/json"),
    "ContractVersion": _one_of(str(CONTRACT_VERSION)),
    "AggregateType": _one_of(AGGREGATE_TYPE),
    "CorrelationId": lambda value: None if isinstance(value, str) and value else "the id of the job's run",
}
OPTIONAL_HEADERS: Final[dict[str, Judge]] = {"traceparent": _trace}


def problems(record: Wire) -> list[str]:
    """What is wrong, one sentence each; an empty list when a consumer of version 1 can use the record."""
    headers = _headers(record)
    found = list(_judged("header", headers, HEADERS, OPTIONAL_HEADERS))
    names = [name for name, _ in record.headers]
    found += [f"header {name} is there twice" for name in dict.fromkeys(names) if names.count(name) > 1]
    fields = _fields(record.value)
    if isinstance(fields, str):
        return [*found, fields]
    found += _judged("field", fields, FIELDS, {})
    return [*found, *_repeated(record, headers, fields)]


def _headers(record: Wire) -> dict[str, Any]:
    def text(value: bytes | None) -> str | None:
        try:
            return None if value is None else value.decode()
        except UnicodeDecodeError:
            return None

    return {name: text(value) for name, value in record.headers}


def _fields(value: bytes | None) -> dict[str, Any] | str:
    if value is None:
        return "the record has no value"
    try:
        fields = json.loads(value.decode(), parse_constant=_no_json)
    except (ValueError, RecursionError) as error:
        return f"the value is no JSON in UTF-8: {error}"
    return fields if isinstance(fields, dict) else "the value is no JSON object"


def _no_json(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def _judged(what: str, given: dict[str, Any], required: dict[str, Judge], optional: dict[str, Judge]) -> Iterator[str]:
    for name, judge in {**required, **optional}.items():
        if name not in given:
            if name in required:
                yield f"{what} {name} is missing"
        elif should := judge(given[name]):
            yield f"{what} {name} is {given[name]!r}, and must be {should}"


def _repeated(record: Wire, headers: dict[str, Any], fields: dict[str, Any]) -> Iterator[str]:
    booking = fields.get("BookingId")
    if record.key is None or record.key.decode(errors="replace") != booking:
        yield f"the key is {record.key!r}, and must be the BookingId: it keeps the order per booking"
    if headers.get("ce_subject") not in (None, booking):
        yield "header ce_subject must be the BookingId"
    if headers.get("ce_time") not in (None, fields.get("ExpiredAt")):
        yield "header ce_time must be ExpiredAt"
