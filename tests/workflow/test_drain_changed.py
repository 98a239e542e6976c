"""What operators change of a drain while it runs: other limits, a stop (issue 4 part 3, D14)."""

import asyncio
from typing import Any

import pytest
from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.testing import WorkflowEnvironment

from activities.drain_messages import Backlog, DrainLimits, DrainOutcome
from activities.messages import PublishResult, StopRequest
from domain.events import Phase
from tests.workflow.draining import ORDER, batches_of, drain, floor, pausing
from tests.workflow.steps import AS_OF, running, start_drain, until
from workflows.drain import BookingExpirationDrain


@pytest.mark.parametrize(("given", "reason"), [([], "no reason given"), (["enough"], "enough")])
async def test_a_stop_is_not_lost_between_two_runs(client: Client, given: list[Any], reason: str) -> None:
    """A stop that comes while the last acts of a run are written down ends the drain: the next run would not know of it."""
    steps, reached, gate = floor(100), asyncio.Event(), asyncio.Event()
    wanted = DrainLimits(lanes=2, reason="it goes well", actor="boris")

    async def waits() -> None:
        if "set_drain_limits" in steps.acts:
            reached.set()
            await until(gate)

    steps.behave["record_acts"] = waits
    async with drain(client, steps, pause=600.0, rounds_per_run=1) as handle:
        await pausing(handle)
        await handle.execute_update(BookingExpirationDrain.set_limits, wanted)
        await reached.wait()
        await handle.signal("stop", args=given)
        gate.set()
        result = await handle.result()
        assert handle.first_execution_run_id == (await handle.describe()).run_id
    assert (result.outcome, result.reason) == (DrainOutcome.STOPPED, f"stopped by somebody: {reason}")
    assert steps.acts[-1] == "stop_drain"


async def test_set_limits_takes_effect_and_is_carried_on(client: Client) -> None:
    """Issue 4 §3: the update changes cap and lanes of the running drain, answers with its progress, and survives a new run."""
    steps, gate = floor(100), asyncio.Event()

    async def wait() -> Any:
        await until(gate)
        return await steps.take()

    steps.behave["Reserve"] = wait
    async with drain(client, steps, cap=20, rounds_per_run=1) as handle:
        await steps.called["Reserve"].wait()
        wanted = DrainLimits(cap=60, lanes=2, reason="it goes well", actor="boris")
        assert (await handle.execute_update(BookingExpirationDrain.set_limits, wanted)).limits.cap == 60
        gate.set()
        result = await handle.result()
    assert (result.reserve_expired_count, steps.acts) == (60, ["start_drain", "start_drain", "set_drain_limits"])
    assert batches_of(steps)[:5] == [("Reserve", 1, 10), *[("Reserve", number, 10) for number in (1, 2, 1, 2)]]


async def test_the_time_left_counts_the_pauses(client: Client) -> None:
    """Issue 4 §3: rate and time left are right from the first round on: ten a round and 600 s between two of them."""
    async with drain(client, floor(100), pause=600.0) as handle:
        await pausing(handle)
        now = await handle.query(BookingExpirationDrain.progress)
        assert now.so_far.expired == 10
        assert now.rate == pytest.approx(10 / 600, rel=0.05)
        assert now.seconds_left == pytest.approx(90 * 60, rel=0.05)
        await handle.signal(BookingExpirationDrain.stop, StopRequest(reason="seen enough", actor="anna"))
        assert (await handle.result()).outcome == DrainOutcome.STOPPED
        assert (await handle.query(BookingExpirationDrain.progress)).rate > 10 / 600


