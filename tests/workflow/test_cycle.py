"""What a cycle decides: order, failures, cancellation, time limits."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.testing import WorkflowEnvironment

from activities.messages import CycleResult, Outcome, PublishOutcome, PublishResult
from tests.workflow.steps import AS_OF, Steps, hang_until_cancelled, refuse, running, start
from workflows.expiration_cycle import EXECUTION_TIMEOUT
from workflows.steps import CLOSE_LIMIT

ORDER = ["open_cycle", "Reserve", "Booking", "publish_outbox", "close_cycle"]


async def _failure(client: Client, steps: Steps) -> ApplicationError:
    async with running(client, steps) as queue:
        with pytest.raises(WorkflowFailureError) as caught:
            await (await start(client, queue)).result()
    assert isinstance(caught.value.cause, ApplicationError)
    return caught.value.cause


async def test_d13_order_and_result(client: Client) -> None:
    """D13, A8: the five steps in order, AsOf of the first passed on to each batch, the counts in the result."""
    steps = Steps()
    async with running(client, steps) as queue:
        result = await (await start(client, queue)).result()
    assert steps.calls == ORDER
    assert [(o.as_of, o.batch_no, o.batch_size) for o in steps.orders[1:3]] == [(AS_OF, 1, 7)] * 2
    assert result.duration_ms < 60_000
    counts = CycleResult(
        reserve_expired_count=3, booking_expired_count=2, skipped_locked_count=2, poison_count=2, published_count=5
    )  # fmt: skip
    assert result == counts.model_copy(update={"duration_ms": result.duration_ms})
    assert steps.closing.result == result


async def test_d22_a_failed_phase_does_not_keep_the_others_from_running(client: Client) -> None:
    """D22: Booking and publishing still run; the cycle ends Failed, names the step, and carries the result so far."""
    steps = Steps()
    steps.behave["Reserve"] = refuse
    failure = await _failure(client, steps)
    assert steps.calls == ORDER
    assert failure.message.startswith(
        "The cycle could not do everything. Failed: expire_batch (Reserve: up to 7): no such table."
    )
    assert failure.message.endswith("runbooks/booking-expiration.md, section Cycle failed.")
    assert failure.details[0]["BookingExpiredCount"] == 2
    assert failure.details[0]["Outcome"] == "failed"
    assert steps.closing.result.outcome is Outcome.FAILED


async def test_d22_without_a_clock_only_publishing_runs(client: Client) -> None:
    """D22: when `open_cycle` fails there is no AsOf to expire by, but what is committed still goes out."""
    steps = Steps()
    steps.behave["open_cycle"] = refuse
    failure = await _failure(client, steps)
    assert steps.calls == ["open_cycle", "publish_outbox", "close_cycle"]
    assert "open_cycle" in failure.message


async def test_d22_a_closing_that_fails_is_no_success(client: Client) -> None:
    """D22, D24: when the last step itself fails, the run's own outcome does not say `completed`."""
    steps = Steps()
    steps.behave["close_cycle"] = refuse
    failure = await _failure(client, steps)
    assert "close_cycle" in failure.message
    assert failure.details[0]["Outcome"] == "failed"


async def test_d10_a_dead_broker_is_no_failure(client: Client) -> None:
    """D10: `broker_unavailable` completes the cycle; the outbox alerts speak, not the liveness of expiry."""
    steps = Steps()

    async def no_broker() -> PublishResult:
        return PublishResult(outcome=PublishOutcome.BROKER_UNAVAILABLE, reason="no route")

    steps.behave["publish_outbox"] = no_broker
    async with running(client, steps) as queue:
        assert (await (await start(client, queue)).result()).outcome is Outcome.COMPLETED


async def _cancel_during(client: Client, steps: Steps, step: str) -> WorkflowExecutionStatus | None:
    async with running(client, steps) as queue:
        handle = await start(client, queue)
        async with asyncio.timeout(20):
            await steps.called[step].wait()
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as caught:
            await handle.result()
        assert isinstance(caught.value.cause, CancelledError)
        return (await handle.describe()).status


async def test_l5_cancel_stops_after_the_batch_in_hand(client: Client) -> None:
    """L5, X7: no new batch; what was committed is published within a few seconds, the cycle is closed, then Canceled."""
    steps = Steps()
    steps.behave["Reserve"] = hang_until_cancelled
    status = await _cancel_during(client, steps, "Reserve")
    assert status is WorkflowExecutionStatus.CANCELED
    assert steps.calls == ["open_cycle", "Reserve", "publish_outbox", "close_cycle", "record_acts"]
    assert steps.orders[2].time_budget == 1.0
    assert steps.closing.result.outcome is Outcome.CANCELED


