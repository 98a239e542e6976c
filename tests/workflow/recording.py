"""What the recorder of histories needs: the worker, ways to hold a step up, and how a run is kept without this machine."""

import asyncio
import os
import re
import tomllib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import asyncpg
import pytest
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import CancelledError

import connections
import worker
from activities.drain_messages import DrainOrder
from db import controls
from db.unit_of_work import UnitOfWork, open_pool
from domain.events import Phase
from publishing import Publisher
from settings import Settings
from tests import floor
from tests.acceptance.conftest import world
from tests.acceptance.process import ROOT, World, soon
from tests.conftest import Database
from tests.floor import MINUTE, Admin
from tests.workflow.gate import FOLDER, require_unreleased

__all__ = ["world"]
Handle: TypeAlias = WorkflowHandle[Any, Any]
VERSION: Final[str] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
TO: Final = Path(os.environ.get("HISTORIES_TO", FOLDER))
"""Where histories are kept; elsewhere than usual when the recorder itself is tested."""

_STACK_TRACE: Final = re.compile(r'"stackTrace": "(\\.|[^"\\])*"')
"""It names folders of this machine, and no replay looks at it."""


@asynccontextmanager
async def at_work(world: World, **changes: Any) -> AsyncIterator[Client]:
    """The worker as `worker.py` composes it, with the real activities, in this process: a new one for each run starts at once."""
    given = {"DATABASE_URL": world.database.worker, "KAFKA_BOOTSTRAP_SERVERS": world.where("KAFKA_BOOTSTRAP_SERVERS")}
    names = {"task_queue": world.name, "schedule_id": world.name, "topic": world.topic}
    settings = Settings(**{**given, **names, **changes})
    pool = await open_pool(world.database.worker)
    publisher = Publisher(connections.kafka(settings), topic=settings.topic)
    try:
        async with await worker._worker(settings, world.client, pool, publisher):
            yield world.client
    finally:
        await publisher.close()
        pool.terminate()


async def record(handle: Handle, kind: str) -> None:
    """Wait for the end of a run, whatever it is, and keep its history; of a chain of runs each one."""
    with suppress(WorkflowFailureError):
        await handle.result()
    run_id, runs = handle.first_execution_run_id, []
    while run_id:
        runs.append(await handle._client.get_workflow_handle(handle.id, run_id=run_id).fetch_history())
        run_id = runs[-1].events[-1].workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    for number, history in enumerate(runs, start=1):
        text = _STACK_TRACE.sub('"stackTrace": ""', history.to_json())
        file = f"{VERSION}-{kind}.json" if len(runs) == 1 else f"{VERSION}-{kind}-run-{number}.json"
        (TO / file).write_text(f"{text}\n", encoding="utf-8")


@asynccontextmanager
async def locked(database: Database, table: str) -> AsyncIterator[None]:
    """Somebody else holds a whole table: it can be read and not written."""
    holder = await asyncpg.connect(database.admin)
    try:
        await holder.execute(f"BEGIN; LOCK TABLE {table} IN EXCLUSIVE MODE")
        yield
    finally:
        await holder.close()


@dataclass
class Here:
    """Where one run happens: a world of its own, an administrator's connection, and what must be closed at the end."""

    world: World
    admin: Admin
    opened: AsyncExitStack

    async def due(self, reserves: int = 0, booked: int = 0) -> None:
        """Put in bookings whose time has run out."""
        due = await floor.clock(self.admin) - MINUTE
        await floor.add(self.admin, reserves, due)
        await floor.add(self.admin, booked, due, "Booked")

    async def cycle(self, **settings: Any) -> Handle:
        """Start a worker and a cycle."""
        await self.opened.enter_async_context(at_work(self.world, **settings))
        return await self.world.cycle()

    async def start(self, workflow: str, order: Any) -> Handle:
        """Start a worker and another workflow."""
        client = await self.opened.enter_async_context(at_work(self.world))
        return await client.start_workflow(workflow, order, id=f"{self.world.name}-run", task_queue=self.world.name)

    async def drain(self, **order: Any) -> Handle:
        """Start a worker and a drain in batches of five."""
        wanted = DrainOrder(reason="after the outage", actor="anna", **{"batch_size": 5, **order})
        return await self.start("BookingExpirationDrain", wanted)

    async def control(self, *, pause: Phase | None = None, release: int | None = None) -> None:
        """As an operator does: pause a phase, or let so many through a hold."""
        pool = await open_pool(self.world.database.operator)
        async with UnitOfWork(pool) as connection:
            if pause:
                now = await floor.clock(self.admin)
                await controls.pause(connection, pause, now, None, actor="anna", reason="price change")
            if release is not None:
                await controls.release(connection, release, actor="anna", reason="looked at")
        pool.terminate()


@pytest.fixture
async def here(world: World, admin: Admin) -> AsyncIterator[Here]:
    """A place for one run, whose history does not name this machine. Nothing is recorded over a released version's histories."""
    if TO == FOLDER:
        require_unreleased(VERSION)
    client = await Client.connect(
        world.where("TEMPORAL_ADDRESS"), data_converter=pydantic_data_converter, identity="record_histories"
    )
    async with AsyncExitStack() as opened:
        yield Here(replace(world, client=client), admin, opened)


async def tried_again(handle: Handle) -> None:
    """Return once an attempt of the step in hand has failed."""

    async def failed() -> bool:
        described = (await handle.describe()).raw_description
        return any(each.HasField("last_failure") for each in described.pending_activities)

    await soon(failed, "a failed attempt")


async def in_hand(handle: Handle, step: str) -> None:
    """Return once a worker has this step of the run in hand."""

    async def pending() -> bool:
        described = (await handle.describe()).raw_description
        return [each.activity_type.name for each in described.pending_activities if each.last_worker_identity] == [step]

    await soon(pending, f"{step} in hand")


async def has_event(handle: Handle, attributes: str) -> None:
    """Return once the run's history has an event of this kind."""

    async def there() -> bool:
        return any(event.HasField(attributes) for event in (await handle.fetch_history()).events)  # type: ignore[arg-type] # a field's name

    await soon(there, attributes, 40)


async def ends_canceled(handle: Handle) -> None:
    """Return once the run has ended, and as Canceled."""
    with pytest.raises(WorkflowFailureError) as caught:
        await asyncio.wait_for(handle.result(), 30)
    assert isinstance(caught.value.cause, CancelledError)


async def metadata(handle: Handle) -> WorkflowMetadata:
    """What the Web UI shows of a run: its forms and its current details."""
    told: WorkflowMetadata = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
    return told
