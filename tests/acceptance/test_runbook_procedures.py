"""runbooks/booking-expiration.md, the procedures: every command, in the state that its section describes (issue 4, section 6)."""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
from temporalio.api.schedule.v1 import ScheduleState
from temporalio.client import WorkflowExecutionStatus

from activities import schedule_state
from chessboard import objects
from db.unit_of_work import UnitOfWork, open_pool
from tests import floor
from tests.acceptance.alertmanager import an_alertmanager
from tests.acceptance.command import WHY, call
from tests.acceptance.held import batch_waits, close_gate, open_gate, whole
from tests.acceptance.process import ROOT, World, soon
from tests.acceptance.runbook import BOOKINGS, Reader, listed, nothing_runs, reads, unpause
from tests.chessboard.member import Member
from tests.floor import MINUTE, Admin


async def hung(world: World, admin: Admin) -> Any:
    """A cycle whose first batch waits at the gate."""
    await floor.add(admin, 3, await floor.clock(admin) - MINUTE)
    await close_gate(admin, "write")
    await world.start()
    cycle = await world.trigger()
    await batch_waits(admin)
    return cycle


async def ended(cycle: Any) -> WorkflowExecutionStatus:
    """How it ended, as soon as it has."""

    async def status() -> Any:
        now = (await cycle.describe()).status
        return now if now is not WorkflowExecutionStatus.RUNNING else None

    answer: WorkflowExecutionStatus = await soon(status, "the cycle's end")
    return answer


@reads(BOOKINGS, "Run a cycle now")
async def test_run_a_cycle_now(reader: Reader, admin: Admin) -> None:
    """Issue 4, section 6: by the schedule though it is paused, and without it; the newest cycle shows its counts."""
    await floor.add(admin, 3, await floor.clock(admin) - MINUTE)
    await reader.world.start()
    await reader.types("triggered, once, though it is paused")
    await nothing_runs(reader.world)
    assert await whole(admin) == 3
    await reader.types("BookingExpirationCycle", reader.world.name)
    await listed(reader.world, "Completed")
    await reader.types("completed", "ExpiredCount")


@reads(BOOKINGS, "Bring the schedule back")
async def test_bring_the_schedule_back(reader: Reader) -> None:
    """Issue 4, section 6: paused earlier, its runs used up now: who paused it is known; deleted and made anew, it runs."""
    world = reader.world
    await world.start()
    await call(world, "schedule", "pause", *WHY)
    await schedule_state.change(world.client, world.name, _used_up)
    assert "used up" in (await call(world, "status")).out
    await reader.types("pause_schedule", "INC-7: for the test")
    await reader.types()
    assert "does not exist" in (await call(world, "status")).out
    await reader.types("created", "state running")


def _used_up(state: ScheduleState) -> ScheduleState:
    """As somebody who lets the schedule start so many cycles, after the last of them."""
    changed = schedule_state.altered(state, paused=False, note=state.notes)
    changed.limited_actions, changed.remaining_actions = True, 0
    return changed


@reads(BOOKINGS, "After an outage")
async def test_after_an_outage(reader: Reader, admin: Admin) -> None:
    """Issue 4, section 6: 700 left behind: counted, drained, and nothing left; their events are in Kafka."""
    await floor.add(admin, 700, await floor.clock(admin) - 60 * MINUTE)
    await reader.world.start()
    await reader.types("700 overdue")
    await reader.types("Reserve: 700 bookings", "takes 4 cycles")
    await reader.types("drained", "ReserveExpiredCount 700")
    await reader.types("LeftOverdue 0", "nothing overdue", "0 records to go out")
    assert await whole(admin) == 700


@reads(BOOKINGS, "While a drain runs")
async def test_while_a_drain_runs(reader: Reader, admin: Admin) -> None:
    """Issue 4, section 6: a drain at rest between two rounds: looked at, slowed down, stopped."""
    await floor.add(admin, 3_000, await floor.clock(admin) - MINUTE)
    await reader.world.start()
    await call(reader.world, "drain", "--cap", "3000", "--pause", "10m", "--detach", *WHY)
    await soon(lambda: admin.fetchval("SELECT count(*) >= 200 FROM crm.booking_audit"), "the first round")
    await reader.types("running", "of 3,000")
    await reader.types("lanes 1", "pause 5")
    await reader.types("the drain ends after the batches in hand")
    result = await reader.world.client.get_workflow_handle(f"{reader.world.name}-drain").result()
    assert result["Outcome"] == "stopped"


@reads(BOOKINGS, "Stop a cycle")
async def test_stop_a_cycle(reader: Reader, admin: Admin) -> None:
    """Issue 4, section 6: the batch in hand commits."""
    cycle = await hung(reader.world, admin)
    await reader.types(f"cycle {cycle.id} will end after the batch in hand")
    await open_gate(admin)
    assert (await cycle.result())["Outcome"] == "stopped"
    assert await whole(admin) == 3


@reads(BOOKINGS, "Cancel a cycle")
async def test_cancel_a_cycle(reader: Reader, admin: Admin) -> None:
    """Issue 4, section 6: the run ends as canceled, the batch is whole: here rolled back."""
    cycle = await hung(reader.world, admin)
    await reader.types(f"cycle {cycle.id} is being cancelled")
    assert await ended(cycle) is WorkflowExecutionStatus.CANCELED
    assert await whole(admin) == 0


@reads(BOOKINGS, "Terminate")
async def test_terminate(reader: Reader, admin: Admin) -> None:
    """Issue 4, section 6: the run ends at once, the batch is whole, and the next cycle does its work."""
    cycle = await hung(reader.world, admin)
    await listed(reader.world, "Running")
    await reader.types(cycle.id, "running", WORKFLOW_ID=cycle.id)
    assert await ended(cycle) is WorkflowExecutionStatus.TERMINATED
    await open_gate(admin)
    await reader.world.result()
    assert await whole(admin) == 3


