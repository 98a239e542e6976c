"""The domain event of an expiry and its form on the wire, `BookingExpiredEvent` v1 (A6, D12).

The names and the order of the fields below are a contract with every consumer of the topic.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Final
from uuid import UUID


class Phase(StrEnum):
    """What ran out: the reserve or the booking (S2). Wire value, database value and metric label alike."""

    RESERVE = "Reserve"
    BOOKING = "Booking"


AGGREGATE_TYPE: Final = "Booking"
CONTRACT_VERSION: Final = 1
SOURCE: Final = "/crm/booking-expiration"


@dataclass(slots=True)
class BookingExpired:
    """A booking's timer ran out and it became terminal (A4). `version` is the booking's after the transition."""

    booking_id: UUID
    tenant_id: UUID
    deal_id: UUID
    property_object_id: UUID
    phase: Phase
    expired_at: datetime
    from_status: str
    to_status: str
    version: int


@lru_cache(maxsize=8)  # one moment for a whole batch
def wire_time(moment: datetime) -> str:
    """RFC 3339 in UTC with six decimals and `Z` (D12)."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


# Six UUIDs and fixed words need no escaping, and a template is four times as fast as json.dumps (trap 38).
_PAYLOAD = '{"BookingId":"%s","TenantId":"%s","DealId":"%s","PropertyObjectId":"%s","Phase":"%s","ExpiredAt":"%s"}'


def payload(event: BookingExpired) -> bytes:
    """The record's value: JSON with exactly the six fields of A6, in that order; no personal data."""
    return (
        _PAYLOAD
        % (event.booking_id, event.tenant_id, event.deal_id, event.property_object_id, event.phase, wire_time(event.expired_at))
    ).encode()


def shared_headers(occurred_at: datetime, *, topic: str, correlation_id: str, traceparent: str | None = None) -> dict[str, str]:
    """The headers that all records of one batch share: CloudEvents in binary mode, and the envelope of D12.

    Whoever writes the record adds `ce_id` (the event id) and `ce_subject` (the booking id). No trace, no `traceparent`.
    """
    shared = {
        "ce_source": SOURCE,
        "ce_type": topic,
        "ce_specversion": "1.0",
        "ce_time": wire_time(occurred_at),
        "content-type": "application/json",
        "ContractVersion": str(CONTRACT_VERSION),
        "AggregateType": AGGREGATE_TYPE,
        "CorrelationId": correlation_id,
    }
    return shared if traceparent is None else {**shared, "traceparent": traceparent}


def headers(event_id: UUID, subject: UUID, occurred_at: datetime, *, topic: str, correlation_id: str) -> dict[str, str]:
    """All headers of one record (D12)."""
    shared = shared_headers(occurred_at, topic=topic, correlation_id=correlation_id)
    return {**shared, "ce_id": str(event_id), "ce_subject": str(subject)}
