"""The worker's memory: bounded after many bookings, and flat (issue 3, 11)."""

import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from tests import floor
from tests.acceptance.held import whole
from tests.acceptance.process import World, a_world
from tests.conftest import Database
from tests.floor import MINUTE, Admin

LIMIT_MB = 150
FLAT_MB = 8
"""What one more megabyte of cache or a fuller allocator may make between the middle and the end."""


@pytest.fixture
async def world(addresses: Mapping[str, str], database: Database, topic: str, tmp_path: Path) -> AsyncIterator[World]:
    """Real servers, and everything that two tests could share for this one alone."""
    client = await Client.connect(addresses["TEMPORAL_ADDRESS"], data_converter=pydantic_data_converter)
    async with a_world(client, database, topic, addresses, tmp_path) as made:
        yield made


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_memory_after_10_000_expired_bookings(world: World, admin: Admin) -> None:
    """Issue 3, 11: 50 cycles of 200 bookings leave the worker below 150 MB, and the second half adds next to nothing."""
    await floor.add(admin, 10_000, await floor.clock(admin) - MINUTE)
    worker = await world.start()
    sizes = [worker.rss()]
    for _ in range(50):
        assert (await world.result())["PublishedCount"] == 200
        sizes.append(worker.rss())
    sys.stdout.write(f"MB at the start {sizes[0]}, after 25 cycles {sizes[25]}, after 50 {sizes[-1]}\n")
    assert await whole(admin) == 10_000
    assert max(sizes) <= LIMIT_MB, sizes
    assert sizes[-1] - sizes[25] <= FLAT_MB, sizes
