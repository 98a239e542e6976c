"""runbooks/booking-expiration.md, the alerts' sections: every command, in the state that its section describes (issue 4 §6)."""

import asyncio

import pytest

from tests import floor
from tests.acceptance import test_runbook_outbox, test_runbook_procedures
from tests.acceptance.command import WHY, call
from tests.acceptance.held import batch_waits, close_gate, open_gate
from tests.acceptance.process import soon
from tests.acceptance.runbook import BOOKINGS, COVERED, NOT_TYPED, Reader, blocks, listed, nothing_runs, reads, unpause
from tests.floor import MINUTE, Admin
from tests.unit.test_ops import one


def test_every_block_is_typed_by_some_test() -> None:
    """Issue 4, section 6: no section with commands is forgotten; what is not typed has its reason, and is there."""
    assert {test_runbook_outbox.__name__, test_runbook_procedures.__name__}  # their sections count, too
    assert blocks().keys() - COVERED == set()
    typed = [block for section in blocks().values() for block in section]
    assert [words for words in NOT_TYPED if not any(block.startswith(words) for block in typed)] == []


def test_kubectl_names_what_the_manifests_have() -> None:
    """Issue 4, section 6: no test has a cluster, so the names in the block are compared with those of deploy/kubernetes."""
    [block] = [block for section in blocks().values() for block in section if "kubectl" in block]
    assert block.count(f"deployment/{one('Deployment')['metadata']['name']} -n crm") == 2


@reads(BOOKINGS, "What you need")
async def test_what_you_need(reader: Reader) -> None:
    """Issue 4, section 6: with everything in place `doctor` finds no failure."""
    await reader.world.start()
    said = await reader.types("clocks:", "search attributes: all 4 registered", "0 FAIL")
    assert "nobody polls" not in said


@reads(BOOKINGS, "First look")
async def test_first_look(reader: Reader, admin: Admin) -> None:
    """Issue 4, section 6: after a good cycle the lines of the table are there, and the worker is ready."""
    await floor.add(admin, 3, await floor.clock(admin) - MINUTE)
    await reader.world.start()
    cycle = await reader.world.trigger()
    await cycle.result()
    said = await reader.types("3 Reserve and 0 Booking expired", "backlog Reserve", "outbox parked", "workers, activity")
    assert said.count(" attention ") <= 2  # the test's pause; a reading may be older than the cycle
    await listed(reader.world, "Completed")
    await reader.types(cycle.id, "completed", "ReserveExpiredCount 3")
    await reader.types('"status": "ready"')


@reads(BOOKINGS, "No successful cycle")
async def test_no_successful_cycle(reader: Reader, admin: Admin) -> None:
    """Issue 4, section 6: a batch hangs: none has ended, one runs; after a restart one more is started."""
    await floor.add(admin, 3, await floor.clock(admin) - MINUTE)
    await close_gate(admin, "write")
    await reader.world.start()
    cycle = await reader.world.trigger()
    await batch_waits(admin)
    await listed(reader.world, "Running")
    await reader.types("none has ended yet", "3 overdue", cycle.id, "running", "expiring Reserve")
    await reader.types('"status": "alive"')
    await open_gate(admin)
    await cycle.result()
    await nothing_runs(reader.world)
    await reader.types("triggered")


@reads(BOOKINGS, "Backlog over 100")
async def test_backlog(reader: Reader, admin: Admin) -> None:
    """Issue 4, section 6: 300 overdue, the oldest one's row locked by another program: the commands count them and name it."""
    await floor.add(admin, 300, await floor.clock(admin) - MINUTE)
    [oldest] = await floor.add(admin, 1, await floor.clock(admin) - 10 * MINUTE)
    await reader.world.start()
    async with admin.transaction():
        await admin.execute("SELECT FROM crm.bookings WHERE id = $1 FOR UPDATE", oldest)
        await reader.types("301 overdue, the oldest for 10", "takes 2 cycles", f"{oldest}")
        await reader.types("Its row is locked by session", BOOKING_ID=oldest)


@reads(BOOKINGS, "Errors sustained")
async def test_errors_sustained(reader: Reader, admin: Admin) -> None:
    """Issue 4, section 6: a booking is refused in every cycle, and the cycles complete all the same."""
    await floor.poison(admin, await floor.add(admin, 1, await floor.clock(admin) - MINUTE))
    worker = await reader.world.start()
    await reader.world.result()
    await worker.said("item failed")
    await listed(reader.world, "Completed")
    await reader.types("completed")


@reads(BOOKINGS, "Oldest overdue over 5 min")
async def test_oldest_overdue(reader: Reader, admin: Admin) -> None:
    """Issue 4, section 6: cycles complete, one booking stays: it is shown first, and why, and where to read on."""
    [poison] = await floor.add(admin, 1, await floor.clock(admin) - 10 * MINUTE)
    await floor.poison(admin, [poison])
    await reader.world.start()
    await reader.world.result()
    await reader.types(f"{poison}", "refused as poison", "Now:", "#poison-booking-does-not-expire", BOOKING_ID=poison)


@reads(BOOKINGS, "Poison booking does not expire")
async def test_poison(reader: Reader, admin: Admin) -> None:
    """Issue 4, section 6: the trigger's own words; when it is gone, the next cycle takes the booking."""
    [poison] = await floor.add(admin, 1, await floor.clock(admin) - 10 * MINUTE)
    await floor.poison(admin, [poison])
    await reader.world.start()
    await reader.world.result()
    await reader.types("Reserved, poison", "poison booking (SQLSTATE P0001)", BOOKING_ID=poison)
    await admin.execute("DELETE FROM crm.poison")
    await reader.types("triggered")
    await soon(lambda: admin.fetchval("SELECT expired_at FROM crm.bookings"), "the expiry")
    await reader.types("The booking expired at", "as it should", BOOKING_ID=poison)


