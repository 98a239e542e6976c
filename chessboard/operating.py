"""What an operator does about records that were set aside, each in one transaction."""

from typing import Any

from chessboard import aside
from chessboard.applying import apply
from chessboard.decision import Effect
from chessboard.record import Refusal
from db.unit_of_work import Pool, UnitOfWork


async def listed(pool: Pool, limit: int, *, resolved: bool) -> list[Any]:
    """The latest `limit` records that were set aside, newest first."""
    async with UnitOfWork(pool) as connection:
        return await aside.listed(connection, limit, resolved=resolved)


async def replay(pool: Pool, aside_id: int, *, event_type: str, by: str, why: str) -> Effect:
    """Apply a record again, as if it came just now, and say what it did; safe after the object was sold again (D17).

    Raises `StillRefusedError` with the present cause, `UnknownAsideError`, `ResolvedAsideError`.
    """
    async with UnitOfWork(pool) as connection:
        record, _ = await aside.take(connection, aside_id)
        [verdict] = await apply(connection, [record], event_type)
        if isinstance(verdict, Refusal):
            raise aside.StillRefusedError(f"{aside_id} stays set aside: {verdict.reason}: {verdict.detail}")
        await aside.resolve(connection, aside_id, "Replayed", by=by, why=why)
    return verdict


async def drop(pool: Pool, aside_id: int, *, by: str, why: str) -> None:
    """Give a record up: it stays in the table, with the reason. Raises `UnknownAsideError`, `ResolvedAsideError`."""
    async with UnitOfWork(pool) as connection:
        await aside.take(connection, aside_id)
        await aside.resolve(connection, aside_id, "Dropped", by=by, why=why)
