"""No act of an operator is lost where it meets another one, or is typed oddly: real server, real database (issue 4, part 4)."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.common.v1 import Payload, Payloads, WorkflowExecution
from temporalio.api.workflowservice.v1 import SignalWorkflowExecutionRequest
from temporalio.client import Client, WorkflowFailureError

from activities.drain_messages import DrainLimits
from activities.messages import Outcome
from tests.acceptance.conftest import world
from tests.acceptance.held import batch_waits, close_gate, open_gate
from tests.acceptance.process import soon
from tests.floor import Admin
from tests.workflow.draining import drain, floor, pausing
from tests.workflow.recording import Handle, Here, ends_canceled, has_event, here, in_hand, locked
from tests.workflow.steps import Steps, refuse, running, start, until
from workflows.drain import BookingExpirationDrain

__all__ = ["here", "world"]
NOBODY = "not given (Temporal Web UI or API)"
ODD = {"reason": "a\0b\x1b[31m\nc" + "d" * 600, "actor": "bob\0\n"}
KEPT = "a b [31m c" + "d" * 489 + "…"


async def _acts(admin: Admin) -> list[tuple[str, str, str]]:
    return [tuple(row) for row in await admin.fetch("SELECT actor, action, reason FROM crm.operator_actions ORDER BY id")]


async def _resting(handle: Handle) -> None:
    async def resting() -> bool:
        return bool((await handle.query("progress"))["step"] == "pausing for 600 s")

    await soon(resting, "the rest after the first round")


async def _canceled_while_writing(handle: Handle) -> None:
    """A cancel that cuts off the call that writes the acts down."""
    await in_hand(handle, "record_acts")
    await handle.cancel(reason="too slow")
    await has_event(handle, "activity_task_canceled_event_attributes")


async def test_a_stop_of_a_drain_and_a_cancel_while_it_is_written_down(here: Here) -> None:
    """Issue 4 §4: the cancel cuts the writing off: both acts are rows all the same, each once, and the run is Canceled."""
    await here.due(20)
    handle = await here.drain(cap=100, pause=600.0)
    await _resting(handle)
    async with locked(here.world.database, "crm.operator_actions"):
        await handle.signal("stop", {"reason": "enough", "actor": "bob"})
        await _canceled_while_writing(handle)
    await ends_canceled(handle)
    assert (await _acts(here.admin))[1:] == [("bob", "stop_drain", "enough"), (NOBODY, "cancel_drain", "too slow")]


async def test_a_stop_of_a_cycle_and_a_cancel_while_it_is_written_down(here: Here) -> None:
    """Issue 4 §4: the same of a cycle, whose acts are written at its end."""
    await here.due(3)
    await close_gate(here.admin, "write")
    handle = await here.cycle()
    await batch_waits(here.admin)
    await handle.signal("stop_after_current_batch", {"reason": "enough", "actor": "bob"})
    async with locked(here.world.database, "crm.operator_actions"):
        await open_gate(here.admin)
        await _canceled_while_writing(handle)
    await ends_canceled(handle)
    assert await _acts(here.admin) == [("bob", "stop_cycle", "enough"), (NOBODY, "cancel_cycle", "too slow")]


async def test_what_could_not_be_written_is_tried_again_and_named(client: Client) -> None:
    """Issue 4 §4: a refusal is no success: the drain ends, asks once more, and fails with the name of the step."""
    steps = floor(100)

    async def refused_once() -> None:
        if steps.calls.count("record_acts") == 2:
            await refuse()

    steps.behave["record_acts"] = refused_once
    async with drain(client, steps, pause=600.0) as handle:
        await pausing(handle)
        await handle.execute_update(BookingExpirationDrain.set_limits, DrainLimits(lanes=2))
        with pytest.raises(WorkflowFailureError) as caught:
            await handle.result()
    assert "record_acts (Write down what operators did): no such table" in str(caught.value.cause)
    assert (steps.calls.count("record_acts"), steps.acts[-2:]) == (3, ["start_drain", "set_drain_limits"])


async def test_an_odd_stop_of_a_cycle(here: Here) -> None:
    """Issue 4 §2: a stop is a stop whatever was typed: NUL, escapes and a long text fail nothing, and are not kept."""
    await here.due(3)
    await close_gate(here.admin, "write")
    handle = await here.cycle()
    await batch_waits(here.admin)
    await handle.signal("stop_after_current_batch", ODD)
    await open_gate(here.admin)
    result = await handle.result()
    assert (result["Outcome"], result["Reason"]) == ("stopped", f"stopped by bob: {KEPT}")
    assert await _acts(here.admin) == [("bob", "stop_cycle", KEPT)]


async def test_an_odd_drain(here: Here) -> None:
    """Issue 4 §3: the same of an order, of new limits and of a drain's stop."""
    await here.due(20)
    handle = await here.start("BookingExpirationDrain", {"cap": 100, "batch_size": 5, "pause": 600, **ODD})
    await _resting(handle)
    await handle.execute_update("set_limits", DrainLimits(pause=500.0, **ODD))
    await handle.signal("stop", ODD)
    result = await handle.result()
    assert (result["Outcome"], result["Reason"]) == ("stopped", f"stopped by bob: {KEPT}")
    assert await _acts(here.admin) == [("bob", action, KEPT) for action in ("start_drain", "set_drain_limits", "stop_drain")]


