"""The memory of a real worker process over a thousand cycles, five bookings each.

`python -m bench.memory` under `python -m devstack exec --durable --`, or `python -m bench.memory traced` for a worker that
sends its traces to a collector in this process: a few minutes each. Cycles are started one after the other instead of one a
minute; what a scrape costs in memory is in it, one every ten cycles.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import Final

import aiohttp
import asyncpg
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from bench.database import fresh_database
from bench.publish import fresh_topic
from devstack import addresses
from publishing import KafkaOptions
from tests import floor
from tests.acceptance.collector import a_collector
from tests.acceptance.process import WorkerProcess, World, a_world
from tests.conftest import Database
from tests.floor import MINUTE

CYCLES: Final = 1000
SETTLED: Final = 100
EVERY: Final = 100
BOOKINGS: Final = 5
FLAT_MB: Final = 8
"""What one more megabyte of cache or a fuller allocator may make between the 100th cycle and the last."""


async def run(*, traced: bool) -> list[int]:
    """Resident megabytes at the start and after each hundred cycles."""
    kafka = KafkaOptions(bootstrap_servers=os.environ[addresses.KAFKA])
    client = await Client.connect(os.environ[addresses.TEMPORAL], data_converter=pydantic_data_converter)
    with tempfile.TemporaryDirectory() as folder:
        async with fresh_database() as (worker_url, admin_url), fresh_topic(kafka) as topic:
            database = Database("bench", worker_url, "", "", "", "", admin_url)
            async with a_collector() as collector, a_world(client, database, topic, os.environ, Path(folder)) as world:
                pushing = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{collector.address}/v1/traces"} if traced else {}
                sizes = await _cycles(world, await world.start(**pushing))
                assert bool(collector.spans) is traced
                return sizes


async def _cycles(world: World, worker: WorkerProcess) -> list[int]:
    admin, sizes = await asyncpg.connect(world.database.admin), [worker.rss()]
    for number in range(1, CYCLES + 1):
        await floor.add(admin, BOOKINGS, await floor.clock(admin) - MINUTE)
        assert (await world.result())["PublishedCount"] == BOOKINGS
        if number % 10 == 0:
            await _scrape(worker)
        if number % EVERY == 0:
            sizes.append(worker.rss())
    await admin.close()
    return sizes


async def _scrape(worker: WorkerProcess) -> None:
    web = (await worker.said("worker started"))["web"]
    async with aiohttp.ClientSession() as session, session.get(f"{web}/metrics") as answer:
        assert b"crm_booking_expiration_items_total" in await answer.read()


if __name__ == "__main__":
    measured = asyncio.run(run(traced=sys.argv[1:] == ["traced"]))
    print("MB at the start and after each hundred cycles:", *measured)
    sys.exit(measured[-1] - measured[SETTLED // EVERY] > FLAT_MB)
