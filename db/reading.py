"""Reading for people: one snapshot, read only, so that a command can neither change a row nor keep anybody from doing so."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from db.unit_of_work import Connection, Pool, UnitOfWork

# All statements of one answer see the same moment; the server itself refuses a write or a row lock in such a transaction.
_SNAPSHOT: Final = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"


@asynccontextmanager
async def reading(pool: Pool) -> AsyncIterator[Connection]:
    """A transaction that sees one snapshot and can only read. Raises `DatabaseError`."""
    async with UnitOfWork(pool) as connection:
        await connection.execute(_SNAPSHOT)
        yield connection
