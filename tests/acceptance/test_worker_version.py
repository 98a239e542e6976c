"""A worker with a version (docs/versioning.md): what it gets before and after `set-current-version`, on a real server."""

import asyncio
import sys
from pathlib import Path

from temporalio.api.enums.v1 import VersioningBehavior
from temporalio.client import WorkflowExecutionStatus

from tests.acceptance.process import World, soon

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
