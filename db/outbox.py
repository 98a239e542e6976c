"""The outbox as its publishers and operators see it: claim with a lease, settle, release, park, requeue, skip (D9, D10).

OutboxError
├── UnknownRecordError      no record has this id
├── AlreadyPublishedError   Kafka has the record; nothing can call it back
├── AlreadySkippedError     an operator gave the record up; its booking's later events may be out already
├── NotParkedError          the record is waiting or under way by itself; there is nothing to requeue
└── RecordInFlightError     a publisher holds the record just now; ask again when the lease is over
"""

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from db.unit_of_work import Connection

SYSTEM: Final = "system"
"""The actor of what the worker does by itself (A1)."""


class OutboxError(Exception):
    """An operator's request about one record was refused; nothing changed."""


class UnknownRecordError(OutboxError):
    """No record of the outbox has this id."""


class AlreadyPublishedError(OutboxError):
    """The record is in Kafka."""


class AlreadySkippedError(OutboxError):
    """The record was skipped for good."""


class NotParkedError(OutboxError):
    """Only a parked record can be requeued."""


class RecordInFlightError(OutboxError):
    """A publisher's lease on the record is still running."""


class OutboxRecord(NamedTuple):
    """One claimed record. `headers` is the text of a JSON object, in the order in which the database keeps its keys.

    `age`: seconds from its commit to the claim, by the database's clock.
    """

    id: int
    event_id: UUID
    booking_id: UUID
    key: str
    topic: str
    payload: bytes
    headers: str
    attempts: int
    age: float = 0.0


class Delivery(NamedTuple):
    """Where Kafka put a record: outbox id, partition, offset."""

    id: int
    partition: int
    offset: int


# Predicate and lock stand at one level, so that a row that changed under us is judged again by its new values (trap 22).
# A record is taken only if it is its aggregate's oldest unpublished one, parked ones included: whatever holds that one back
# (a lease, a lock, an operator's decision) holds back the rest of its booking and nothing else, with any number of publishers.
# The walk follows ix_outbox_unpublished in order of id; there is no cursor, because a smaller id may commit after a greater one.
# "= (SELECT …)" and "= ANY (ARRAY (…))" keep the plan at one index probe per record whatever the statistics say; as joins, a
# fresh or bloated table turns them into scans of everything.
_CLAIM: Final = """
UPDATE crm.outbox AS record
   SET claim_token = $1, claimed_until = now() + $2 * interval '1 second', attempts = record.attempts + 1
 WHERE record.id = ANY (ARRAY (
         SELECT candidate.id
           FROM crm.outbox AS candidate
          WHERE candidate.published_at IS NULL AND candidate.skipped_at IS NULL AND candidate.parked_at IS NULL
            AND (candidate.claimed_until IS NULL OR candidate.claimed_until < now())
            AND candidate.id = (SELECT oldest.id
                                  FROM crm.outbox AS oldest
                                 WHERE oldest.aggregate_id = candidate.aggregate_id
                                   AND oldest.published_at IS NULL AND oldest.skipped_at IS NULL
                                 ORDER BY oldest.id
                                 LIMIT 1)
          ORDER BY candidate.id
          LIMIT $3
            FOR NO KEY UPDATE SKIP LOCKED))
RETURNING record.id, record.event_id, record.aggregate_id, record.aggregate_id::text, record.topic, record.payload,
          record.headers::text, record.attempts, extract(epoch FROM clock_timestamp() - record.recorded_at)::float8"""


async def claim(connection: Connection, limit: int, lease_seconds: float, token: UUID) -> list[OutboxRecord]:
    """Lease up to `limit` records to `token` for `lease_seconds` of the database's clock, oldest first (D9).

    At most one record per booking. A lease that ran out is no obstacle. An empty list: nothing is left to claim just now.
    """
    rows = await connection.fetch(_CLAIM, token, float(lease_seconds), limit)
    return sorted(OutboxRecord(*row) for row in rows)


