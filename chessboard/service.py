"""The chessboard's process: composition only. Settings → log → database → consumer, until SIGTERM or SIGINT."""

from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final

import asyncpg

import connections
import health
from chessboard import moments
from chessboard.consumer import Consumer
from chessboard.membership import Group
from chessboard.settings import Settings
from db.errors import DatabaseUnavailableError
from db.migrations import known
from db.unit_of_work import Pool, UnitOfWork, open_pool
from exits import CannotStartError
from exporting import MeteredExporting
from process import Patience, stop_on_signals
from settings import opentelemetry

MIGRATIONS: Final = Path(__file__).parent / "migrations"


async def run(settings: Settings) -> None:
    """Consume until a stop is asked for, then finish what is in hand. Raises `CannotStartError`, `DatabaseError`, `OSError`.

    A broker that does not answer is waited for as long as it takes: `/readyz` says so.
    """
    exporting = MeteredExporting(opentelemetry(), "chessboard")
    moments.count_from_zero()
    stop = stop_on_signals(settings.shutdown_timeout)
    patience = Patience(settings.startup_timeout, stop)
    async with AsyncExitStack() as opened:
        opened.push_async_callback(exporting.stop)
        make = partial(database, settings)
        pool = await patience.until("database", settings.database_address, make, heals=DatabaseUnavailableError)
        opened.push_async_callback(connections.close, pool)
        arguments = connections.kafka(settings, client_id="chessboard").arguments()
        group = Group(arguments=arguments, topic=settings.topic, name=settings.group, session_timeout=settings.session_timeout)
        consumer = Consumer(pool, group, settings.batch_size)
        web, address = await health.serve(
            settings.http_host,
            settings.http_port,
            ready={"database": partial(_ping, pool), "kafka": consumer.check},
            variable="CHESSBOARD_HTTP_PORT",
            metrics=exporting.exposition,
        )
        opened.push_async_callback(web.cleanup)
        moments.started(settings.topic, settings.group, address)
        await consumer.run(stop)
    moments.stopped()


async def database(settings: Settings) -> Pool:
    """A pool on a database that has all of the chessboard's migrations. Raises `DatabaseError`, `CannotStartError`."""
    pool = await open_pool(
        settings.database_url.get_secret_value(),
        size=settings.database_pool_size,
        command_timeout=settings.database_command_timeout,
        statement_cache_size=settings.database_statement_cache_size,
        application="chessboard",
    )
    try:
        await _require_migrations(pool, settings.database_address)
    except BaseException:
        pool.terminate()
        raise
    return pool


async def _require_migrations(pool: Pool, address: str) -> None:
    if missing := await _missing(pool):
        raise CannotStartError(
            f"the database at {address} lacks the chessboard's migrations {', '.join(missing)}, or the role in "
            "CHESSBOARD_DATABASE_URL may not see them (it must be chessboard); apply them: dbmate --migrations-dir "
            "chessboard/migrations --migrations-table chessboard.schema_migrations --no-dump-schema migrate"
        )


_APPLIED: Final = "SELECT version FROM chessboard.schema_migrations"


async def _missing(pool: Pool) -> list[str]:
    async with UnitOfWork(pool) as connection:
        try:
            applied = {row["version"] for row in await connection.fetch(_APPLIED)}
        except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError, asyncpg.InsufficientPrivilegeError):
            applied = set()  # not even the first one: it grants the reading
    return [version for version in known(MIGRATIONS) if version not in applied]


async def _ping(pool: Pool) -> None:
    async with UnitOfWork(pool) as connection:
        await connection.execute("SELECT 1")