@pytest.mark.parametrize(("held", "rate"), [("Reserve", 10 / 600), ("publish_outbox", 20 / 600)])
async def test_a_pause_is_counted_while_it_is_owed(skipping: WorkflowEnvironment, held: str, rate: float) -> None:
    """Issue 4 §3: between its end and the next count none is, and none after the last round: as many pauses as there are."""
    steps, reached, gate = floor(100), asyncio.Event(), asyncio.Event()

    async def second_waits() -> Any:
        if steps.calls.count(held) == 2:
            reached.set()
            await until(gate)
        return await steps.take() if held == "Reserve" else PublishResult()

    steps.behave[held] = second_waits
    async with drain(skipping.client, steps, cap=20, pause=600.0) as handle:
        await pausing(handle)
        await skipping.sleep(600)
        await reached.wait()
        assert (await handle.query(BookingExpirationDrain.progress)).rate == pytest.approx(rate, rel=0.1)
        gate.set()
        assert (await handle.result()).outcome == DrainOutcome.CAP_REACHED


async def test_a_stop_that_comes_while_a_drain_ends(client: Client) -> None:
    """Issue 4 §4: it is written down, and the result does not say that the stop ended it."""
    steps, looks, reached, gate = floor(10), asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def second_look() -> Any:
        if steps.calls.count("read_backlog") == 2:
            await until(looks)
        return Backlog(as_of=AS_OF, reserve_backlog=steps.due[Phase.RESERVE], drain_limit=1000)

    async def last_acts() -> None:
        if "set_drain_limits" in steps.acts:
            reached.set()
            await until(gate)

    steps.behave |= {"read_backlog": second_look, "record_acts": last_acts}
    async with drain(client, steps) as handle:
        while steps.calls.count("read_backlog") < 2:  # noqa: ASYNC110 # its event was set by the first
            await asyncio.sleep(0.05)
        await handle.execute_update(BookingExpirationDrain.set_limits, DrainLimits(lanes=2))
        looks.set()
        await reached.wait()
        await handle.signal(BookingExpirationDrain.stop, StopRequest(reason="enough", actor="bob"))
        gate.set()
        result = await handle.result()
    assert (result.outcome, result.reason, steps.acts[-1]) == (DrainOutcome.DRAINED, "", "stop_drain")


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (DrainLimits(lanes=0), "lanes is 0"),
        (DrainLimits(cap=9), "cap is 9: it must be at least 10, which have expired already"),
        (DrainLimits(cap=5000), "the worker's settings allow 1000"),
        (DrainLimits(), "nothing to change"),
    ],
)
async def test_a_bad_limit_is_refused_with_the_reason(client: Client, wanted: DrainLimits, words: str) -> None:
    """Issue 4 §3: a bad value is refused, nothing changes, nothing is written in the history."""
    steps = floor(100)
    async with drain(client, steps, pause=600.0) as handle:
        await pausing(handle)
        with pytest.raises(WorkflowUpdateFailedError) as caught:
            await handle.execute_update(BookingExpirationDrain.set_limits, wanted)
        assert words in str(caught.value.cause)
        await handle.signal(BookingExpirationDrain.stop, StopRequest(reason="seen enough", actor="anna"))
        result = await handle.result()
    assert (result.outcome, result.reason, result.reserve_expired_count) == (
        DrainOutcome.STOPPED, "stopped by anna: seen enough", 10,
    )  # fmt: skip
    assert steps.acts[-1] == "stop_drain"


async def test_no_limit_passes_that_of_the_settings_before_it_is_read(client: Client) -> None:
    """D14: an update before the drain has read the settings' limit is refused, whatever its cap, and may be sent again."""
    steps, gate = floor(100), asyncio.Event()
    order = ORDER.model_copy(update={"cap": 20})

    async def wait() -> Any:
        await until(gate)
        return Backlog(as_of=AS_OF, reserve_backlog=steps.due[Phase.RESERVE], drain_limit=1000)

    steps.behave["read_backlog"] = wait
    async with running(client, steps) as queue:
        handle = await start_drain(client, queue, order)
        await steps.called["read_backlog"].wait()
        with pytest.raises(WorkflowUpdateFailedError) as caught:
            await handle.execute_update(BookingExpirationDrain.set_limits, DrainLimits(cap=5000))
        gate.set()
        assert "try again in a few seconds" in str(caught.value.cause)
        assert (await handle.result()).reserve_expired_count == 20
