"""The real worker as a process, in a world of its own: a database, a topic, a task queue, a schedule that does not fire."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import aiohttp
from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError

from activities.messages import CycleInput
from devstack import addresses as names
from tests.conftest import Database
from workflows import schedule
from workflows.expiration_cycle import EXECUTION_TIMEOUT

ROOT: Final = Path(__file__).resolve().parent.parent.parent
PATIENCE: Final = 45.0
"""Seconds to wait for what must happen; only a failure takes that long."""


async def soon(condition: Any, what: str, seconds: float = PATIENCE) -> Any:
    """The first true answer of the coroutine function `condition`."""
    deadline = time.monotonic() + seconds
    while not (answer := await condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:.0f} s: {what}")
        await asyncio.sleep(0.03)
    return answer


@dataclass
class WorkerProcess:
    """One `python worker.py`; its standard output and error are files, so that nobody has to read them."""

    process: asyncio.subprocess.Process
    out: Path
    err: Path

    def lines(self) -> list[dict[str, Any]]:
        """Its log so far. Every line must be one JSON object (O1)."""
        complete = self.out.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in complete.split("\n")] if complete else []

    def events(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        """The log lines of one event, with these values."""
        return [line for line in self.lines() if line["event"] == event and fields.items() <= line.items()]

    async def said(self, event: str, seconds: float = PATIENCE, **fields: Any) -> dict[str, Any]:
        """The first such log line, as soon as it is there."""

        async def heard() -> list[dict[str, Any]]:
            ended = self.process.returncode  # looked at first: what it said before its end counts
            found = self.events(event, **fields)
            if not found and ended is not None:
                raise AssertionError(f"the worker ended with {ended}: {self.err.read_text()}")
            return found

        first: dict[str, Any] = (await soon(heard, f"{event} {fields}", seconds))[0]
        return first

    async def ended(self, seconds: float = PATIENCE) -> int:
        """Its exit code, as soon as it has ended."""
        async with asyncio.timeout(seconds):
            return await self.process.wait()

    async def stop(self, which: signal.Signals = signal.SIGTERM) -> tuple[int, float]:
        """Send a signal; the exit code, and how many seconds the worker took."""
        began = time.monotonic()
        self.process.send_signal(which)
        return await self.ended(), time.monotonic() - began

    async def get(self, path: str) -> tuple[int, dict[str, Any]]:
        """Status and body of one of its HTTP paths."""
        web = (await self.said("worker started"))["web"]
        async with aiohttp.ClientSession() as session, session.get(web + path) as answer:
            return answer.status, await answer.json()

    def rss(self) -> int:
        """Its resident memory, in MB."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") // 1_000_000


@dataclass
class World:
    """Where workers of one test live; `name` is their task queue, schedule and the prefix of their workflows' ids."""

    client: Client
    database: Database
    topic: str
    servers: Mapping[str, str]
    folder: Path
    name: str = field(default_factory=lambda: f"acceptance-{uuid4()}")
    workers: list[WorkerProcess] = field(default_factory=list)

    def environment(self, settings: Mapping[str, str]) -> dict[str, str]:
        """What a worker of this world is told; warnings of Python are errors in it too."""
        ours = {
            "DATABASE_URL": self.database.worker,
            "KAFKA_BOOTSTRAP_SERVERS": self.servers[names.KAFKA],
            "TEMPORAL_ADDRESS": self.servers[names.TEMPORAL],
            "BOOKING_EXPIRATION_TASK_QUEUE": self.name,
            "BOOKING_EXPIRATION_SCHEDULE_ID": self.name,
            "BOOKING_EXPIRATION_TOPIC": self.topic,
            "BOOKING_EXPIRATION_HTTP_PORT": "0",
            "PYTHONWARNINGS": "error",
        }
        return {**os.environ, **ours, **settings}

    def where(self, what: str) -> str:
        """`host:port` of a server, by the name of its variable."""
        return self.environment({})[what].rpartition("@")[2].partition("/")[0]

    async def launch(self, **settings: str) -> WorkerProcess:
        """Start a worker with other settings than this world's, and do not wait for anything."""
        name = f"worker-{uuid4()}"
        out, err = self.folder / f"{name}.out", self.folder / f"{name}.err"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "worker.py", cwd=ROOT, env=self.environment(settings), stdout=stdout, stderr=stderr
            )
        self.workers.append(WorkerProcess(process, out, err))
        return self.workers[-1]

    async def start(self, **settings: str) -> WorkerProcess:
        """Start a worker and wait until it works."""
        worker = await self.launch(**settings)
        await worker.said("worker started")
        return worker

    async def cycle(self, batch_size: int = 200) -> WorkflowHandle[Any, Any]:
        """Start a cycle as the schedule would, without waiting for its end."""
        return await self.client.start_workflow(
            "BookingExpirationCycle",
            CycleInput(batch_size=batch_size),
            id=f"{self.name}-{uuid4()}",
            task_queue=self.name,
            execution_timeout=EXECUTION_TIMEOUT,
        )

    async def trigger(self) -> WorkflowHandle[Any, Any]:
        """Let the schedule start a cycle now, as an operator does."""
        handle = self.client.get_schedule_handle(self.name)
        await handle.trigger()

        async def started() -> Any:
            return (await handle.describe()).info.recent_actions

        action = (await soon(started, "a triggered cycle"))[-1].action
        return self.client.get_workflow_handle(action.workflow_id, run_id=action.first_execution_run_id)

    async def result(self, batch_size: int = 200) -> dict[str, Any]:
        """Run one cycle to its end; its result as it stands in the Web UI."""
        answer: dict[str, Any] = await (await self.cycle(batch_size)).result()
        return answer


@asynccontextmanager
async def a_world(
    client: Client, database: Database, topic: str, servers: Mapping[str, str], folder: Path
) -> AsyncIterator[World]:
    """A world whose schedule is paused, so that no tick gets between; at the end no worker of it is left."""
    world = World(client, database, topic, servers, folder)
    await schedule.ensure(client, schedule.ScheduleSettings(world.name, world.name, 200))
    handle = client.get_schedule_handle(world.name)
    await handle.pause(note="paused by the test")
    try:
        yield world
    finally:
        await handle.delete()
        for worker in world.workers:
            if worker.process.returncode is None:
                worker.process.kill()
            await worker.ended()


@asynccontextmanager
async def a_namespace(world: World) -> AsyncIterator[World]:
    """The same world in a namespace of its own, fresh: without search attributes or a schedule."""
    name, day = f"fresh-{uuid4()}", Duration(seconds=86_400)
    await world.client.workflow_service.register_namespace(
        RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=day)
    )
    client = Client(world.client.service_client, namespace=name, data_converter=world.client.data_converter)
    elsewhere = replace(world, client=client)

    async def known() -> bool:
        try:
            return bool(await client.count_workflows())
        except RPCError:
            return False

    await soon(known, "the new namespace")
    try:
        yield elsewhere
    finally:
        await client.get_schedule_handle(world.name).delete()
