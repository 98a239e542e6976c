"""A worker with a version (docs/versioning.md): what it gets before and after `set-current-version`, on a real server."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import VersioningBehavior
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle

from activities.drain_messages import DrainLimits, DrainOrder
from tests import floor
from tests.acceptance.process import World, soon
from tests.floor import MINUTE, Admin

TEMPORAL = Path(sys.executable).parent / "temporal"
IDLE = 3.0
"""Seconds in which an unversioned worker would have done a cycle ten times."""


async def _set_current(world: World, build_id: str) -> bool:
    """The command of docs/versioning.md; False while the server does not know the version yet."""
    names = ["--deployment-name", world.name, "--build-id", build_id, "--address", world.where("TEMPORAL_ADDRESS")]
    command = [str(TEMPORAL), "worker", "deployment", "set-current-version", *names, "--yes"]
    process = await asyncio.create_subprocess_exec(*command, stdout=-1, stderr=-1)
    await process.communicate()
    return process.returncode == 0


def _version(world: World, build_id: str) -> dict[str, str]:
    return {"BOOKING_EXPIRATION_DEPLOYMENT_NAME": world.name, "BOOKING_EXPIRATION_BUILD_ID": build_id}


async def test_trap_16_nothing_until_the_version_is_current(world: World) -> None:
    """Trap 16: a versioned worker polls and gets nothing; after set-current-version the waiting cycle is done, pinned to it."""
    await world.start(**_version(world, "0.2.0-a"))
    handle = await world.cycle()
    await asyncio.sleep(IDLE)
    waiting = await handle.describe()
    assert (waiting.status, waiting.history_length) == (WorkflowExecutionStatus.RUNNING, 2)
    await soon(lambda: _set_current(world, "0.2.0-a"), "the version to be known")
    assert (await handle.result())["Outcome"] == "completed"
    versioning = (await handle.describe()).raw_info.versioning_info
    assert versioning.behavior == VersioningBehavior.VERSIONING_BEHAVIOR_PINNED
    assert versioning.deployment_version.build_id == "0.2.0-a"


async def test_trap_16_a_new_version_waits_for_its_turn(world: World) -> None:
    """Trap 16: beside the current version a newer one does nothing; made current, the next cycle is its own."""
    await world.start(**_version(world, "1"))
    await soon(lambda: _set_current(world, "1"), "version 1 to be known")
    newer = await world.start(**_version(world, "2"))
    await world.result()
    assert newer.events("cycle completed") == []
    await soon(lambda: _set_current(world, "2"), "version 2 to be known")
    await world.result()
    assert len(newer.events("cycle completed")) == 1


async def _drain(world: World, admin: Admin) -> WorkflowHandle[Any, Any]:
    """A drain that has done one of two rounds, and goes on when it is told to."""
    await floor.add(admin, 10, await floor.clock(admin) - MINUTE)
    order = DrainOrder(cap=10, batch_size=5, rounds_per_run=1, pause=600.0)
    drain = await world.client.start_workflow("BookingExpirationDrain", order, id=world.name, task_queue=world.name)
    await world.workers[0].said("batch committed")
    return drain


async def _build_id(world: World) -> str:
    described = await world.client.get_workflow_handle(world.name).describe()
    return described.raw_info.versioning_info.deployment_version.build_id


@pytest.mark.slow
async def test_a_drain_ends_on_the_version_it_began_with(world: World, admin: Admin) -> None:
    """docs/versioning.md: pinned, and so is each run that it goes on as; the newer version gets nothing of it."""
    await world.start(**_version(world, "1"))
    await soon(lambda: _set_current(world, "1"), "version 1 to be known")
    drain = await _drain(world, admin)
    newer = await world.start(**_version(world, "2"))
    await soon(lambda: _set_current(world, "2"), "version 2 to be known")
    await drain.execute_update("set_limits", DrainLimits(pause=0.0))
    assert (await drain.result())["ReserveExpiredCount"] == 10
    assert await _build_id(world) == "1"
    assert newer.events("batch committed") == []


@pytest.mark.slow
async def test_a_run_without_a_version_moves_to_the_first_one(world: World, admin: Admin) -> None:
    """docs/versioning.md: what began on workers without a version goes on with the first that is made current."""
    await world.start()
    drain = await _drain(world, admin)
    first = await world.start(**_version(world, "1"))
    await soon(lambda: _set_current(world, "1"), "version 1 to be known")
    await drain.execute_update("set_limits", DrainLimits(pause=0.0))
    assert (await drain.result())["ReserveExpiredCount"] == 10
    assert await _build_id(world) == "1"
    assert first.events("batch committed") != []
