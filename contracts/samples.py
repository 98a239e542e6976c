"""Records that a consumer of the topic must be able to meet, with what it should do about each (docs/contract.md)."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple
from uuid import UUID

from contracts.checking import TYPE
from contracts.wire import Wire
from domain.events import BookingExpired, Phase, headers, payload

APPLY: Final = "apply"
IGNORE: Final = "change nothing"
SET_ASIDE: Final = "set aside"

_AT: Final = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)


class Sample(NamedTuple):
    """One record; `expect` says what a consumer does that has met the samples before it."""

    name: str
    about: str
    expect: str
    record: Wire


def samples() -> Iterator[Sample]:
    """All of them, in the order in which they are to be played."""
    yield from _valid()
    yield from _other_contracts()
    yield from _malformed()


def _valid() -> Iterator[Sample]:
    reserve, booking = _record(1, Phase.RESERVE), _record(2, Phase.BOOKING)
    yield Sample("reserve", "the reserve ran out", APPLY, reserve)
    yield Sample("booking", "the booking ran out", APPLY, booking)
    yield Sample("duplicate", "the first record again: same event id, key and bytes", IGNORE, reserve)
    yield Sample("newer first", "the object's present booking expired", APPLY, _record(4, Phase.BOOKING, property_object=3))
    older = _record(3, Phase.RESERVE, property_object=3)
    yield Sample("older after", "a former booking of the same object expired before, and its record comes late", IGNORE, older)
    grown = _with(_record(5), value=(b'"}', b'","AddedLater":{"ignore":"me"}}'))
    yield Sample("unknown field and header", "version 1 may grow", APPLY, _header(grown, "AddedLater", b"ignore me"))
    trace = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    yield Sample("with trace", "the header traceparent leads to the job's run", APPLY, _header(_record(6), "traceparent", trace))


def _other_contracts() -> Iterator[Sample]:
    yield Sample("future version", "a contract that nobody knows yet", SET_ASIDE, _header(_record(7), "ContractVersion", b"2"))
    yield Sample("no version", "no header ContractVersion", SET_ASIDE, _header(_record(8), "ContractVersion", None))
    yield Sample("other type", "another kind of event", SET_ASIDE, _header(_record(9), "ce_type", b"pin.crm.booking-made.v1"))


def _malformed() -> Iterator[Sample]:
    good = _record(10)
    yield Sample("no value", "a tombstone: the topic is not compacted", SET_ASIDE, good._replace(value=None))
    yield Sample("no JSON", "a value cut off in the middle", SET_ASIDE, good._replace(value=(good.value or b"")[:50]))
    yield Sample("no UTF-8", "bytes that are no text", SET_ASIDE, good._replace(value=b"\xff\xfe\x00{"))
    yield Sample("no object", "JSON, but an array", SET_ASIDE, good._replace(value=b"[]"))
    yield Sample("no number", "NaN is no JSON", SET_ASIDE, _with(good, value=(b'"Reserve"', b"NaN")))
    yield Sample("missing field", "no PropertyObjectId", SET_ASIDE, _with(good, value=(b"PropertyObjectId", b"ObjectId")))
    yield Sample("unknown phase", "a third phase would be a new version", SET_ASIDE, _with(good, value=(b"Reserve", b"Viewing")))
    yield Sample("uppercase id", "ids are lowercase", SET_ASIDE, _with(good, value=(b'"TenantId":"a', b'"TenantId":"A')))
    yield Sample("seconds only", "moments have six decimals", SET_ASIDE, _with(good, value=(b".123456Z", b"Z")))
    yield Sample("local time", "moments are UTC, with Z", SET_ASIDE, _with(good, value=(b".123456Z", b".123456+00:00")))
    yield Sample("30th of February", "no such moment", SET_ASIDE, _with(good, value=(b"2026-03-01", b"2026-02-30")))
    yield Sample("other key", "order per booking is lost", SET_ASIDE, good._replace(key=str(_id("b", 999)).encode()))
    yield Sample("no key", "order per booking is lost", SET_ASIDE, good._replace(key=None))
    yield Sample("no event id", "duplicates cannot be told", SET_ASIDE, _header(good, "ce_id", None))


def _record(number: int, phase: Phase = Phase.RESERVE, *, property_object: int | None = None) -> Wire:
    at, booking = _AT + timedelta(minutes=number), _id("b", number)
    target = _id("c", number if property_object is None else property_object)
    event = BookingExpired(booking, _id("a", 1), _id("d", number), target, phase, at, "", "", 2)
    names = headers(_id("e", number), booking, at, topic=TYPE, correlation_id="0198c7f0-0000-7000-8000-000000000006")
    return Wire(str(booking).encode(), payload(event), tuple((name, value.encode()) for name, value in names.items()))


def _id(kind: str, number: int) -> UUID:
    return UUID(f"{kind}0000000-0000-4000-8000-{number:012}")


def _with(record: Wire, *, value: tuple[bytes, bytes]) -> Wire:
    return record._replace(value=(record.value or b"").replace(*value))


def _header(record: Wire, name: str, value: bytes | None) -> Wire:
    """Another value for one header; None leaves it out."""
    kept = tuple(pair for pair in record.headers if pair[0] != name)
    return record._replace(headers=kept if value is None else (*kept, (name, value)))
