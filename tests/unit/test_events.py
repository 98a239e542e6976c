"""The event on the wire, byte for byte (A6, D12): consumers we do not know read these names."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import asyncpg.pgproto.pgproto
import pytest

from domain.events import (
    AGGREGATE_TYPE,
    CONTRACT_VERSION,
    SOURCE,
    BookingExpired,
    Phase,
    headers,
    payload,
    shared_headers,
    wire_time,
)

EVENT = BookingExpired(
    booking_id=UUID("0190A1B2-C3D4-7E5F-8A9B-0C1D2E3F4A5B"),
    tenant_id=UUID("11111111-1111-4111-8111-111111111111"),
    deal_id=UUID("22222222-2222-4222-8222-222222222222"),
    property_object_id=UUID("33333333-3333-4333-8333-333333333333"),
    phase=Phase.RESERVE,
    expired_at=datetime(2026, 3, 1, 12, 0, 0, 1, tzinfo=UTC),
    from_status="AwaitingPayment",
    to_status="ReserveExpired",
    version=3,
)
GOLDEN_PAYLOAD = (
    b'{"BookingId":"0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b","TenantId":"11111111-1111-4111-8111-111111111111",'
    b'"DealId":"22222222-2222-4222-8222-222222222222","PropertyObjectId":"33333333-3333-4333-8333-333333333333",'
    b'"Phase":"Reserve","ExpiredAt":"2026-03-01T12:00:00.000001Z"}'
)
GOLDEN_HEADERS = {
    "ce_id": "44444444-4444-4444-8444-444444444444",
    "ce_source": "/crm/booking-expiration",
    "ce_type": "pin.crm.booking-expired.v1",
    "ce_specversion": "1.0",
    "ce_time": "2026-03-01T12:00:00.000001Z",
    "ce_subject": "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b",
    "content-type": "application/json",
    "ContractVersion": "1",
    "AggregateType": "Booking",
    "CorrelationId": "run-1",
}


def test_payload_is_pinned() -> None:
    """D12: the six fields of A6, in that order and spelling, lowercase ids, six decimals and `Z`."""
    assert payload(EVENT) == GOLDEN_PAYLOAD


def test_payload_of_the_booking_phase() -> None:
    """X3, D12: the other phase differs in one word only."""
    assert payload(replace(EVENT, phase=Phase.BOOKING)) == GOLDEN_PAYLOAD.replace(b'"Reserve"', b'"Booking"')


def test_payload_is_json_without_personal_data() -> None:
    """A6: the value parses as JSON and holds these six fields and nothing else, so no status, name or version."""
    assert list(json.loads(payload(EVENT))) == ["BookingId", "TenantId", "DealId", "PropertyObjectId", "Phase", "ExpiredAt"]


def test_payload_with_the_drivers_uuids() -> None:
    """Trap 37: asyncpg's own UUID class gives the same bytes."""
    event = replace(EVENT)
    for name in ("booking_id", "tenant_id", "deal_id", "property_object_id"):
        setattr(event, name, asyncpg.pgproto.pgproto.UUID(str(getattr(EVENT, name))))
    assert payload(event) == GOLDEN_PAYLOAD


def test_headers_are_pinned() -> None:
    """D12: CloudEvents in binary mode and the envelope; no `traceparent` where there is no trace."""
    event_id = UUID("44444444-4444-4444-8444-444444444444")
    given = headers(event_id, EVENT.booking_id, EVENT.expired_at, topic="pin.crm.booking-expired.v1", correlation_id="run-1")
    assert given == GOLDEN_HEADERS


def test_trace_travels_with_the_record() -> None:
    """D12, O3: where there is a trace its `traceparent` is one more header, and the rest stays."""
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    given = shared_headers(EVENT.expired_at, topic="pin.crm.booking-expired.v1", correlation_id="run-1", traceparent=trace)
    own = {"ce_id", "ce_subject"}
    assert given == {name: value for name, value in GOLDEN_HEADERS.items() if name not in own} | {"traceparent": trace}


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2026, 3, 1, 0, 0, tzinfo=UTC), "2026-03-01T00:00:00.000000Z"),
        (datetime(2026, 3, 1, 1, 30, 0, 999999, tzinfo=timezone(timedelta(hours=3))), "2026-02-28T22:30:00.999999Z"),
        (datetime(2026, 12, 31, 23, 59, 59, 120000, tzinfo=UTC), "2026-12-31T23:59:59.120000Z"),
    ],
)
def test_wire_time(moment: datetime, text: str) -> None:
    """D3, D12: RFC 3339 in UTC, always six decimals, so microseconds survive and texts sort as moments do."""
    assert wire_time(moment) == text


def test_constants_are_pinned() -> None:
    """A6: aggregate type, contract version and the two phases are names other systems use."""
    assert (AGGREGATE_TYPE, CONTRACT_VERSION, SOURCE) == ("Booking", 1, "/crm/booking-expiration")
    assert [phase.value for phase in Phase] == ["Reserve", "Booking"]
