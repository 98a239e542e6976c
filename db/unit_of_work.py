"""The unit of work: one connection, one transaction, one way out.

It commits on a clean exit and rolls back on an error; there is no commit() to call too early or to forget.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext, suppress
from types import TracebackType
from typing import Any, Final, TypeAlias

import asyncpg
from asyncpg.pool import PoolConnectionProxy
from asyncpg.transaction import Transaction

from db.errors import translate

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
Connection: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"
Span: TypeAlias = Callable[[str], AbstractContextManager[Any]]
ACQUIRE_TIMEOUT: Final = 5.0
"""Seconds to wait for a free connection, connecting included."""

_DRIVER_ERRORS: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)


async def open_pool(
    url: str,
    *,
    size: int = 4,
    command_timeout: float = 10.0,
    statement_cache_size: int = 100,
    application: str = "booking-expiration",
) -> Pool:
    """A pool that nothing can hang: `command_timeout` (seconds) bounds every statement, COMMIT included (trap 28).

    Raises `DatabaseError` when the first connection cannot be made.
    """
    try:
        async with asyncio.timeout(ACQUIRE_TIMEOUT):
            return await asyncpg.create_pool(
                url,
                min_size=1,
                max_size=size,
                command_timeout=command_timeout,
                statement_cache_size=statement_cache_size,
                server_settings={"application_name": application},
                reset=_keep_session,
            )
    except _DRIVER_ERRORS as error:
        raise translate(error) from error


async def close_pool(pool: Pool) -> None:
    """Say goodbye on every connection. Raises `DatabaseError` where the other side is gone already."""
    try:
        await pool.close()
    except _DRIVER_ERRORS as error:
        raise translate(error) from error


async def _keep_session(_connection: Any) -> None:
    """No session state is ever set (trap 29), so a returned connection needs no round trip to reset it."""


class UnitOfWork:
    """`async with UnitOfWork(pool) as connection:` is one READ COMMITTED transaction (D4, T1).

    Begin, commit, rollback and release cannot be interrupted; everything between can (trap 11, L5). COMMIT is the point
    of no return: a cancel that arrives during it is dropped, because the work is done. Raises `DatabaseError`; after a
    failed COMMIT the outcome is unknown (trap 26). `span`, given its name, is what goes around COMMIT. `cancel_dropped` says
    afterwards whether a cancel was dropped: whoever works in a loop must look, or never ends (`db.reading` does).
    """

    def __init__(self, pool: Pool, span: Span = nullcontext) -> None:
        self._pool = pool
        self._span = span
        self.cancel_dropped = False
        self._connection: Connection
        self._transaction: Transaction

    async def __aenter__(self) -> Connection:
        try:
            interrupted = await _uninterrupted(self._begin())
        except Exception as error:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise asyncio.CancelledError from error  # nothing has begun, so the cancel loses nothing
            raise translate(error) from error
        if interrupted:
            await _uninterrupted(self._give_up(asyncio.CancelledError()))
            raise asyncio.CancelledError
        return self._connection

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            try:
                with self._span("commit"):
                    if await _uninterrupted(self._commit()) and (task := asyncio.current_task()) is not None:
                        task.uncancel()  # the dropped cancel must not be found by whatever this task does next
                        self.cancel_dropped = True
            except Exception as failure:
                raise translate(failure) from failure
            return
        await _uninterrupted(self._give_up(error))
        if isinstance(error, Exception) and (ours := translate(error)) is not error:
            raise ours from error

    async def _begin(self) -> None:
        self._connection = await self._pool.acquire(timeout=ACQUIRE_TIMEOUT)
        self._transaction = self._connection.transaction(isolation="read_committed")
        try:
            await self._transaction.start()
        except BaseException:
            await self._drop()
            raise

    async def _commit(self) -> None:
        try:
            await self._transaction.commit()
        except BaseException:
            await self._drop()
            raise
        await self._release()

    async def _give_up(self, reason: BaseException) -> None:
        """Roll back, or drop the connection where that cannot be trusted; never let either hide the reason."""
        if isinstance(reason, TimeoutError):
            await self._drop()
            return
        if isinstance(reason, asyncpg.ReadOnlySQLTransactionError):
            # After a failover only new connections find the new primary, and only they see a changed default.
            await self._pool.expire_connections()
        try:
            await self._transaction.rollback()
        except _DRIVER_ERRORS:
            await self._drop()
        else:
            await self._release()

    async def _drop(self) -> None:
        """Close the connection at once: what it was in the middle of is unknown (trap 28)."""
        with suppress(*_DRIVER_ERRORS):  # a connection that the server closed is gone from the pool already
            self._connection.terminate()
        await self._release()

    async def _release(self) -> None:
        """Hand the connection back. A failure here closes that connection and says nothing about the transaction."""
        with suppress(*_DRIVER_ERRORS):
            await self._pool.release(self._connection)


async def _uninterrupted(work: Coroutine[Any, Any, None]) -> bool:
    """Run `work` to its end whatever happens to the caller; True when the caller was cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    interrupted = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            interrupted = True
        except Exception:  # noqa: S112, BLE001 # raised below, by result()
            continue
    task.result()
    return interrupted
