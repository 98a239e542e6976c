"""Reading: one snapshot, read only, so that whoever looks can neither change a row nor keep anybody from doing so."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from db.unit_of_work import Connection, Pool, UnitOfWork

# All statements of one answer see the same moment; the server itself refuses a write or a row lock in such a transaction.
_SNAPSHOT: Final = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"


@asynccontextmanager
async def reading(pool: Pool) -> AsyncIterator[Connection]:
    """A transaction that sees one snapshot and can only read. Raises `DatabaseError`.

    A cancel during its COMMIT is a cancel: nothing was written that would have to be told, and those who look again and again
    would otherwise never end.
    """
    unit = UnitOfWork(pool)
    async with unit as connection:
        await connection.execute(_SNAPSHOT)
        yield connection
    if unit.cancel_dropped:
        raise asyncio.CancelledError
