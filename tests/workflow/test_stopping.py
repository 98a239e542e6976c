"""What operators do to a cycle and see of it: stop, hold, paused phases, progress, current details (issue 4, parts 1 and 2)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import Client, WorkflowFailureError

from activities.messages import OpenedCycle, Outcome, PhasePause, StopRequest
from domain.events import Phase
from tests.workflow.steps import AS_OF, Steps, hang_until_cancelled, refuse, running, start
from workflows.expiration_cycle import BookingExpirationCycle

STOP = StopRequest(reason="wrong deadlines", actor="anna")


def _opened(**fields: Any) -> Callable[[], Awaitable[OpenedCycle]]:
    async def opened() -> OpenedCycle:
        return OpenedCycle(as_of=AS_OF, reserve_backlog=40, booking_backlog=20, **fields)

    return opened


async def _stopped_during(client: Client, steps: Steps, step: str, *request: Any) -> Any:
    gate = asyncio.Event()

    async def wait() -> Any:
        await gate.wait()
        return {"as_of": AS_OF, "expired_count": 4}

    steps.behave[step] = wait
    async with running(client, steps) as queue:
        handle = await start(client, queue)
        await steps.called[step].wait()
        await handle.signal("stop_after_current_batch", args=request)
        gate.set()
        return await handle.result()


async def test_stop_lets_the_batch_in_hand_commit_and_publishes_it(client: Client) -> None:
    """Issue 4 §2: nothing new starts, what was committed is published, outcome `stopped` with the reason in the result."""
    steps = Steps()
    result = await _stopped_during(client, steps, "Reserve", STOP)
    assert steps.calls == ["open_cycle", "Reserve", "publish_outbox", "close_cycle", "record_acts"]
    assert (result.outcome, result.reason, result.reserve_expired_count) == (
        Outcome.STOPPED, "stopped by anna: wrong deadlines", 4,
    )  # fmt: skip
    assert steps.acts == ["stop_cycle"]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ([], "stopped by somebody: no reason given"),
        (["wrong deadlines"], "stopped by somebody: wrong deadlines"),
        ([{"reason": None, "actor": "anna"}], "stopped by somebody: {'reason': None, 'actor': 'anna'}"),
        ([None], "stopped by somebody: no reason given"),
    ],
)
async def test_whatever_is_typed_stops_it(client: Client, given: list[Any], reason: str) -> None:
    """The Web UI says *sent* whatever was typed, or nothing: it must neither be lost nor fail the run."""
    steps = Steps()
    result = await _stopped_during(client, steps, "Reserve", *given)
    assert (result.outcome, result.reason, result.reserve_expired_count) == (Outcome.STOPPED, reason, 4)
    assert steps.acts == ["stop_cycle"]


async def test_stop_before_the_first_batch_stops_at_once(client: Client) -> None:
    """Issue 4 §2: no batch, nothing to publish; the cycle is closed as stopped."""
    steps = Steps()
    result = await _stopped_during(client, steps, "open_cycle", STOP)
    assert steps.calls == ["open_cycle", "close_cycle", "record_acts"]
    assert (result.outcome, steps.closing.result.outcome) == (Outcome.STOPPED, Outcome.STOPPED)


async def test_a_stop_that_comes_too_late_changes_nothing(client: Client) -> None:
    """Issue 4 §2: while the cycle closes nothing is left to stop: `completed` everywhere; the act is kept."""
    steps = Steps()
    result = await _stopped_during(client, steps, "close_cycle", STOP)
    assert (result.outcome, steps.closing.result.outcome, result.reason) == (Outcome.COMPLETED, Outcome.COMPLETED, "")
    assert steps.acts == ["stop_cycle"]


async def test_an_act_that_the_command_line_wrote_down_is_not_written_again(client: Client) -> None:
    """Issue 4 §4: the command writes its row before the signal and says so; only the first of two stops counts."""
    steps = Steps()
    result = await _stopped_during(client, steps, "Reserve", StopRequest(reason="why", actor="boris", recorded=17))
    assert (result.reason, steps.acts) == ("stopped by boris: why", [])


@pytest.mark.parametrize(("reason", "acts"), [("too slow", ["cancel_cycle"]), ("too slow (operator action 17)", [])])
async def test_a_cancel_from_the_web_ui_is_written_down(client: Client, reason: str, acts: list[str]) -> None:
    """Issue 4 §4: a cancel that nobody wrote down is written by the workflow, with its reason; the command's is not."""
    steps = Steps()
    steps.behave["Reserve"] = hang_until_cancelled
    async with running(client, steps) as queue:
        handle = await start(client, queue)
        await steps.called["Reserve"].wait()
        await handle.cancel(reason=reason)
        with pytest.raises(WorkflowFailureError):
            await handle.result()
    assert steps.acts == acts
    assert steps.closing.result.outcome is Outcome.CANCELED