@reads(BOOKINGS, "Missed ticks")
async def test_missed_ticks(reader: Reader) -> None:
    """Issue 4, section 6: a tick while a cycle runs is counted as skipped by overlap."""
    world = reader.world
    cycle = await world.trigger()
    await world.client.get_schedule_handle(world.name).trigger()
    await listed(world, "Running")

    async def skipped() -> bool:
        return (await world.client.get_schedule_handle(world.name).describe()).info.num_actions_skipped_overlap == 1

    await soon(skipped, "the skipped tick")
    await reader.types("skipped by overlap 1", "missed 0", "running", cycle.id)
    await cycle.terminate()


@reads(BOOKINGS, "Schedule paused")
async def test_schedule_paused(reader: Reader, admin: Admin) -> None:
    """Issue 4, section 6: who paused both and why is said; both are resumed."""
    await floor.add(admin, 3, await floor.clock(admin) + 60 * MINUTE)
    await reader.world.start()
    await call(reader.world, "schedule", "pause", *WHY)
    await call(reader.world, "phase", "pause", "Reserve", *WHY)
    await reader.types("paused by", "INC-7: for the test", "pause_schedule", "pause_phase", "Not in this list")
    await reader.types("no cycle has anything to do")
    await reader.types("resumed")
    await reader.types("phase Reserve: goes on with the next cycle")


@reads(BOOKINGS, "Held")
async def test_held(reader: Reader, admin: Admin) -> None:
    """Issue 4, section 6: held; whose bookings they are; a part is let through; the rest is taken back, then drained."""
    await floor.add(admin, 30, await floor.clock(admin) - MINUTE)
    worker = await reader.world.start(BOOKING_EXPIRATION_HOLD_ABOVE="10")
    assert (await reader.world.result())["Outcome"] == "held"
    await worker.said("cycle held")
    await reader.types("Reserve: 30 bookings", "tenant", "hour")
    await reader.types("up to 400 bookings may expire", "400 bookings may still pass")
    assert (await reader.world.result(5))["Outcome"] == "completed"
    await reader.types("taken back")
    assert (await reader.world.result(5))["Outcome"] == "held"
    await reader.types("drained", "ReserveExpiredCount 25")


@reads(BOOKINGS, "Gauges not read")
async def test_gauges_not_read(reader: Reader, admin: Admin) -> None:
    """Issue 4, section 6: the worker's role lacks a right: `status` is well, `doctor` prints the grant, then the gauge moves."""
    await admin.execute("REVOKE SELECT ON crm.expiration_refusals FROM booking_expiration_worker")
    worker = await reader.world.start(BOOKING_EXPIRATION_GAUGES_INTERVAL="0.5")
    await worker.said("gauges unreadable")
    await reader.types("nothing overdue", "GRANT SELECT", "crm.expiration_refusals", code=1)
    await admin.execute("GRANT SELECT ON crm.expiration_refusals TO booking_expiration_worker")
    await asyncio.sleep(1.5)
    await reader.types('source="database"')


@reads(BOOKINGS, "Bookings expire late")
async def test_bookings_expire_late(reader: Reader, admin: Admin) -> None:
    """Issue 4, section 6: they expired late and the cause is over: nothing is overdue, cycles complete."""
    await floor.add(admin, 3, await floor.clock(admin) - 10 * MINUTE)
    await reader.world.start()
    await reader.world.result()
    await listed(reader.world, "Completed")
    await reader.types("nothing overdue", "completed")


@reads(BOOKINGS, "Cycle failed")
async def test_cycle_failed(reader: Reader, admin: Admin) -> None:
    """Issue 4, section 6: a right is missing: the failed cycle's message names the step, the cause and this section."""
    await admin.execute("REVOKE UPDATE ON crm.bookings FROM booking_expiration_worker")
    await floor.add(admin, 1, await floor.clock(admin) - MINUTE)
    await reader.world.start()
    cycle = await reader.world.cycle()
    with pytest.raises(Exception, match="Workflow execution failed"):
        await cycle.result()
    await listed(reader.world, "Failed")
    await reader.types("expire_batch (Reserve", "permission denied", "section Cycle failed", WORKFLOW_ID=cycle.id)


@reads(BOOKINGS, "A wrong mass update")
async def test_a_wrong_mass_update(reader: Reader, admin: Admin) -> None:
    """Issue 4, section 6: everything is stopped, also a drain; whose they are; one phase stays paused, the other goes on."""
    await floor.add(admin, 500, await floor.clock(admin) - MINUTE)
    world = reader.world
    await world.start()
    await unpause(world)
    await call(world, "drain", "--cap", "400", "--pause", "10m", "--detach", *WHY)
    await soon(lambda: admin.fetchval("SELECT count(*) >= 200 FROM crm.booking_audit"), "the drain's first round")
    await reader.types("paused, until somebody resumes it")
    await nothing_runs(world)
    await reader.types("no cycle runs just now: nothing was changed", code=1)
    await reader.types("the drain ends after the batches in hand")
    await world.client.get_workflow_handle(f"{world.name}-drain").result()
    await reader.types("Reserve: ", "tenant", "hour")
    await reader.types()
    await reader.types("phase Reserve: paused from the next cycle on", "resumed")
    assert (await floor.statuses(admin))["Reserved"] > 0
