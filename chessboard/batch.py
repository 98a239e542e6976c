"""One batch from the poll to the last word in the log: committed as a whole, or record by record where one is refused."""

from collections.abc import Sequence
from typing import Final

from chessboard import aside, moments
from chessboard.applying import apply
from chessboard.decision import Effect, Verdict
from chessboard.record import Expiry, Reason, Record, Refusal, parse
from db.errors import RowRefusedError
from db.unit_of_work import Pool, UnitOfWork

_COUNTED: Final = {"freed": Effect.FREED, "late": Effect.LATE, "duplicate": Effect.DUPLICATE}


async def apply_batch(pool: Pool, records: Sequence[Record], event_type: str) -> dict[str, int]:
    """Commit a batch; counts of freed, late, duplicate and set_aside. Raises `DatabaseError`: then apply it again."""
    with moments.applying(records):
        verdicts = await _commit(pool, records, event_type)
    counts = {name: verdicts.count(effect) for name, effect in _COUNTED.items()}
    for record, verdict in zip(records, verdicts, strict=True):  # said after the commit: before it, it may not be so
        _say(record, verdict, event_type)
    return {**counts, "set_aside": len(verdicts) - sum(counts.values())}


async def _commit(pool: Pool, records: Sequence[Record], event_type: str) -> list[Verdict]:
    try:
        async with UnitOfWork(pool) as connection:
            return await apply(connection, records, event_type)
    except RowRefusedError as error:
        if len(records) == 1:
            return [await _set_aside(pool, records[0], str(error))]
    # A constraint or trigger refused some row: alone, each one shows whether it was its own.
    return [verdict for record in records for verdict in await _commit(pool, [record], event_type)]


async def _set_aside(pool: Pool, record: Record, error: str) -> Refusal:
    refusal = Refusal(Reason.REFUSED, ascii(error)[:500])
    async with UnitOfWork(pool) as connection:
        await aside.put(connection, [(record, refusal)])
    return refusal


def _say(record: Record, verdict: Verdict, event_type: str) -> None:
    if isinstance(verdict, Refusal):
        moments.record_set_aside(record.partition, record.offset, verdict.reason, verdict.detail)
        return
    expiry = parse(record, event_type)
    if isinstance(expiry, Expiry) and verdict is Effect.FREED:
        moments.object_freed(expiry.object_id, expiry.booking_id, expiry.event_id)
    elif isinstance(expiry, Expiry) and verdict is Effect.LATE:
        moments.event_late(expiry.object_id, expiry.booking_id, expiry.event_id)