# The token is the guard: after a lease ran out the record belongs to somebody else, and a late settle must not touch it.
# The scalar sub-queries hide the arrays' length from the planner, which would otherwise scan the outbox for a long one.
_SETTLE: Final = """
UPDATE crm.outbox AS record
   SET published_at = now(), kafka_partition = delivery.kafka_partition, kafka_offset = delivery.kafka_offset,
       claim_token = NULL, claimed_until = NULL
  FROM unnest((SELECT $2::bigint[]), (SELECT $3::int[]), (SELECT $4::bigint[])) AS delivery (id, kafka_partition, kafka_offset)
 WHERE record.id = delivery.id AND record.claim_token = $1"""


async def settle(connection: Connection, token: UUID, delivered: Sequence[Delivery]) -> int:
    """Write down that Kafka acknowledged these records; returns how many of them `token` still held.

    A smaller number means that a lease ran out: the missing ones will go out again, byte-identical (D11).
    """
    ids, partitions, offsets = zip(*sorted(delivered), strict=True) if delivered else ((), (), ())
    return _count(await connection.execute(_SETTLE, token, ids, partitions, offsets))


# An outage is not the record's fault, so the attempt is taken back (D9).
_RELEASE: Final = """
UPDATE crm.outbox AS record
   SET claim_token = NULL, claimed_until = NULL, attempts = greatest(record.attempts - 1, 0)
 WHERE record.id = ANY ((SELECT $2::bigint[])::bigint[]) AND record.claim_token = $1"""


async def release(connection: Connection, token: UUID, ids: Sequence[int]) -> int:
    """Give unsent records back at once and take the attempt off their count; returns how many `token` still held."""
    return _count(await connection.execute(_RELEASE, token, sorted(ids)))


# One statement, so that a parked record and its audit row cannot come apart.
_PARK: Final = """
WITH parked AS (
  UPDATE crm.outbox AS record
     SET parked_at = now(), park_reason = $3, claim_token = NULL, claimed_until = NULL
   WHERE record.id = $2 AND record.claim_token = $1
  RETURNING record.id, record.event_id, record.aggregate_id, record.attempts)
INSERT INTO crm.operator_actions (actor, action, target, reason, details)
SELECT $4, 'park_record', 'outbox/' || parked.id, $3,
       jsonb_build_object('event_id', parked.event_id, 'booking_id', parked.aggregate_id, 'attempts', parked.attempts)
  FROM parked"""


async def park(connection: Connection, token: UUID, record_id: int, reason: str, *, actor: str = SYSTEM) -> bool:
    """Set aside a record that Kafka can never take, with an audit row; False when `token` no longer held it (D10)."""
    return _count(await connection.execute(_PARK, token, record_id, reason, actor)) == 1


_PARKED: Final = "SELECT count(*) FROM crm.outbox WHERE parked_at IS NOT NULL AND published_at IS NULL AND skipped_at IS NULL"


async def parked(connection: Connection) -> int:
    """How many records wait for an operator (D10)."""
    return int(await connection.fetchval(_PARKED))


# The row stays locked until the operator's transaction ends, so that no publisher claims it between check and write.
_LOOK: Final = """
SELECT event_id, aggregate_id, published_at, parked_at, park_reason, skipped_at, attempts,
       claimed_until >= now() AS in_flight, claimed_until
  FROM crm.outbox WHERE id = $1 FOR NO KEY UPDATE"""

_REQUEUE: Final = "UPDATE crm.outbox SET parked_at = NULL, park_reason = NULL WHERE id = $1"

_SKIP: Final = "UPDATE crm.outbox SET skipped_at = now(), claim_token = NULL, claimed_until = NULL WHERE id = $1"

_AUDIT: Final = """
INSERT INTO crm.operator_actions (actor, action, target, reason, details)
SELECT $1, $2, 'outbox/' || record.id, $3, $4::jsonb || jsonb_build_object('after', jsonb_build_object(
         'parked_at', record.parked_at, 'park_reason', record.park_reason, 'skipped_at', record.skipped_at))
  FROM crm.outbox AS record WHERE record.id = $5"""


