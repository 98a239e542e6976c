"""Runs that a command was not made for: of another type, of another version, without a worker (issue 4 section 4)."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.drain_messages import DrainLimits, DrainProgress
from operators import drain, frame
from operators.frame import CommandError
from tests.acceptance.command import WHY, acts, call
from tests.acceptance.process import World, soon
from tests.floor import Admin


@workflow.defn(name="BookingExpirationCycle")
class OldCycle:
    """A cycle without a query and without search attributes: it fails, or waits until it is cancelled."""

    @workflow.run
    async def run(self, what: str) -> None:
        """Fail if told to."""
        if what == "fail":
            raise ApplicationError("the database was away", non_retryable=True)
        await workflow.sleep(timedelta(hours=1))


@workflow.defn(name="BookingExpirationDrain")
class BusyDrain:
    """A drain that says how it is doing, and never comes to an update."""

    @workflow.init
    def __init__(self, drain_limit: int) -> None:
        self._drain_limit = drain_limit

    @workflow.run
    async def run(self, drain_limit: int) -> None:  # noqa: ARG002 # see __init__
        """Wait."""
        await workflow.sleep(timedelta(hours=1))

    @workflow.query
    def progress(self) -> DrainProgress:
        """The limits it began with."""
        limits = DrainLimits(cap=5, lanes=1, time_budget=60, pause=0)
        return DrainProgress(limits=limits, drain_limit=self._drain_limit)

    @workflow.update
    async def set_limits(self, _wanted: DrainLimits) -> DrainProgress:
        """Take for ever."""
        await workflow.wait_condition(lambda: False)
        return self.progress()


@asynccontextmanager
async def working(world: World) -> AsyncIterator[None]:
    """A worker that knows these two alone."""
    worker = Worker(
        world.client, task_queue=world.name, workflows=[OldCycle, BusyDrain], workflow_runner=UnsandboxedWorkflowRunner()
    )
    async with worker:
        yield


async def _started(world: World, kind: str, name: str, *arguments: Any) -> "WorkflowHandle[Any, Any]":
    return await world.client.start_workflow(kind, args=arguments, id=f"{world.name}-{name}", task_queue=world.name)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("BookingExpirationDrain", "is no cycle but a drain: booking-expiration drain status, drain stop"),
        ("BookingExpirationResume", "is no cycle but the timer that ends a pause: booking-expiration schedule show"),
        ("SomebodyElses", "is no cycle but a SomebodyElses; see `booking-expiration cycle list`"),
    ],
)
async def test_what_is_no_cycle_is_left_alone(world: World, admin: Admin, kind: str, words: str) -> None:
    """Issue 4 §4: `cycle stop`, `cancel` and `show` of another workflow's id name the right command; nothing is written."""
    handle = await _started(world, kind, "other")
    for command in (["stop", handle.id, *WHY], ["cancel", handle.id, *WHY], ["show", handle.id]):
        done = await call(world, "cycle", *command)
        assert (done.code, done.out, done.err.count("\n"), words in done.err) == (1, "", 1, True), done
    events = [event async for event in handle.fetch_history_events()]
    await handle.terminate()
    assert ([event.event_type for event in events], await acts(admin)) == ([1, 5], [])  # started, task scheduled


async def test_what_cannot_answer_is_shown_all_the_same(world: World) -> None:
    """Issue 4 §4: a run without the query `progress`, as of 0.1.0, is shown with what the server knows, and a note."""
    async with working(world):
        handle = await _started(world, "BookingExpirationCycle", "old", "wait")
        done = await call(world, "cycle", "show", handle.id, "--json")
        await handle.terminate()
    told = json.loads(done.out)
    assert (done.code, told["run"]["status"], told["progress"]) == (0, "running", None), done
    assert "no progress: this run cannot answer" in told["notes"][0]


async def test_limits_that_no_worker_can_take(world: World, admin: Admin) -> None:
    """Issue 4 §3: without a worker `drain limits` says that none answers, and changes and writes nothing."""
    handle = await _started(world, "BookingExpirationDrain", "drain")
    done = await call(world, "drain", "limits", "--cap", "9", *WHY)
    await handle.terminate()
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1), done
    assert done.err.startswith("the drain's limits stay as they are: a worker must answer for it, and none did (")
    assert await acts(admin) == []


async def test_limits_before_the_drain_knows_its_own(world: World, admin: Admin) -> None:
    """D14: until the drain has read the settings' limit, it would refuse: the command says so first, and writes nothing."""
    async with working(world):
        handle = await _started(world, "BookingExpirationDrain", "drain", 0)
        done = await call(world, "drain", "limits", "--cap", "9", *WHY)
        await handle.terminate()
    assert (done.code, done.out, done.err.count("\n"), "try again in a few seconds" in done.err) == (1, "", 1, True), done
    assert await acts(admin) == []


async def test_limits_that_a_worker_does_not_come_to(world: World, monkeypatch: pytest.MonkeyPatch, admin: Admin) -> None:
    """Issue 4 §3: the wait for the update's answer has an end, and the command says how to see what became of it."""
    for name, value in world.environment({"BOOKING_EXPIRATION_OPERATOR_DATABASE_URL": world.database.operator}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(drain, "CHANGED_WITHIN", 1.0)
    async with working(world):
        handle = await _started(world, "BookingExpirationDrain", "drain", 1000)
        async with asyncio.timeout(30):
            with pytest.raises(CommandError, match="no worker has taken the limits within 1 s"):
                await drain._change(frame.settings(), DrainLimits(cap=9, reason="why"))
        await handle.terminate()
    assert await acts(admin) == ["set_drain_limits"]


async def test_cycles_that_could_not_say_how_they_ended(world: World) -> None:
    """Issue 4 §4: `--outcome` finds what failed, was terminated or cancelled before it could set a search attribute."""
    async with working(world):
        for name in ("failed", "terminated", "canceled"):
            handle = await _started(world, "BookingExpirationCycle", name, "fail" if name == "failed" else "wait")
            if name != "failed":
                await (handle.terminate() if name == "terminated" else handle.cancel())
            await soon(lambda: _has_ended(handle), f"the end of {name}")  # noqa: B023 # waited for within the loop

        async def listed(outcome: str) -> set[str]:
            done = await call(world, "cycle", "list", "--outcome", outcome, "--json")
            return {run["workflow_id"].removeprefix(f"{world.name}-") for run in json.loads(done.out)["cycles"]}

        async def failed() -> bool:
            return await listed("failed") == {"failed", "terminated"}

        await soon(failed, "both in the list")
        assert (await listed("canceled"), await listed("completed")) == ({"canceled"}, set())


async def _has_ended(handle: "WorkflowHandle[Any, Any]") -> bool:
    return (await handle.describe()).status is not WorkflowExecutionStatus.RUNNING
