"""The real worker killed with SIGKILL: the next run finishes, nothing happens twice, counts are exact (issue 3, 10)."""

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from tests import floor
from tests.acceptance.held import batch_waits, close_gate, nothing_left, open_gate, whole
from tests.acceptance.process import World, a_world, soon
from tests.conftest import Database
from tests.floor import MINUTE, Admin
from tests.outbox_rows import consume, header


@pytest.fixture
async def world(addresses: Mapping[str, str], database: Database, topic: str, tmp_path: Path) -> AsyncIterator[World]:
    """Real servers, and everything that two tests could share for this one alone."""
    client = await Client.connect(addresses["TEMPORAL_ADDRESS"], data_converter=pydantic_data_converter)
    async with a_world(client, database, topic, addresses, tmp_path) as made:
        yield made


async def _events(world: World) -> dict[str, set[Any]]:
    """What a consumer sees: per event id, the different (key, value) pairs."""
    found: dict[str, set[Any]] = {}
    for event in await consume(world.servers["KAFKA_BOOTSTRAP_SERVERS"], world.topic):
        found.setdefault(header(event, "ce_id"), set()).add((event.key, event.value))
    return found


async def test_r1_killed_during_a_batch(world: World, admin: Admin) -> None:
    """R1, L5: nothing of the batch stays, its locks are gone within seconds, and the next worker ends the same cycle."""
    await floor.add(admin, 20, await floor.clock(admin) - MINUTE)
    await close_gate(admin, "write")
    worker, cycle = await world.start(), await world.cycle()
    await batch_waits(admin)
    assert (await worker.stop(signal.SIGKILL))[0] == -signal.SIGKILL
    await nothing_left(admin)
    assert await whole(admin) == 0
    await open_gate(admin)
    await world.start()
    result = await cycle.result()
    assert (result["Outcome"], result["ReserveExpiredCount"], result["PublishedCount"]) == ("completed", 20, 20)
    assert await whole(admin) == len(await _events(world)) == 20


async def test_d7_killed_between_commit_and_completion(world: World, admin: Admin) -> None:
    """D7, R1: the batch is committed and nobody was told: the retry answers from the ledger with the same counts."""
    await floor.add(admin, 30, await floor.clock(admin) - MINUTE)
    await close_gate(admin, "commit")
    worker, cycle = await world.start(), await world.cycle(20)
    await batch_waits(admin)
    worker.process.send_signal(signal.SIGSTOP)
    await open_gate(admin)
    await soon(lambda: _committed(admin), "the commit that the frozen worker had sent")
    await worker.stop(signal.SIGKILL)
    successor = await world.start()
    result = await cycle.result()
    assert (result["Outcome"], result["ReserveExpiredCount"], result["PublishedCount"]) == ("completed", 20, 20)
    assert await whole(admin) == len(await _events(world)) == 20
    assert [line["expired"] for line in successor.events("batch already committed", phase="Reserve")] == [20]


async def _committed(admin: Admin) -> bool:
    return bool(await admin.fetchval("SELECT EXISTS (SELECT FROM crm.expiration_batches)"))


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_killed_again_and_again_at_random_moments(world: World, admin: Admin) -> None:
    """R1, R2, D11: eight kills anywhere between start and publishing: each booking expires once; duplicates are identical."""
    dice = random.Random(11)
    await floor.add(admin, 400, await floor.clock(admin) - MINUTE)
    for _ in range(8):
        worker = await world.start()
        cycles = [await world.cycle(20) for _ in range(4)]
        await asyncio.wait([asyncio.ensure_future(cycles[0].result())], timeout=dice.uniform(0.02, 0.5))
        await worker.stop(signal.SIGKILL)
        await nothing_left(admin)
        await whole(admin)
        await asyncio.gather(*(cycle.terminate() for cycle in cycles), return_exceptions=True)
    await world.start()
    await soon(lambda: _drained(world, admin), "everything expired and published", 90)
    events = await _events(world)
    assert await whole(admin) == len(events) == 400
    assert {len(variants) for variants in events.values()} == {1}


async def _drained(world: World, admin: Admin) -> bool:
    await world.result()
    published: int = await admin.fetchval("SELECT count(published_at) FROM crm.outbox")
    return published == await whole(admin) == 400
