"""One batch of records in one transaction: lock the objects, decide, write (D17).

Every way into these tables locks objects first, by id, then events: two consumers that meet (a rebalance, a process that
slept) wait for each other and never deadlock.
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from chessboard import aside
from chessboard.decision import Effect, Verdict, decide
from chessboard.record import Expiry, Record, Refusal, parse
from db.errors import StaleClaimError
from db.unit_of_work import Connection


async def apply(connection: Connection, records: Sequence[Record], event_type: str) -> list[Verdict]:
    """Apply records of one partition in their order; the caller commits. One verdict per record.

    Raises `DatabaseError`; then nothing of it has happened, or nobody knows whether it has: applying again is right.
    """
    parsed = [parse(record, event_type) for record in records]
    expiries = [each for each in parsed if isinstance(each, Expiry)]
    held = await _lock(connection, {expiry.object_id for expiry in expiries})
    processed = await _processed(connection, [expiry.event_id for expiry in expiries])
    verdicts = decide(parsed, held, processed)
    done = list(zip(records, parsed, verdicts, strict=True))
    await _free(connection, [each for _, each, verdict in done if isinstance(each, Expiry) and verdict is Effect.FREED])
    await _remember(connection, [(r, e, v) for r, e, v in done if isinstance(e, Expiry) and v in (Effect.FREED, Effect.LATE)])
    await aside.put(connection, [(record, verdict) for record, _, verdict in done if isinstance(verdict, Refusal)])
    return verdicts


# Sorted below the lock, so that all transactions take the rows in the same order (trap 27). A row that somebody changed while
# we waited comes back as it is now.
_LOCK: Final = "SELECT id, booking_id FROM chessboard.objects WHERE id = ANY ($1::uuid[]) ORDER BY id FOR NO KEY UPDATE"


async def _lock(connection: Connection, objects: set[UUID]) -> dict[UUID, UUID | None]:
    return {row["id"]: row["booking_id"] for row in await connection.fetch(_LOCK, sorted(objects))}


# A statement of its own after the lock: its snapshot sees what whoever held the lock before us has committed.
_PROCESSED: Final = "SELECT event_id, booking_id FROM chessboard.processed_events WHERE event_id = ANY ($1::uuid[])"


async def _processed(connection: Connection, events: list[UUID]) -> dict[UUID, UUID]:
    return {row["event_id"]: row["booking_id"] for row in await connection.fetch(_PROCESSED, events)}


# The booking stands in the condition again: the lock makes it true, the count proves it.
_FREE: Final = """
UPDATE chessboard.objects AS object
   SET status = 'Free', booking_id = NULL, updated_at = clock_timestamp()
  FROM unnest($1::uuid[], $2::uuid[]) AS expired (object_id, booking_id)
 WHERE object.id = expired.object_id AND object.booking_id = expired.booking_id"""


async def _free(connection: Connection, expiries: list[Expiry]) -> None:
    if not expiries:
        return
    done = await connection.execute(_FREE, [each.object_id for each in expiries], [each.booking_id for each in expiries])
    if done != f"UPDATE {len(expiries)}":
        raise StaleClaimError(f"{len(expiries)} objects were to be freed, but the database says {done}: a bug, please report it")


_REMEMBER: Final = """
INSERT INTO chessboard.processed_events
       (event_id, booking_id, object_id, outcome, expired_at, topic, kafka_partition, kafka_offset)
SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::timestamptz[], $6::text[], $7::int[], $8::bigint[])"""


async def _remember(connection: Connection, done: list[tuple[Record, Expiry, Verdict]]) -> None:
    if not done:
        return
    rows = sorted(
        (e.event_id, e.booking_id, e.object_id, str(verdict), e.expired_at, r.topic, r.partition, r.offset)
        for r, e, verdict in done
    )
    await connection.execute(_REMEMBER, *zip(*rows, strict=True))
