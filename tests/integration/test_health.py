"""`/livez` and `/readyz` with real servers behind a wire that fails (issue 3, 8)."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import aiohttp
import pytest

import health
from db.unit_of_work import Pool, UnitOfWork, open_pool
from health import Check
from publishing import KafkaOptions, Publisher
from tests.acceptance.proxy import a_proxy
from tests.conftest import Database


@asynccontextmanager
async def _serving(ready: Mapping[str, Check]) -> AsyncIterator[str]:
    runner, address = await health.serve("127.0.0.1", 0, ready=ready)
    try:
        yield address
    finally:
        await runner.cleanup()


async def _get(url: str) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.json()


async def _well() -> str | None:
    return None


async def _ping(pool: Pool) -> str | None:
    async with UnitOfWork(pool) as connection:
        await connection.execute("SELECT 1")
    return None


async def test_all_well(pool: Pool, addresses: Mapping[str, str], topic: str) -> None:
    """Ready when the database answers and the broker has the topic."""
    publisher = Publisher(KafkaOptions(bootstrap_servers=addresses["KAFKA_BOOTSTRAP_SERVERS"]), topic=topic)
    async with _serving({"database": partial(_ping, pool), "kafka": publisher.check}) as address:
        assert await _get(f"{address}/readyz") == (200, {"status": "ready", "checks": {"database": "ok", "kafka": "ok"}})
    await publisher.close()


async def test_trap_33_a_missing_topic_shows(addresses: Mapping[str, str]) -> None:
    """Trap 33: a topic that nobody made is said with its name, and holds a roll-out up."""
    publisher = Publisher(KafkaOptions(bootstrap_servers=addresses["KAFKA_BOOTSTRAP_SERVERS"]), topic="nobody.made.this")
    async with _serving({"kafka": publisher.check}) as address:
        status, body = await _get(f"{address}/readyz")
    await publisher.close()
    assert (status, body["status"]) == (503, "unready")
    assert "topic nobody.made.this does not exist" in body["checks"]["kafka"]


async def test_a_database_that_is_gone_makes_it_unready(database: Database) -> None:
    """Issue 3, 8: 503 with the reason while the database is away, alive all the time, ready again afterwards."""
    host = database.worker.partition("@")[2].partition("/")[0]
    async with a_proxy(host) as proxy:
        pool = await open_pool(database.worker.replace(host, proxy.address))
        async with _serving({"database": partial(_ping, pool)}) as address:
            await proxy.cut()
            status, body = await _get(f"{address}/readyz")
            assert (status, body["status"]) == (503, "unready")
            assert body["checks"]["database"].startswith("DatabaseUnavailableError: database: ")
            assert (await _get(f"{address}/livez"))[0] == 200
            await proxy.open()
            assert (await _get(f"{address}/readyz"))[0] == 200
        pool.terminate()


async def test_a_frozen_database_is_answered_for_in_time(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap 28: a server that keeps the connection and says nothing costs a probe its limit and no more."""
    monkeypatch.setattr(health, "CHECK_TIMEOUT", 0.5)
    host = database.worker.partition("@")[2].partition("/")[0]
    async with a_proxy(host) as proxy:
        pool = await open_pool(database.worker.replace(host, proxy.address), command_timeout=0.3)
        async with _serving({"database": partial(_ping, pool), "other": _well}) as address:
            proxy.freeze()
            began = time.monotonic()
            status, body = await _get(f"{address}/readyz")
            assert time.monotonic() - began < 1.5
            assert (status, body["checks"]["other"]) == (503, "ok")
            answers = await asyncio.gather(*(_get(f"{address}/readyz") for _ in range(10)))
            assert {status for status, _ in answers} == {503}
            assert time.monotonic() - began < 3
        pool.terminate()


async def test_any_check_counts() -> None:
    """Issue 5 section 5: one check that raises makes it unready; the reason stands in the answer, beside those that are well."""

    async def broken() -> str | None:
        raise LookupError("no route")

    async with _serving({"a": _well, "b": broken}) as address:
        assert await _get(f"{address}/readyz") == (
            503,
            {"status": "unready", "checks": {"a": "ok", "b": "LookupError: no route"}},
        )


async def test_a_taken_port_names_the_setting() -> None:
    """Issue 3, 8: the error says which port, for what, and which setting chooses another."""
    async with _serving({}) as address:
        port = int(address.rpartition(":")[2])
        with pytest.raises(OSError, match=rf"port {port} of 127\.0\.0\.1, .*: BOOKING_EXPIRATION_HTTP_PORT"):
            await health.serve("127.0.0.1", port, ready={})
