"""What a drain decides: limits, rounds, lanes, continue-as-new, cancel (issue 4 part 3, D14)."""

import asyncio
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.testing import WorkflowEnvironment

from activities.drain_messages import Backlog, DrainOutcome, DrainSoFar
from activities.messages import PhasePause, PublishOutcome, PublishResult
from domain.events import Phase
from tests.workflow.draining import batches_of, drain, floor, result_of
from tests.workflow.steps import AS_OF, hang_until_cancelled, refuse, running
from workflows.drain import BookingExpirationDrain
from workflows.search_attributes import EXPIRED, OUTCOME


async def test_d14_until_nothing_due_is_left(client: Client) -> None:
    """D14: both phases, batch after batch, each published; AsOf read anew each round; the result is counts."""
    steps = floor(25, 5)
    result = await result_of(client, steps)
    assert batches_of(steps) == [("Reserve", 1, 10), ("Reserve", 2, 10), ("Reserve", 3, 10), ("Booking", 1, 10)]
    assert (result.outcome, result.reserve_expired_count, result.booking_expired_count) == (DrainOutcome.DRAINED, 25, 5)
    assert (result.batches, result.left_overdue, result.published_count) == (4, 0, 20)
    assert (steps.calls.count("read_backlog"), steps.calls.count("publish_outbox")) == (5, 4)
    assert steps.acts == ["start_drain"]


@pytest.mark.parametrize(
    ("changes", "batches"),
    [
        ({"cap": 15}, [("Reserve", 1, 10), ("Reserve", 2, 5)]),
        ({"cap": 25, "lanes": 8}, [("Reserve", 1, 10), ("Reserve", 2, 10), ("Reserve", 3, 5)]),
        ({"cap": 5, "phase": Phase.BOOKING}, [("Booking", 1, 5)]),
    ],
)
async def test_d14_never_more_than_the_cap(client: Client, changes: dict[str, Any], batches: list[tuple[str, int, int]]) -> None:
    """D14: the cap bounds the sum of all batches, however many run at once; what is left is told."""
    steps = floor(200, 200)
    result = await result_of(client, steps, **changes)
    assert batches_of(steps) == batches
    expired = result.reserve_expired_count + result.booking_expired_count
    assert (result.outcome, expired) == (DrainOutcome.CAP_REACHED, changes["cap"])
    assert result.left_overdue == (200 if "phase" in changes else 400) - expired


async def test_lanes_run_at_once(client: Client) -> None:
    """Issue 4 §3: `lanes` batches are under way at the same time."""
    steps = floor(40)
    together = asyncio.Barrier(4)

    async def wait_for_all() -> Any:
        await together.wait()
        return {"expired_count": 10}

    steps.behave["Reserve"] = wait_for_all
    assert (await result_of(client, steps, cap=40, lanes=4)).reserve_expired_count == 40


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cap": None}, 'cap is missing: say how many bookings may expire at most, as in {"cap": 5000}'),
        ({"cap": 0}, "cap is 0: it must be at least 1"),
        ({"cap": 1001}, "cap is 1001: the worker's settings allow 1000 (BOOKING_EXPIRATION_DRAIN_LIMIT)"),
        ({"lanes": 9}, "lanes is 9: it must be 1 to 8"),
        ({"time_budget": -1.0}, "time_budget is -1: it must be above 0"),
        ({"pause": 601.0}, "pause is 601: it must be 0 to 600 seconds"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"rounds_per_run": 0}, "rounds_per_run is 0"),
    ],
)
async def test_d14_wrong_limits_are_refused_before_anything_expires(client: Client, changes: dict[str, Any], words: str) -> None:
    """D14: no cap, or one above the settings' limit: the run fails with a sentence, and no batch was started."""
    steps = floor(50)
    with pytest.raises(WorkflowFailureError) as caught:
        await result_of(client, steps, **changes)
    assert isinstance(caught.value.cause, ApplicationError)
    assert words in caught.value.cause.message
    assert batches_of(steps) == []


NULL = RawValue(Payload(metadata={"encoding": b"json/plain"}, data=b"null"))


@pytest.mark.parametrize("arguments", [[], [None], [NULL], [{"cap": "many"}], [{"cap": 5, "phase": "Reserved"}]])
async def test_what_somebody_types_into_the_web_ui_fails_the_run(client: Client, arguments: list[Any]) -> None:
    """Trap 3: a start without input, or with nonsense, ends at once and says why; it does not hang."""
    steps = floor(50)
    async with running(client, steps) as queue:
        handle = await client.start_workflow("BookingExpirationDrain", args=arguments, id=queue, task_queue=queue)
        async with asyncio.timeout(10):
            with pytest.raises(WorkflowFailureError) as caught:
                await handle.result()
    assert any(word in str(caught.value.cause) for word in ("cap", "phase"))
    assert batches_of(steps) == []


async def test_continue_as_new_goes_on_where_it_was(client: Client) -> None:
    """Issue 4 §3: after `rounds_per_run` rounds a new run goes on with counts, limits and start; the cap holds over all."""
    steps = floor(100)
    async with drain(client, steps, cap=45, rounds_per_run=2) as handle:
        result = await handle.result()
        assert handle.first_execution_run_id != (await handle.describe()).run_id
    assert (result.reserve_expired_count, result.batches, result.outcome) == (45, 5, DrainOutcome.CAP_REACHED)
    assert [number for _, number, _ in batches_of(steps)] == [1, 2, 1, 2, 1]  # each run numbers its own batches (D7)
    assert steps.acts == ["start_drain"]


