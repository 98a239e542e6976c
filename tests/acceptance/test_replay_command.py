"""`booking-expiration replay` on a real server: what fits, what does not, and what was typed wrong (issue 4 section 5)."""

import gc
import json
import logging
import warnings
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from operators.replay import without_noise
from operators.replaying.replay import from_json, replay
from tests.acceptance.command import Done, call
from tests.acceptance.process import ROOT, World, a_namespace, soon
from workflows import schedule


@workflow.defn(name="BookingExpirationResume")
class OtherResume:
    """The timer as another version may have had it: shorter, and without the activity."""

    @workflow.run
    async def run(self, seconds: float) -> str:
        """Sleep half as long."""
        await workflow.sleep(timedelta(seconds=seconds / 2))
        return "resumed"


@pytest.fixture
async def fresh(world: World) -> AsyncIterator[World]:
    """A namespace in which there are this test's runs alone: its schedule is paused."""
    async with a_namespace(world) as made:
        await schedule.ensure(made.client, schedule.ScheduleSettings(made.name, made.name, 200))
        await made.client.get_schedule_handle(made.name).pause(note="paused by the test")
        yield made


async def _replay(world: World, *arguments: str) -> Done:
    return await call(world, "replay", *arguments, TEMPORAL_NAMESPACE=world.client.namespace)


async def _listed(world: World, runs: int) -> None:
    async def shown() -> bool:
        return (await world.client.count_workflows("WorkflowType STARTS_WITH 'Booking'")).count >= runs

    await soon(shown, "the runs to be listed")


async def test_what_just_ran_fits(fresh: World) -> None:
    """Issue 4 section 5: the runs of this code replay on it, closed or open; `--last` leaves runs out; exit code 0."""
    await fresh.start(TEMPORAL_NAMESPACE=fresh.client.namespace)
    await fresh.result()
    await fresh.cycle()
    await _listed(fresh, 2)
    done = await _replay(fresh, "--since", "1h")
    assert (done.code, done.out, done.err) == (0, "2 runs replayed: 2 as recorded, 0 differ\n", "")
    assert (await _replay(fresh, "--last", "1")).out.startswith("1 run replayed")


@pytest.mark.parametrize(
    "filter_",
    [
        [],
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in (["--since", "1h"], ["--workflow-type", "BookingExpirationDrain"])
        ),
    ],
)
async def test_nothing_replayed_is_no_success(fresh: World, filter_: list[str]) -> None:
    """Issue 4 section 5: a check that found no run, as in a wrong namespace, ends with 1 and says what to look at."""
    done = await _replay(fresh, *filter_)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1), done
    assert done.err.startswith(f"nothing was replayed: namespace {fresh.client.namespace} has no such run. ")
    assert "TEMPORAL_NAMESPACE" in done.err
    assert json.loads((await _replay(fresh, *filter_, "--json")).out)["replayed"] == 0


async def test_what_another_version_did_differs(fresh: World) -> None:
    """Issue 4 section 5: a run of other code is one line that says what differs; exit code 1; the same as JSON."""
    worker = Worker(fresh.client, task_queue=fresh.name, workflows=[OtherResume], workflow_runner=UnsandboxedWorkflowRunner())
    async with worker:
        await fresh.client.execute_workflow("BookingExpirationResume", 0.1, id=fresh.name, task_queue=fresh.name)
    await _listed(fresh, 1)
    done = await _replay(fresh)
    line, summary = done.out.splitlines()
    assert (done.code, summary) == (1, "1 run replayed: 0 as recorded, 1 differ")
    assert line.startswith(f"{fresh.name} ")
    assert " completed: " in line
    answer = json.loads((await _replay(fresh, "--json")).out)
    [run] = answer.pop("runs")
    assert answer == {"replayed": 1, "differ": 1, "gone": 0}
    assert run["differences"][0] in line


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--last", "0"], "--last: 0 is not from 1 to 10,000"),
        (["--workflow-type", "Cycle"], "--workflow-type: 'Cycle' is no workflow of this code; there are "),
        (["--since", "2026-07-01T12:00:00"], "does not say in which time zone"),
        (["--since", "yesterday"], "--since: 'yesterday' is no length of time"),
    ],
)
async def test_wrong_use(world: World, arguments: list[str], says: str) -> None:
    """Exit code 2 and one line that says what would be right."""
    done = await call(world, "replay", *arguments)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert says in done.err


async def test_arguments_that_a_constructor_refuses(caplog: pytest.LogCaptureFixture) -> None:
    """Issue 4 section 5: a run that was started with one argument too many is replayed without a word of Python's."""
    caplog.set_level(logging.NOTSET, "temporalio")  # so that the level is put back afterwards
    history = from_json((ROOT / "tests/histories/0.2.0-drain-refused.json").read_text(encoding="utf-8"))
    payloads = history.events[0].workflow_execution_started_event_attributes.input.payloads
    payloads.append(payloads[0])

    async def histories() -> AsyncIterator[WorkflowHistory]:
        yield history

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        without_noise()
        stopped = [replayed.stopped async for replayed in replay(histories())]
        gc.collect()
    assert (len(stopped), [str(each.message) for each in said]) == (1, [])


async def test_temporal_away(world: World) -> None:
    """Exit code 1 and one line with the address that was tried."""
    done = await call(world, "replay", TEMPORAL_ADDRESS="127.0.0.1:1")
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert done.err.startswith("Temporal at 127.0.0.1:1: ")
