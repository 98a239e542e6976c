"""Bookings: claiming a batch of due ones, writing what was decided, and the managers' optimistic commands."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID, uuid4

from asyncpg import Record

from db.errors import StaleClaimError
from db.unit_of_work import Connection
from domain.booking import Booking, Status
from domain.events import AGGREGATE_TYPE, CONTRACT_VERSION, Phase, payload, shared_headers

# One level: predicate, order, limit and lock together. A predicate in an inner select, with the lock outside, was seen to
# expire bookings that had been extended meanwhile (D4, trap 22). NO KEY UPDATE, because FOR UPDATE waits for every insert
# that references the row. The statuses are literals: a parameter loses the partial index under a generic plan.
_CLAIM: Final = {
    Phase.RESERVE: """
        SELECT id, tenant_id, deal_id, property_object_id, status, reserve_expires_at, booking_expires_at, version
        FROM crm.bookings
        WHERE status IN ('Reserved', 'AwaitingPayment') AND reserve_expires_at < $1 AND id <> ALL ($3::uuid[])
        ORDER BY reserve_expires_at, id
        LIMIT $2
        FOR NO KEY UPDATE SKIP LOCKED""",
    Phase.BOOKING: """
        SELECT id, tenant_id, deal_id, property_object_id, status, reserve_expires_at, booking_expires_at, version
        FROM crm.bookings
        WHERE status = 'Booked' AND booking_expires_at < $1 AND id <> ALL ($3::uuid[])
        ORDER BY booking_expires_at, id
        LIMIT $2
        FOR NO KEY UPDATE SKIP LOCKED""",
}

_STATUS: Final = {status.value: status for status in Status}


async def claim(connection: Connection, phase: Phase, as_of: datetime, limit: int, refused: Sequence[UUID]) -> list[Booking]:
    """Lock up to `limit` due bookings of a phase, oldest deadline first, past those already refused (A3, D4, D6).

    Rows that somebody else holds are skipped without waiting.
    """
    return [_booking(row) for row in await connection.fetch(_CLAIM[phase], as_of, limit, refused)]


def _booking(row: Record) -> Booking:
    booking_id, tenant, deal, property_object, status, reserve_expires_at, booking_expires_at, version = row
    return Booking(
        booking_id, tenant, deal, property_object, _STATUS[status], reserve_expires_at, booking_expires_at, version=version
    )


@dataclass(frozen=True, slots=True)
class Envelope:
    """What all records of one batch share: the job run id as correlation id, the topic, and the trace if there is one."""

    correlation_id: str
    topic: str
    traceparent: str | None = None


# Everything one expiry means, in one statement and one round trip (trap 38). The three INSERTs are the subscribers of the
# domain event (D8). The UPDATE repeats what was read, so that a claim that should ever fail to lock cannot do harm (D26).
_RECORD: Final = """
    WITH expired AS (
      SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::timestamptz[], $6::timestamptz[],
                           $7::uuid[], $8::uuid[], $9::uuid[], $10::bytea[]) AS e
        (booking_id, version, from_status, to_status, reserve_expires_at, booking_expires_at,
         tenant_id, deal_id, event_id, payload)
    ), moved AS (
      UPDATE crm.bookings b
      SET status = e.to_status, expired_at = $11, updated_at = $11, version = e.version
      FROM expired e
      WHERE b.id = e.booking_id AND b.version = e.version - 1 AND b.status = e.from_status
        AND b.reserve_expires_at IS NOT DISTINCT FROM e.reserve_expires_at
        AND b.booking_expires_at IS NOT DISTINCT FROM e.booking_expires_at
      RETURNING 1
    ), audited AS (
      INSERT INTO crm.booking_audit (booking_id, version, actor, action, from_status, to_status, at, correlation_id)
      SELECT booking_id, version, 'system', 'Expire', from_status, to_status, $11, $12 FROM expired
    ), shown AS (
      INSERT INTO crm.deal_timeline_cards (deal_id, booking_id, booking_version, kind, at)
      SELECT deal_id, booking_id, version, to_status, $11 FROM expired
    ), announced AS (
      INSERT INTO crm.outbox (event_id, aggregate_type, aggregate_id, aggregate_version, tenant_id, topic, contract_version,
                              payload, headers, correlation_id, occurred_at)
      SELECT event_id, $14, booking_id, version, tenant_id, $13, $15, payload,
             $16::jsonb || jsonb_build_object('ce_id', event_id, 'ce_subject', booking_id), $12, $11 FROM expired
    )
    SELECT count(*) FROM moved"""


async def record(connection: Connection, expired: Sequence[Booking], as_of: datetime, envelope: Envelope) -> None:
    """Write expired bookings with their audit, timeline and outbox records (A5, A6, T2), in the given order.

    Raises `StaleClaimError` unless exactly the claimed rows were touched (D26).
    """
    events = [event for booking in expired for event in booking.events]
    shared = shared_headers(as_of, topic=envelope.topic, correlation_id=envelope.correlation_id, traceparent=envelope.traceparent)
    moved = await connection.fetchval(
        _RECORD,
        [e.booking_id for e in events],
        [e.version for e in events],
        [e.from_status for e in events],
        [e.to_status for e in events],
        [b.reserve_expires_at for b in expired],
        [b.booking_expires_at for b in expired],
        [e.tenant_id for e in events],
        [e.deal_id for e in events],
        [uuid4() for _ in events],
        [payload(e) for e in events],
        as_of,
        envelope.correlation_id,
        envelope.topic,
        AGGREGATE_TYPE,
        CONTRACT_VERSION,
        json.dumps(shared),
    )
    if moved != len(expired):
        raise StaleClaimError(f"only {moved} of {len(expired)} claimed bookings were still as they had been read")