@reads(BOOKINGS, "Pause and resume")
async def test_pause_and_resume(reader: Reader) -> None:
    """Issue 4, section 6: what it will cost; paused with an end; silenced; resumed; the same for one phase."""
    await reader.world.start()
    await unpause(reader.world)
    await reader.types("Would expire at", "no cycle has anything to do")
    await reader.types("paused, until 2", "INC-123: the database moves", "by workflow booking-expiration-resume-")
    async with an_alertmanager(reader.world.folder) as url:
        silence = await reader.types("-", ALERTMANAGER_URL=url)
    assert UUID(silence)
    await reader.types("resumed, next cycle at the full minute")
    await reader.types("phase Booking: paused from the next cycle on, until", "phase Booking: goes on with the next cycle")
    async with an_alertmanager(reader.world.folder) as url:
        silence = await reader.types("-", ALERTMANAGER_URL=url)
    assert UUID(silence)
    await call(reader.world, "schedule", "pause", *WHY)
    await reader.types("paused, until 2")


@reads(BOOKINGS, "Stop or restart a worker")
async def test_after_a_restart(reader: Reader) -> None:
    """Issue 4, section 6: stopped as Kubernetes does, and another one started: it polls and is ready."""
    assert (await (await reader.world.start()).stop())[0] == 0
    await reader.world.start()
    await reader.types("workers, workflow", "workers, activity", '"status": "ready"')


@reads(BOOKINGS, "Roll out a new version")
async def test_roll_out(fresh_reader: Reader) -> None:
    """Issue 4, section 6: histories fit, bootstrap and migrations again change nothing, the schedule is there, no failure."""
    world = fresh_reader.world
    await world.start(TEMPORAL_NAMESPACE=world.client.namespace)
    await world.result()
    await listed(world, "Completed")
    await fresh_reader.types("1 run replayed: 1 as recorded, 0 differ")
    await fresh_reader.types()
    await fresh_reader.types("unchanged", "migrations: all", "0 FAIL")


@reads(BOOKINGS, "Look up a booking")
async def test_look_up_a_booking(reader: Reader, admin: Admin) -> None:
    """Issue 4, section 6: its state and its audit trail, after it expired."""
    [booking] = await floor.add(admin, 1, await floor.clock(admin) - MINUTE)
    await reader.world.start()
    await reader.world.result()
    await reader.types("as it should", "timeline", "outbox record", "ReserveExpired", "Expire", BOOKING_ID=booking)


@reads(BOOKINGS, "Look up what was done")
async def test_look_up_what_was_done(reader: Reader) -> None:
    """Issue 4, section 6: an act of the command line is listed with its reason, and what cannot be known is said."""
    await call(reader.world, "phase", "pause", "Reserve", *WHY)
    await reader.types("pause_phase", "phase/Reserve", "INC-7: for the test", "Not in this list: a pause, a resume")


@reads(BOOKINGS, "Missing search attributes")
async def test_missing_search_attributes(fresh_reader: Reader) -> None:
    """Issue 4, section 6: a fresh namespace has none; after the block a worker misses none."""
    namespace = fresh_reader.world.client.namespace
    first = await fresh_reader.world.start(TEMPORAL_NAMESPACE=namespace)
    await first.said("search attributes missing")
    await fresh_reader.types()
    second = await fresh_reader.world.start(TEMPORAL_NAMESPACE=namespace)
    assert second.events("search attributes missing") == []


@reads(BOOKINGS, "Object not freed though the booking expired")
async def test_object_not_freed(reader: Reader, admin: Admin, consumer: Member) -> None:
    """Issue 4, section 6: the consumer did not know the object and set the event aside; now it does, and the replay frees it."""
    [booking] = await floor.add(admin, 1, await floor.clock(admin) - MINUTE)
    worker = await reader.world.start()
    await reader.world.result()
    await worker.said("records published")
    await reader.types("Kafka has its event since", BOOKING_ID=booking)
    aside = await soon(lambda: admin.fetchval("SELECT id FROM chessboard.set_aside"), "the event set aside")
    reader.places = {"http://127.0.0.1:8001": (await consumer.said("chessboard started"))["web"]}
    await reader.types('"status": "ready"', "UnknownObject", "open")
    await _sold(reader.world, await admin.fetchval("SELECT property_object_id FROM crm.bookings"), booking)
    await reader.types(f"{aside}: freed", ASIDE_ID=aside)
    assert await admin.fetchval("SELECT booking_id FROM chessboard.objects") is None


@pytest.fixture
async def consumer(reader: Reader) -> AsyncIterator[Member]:
    """The chessboard's consumer on the world's topic."""
    world = reader.world
    reader.settings = {
        "CHESSBOARD_DATABASE_URL": world.database.chessboard,
        "CHESSBOARD_TOPIC": world.topic,
        "CHESSBOARD_GROUP": world.name,
        "CHESSBOARD_HTTP_PORT": "0",
    }
    out, err = world.folder / "chessboard.out", world.folder / "chessboard.err"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "chessboard",
            "run",
            cwd=ROOT,
            env=world.environment(reader.settings),
            stdout=stdout,
            stderr=stderr,
        )
    yield Member(process, out, err)
    process.kill()
    await process.wait()


async def _sold(world: World, object_id: UUID, booking: UUID) -> None:
    """Put the object on the grid, taken by this booking."""
    pool = await open_pool(world.database.chessboard)
    async with UnitOfWork(pool) as connection:
        await objects.add(connection, [object_id])
        await objects.take(connection, object_id, booking)
    pool.terminate()