async def test_what_belongs_to_another_drain_is_not_taken_over(client: Client) -> None:
    """Issue 4 §3: the Web UI's form proposes the last drain's input: its counts and its row count for nothing."""
    steps = floor(30)
    before = DrainSoFar(reserve_expired=90)
    result = await result_of(client, steps, so_far=before, exhausted=[Phase.RESERVE], recorded=17)
    assert (result.reserve_expired_count, result.outcome, steps.acts) == (30, DrainOutcome.DRAINED, ["start_drain"])


async def test_the_time_budget_ends_it(skipping: WorkflowEnvironment) -> None:
    """Issue 4 §3: with a pause of a minute and a budget of three, three rounds are done."""
    steps = floor(100)
    result = await result_of(skipping.client, steps, pause=60.0, time_budget=150.0)
    assert (result.outcome, result.batches) == (DrainOutcome.OUT_OF_TIME, 3)


async def test_a_round_that_expires_nothing_ends_its_phase(client: Client) -> None:
    """D6: what is left is poison or in somebody's hands: the drain goes on with the other phase and says what is left."""
    steps = floor(7, 5)

    async def poison() -> Any:
        return {"poison_count": 7}

    steps.behave["Reserve"] = poison
    result = await result_of(client, steps)
    assert (result.outcome, result.poison_count, result.booking_expired_count, result.left_overdue) == (
        DrainOutcome.DRAINED, 7, 5, 7,
    )  # fmt: skip
    assert len(batches_of(steps)) == 2


async def test_a_paused_phase_stays_paused(client: Client) -> None:
    """Issue 4 §4: a drain does not touch a phase that an operator paused, and says so."""
    steps = floor(7, 5)
    steps.paused = [PhasePause(phase=Phase.RESERVE, reason="price change", actor="anna")]
    result = await result_of(client, steps)
    assert (result.outcome, result.booking_expired_count) == (DrainOutcome.PAUSED, 5)
    assert result.reason == "Reserve is paused by anna: price change"


async def test_d10_a_dead_broker_does_not_stop_a_drain(client: Client) -> None:
    """D10: bookings go on expiring; the outbox keeps their events."""
    steps = floor(20)

    async def no_broker() -> PublishResult:
        return PublishResult(outcome=PublishOutcome.BROKER_UNAVAILABLE, reason="no route")

    steps.behave["publish_outbox"] = no_broker
    result = await result_of(client, steps)
    assert (result.outcome, result.reserve_expired_count, result.published_count) == (DrainOutcome.DRAINED, 20, 0)


async def test_l5_a_cancel_lets_every_batch_in_hand_end(client: Client) -> None:
    """L5, trap 10: a lane that commits in spite of the cancel is counted, what was committed is published, then Canceled."""
    steps = floor(100)

    both = asyncio.Event()

    async def commits_anyway() -> Any:
        if steps.calls.count("Reserve") == 2:
            both.set()
        try:
            await hang_until_cancelled()
        except asyncio.CancelledError:
            return {"expired_count": 10}

    steps.behave["Reserve"] = commits_anyway
    async with drain(client, steps, lanes=2) as handle:
        await both.wait()
        await handle.cancel(reason="enough")
        with pytest.raises(WorkflowFailureError) as caught:
            await handle.result()
        assert isinstance(caught.value.cause, CancelledError)
        assert (await handle.query(BookingExpirationDrain.progress)).so_far.reserve_expired == 20
    assert (len(batches_of(steps)), steps.calls.count("publish_outbox"), steps.acts[-1]) == (2, 1, "cancel_drain")


async def test_d22_a_step_that_failed_for_good_ends_the_drain(client: Client) -> None:
    """D22: what the other lane committed is published; the run fails, names the step, and carries the counts."""
    steps = floor(100)

    async def second_fails() -> Any:
        return await (refuse() if len(batches_of(steps)) > 1 else steps.take())

    steps.behave["Reserve"] = second_fails
    async with drain(client, steps, lanes=2) as handle:
        with pytest.raises(WorkflowFailureError) as caught:
            await handle.result()
    assert isinstance(caught.value.cause, ApplicationError)
    assert caught.value.cause.message.startswith("The drain could not go on. Failed: expire_batch (Reserve: up to 10)")
    assert (caught.value.cause.details[0]["ReserveExpiredCount"], "publish_outbox" in steps.calls) == (10, True)


async def test_a_drain_that_fails_keeps_what_it_last_knew(client: Client) -> None:
    """The database goes away after two rounds: the failed run still says what is left, and is found by its outcome."""
    steps = floor(100)
    steps.search_attributes = ["ExpirationOutcome", "BookingsExpired"]

    async def third_fails() -> Any:
        if steps.calls.count("read_backlog") > 2:
            await refuse()
        left = steps.due[Phase.RESERVE]
        names = steps.search_attributes
        return Backlog(as_of=AS_OF, reserve_backlog=left, drain_limit=1000, search_attributes=names)

    steps.behave["read_backlog"] = third_fails
    async with drain(client, steps) as handle:
        with pytest.raises(WorkflowFailureError) as caught:
            await handle.result()
        marked = (await handle.describe()).typed_search_attributes
    assert isinstance(caught.value.cause, ApplicationError)
    assert caught.value.cause.details[0]["LeftOverdue"] == 90
    assert (marked.get(OUTCOME), marked.get(EXPIRED)) == ("failed", 20)