async def requeue(connection: Connection, record_id: int, actor: str, reason: str) -> None:
    """Let publishers try a parked record again; its booking's later records wait behind it. One audit row.

    Raises `UnknownRecordError`, `AlreadyPublishedError`, `AlreadySkippedError`, `NotParkedError`.
    """
    before = await _look(connection, record_id)
    if before["parked_at"] is None:
        raise NotParkedError(f"outbox record {record_id} is not parked: it goes out by itself, see the publishers' log")
    await connection.execute(_REQUEUE, record_id)
    await _audit(connection, record_id, before, action="requeue_record", actor=actor, reason=reason)


# One statement, so that no record goes without its act. Locked in order of id, so that two operators cannot deadlock (trap 27).
# A row of its own for each record, as for a single one: what is asked later is "what was done to this record".
_REQUEUE_PARKED: Final = """
WITH parked AS (
  SELECT id, event_id, aggregate_id, parked_at, park_reason, attempts FROM crm.outbox
   WHERE id = ANY ($1::bigint[]) AND parked_at IS NOT NULL AND skipped_at IS NULL
   ORDER BY id FOR NO KEY UPDATE
), requeued AS (
  UPDATE crm.outbox AS record SET parked_at = NULL, park_reason = NULL FROM parked WHERE record.id = parked.id
)
INSERT INTO crm.operator_actions (actor, action, target, reason, details)
SELECT $2, 'requeue_record', 'outbox/' || id, $3, jsonb_build_object(
         'event_id', event_id, 'booking_id', aggregate_id,
         'before', jsonb_build_object(
           'parked_at', parked_at, 'park_reason', park_reason, 'skipped_at', NULL, 'attempts', attempts),
         'after', jsonb_build_object('parked_at', NULL, 'park_reason', NULL, 'skipped_at', NULL))
  FROM parked ORDER BY id"""


async def requeue_parked(connection: Connection, ids: Sequence[int], actor: str, reason: str) -> int:
    """The same for many at once; those that are parked no more are left alone. Returns how many went; an audit row for each."""
    return _count(await connection.execute(_REQUEUE_PARKED, sorted(ids), actor, reason))


async def skip(connection: Connection, record_id: int, actor: str, reason: str) -> None:
    """Give a record up for good: it is never published, and its booking's later records go on without it. One audit row.

    Raises `UnknownRecordError`, `AlreadyPublishedError`, `AlreadySkippedError`, `RecordInFlightError`.
    """
    before = await _look(connection, record_id)
    if before["in_flight"]:
        until = before["claimed_until"].isoformat()
        raise RecordInFlightError(f"outbox record {record_id} is being published; ask again after {until}")
    await connection.execute(_SKIP, record_id)
    await _audit(connection, record_id, before, action="skip_record", actor=actor, reason=reason)


async def _look(connection: Connection, record_id: int) -> Any:
    row = await connection.fetchrow(_LOOK, record_id)
    if row is None:
        raise UnknownRecordError(f"outbox record {record_id} does not exist: check the id")
    if row["published_at"] is not None:
        moment = row["published_at"].isoformat()
        raise AlreadyPublishedError(f"outbox record {record_id} was published at {moment}; Kafka has it")
    if row["skipped_at"] is not None:
        raise AlreadySkippedError(f"outbox record {record_id} was skipped at {row['skipped_at'].isoformat()}, for good")
    return row


async def _audit(connection: Connection, record_id: int, before: Any, *, action: str, actor: str, reason: str) -> None:
    """Who changed what and why, in the transaction of the change itself."""
    details = {
        "event_id": str(before["event_id"]),
        "booking_id": str(before["aggregate_id"]),
        "before": {
            "parked_at": before["parked_at"] and before["parked_at"].isoformat(),
            "park_reason": before["park_reason"],
            "skipped_at": None,
            "attempts": before["attempts"],
        },
    }
    await connection.execute(_AUDIT, actor, action, reason, json.dumps(details), record_id)


def _count(status: str) -> int:
    """The number of rows in a command's tag, such as `UPDATE 3`."""
    return int(status.rsplit(" ", 1)[1])