async def test_a_paused_phase_is_left_out_and_the_other_goes_on(client: Client) -> None:
    """Issue 4 §4, D24: one phase stops, the other runs; outcome `paused` with who and why."""
    steps = Steps()
    steps.behave["open_cycle"] = _opened(paused=[PhasePause(phase=Phase.RESERVE, reason="price change", actor="anna")])
    async with running(client, steps) as queue:
        result = await (await start(client, queue)).result()
    assert steps.calls == ["open_cycle", "Booking", "publish_outbox", "close_cycle"]
    assert (result.outcome, result.reason) == (Outcome.PAUSED, "Reserve is paused by anna: price change")


async def test_a_hold_expires_nothing(client: Client) -> None:
    """Issue 4 §4: above the limit nothing expires, the outbox is still published, outcome `held` with the numbers."""
    steps = Steps()
    steps.behave["open_cycle"] = _opened(allowed=0, hold_above=50)
    async with running(client, steps) as queue:
        result = await (await start(client, queue)).result()
    assert steps.calls == ["open_cycle", "publish_outbox", "close_cycle"]
    assert (result.outcome, result.reason) == (Outcome.HELD, "60 bookings are due, more than 50: 0 may expire")


@pytest.mark.parametrize(("allowed", "sizes"), [(2, [("Reserve", 2)]), (5, [("Reserve", 5), ("Booking", 2)])])
async def test_a_released_hold_lets_so_many_through(client: Client, allowed: int, sizes: list[tuple[str, int]]) -> None:
    """Issue 4 §4: `release-hold --up-to` bounds the batches of both phases together, and they say that they spend it."""
    steps = Steps()
    steps.behave["open_cycle"] = _opened(allowed=allowed, hold_above=50)
    steps.due = {Phase.RESERVE: 3, Phase.BOOKING: 10}
    steps.behave |= {"Reserve": steps.take, "Booking": steps.take}
    async with running(client, steps) as queue:
        result = await (await start(client, queue)).result()
    orders = [order for order in steps.orders if hasattr(order, "batch_no")]
    assert [(str(order.phase), order.batch_size) for order in orders] == sizes
    assert all(order.spends_allowance for order in orders)
    assert result.outcome is Outcome.COMPLETED


async def test_progress_and_current_details_say_the_same(client: Client) -> None:
    """Issue 4 §1 and §2: while a batch runs, both tell step, backlog, what comes next; the closed run still answers."""
    steps = Steps()
    gate = asyncio.Event()

    async def wait() -> Any:
        await gate.wait()
        return {"expired_count": 4}

    steps.behave |= {"open_cycle": _opened(parked_records=3), "Booking": wait}
    async with running(client, steps) as queue:
        handle = await start(client, queue)
        await steps.called["Booking"].wait()
        during = await handle.query(BookingExpirationCycle.progress)
        metadata = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
        gate.set()
        await handle.result()
        after = await handle.query(BookingExpirationCycle.progress)
    assert (during.step, during.next_step, during.reserve_expired, len(during.poison_ids)) == (
        "expiring Booking",
        "publish",
        3,
        1,
    )
    shown = metadata.current_details
    assert all(
        words in shown
        for words in (
            "**expiring Booking**",
            "- Reserve: 3 expired, 40 were due",
            "- Booking: 0 expired, 20 were due",
            "parked in all: 3",
            str(during.poison_ids[0]),
            "runbooks/",
        )
    )
    assert (after.step, after.booking_expired, after.published) == ("ended: completed", 4, 5)


async def test_signals_and_queries_explain_themselves(client: Client) -> None:
    """Issue 4 §1, trap 20: the Web UI's forms show what each signal and query does."""
    steps = Steps()
    async with running(client, steps) as queue:
        handle = await start(client, queue)
        await handle.result()
        definition = (await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)).definition
    described = {each.name: each.description for each in (*definition.signal_definitions, *definition.query_definitions)}
    assert "publish" in described["stop_after_current_batch"]
    assert "numbers" in described["progress"]


async def test_what_an_error_says_is_no_markdown(client: Client) -> None:
    """Issue 4 §1: a failure's words appear as text in the details: no link, no table, no line of their own."""
    steps = Steps()
    steps.behave["Reserve"] = refuse
    steps.behave["open_cycle"] = _opened(paused=[PhasePause(phase=Phase.BOOKING, reason="[x](http://y)\n| a", actor="<b>")])
    async with running(client, steps) as queue:
        handle = await start(client, queue)
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        shown = (await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)).current_details
    assert r"Booking is paused by \<b\>: \[x\](http://y) \| a" in shown
    assert r"failed: expire\_batch" in shown
