"""The ledger of batches (D7): one row per batch that did something, so that a retry reports what was done, not does it again."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

from db.unit_of_work import Connection
from domain.events import Phase

POISON_IDS_KEPT: Final = 20


@dataclass(frozen=True, slots=True)
class BatchKey:
    """The identity of a batch: job run, phase, number from 1 (D7)."""

    run_id: str
    phase: Phase
    batch_no: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """A poison row: a due booking that the domain or the database refused, and why (D6)."""

    booking_id: UUID
    reason: str


@dataclass(frozen=True, slots=True)
class Counts:
    """What a batch did, in bookings; `poison_ids` holds the first 20 at most. `closed_at` (UTC) is known to who closed it."""

    expired: int = 0
    skipped_locked: int = 0
    poison: int = 0
    poison_ids: list[UUID] = field(default_factory=list)
    closed_at: datetime | None = field(default=None, compare=False)


async def lock(connection: Connection, key: BatchKey) -> None:
    """Wait, up to the role's lock time-out, until no other attempt at this very batch is under way (D7, trap 42).

    A transaction-level lock: it needs no session, so pgbouncer does not mind (trap 29).
    """
    await connection.execute(
        "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"booking-expiration/{key.run_id}/{key.phase}/{key.batch_no}"
    )


# A statement of its own, after the lock: only a snapshot taken then sees what the attempt before us committed.
_FIND: Final = """
    SELECT expired_count, skipped_locked_count, poison_count, poison_ids
    FROM crm.expiration_batches WHERE run_id = $1 AND phase = $2 AND batch_no = $3"""


async def find(connection: Connection, key: BatchKey) -> Counts | None:
    """What an earlier attempt at this batch committed, or None."""
    row = await connection.fetchrow(_FIND, key.run_id, key.phase, key.batch_no)
    return Counts(*row) if row else None


# The count comes after the write, so our own rows are no longer due; what is still due inside the window that we walked
# was held by somebody else (D5). Each arm keeps its literal statuses, so that its partial index serves it; the other arm's
# one-time filter on $1 costs nothing. Nothing is written when nothing was done.
_CLOSE: Final = """
    WITH skipped AS (
      SELECT (SELECT count(*) FROM crm.bookings
              WHERE $1 = 'Reserve' AND status IN ('Reserved', 'AwaitingPayment') AND reserve_expires_at < $2
                AND (reserve_expires_at, id) <= ($3, $4) AND id <> ALL ($5::uuid[]))
           + (SELECT count(*) FROM crm.bookings
              WHERE $1 = 'Booking' AND status = 'Booked' AND booking_expires_at < $2
                AND (booking_expires_at, id) <= ($3, $4) AND id <> ALL ($5::uuid[])) AS rows
    ), remembered AS (
      INSERT INTO crm.expiration_refusals (booking_id, phase, reason, first_seen_at, last_seen_at)
      SELECT r.booking_id, $1, r.reason, $2, $2 FROM unnest($5::uuid[], $6::text[]) AS r (booking_id, reason)
      ORDER BY r.booking_id
      ON CONFLICT (booking_id, phase) DO UPDATE
      SET reason = excluded.reason, last_seen_at = excluded.last_seen_at, times = expiration_refusals.times + 1
    ), entered AS (
      INSERT INTO crm.expiration_batches
        (run_id, phase, batch_no, as_of, expired_count, skipped_locked_count, poison_count, poison_ids)
      SELECT $7, $1, $8, $2, $9, skipped.rows, cardinality($5::uuid[]), ($5::uuid[])[1:20]
      FROM skipped WHERE $9 > 0 OR cardinality($5::uuid[]) > 0
    )
    SELECT rows, clock_timestamp() FROM skipped"""


async def close(
    connection: Connection,
    key: BatchKey,
    *,
    as_of: datetime,
    expired: int,
    refusals: Sequence[Refusal],
    window_end: tuple[datetime, UUID],
) -> Counts:
    """Count what others held (D5), remember the poison (D6) and enter the batch in the ledger, all in one statement.

    `window_end` is the greatest (deadline, id) that was claimed, or everything due when the batch came out short.
    """
    poison = [refusal.booking_id for refusal in refusals]
    row = await connection.fetchrow(
        _CLOSE, key.phase, as_of, *window_end, poison, [refusal.reason for refusal in refusals],
        key.run_id, key.batch_no, expired,
    )  # fmt: skip
    skipped, closed_at = row or (0, None)
    return Counts(expired, skipped, len(poison), poison[:POISON_IDS_KEPT], closed_at)