async def test_trap_10_a_cancel_that_the_activity_swallowed_still_counts(client: Client) -> None:
    """Trap 10: the batch commits in spite of the cancel; its counts stay, and the run is Canceled all the same."""
    steps = Steps()

    async def commits_anyway() -> Any:
        try:
            await hang_until_cancelled()
        except asyncio.CancelledError:
            return {"expired_count": 4}

    steps.behave["Reserve"] = commits_anyway
    assert await _cancel_during(client, steps, "Reserve") is WorkflowExecutionStatus.CANCELED
    assert "Booking" not in steps.calls
    assert steps.closing.result.reserve_expired_count == 4


async def test_r4_what_heals_is_tried_again_within_the_step(skipping: WorkflowEnvironment) -> None:
    """R4: three lost connections, then success: one completed cycle."""
    steps = Steps()

    async def heals() -> Any:
        if steps.calls.count("Reserve") <= 3:
            raise ApplicationError("connection lost", type="DatabaseUnavailableError")
        return {"expired_count": 3}

    steps.behave["Reserve"] = heals
    async with running(skipping.client, steps) as queue:
        result = await (await start(skipping.client, queue)).result()
    assert (result.outcome, result.reserve_expired_count, steps.calls.count("Reserve")) == (Outcome.COMPLETED, 3, 4)


async def test_d1_a_database_that_stays_away_ends_the_cycle_in_time(skipping: WorkflowEnvironment) -> None:
    """D1: with every step failing until its limit the run ends by itself, below its execution time-out."""
    steps = Steps()

    async def away() -> Any:
        raise ApplicationError("connection lost", type="DatabaseUnavailableError")

    steps.behave = dict.fromkeys(["Reserve", "Booking", "publish_outbox", "close_cycle"], away)
    failure = await _failure(skipping.client, steps)
    until_closing = timedelta(milliseconds=steps.closing.result.duration_ms)
    assert timedelta(seconds=80) < until_closing < EXECUTION_TIMEOUT - CLOSE_LIMIT
    assert failure.message.count("connection lost") == 4


async def test_trap_3_an_answer_that_cannot_be_read_fails_the_run(client: Client) -> None:
    """Trap 3: a payload that does not decode would suspend the run, and overlap SKIP would stop the job."""
    steps = Steps()

    async def nonsense() -> Any:
        return {"as_of": "yesterday"}

    steps.behave["open_cycle"] = nonsense
    async with running(client, steps) as queue:
        handle = await start(client, queue)
        async with asyncio.timeout(10):
            with pytest.raises(WorkflowFailureError):
                await handle.result()


@pytest.mark.parametrize("arguments", [[], [None], [RawValue(Payload(metadata={"encoding": b"json/plain"}, data=b"null"))]])
async def test_a_start_without_input_is_a_usual_cycle(client: Client, arguments: list[Any]) -> None:
    """Trap 3: the Web UI's form starts one with nothing typed, or with null: 200 of each phase, as the schedule has it."""
    steps = Steps()
    async with running(client, steps) as queue:
        result = await client.execute_workflow("BookingExpirationCycle", args=arguments, id=queue, task_queue=queue)
    assert (result["Outcome"], [order.batch_size for order in steps.orders[1:3]]) == ("completed", [200, 200])


@pytest.mark.parametrize("registered", [[], ["ExpirationOutcome", "BookingsExpired", "PoisonBookings", "RecordsParked"]])
async def test_d28_only_registered_search_attributes_are_set(client: Client, registered: list[str]) -> None:
    """D28: what the namespace lacks is not set; what it has can be filtered by."""
    steps = Steps()
    steps.search_attributes = registered
    async with running(client, steps) as queue:
        handle = await start(client, queue)
        await handle.result()
        found = (await handle.describe()).typed_search_attributes
    values = {pair.key.name: pair.value for pair in found if pair.key.name in {"ExpirationOutcome", *registered}}
    expected = {"ExpirationOutcome": "completed", "BookingsExpired": 5, "PoisonBookings": 2, "RecordsParked": 0}
    assert values == {name: expected[name] for name in registered}
