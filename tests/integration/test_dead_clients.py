"""No dead client keeps a booking locked: a killed one and a silent one, each a real process (trap 24, issue 3 section 3)."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import asyncpg
import pytest

from tests.conftest import Database

Connection: TypeAlias = "asyncpg.Connection[Any]"
Start: TypeAlias = Callable[[str, str], Awaitable[asyncio.subprocess.Process]]
CLIENT = """
import asyncio, sys, asyncpg

async def hold(url, then):
    connection = await asyncpg.connect(url)
    await connection.transaction().start()
    await connection.execute("SELECT id FROM crm.bookings FOR NO KEY UPDATE SKIP LOCKED")
    if then == "idle":
        print("holding", flush=True)
        await asyncio.sleep(600)
    query = asyncio.ensure_future(connection.execute(then))
    await asyncio.sleep(0.3)
    print("holding", flush=True)
    await query
    await asyncio.sleep(600)

asyncio.run(hold(*sys.argv[1:]))
"""
BOOKINGS = """
    INSERT INTO crm.bookings (id, tenant_id, deal_id, property_object_id, status, reserve_expires_at)
    SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'Reserved', now()
    FROM generate_series(1, 20)"""


@pytest.fixture
async def client(admin: Connection) -> AsyncIterator[Start]:
    """Starts a process that locks all twenty bookings and then is idle, or runs a query; it dies with the test."""
    await admin.execute(BOOKINGS)
    started: list[asyncio.subprocess.Process] = []

    async def start(dsn: str, then: str) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", CLIENT, dsn, then, stdout=asyncio.subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"holding\n"
        assert await free(admin) == 0
        return process

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def free(admin: Connection) -> int:
    """How many bookings nobody holds."""
    return len(await admin.fetch("SELECT id FROM crm.bookings FOR UPDATE SKIP LOCKED"))


async def seconds_until_free(admin: Connection) -> float:
    """How long it takes until all twenty are free again."""
    begin = time.monotonic()
    async with asyncio.timeout(40):
        while await free(admin) < 20:  # noqa: ASYNC110 # the server tells nobody when a lock is free
            await asyncio.sleep(0.1)
    return time.monotonic() - begin


@pytest.mark.parametrize("role", ["worker", "crm_app"])
@pytest.mark.parametrize("then", ["idle", "SELECT pg_sleep(60)"], ids=["idle in transaction", "in a running query"])
async def test_killed_client(database: Database, admin: Connection, client: Start, then: str, *, role: str) -> None:
    """Trap 24: kill -9 in the middle of a batch frees its rows in under 5 seconds, also inside a running query."""
    process = await client(getattr(database, role), then)
    process.kill()
    assert await seconds_until_free(admin) < 5


@pytest.mark.slow
@pytest.mark.parametrize("then", ["idle", "SELECT pg_sleep(11)"], ids=["idle in transaction", "in a long query"])
async def test_silent_client(database: Database, admin: Connection, client: Start, then: str) -> None:
    """Trap 24: a client that stops without closing anything loses its rows in under 30 seconds, also before PostgreSQL 17."""
    process = await client(database.worker, then)
    os.kill(process.pid, signal.SIGSTOP)
    assert await seconds_until_free(admin) < 30
