"""Records a cycle of each kind for the replay test: `make histories`, with the drains and timers of `record_drains.py`.

The real worker with its real activities on a real PostgreSQL, Temporal and Kafka; what goes wrong is made to go wrong there: a
lock, a lost connection, a missing grant, no broker. Nothing is played. Run it before a release and commit the files; those of a
release stay for as long as its runs may still be open (docs/versioning.md).
"""

import pytest

from activities.messages import StopRequest
from domain.events import Phase
from tests import floor
from tests.acceptance.held import batch_waits, close_gate, open_gate
from tests.acceptance.test_cycle_end_to_end import KILL_CONNECTIONS
from tests.floor import MINUTE
from tests.workflow.recording import Here, has_event, here, in_hand, locked, record, tried_again, world

__all__ = ["here", "world"]
STOP = StopRequest(reason="wrong deadlines", actor="anna")
NOWHERE = "127.0.0.1:1"


@pytest.mark.parametrize(("kind", "reserves", "booked"), [("empty", 0, 0), ("both-phases", 12, 7)])
async def test_cycle(here: Here, kind: str, reserves: int, booked: int) -> None:
    """A cycle without work, and one with work in both phases."""
    await here.due(reserves, booked)
    await record(await here.cycle(), f"cycle-{kind}")


async def test_cycle_poison(here: Here) -> None:
    """One booking that the database refuses among others."""
    ids = await floor.add(here.admin, 5, await floor.clock(here.admin) - MINUTE)
    await floor.poison(here.admin, ids[:1])
    await record(await here.cycle(), "cycle-poison")


async def test_cycle_retried_batch(here: Here) -> None:
    """A batch whose connection is lost, and that is done by its second attempt."""
    await here.due(5)
    await close_gate(here.admin, "write")
    handle = await here.cycle()
    await batch_waits(here.admin)
    await here.admin.execute(KILL_CONNECTIONS)
    await tried_again(handle)
    await open_gate(here.admin)
    await record(handle, "cycle-retried-batch")


async def test_cycle_failed_step(here: Here) -> None:
    """A missing grant: Reserve fails for good, the rest goes on, the run ends failed."""
    await here.due(3)
    await here.admin.execute("REVOKE INSERT ON crm.deal_timeline_cards FROM booking_expiration_worker")
    await record(await here.cycle(), "cycle-failed-step")


async def test_cycle_timed_out_step(here: Here) -> None:
    """A table that somebody holds for longer than the first step may take."""
    async with locked(here.world.database, "crm.job_state"):
        handle = await here.cycle()
        await has_event(handle, "activity_task_timed_out_event_attributes")
    await record(handle, "cycle-timed-out-step")


async def test_cycle_kafka_down(here: Here) -> None:
    """No broker: bookings expire, nothing is published, the cycle completes."""
    await here.due(3)
    await record(await here.cycle(KAFKA_BOOTSTRAP_SERVERS=NOWHERE), "cycle-kafka-down")


@pytest.mark.parametrize(("step", "table"), [("open_cycle", "crm.job_state"), ("publish_outbox", "crm.outbox")])
async def test_cycle_canceled_in_a_step(here: Here, step: str, table: str) -> None:
    """An operator's cancel while a step waits for somebody's lock."""
    async with locked(here.world.database, table):
        handle = await here.cycle()
        await in_hand(handle, step)
        await handle.cancel(reason="too slow")
        await has_event(handle, "activity_task_canceled_event_attributes")
    await record(handle, f"cycle-canceled-in-{step.replace('_', '-')}")


@pytest.mark.parametrize("phase", ["Reserve", "Booking"])
async def test_cycle_canceled_in_a_batch(here: Here, phase: str) -> None:
    """An operator's cancel during a batch, which is rolled back."""
    await here.due(**{"reserves" if phase == "Reserve" else "booked": 3})
    await close_gate(here.admin, "write")
    handle = await here.cycle()
    await batch_waits(here.admin)
    await handle.cancel(reason="too slow")
    await has_event(handle, "activity_task_canceled_event_attributes")
    await open_gate(here.admin)
    await record(handle, f"cycle-canceled-in-{phase.lower()}")


async def test_cycle_canceled_too_late_for_the_batch(here: Here) -> None:
    """A cancel during COMMIT: the batch stands, and is published before the run ends canceled (trap 10)."""
    await here.due(3)
    await close_gate(here.admin, "commit")
    handle = await here.cycle()
    await batch_waits(here.admin)
    await handle.cancel(reason="too slow")
    await has_event(handle, "activity_task_cancel_requested_event_attributes")
    await open_gate(here.admin)
    await record(handle, "cycle-canceled-in-commit")


async def test_cycle_canceled_in_closing(here: Here) -> None:
    """A cancel during the last step."""
    await here.due(3)
    await close_gate(here.admin, "write")
    handle = await here.cycle()
    await batch_waits(here.admin)
    async with locked(here.world.database, "crm.job_state"):
        await open_gate(here.admin)
        await in_hand(handle, "close_cycle")
        await handle.cancel(reason="too slow")
        await has_event(handle, "activity_task_canceled_event_attributes")
    await record(handle, "cycle-canceled-in-close-cycle")


async def test_cycle_canceled_while_a_stop_is_written_down(here: Here) -> None:
    """A cancel that cuts off the call that writes down who stopped it: it is asked for again, with both acts."""
    await here.due(3)
    await close_gate(here.admin, "write")
    handle = await here.cycle()
    await batch_waits(here.admin)
    await handle.signal("stop_after_current_batch", STOP)
    async with locked(here.world.database, "crm.operator_actions"):
        await open_gate(here.admin)
        await in_hand(handle, "record_acts")
        await handle.cancel(reason="too slow")
        await has_event(handle, "activity_task_canceled_event_attributes")
    await record(handle, "cycle-canceled-in-record-acts")


async def test_cycle_stopped(here: Here) -> None:
    """The signal during Reserve: the batch commits and is published, Booking is left out."""
    await here.due(3, 3)
    await close_gate(here.admin, "write")
    handle = await here.cycle()
    await batch_waits(here.admin)
    await handle.signal("stop_after_current_batch", STOP)
    await open_gate(here.admin)
    await record(handle, "cycle-stopped")


async def test_cycle_stopped_before_the_first_batch(here: Here) -> None:
    """The signal while the clock is read."""
    await here.due(3)
    async with locked(here.world.database, "crm.job_state"):
        handle = await here.cycle()
        await in_hand(handle, "open_cycle")
        await handle.signal("stop_after_current_batch", STOP)
    await record(handle, "cycle-stopped-at-once")


@pytest.mark.parametrize(("kind", "release"), [("held", None), ("hold-released", 4)])
async def test_cycle_held(here: Here, kind: str, release: int | None) -> None:
    """More due than the safety catch lets through; and after an operator has let four through."""
    await here.due(6, 3)
    await here.admin.execute("UPDATE crm.safety_catch SET hold_above = 5")  # as the cycle before it left it
    await here.control(release=release)
    await record(await here.cycle(hold_above=5), f"cycle-{kind}")


async def test_cycle_with_a_paused_phase(here: Here) -> None:
    """Reserve is paused, Booking goes on."""
    await here.due(3, 3)
    await here.control(pause=Phase.RESERVE)
    await record(await here.cycle(), "cycle-phase-paused")
