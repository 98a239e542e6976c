"""All that is kept about one booking: its row, audit, timeline, events, refusals, its lock, and how many are due before it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from db.commands import read as read_booking
from db.unit_of_work import Connection
from domain.booking import Booking
from domain.events import Phase

AHEAD: Final = 1_000_000
"""Due bookings before this one that are counted at most."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One transition or command (A4, D16); `at` in UTC."""

    version: int
    actor: str
    action: str
    from_status: str
    to_status: str
    at: datetime
    correlation_id: str


@dataclass(frozen=True, slots=True)
class TimelineCard:
    """One card on the deal's timeline (P3)."""

    deal_id: UUID
    booking_version: int
    kind: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Refused:
    """Why the booking was refused as poison, and when first and last (D6)."""

    phase: Phase
    reason: str
    first_seen_at: datetime
    last_seen_at: datetime
    times: int


@dataclass(frozen=True, slots=True)
class Announcement:
    """The outbox record of one of its events, without payload: where it is on its way to Kafka (D9)."""

    id: int
    event_id: UUID
    aggregate_version: int
    topic: str
    correlation_id: str
    occurred_at: datetime
    attempts: int
    claimed_until: datetime | None
    published_at: datetime | None
    kafka_partition: int | None
    kafka_offset: int | None
    parked_at: datetime | None
    park_reason: str | None
    skipped_at: datetime | None


@dataclass(frozen=True, slots=True)
class Story:
    """A booking with all its records, each list in order of version."""

    booking: Booking
    audit: Sequence[AuditEntry]
    cards: Sequence[TimelineCard]
    refusals: Sequence[Refused]
    records: Sequence[Announcement]


_AUDIT: Final = """
    SELECT version, actor, action, from_status, to_status, at, correlation_id
    FROM crm.booking_audit WHERE booking_id = $1 ORDER BY version"""

_CARDS: Final = """
    SELECT deal_id, booking_version, kind, at FROM crm.deal_timeline_cards WHERE booking_id = $1 ORDER BY booking_version"""

_REFUSALS: Final = """
    SELECT phase, reason, first_seen_at, last_seen_at, times
    FROM crm.expiration_refusals WHERE booking_id = $1 ORDER BY last_seen_at"""

# The unique key (aggregate_id, aggregate_version) serves it, also among ten million published records.
_RECORDS: Final = """
    SELECT id, event_id, aggregate_version, topic, correlation_id, occurred_at, attempts, claimed_until, published_at,
           kafka_partition, kafka_offset, parked_at, park_reason, skipped_at
    FROM crm.outbox WHERE aggregate_id = $1 ORDER BY aggregate_version"""


async def read(connection: Connection, booking_id: UUID) -> Story:
    """Everything about one booking. Raises `UnknownBookingError`, `DatabaseError`."""
    return Story(
        booking=await read_booking(connection, booking_id),
        audit=await audit(connection, booking_id),
        cards=[TimelineCard(*row) for row in await connection.fetch(_CARDS, booking_id)],
        refusals=[Refused(Phase(phase), *rest) for phase, *rest in await connection.fetch(_REFUSALS, booking_id)],
        records=[Announcement(*row) for row in await connection.fetch(_RECORDS, booking_id)],
    )


async def require(connection: Connection, booking_id: UUID) -> None:
    """Raises `UnknownBookingError` when there is no such booking."""
    await read_booking(connection, booking_id)


async def audit(connection: Connection, booking_id: UUID) -> list[AuditEntry]:
    """Its audit trail, in order of version."""
    return [AuditEntry(*row) for row in await connection.fetch(_AUDIT, booking_id)]


# The claim's order and literal predicates: what the index gives before this key. Refused ones never use up a batch (D6).
_BEFORE: Final = {
    Phase.RESERVE: """
        SELECT (SELECT count(*) FROM (
                  SELECT 1 FROM crm.bookings
                  WHERE status IN ('Reserved', 'AwaitingPayment') AND (reserve_expires_at, id) < ($1, $2)
                  ORDER BY reserve_expires_at, id LIMIT $3) AS due)
             - (SELECT count(*) FROM crm.expiration_refusals r JOIN crm.bookings b ON b.id = r.booking_id
                WHERE r.phase = 'Reserve' AND b.status IN ('Reserved', 'AwaitingPayment')
                  AND (b.reserve_expires_at, b.id) < ($1, $2))""",
    Phase.BOOKING: """
        SELECT (SELECT count(*) FROM (
                  SELECT 1 FROM crm.bookings
                  WHERE status = 'Booked' AND (booking_expires_at, id) < ($1, $2)
                  ORDER BY booking_expires_at, id LIMIT $3) AS due)
             - (SELECT count(*) FROM crm.expiration_refusals r JOIN crm.bookings b ON b.id = r.booking_id
                WHERE r.phase = 'Booking' AND b.status = 'Booked' AND (b.booking_expires_at, b.id) < ($1, $2))""",
}


async def due_before(connection: Connection, phase: Phase, deadline: datetime, booking_id: UUID) -> int:
    """How many bookings of the phase the claim takes before this one, `AHEAD` at most."""
    return max(int(await connection.fetchval(_BEFORE[phase], deadline, booking_id, AHEAD)), 0)


@dataclass(frozen=True, slots=True)
class Act:
    """One operator's act, or one of the worker's that an operator should know of."""

    id: int
    at: datetime
    actor: str
    action: str
    target: str
    reason: str
    details: dict[str, Any]


# The id ascends with time, and its index is walked from its end: the newest come first without a sort.
_ACTS: Final = """
    SELECT id, at, actor, action, target, reason, details::text AS details
    FROM crm.operator_actions WHERE $1::timestamptz IS NULL OR at >= $1 ORDER BY id DESC LIMIT $2"""


async def acts(connection: Connection, since: datetime | None, limit: int) -> list[Act]:
    """The newest `limit` operators' acts since a moment (UTC), newest first."""
    rows = await connection.fetch(_ACTS, since, limit)
    return [Act(**{**row, "details": json.loads(row["details"])}) for row in rows]