@pytest.mark.parametrize(
    ("typed", "reason"),
    [
        (b'{"reason": "a\\ud800"}', '{"reason": "a\\ud800"}'),
        (b"why: \xff", "why: \ufffd"),
    ],
)
async def test_a_stop_that_cannot_be_read_stops(client: Client, typed: bytes, reason: str) -> None:
    """Issue 4 §2: what no program can read is neither dropped nor an error."""
    steps, gate = Steps(), asyncio.Event()

    async def wait() -> Any:
        await until(gate)
        return {"expired_count": 4}

    steps.behave["Reserve"] = wait
    payloads = Payloads(payloads=[Payload(metadata={"encoding": b"json/plain"}, data=typed)])
    async with running(client, steps) as queue:
        handle = await start(client, queue)
        await steps.called["Reserve"].wait()
        await client.workflow_service.signal_workflow_execution(
            SignalWorkflowExecutionRequest(
                namespace=client.namespace,
                workflow_execution=WorkflowExecution(workflow_id=handle.id),
                signal_name="stop_after_current_batch",
                input=payloads,
            )
        )
        gate.set()
        result = await handle.result()
    assert (result.outcome, result.reason) == (Outcome.STOPPED, f"stopped by somebody: {reason}")


async def test_no_change_of_a_drain_that_ends(client: Client) -> None:
    """Issue 4 §3: limits that nothing would follow any more are refused, and so is nothing at all."""
    steps, gate = floor(100), asyncio.Event()

    async def waits() -> None:
        if "stop_drain" in steps.acts:
            await until(gate)

    steps.behave["record_acts"] = waits
    async with drain(client, steps, pause=600.0) as handle:
        await pausing(handle)
        assert "nothing to change" in await _refusal(handle)
        assert "nothing to change" in await _refusal(handle, None)
        await handle.signal("stop")
        await in_hand(handle, "record_acts")
        assert "the drain is ending" in await _refusal(handle, DrainLimits(cap=50))
        gate.set()
        await handle.result()


async def _refusal(handle: Any, *given: Any) -> str:
    with pytest.raises(Exception, match="update") as caught:
        await handle.execute_update("set_limits", args=given)
    return str(caught.value.__cause__)


async def test_a_drain_that_is_canceled_before_it_began(client: Client) -> None:
    """Issue 4 §4: a cancel before any worker has seen the run is written down, and the run is found by its outcome."""
    steps, queue = floor(100), f"canceled-early-{uuid4()}"
    steps.search_attributes = ["ExpirationOutcome"]
    handle = await client.start_workflow("BookingExpirationDrain", {"cap": 5, "actor": "anna"}, id=queue, task_queue=queue)
    await handle.cancel(reason="enough")
    async with running(client, steps, queue):
        await ends_canceled(handle)
        found = (await handle.describe()).search_attributes
    assert steps.acts[-2:] == ["start_drain", "cancel_drain"]
    assert found["ExpirationOutcome"] == ["canceled"]
