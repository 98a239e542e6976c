"""Records that were set aside, and what operators do about them: list, replay one, drop one with a reason (D17).

AsideError
├── UnknownAsideError     no record with this id was set aside
├── ResolvedAsideError    it was replayed or dropped before
└── StillRefusedError     a replay met the same trouble, or another; nothing changed
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from typing import Any, Final

from chessboard.record import Headers, Record, Refusal
from db.unit_of_work import Connection


class AsideError(Exception):
    """An operator's request about one record was refused; nothing changed."""


class UnknownAsideError(AsideError):
    """Nothing was set aside under this id."""


class ResolvedAsideError(AsideError):
    """Somebody has replayed or dropped it already."""


class StillRefusedError(AsideError):
    """The cause is not gone; the message names it."""


# A record that is read again (a crash, a rebalance) is set aside once.
_PUT: Final = """
INSERT INTO chessboard.set_aside
       (reason, detail, topic, kafka_partition, kafka_offset, kafka_timestamp_ms, key, value, headers, digest)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::bigint[], $6::bigint[], $7::bytea[], $8::bytea[],
                     $9::bytea[], $10::bytea[])
ON CONFLICT (topic, kafka_partition, kafka_offset, digest) DO NOTHING"""


async def put(connection: Connection, refused: Sequence[tuple[Record, Refusal]]) -> None:
    """Keep these records as they came, in the transaction of the batch they came with."""
    if not refused:
        return
    rows = [
        (
            why.reason,
            why.detail,
            r.topic,
            r.partition,
            r.offset,
            r.timestamp_ms,
            r.key,
            r.value,
            headers_text(r.headers),
            _digest(r),
        )
        for r, why in refused
    ]
    await connection.execute(_PUT, *zip(*rows, strict=True))


_LIST: Final = """
SELECT id, reason, detail, topic, kafka_partition, kafka_offset, set_aside_at, key, value, headers,
       resolution, resolved_at, resolved_by, resolved_why
  FROM chessboard.set_aside
 WHERE resolution IS NULL OR $1
 ORDER BY id DESC
 LIMIT $2"""


async def listed(connection: Connection, limit: int, *, resolved: bool) -> list[Any]:
    """The latest `limit` records, newest first; with `resolved` those that are dealt with too."""
    return await connection.fetch(_LIST, resolved, limit)


# The row stays locked until the operator's transaction ends, so that two operators do not resolve one record twice.
_TAKE: Final = """
SELECT reason, detail, topic, kafka_partition, kafka_offset, kafka_timestamp_ms, key, value, headers,
       resolution, resolved_at, resolved_by
  FROM chessboard.set_aside WHERE id = $1 FOR NO KEY UPDATE"""


async def take(connection: Connection, aside_id: int) -> tuple[Record, Refusal]:
    """The record as it came, locked for this transaction. Raises `UnknownAsideError`, `ResolvedAsideError`."""
    row = await connection.fetchrow(_TAKE, aside_id)
    if row is None:
        raise UnknownAsideError(f"nothing was set aside under {aside_id}: see `python -m chessboard aside list`")
    if row["resolution"] is not None:
        raise ResolvedAsideError(
            f"{aside_id} was {row['resolution'].lower()} at {row['resolved_at']:%F %T} by {row['resolved_by']}"
        )
    place = (row["topic"], row["kafka_partition"], row["kafka_offset"], row["kafka_timestamp_ms"])
    unreadable = row["detail"] if row["reason"] == "Unreadable" else None
    record = Record(*place, row["key"], row["value"], headers_of(row["headers"]), unreadable)
    return record, Refusal(row["reason"], row["detail"])


_RESOLVE: Final = """
UPDATE chessboard.set_aside
   SET resolution = $2, resolved_at = clock_timestamp(), resolved_by = $3, resolved_why = $4
 WHERE id = $1"""


async def resolve(connection: Connection, aside_id: int, resolution: str, *, by: str, why: str) -> None:
    """Write down what became of a record that `take` has locked: `Replayed` or `Dropped`, by whom and why."""
    await connection.execute(_RESOLVE, aside_id, resolution, by, why)


def headers_text(headers: Headers) -> bytes:
    """Headers as JSON without loss: [[name, null | text | {"base64": …}], …]."""
    return json.dumps([[name, _value(value)] for name, value in headers]).encode()


def headers_of(text: bytes) -> Headers:
    """The headers again."""
    return tuple((name, _bytes(value)) for name, value in json.loads(text))


def _value(value: bytes | None) -> str | dict[str, str] | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value or b"").decode()}


def _bytes(value: str | dict[str, str] | None) -> bytes | None:
    if isinstance(value, dict):
        return base64.b64decode(value["base64"])
    return None if value is None else value.encode()


def _digest(record: Record) -> bytes:
    return hashlib.sha256(repr((record.timestamp_ms, record.key, record.value, record.headers)).encode()).digest()
