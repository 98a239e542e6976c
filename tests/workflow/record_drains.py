"""Records a drain and a timer of each kind for the replay test: `make histories`. For how, see `record_histories.py`."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from temporalio.client import WorkflowUpdateFailedError

from activities import schedule_note, schedule_state
from activities.drain_messages import DrainLimits
from activities.messages import StopRequest
from activities.resume_messages import ResumeOrder
from activities.schedule_note import Pause
from activities.schedule_state import altered
from domain.events import Phase
from tests import floor
from tests.acceptance.held import batch_waits, close_gate, open_gate
from tests.acceptance.process import World, soon
from tests.floor import MINUTE
from tests.workflow.recording import Here, has_event, here, record, world

__all__ = ["here", "world"]
STOP = StopRequest(reason="wrong deadlines", actor="anna")
UNTIL = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)


async def test_drain_to_the_end(here: Here) -> None:
    """Two lanes until nothing due is left, poison left out."""
    await here.due(12, 7)
    ids = await floor.add(here.admin, 1, await floor.clock(here.admin) - 2 * MINUTE)
    await floor.poison(here.admin, ids)
    await record(await here.drain(cap=100, lanes=2), "drain-drained")


async def test_drain_with_changed_limits_and_a_new_run(here: Here) -> None:
    """New limits during the pause between rounds, a bad one refused; the new run goes on with them until the cap."""
    await here.due(40)
    handle = await here.drain(cap=10, pause=600.0, rounds_per_run=1)

    async def pausing() -> bool:
        return bool((await handle.query("progress"))["step"] == "pausing for 600 s")

    await soon(pausing, "the pause")
    with pytest.raises(WorkflowUpdateFailedError):
        await handle.execute_update("set_limits", DrainLimits(lanes=9, actor="anna"))
    await handle.execute_update("set_limits", DrainLimits(cap=25, lanes=2, pause=0.2, reason="it goes well", actor="boris"))
    await record(handle, "drain-limits-changed")


async def test_drain_stopped(here: Here) -> None:
    """The signal while two lanes have their batches in hand."""
    await here.due(20)
    await close_gate(here.admin, "write")
    handle = await here.drain(cap=100, lanes=2)
    await batch_waits(here.admin)
    await handle.signal("stop", STOP)
    await open_gate(here.admin)
    await record(handle, "drain-stopped")


async def test_drain_canceled(here: Here) -> None:
    """An operator's cancel while two lanes have their batches in hand."""
    await here.due(20)
    await close_gate(here.admin, "write")
    handle = await here.drain(cap=100, lanes=2)
    await batch_waits(here.admin)
    await handle.cancel(reason="too fast")
    await has_event(handle, "activity_task_canceled_event_attributes")
    await open_gate(here.admin)
    await record(handle, "drain-canceled")


async def test_drain_out_of_time(here: Here) -> None:
    """A time budget that ends during a pause."""
    await here.due(20)
    await record(await here.drain(cap=100, pause=1.0, time_budget=0.9), "drain-out-of-time")


async def test_drain_failed(here: Here) -> None:
    """A missing grant ends it."""
    await here.due(3)
    await here.admin.execute("REVOKE INSERT ON crm.deal_timeline_cards FROM booking_expiration_worker")
    await record(await here.drain(cap=100), "drain-failed")


async def test_drain_refused(here: Here) -> None:
    """No cap."""
    await record(await here.drain(), "drain-refused")


async def test_drain_with_a_paused_phase(here: Here) -> None:
    """Booking is paused, Reserve is drained."""
    await here.due(3, 3)
    await here.control(pause=Phase.BOOKING)
    await record(await here.drain(cap=100), "drain-phase-paused")


async def _pause(world: World) -> ResumeOrder:
    """As `schedule pause --for` does."""
    order = ResumeOrder(world.name, "0123456789ab", 0.3, UNTIL, "anna@host", "wrong deadlines")
    note = schedule_note.paused(Pause(order.actor, UNTIL, order.reason, UNTIL, order.mark))
    await schedule_state.change(world.client, world.name, lambda state: altered(state, paused=True, note=note))
    return order


@pytest.mark.parametrize(("kind", "mark"), [("resumed", "0123456789ab"), ("left-alone", "ba9876543210")])
async def test_resume(here: Here, kind: str, mark: str) -> None:
    """The end of a pause, and of a pause that is no longer the present one."""
    order = replace(await _pause(here.world), mark=mark)
    await record(await here.start("BookingExpirationResume", order), f"resume-{kind}")


async def test_resume_canceled(here: Here) -> None:
    """An operator cancels the timer: the pause has no end any more."""
    order = replace(await _pause(here.world), seconds=600)
    handle = await here.start("BookingExpirationResume", order)
    await has_event(handle, "timer_started_event_attributes")
    await handle.cancel(reason="stays paused")
    await record(handle, "resume-canceled")
