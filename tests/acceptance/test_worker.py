"""The real worker process and its end: signals, the watchdog, cancelled and terminated cycles, workers side by side (L5, X7)."""

import asyncio
import signal
from urllib.parse import urlsplit

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError

from activities.messages import CycleResult
from tests import floor
from tests.acceptance.held import batch_waits, close_gate, nothing_left, open_gate, whole
from tests.acceptance.process import World
from tests.acceptance.proxy import a_proxy
from tests.floor import MINUTE, Admin

WATCHDOG = 70


async def _due(admin: Admin, count: int) -> None:
    await floor.add(admin, count, await floor.clock(admin) - MINUTE)


async def test_sigterm_while_idle(world: World, admin: Admin) -> None:
    """L5: a worker with nothing in hand ends with exit code 0 at once, and leaves no connection behind."""
    worker = await world.start()
    assert await worker.get("/livez") == (200, {"status": "alive"})
    ready = {"status": "ready", "checks": {"database": "ok", "temporal": "ok", "kafka": "ok"}}
    assert await worker.get("/readyz") == (200, ready)
    code, seconds = await worker.stop()
    assert (code, worker.err.read_text()) == (0, "")
    assert seconds < 5
    assert [line["event"] for line in worker.lines()][-2:] == ["worker stopping", "worker stopped"]
    await nothing_left(admin)


async def test_sigterm_lets_the_batch_in_hand_finish(world: World, admin: Admin) -> None:
    """L5, X7: a batch that needs less than the grace time is committed whole, and the next worker ends the cycle."""
    await _due(admin, 20)
    await close_gate(admin, "write")
    worker, cycle = await world.start(), await world.cycle()
    await batch_waits(admin)
    worker.process.send_signal(signal.SIGTERM)
    await worker.said("worker stopping")
    await open_gate(admin)
    assert await worker.ended() == 0
    assert (await whole(admin), worker.err.read_text()) == (20, "")
    await world.start()
    assert (await cycle.result())["ReserveExpiredCount"] == 20


@pytest.mark.slow
async def test_sigterm_rolls_a_batch_back_that_takes_too_long(world: World, admin: Admin) -> None:
    """L5, X7: after the grace time the batch is rolled back whole; exit code 0 in under 15 s; the next worker does it."""
    await _due(admin, 20)
    await close_gate(admin, "write")
    worker, cycle = await world.start(), await world.cycle()
    await batch_waits(admin)
    code, seconds = await worker.stop(signal.SIGINT)
    assert (code, worker.err.read_text()) == (0, "")
    assert 4 < seconds < 15
    await nothing_left(admin)
    assert await whole(admin) == 0
    await open_gate(admin)
    await world.start()
    assert (await cycle.result())["ReserveExpiredCount"] == await whole(admin) == 20


async def test_a_second_signal_ends_it_at_once(world: World, admin: Admin) -> None:
    """Issue 3, 8: whoever asks twice does not wait; the database rolls the batch back."""
    await _due(admin, 5)
    await close_gate(admin, "write")
    worker = await world.start()
    await world.cycle()
    await batch_waits(admin)
    worker.process.send_signal(signal.SIGTERM)
    await worker.said("worker stopping")
    code, seconds = await worker.stop()
    assert code == -signal.SIGTERM
    assert seconds < 4
    await nothing_left(admin)
    assert await whole(admin) == 0


async def test_the_watchdog_ends_what_hangs(world: World, admin: Admin) -> None:
    """Trap 12: a COMMIT that does not come back cannot be interrupted, so the watchdog ends the process with its own code."""
    await _due(admin, 5)
    await close_gate(admin, "commit")
    worker = await world.start(BOOKING_EXPIRATION_SHUTDOWN_TIMEOUT="1")
    await world.cycle()
    await batch_waits(admin)
    code, seconds = await worker.stop()
    assert code == WATCHDOG
    assert 0.9 < seconds < 4
    assert worker.events("worker hung", level="error")
    await open_gate(admin)
    await nothing_left(admin)
    assert await whole(admin) in (0, 5)


@pytest.mark.slow
async def test_a_half_sent_request_does_not_hold_up_the_stop(world: World) -> None:
    """L5: a client that opened a connection to the health port and says no more is left behind."""
    worker = await world.start()
    address = urlsplit((await worker.said("worker started"))["web"])
    _, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConte")
    await worker.get("/livez")
    code, seconds = await worker.stop()
    writer.close()
    assert code == 0
    assert seconds < 5


async def test_cancel_rolls_the_batch_in_hand_back(world: World, admin: Admin) -> None:
    """L5, X7: Canceled in the Web UI means that nothing of the batch is there; the next cycle does its work."""
    await _due(admin, 12)
    await close_gate(admin, "write")
    worker, cycle = await world.start(), await world.cycle()
    await batch_waits(admin)
    await cycle.cancel()
    with pytest.raises(WorkflowFailureError):
        await cycle.result()
    assert (await cycle.describe()).status is WorkflowExecutionStatus.CANCELED
    await nothing_left(admin)
    assert await whole(admin) == 0
    assert await admin.fetchval("SELECT outcome FROM crm.job_state") == "canceled"
    await open_gate(admin)
    assert (await world.result())["PublishedCount"] == await whole(admin) == 12
    assert worker.events("step failed") == []


async def test_cancel_during_commit_keeps_the_batch_and_publishes_it(world: World, admin: Admin) -> None:
    """Traps 10, 11: COMMIT is the point of no return: the run is Canceled, its batch is whole, counted and published."""
    await _due(admin, 12)
    await close_gate(admin, "commit")
    await world.start()
    cycle = await world.cycle()
    await batch_waits(admin)
    await cycle.cancel()
    await asyncio.sleep(1.5)  # not to wait for something, but to let the cancel arrive while COMMIT is under way
    await open_gate(admin)
    with pytest.raises(WorkflowFailureError):
        await cycle.result()
    assert (await cycle.describe()).status is WorkflowExecutionStatus.CANCELED
    counts = await admin.fetchval("SELECT (counts ->> 'ReserveExpiredCount')::int FROM crm.job_state WHERE outcome = 'canceled'")
    assert counts == await whole(admin) == 12
    assert await admin.fetchval("SELECT count(published_at) FROM crm.outbox") == 12


async def test_terminate_leaves_a_whole_batch(world: World, admin: Admin) -> None:
    """L5, X7: a terminated run's batch ends by itself, whole, and the next cycle finishes."""
    await _due(admin, 12)
    await close_gate(admin, "write")
    await world.start()
    cycle = await world.cycle()
    await batch_waits(admin)
    await cycle.terminate("on purpose")
    await nothing_left(admin)
    assert await whole(admin) in (0, 12)
    await open_gate(admin)
    await world.result()
    assert await whole(admin) == await admin.fetchval("SELECT count(published_at) FROM crm.outbox") == 12


async def test_two_workers_on_one_schedule(world: World, admin: Admin) -> None:
    """R2, trap 5: both start with the schedule as it is, share the cycles, and expire each booking once."""
    await _due(admin, 300)
    one, two = await asyncio.gather(world.launch(), world.launch())
    await asyncio.gather(*(worker.said("schedule ensured", change="unchanged") for worker in (one, two)))
    cycles = [await world.cycle(50) for _ in range(6)]
    results = [CycleResult.model_validate(await cycle.result()) for cycle in cycles]
    assert sum(result.reserve_expired_count for result in results) == await whole(admin) == 300
    assert sum(result.published_count for result in results) == 300
    expired = [{line["booking_id"] for line in worker.events("booking expired")} for worker in (one, two)]
    assert len(expired[0] | expired[1]) == len(expired[0]) + len(expired[1]) == 300


async def test_rolling_restart_fails_no_cycle(world: World, admin: Admin) -> None:
    """L5, trap 12: the new worker starts, the old one gets SIGTERM in the middle of a batch: the cycle completes."""
    await _due(admin, 40)
    await close_gate(admin, "write")
    old, cycle = await world.start(), await world.cycle()
    await batch_waits(admin)
    await world.start()
    old.process.send_signal(signal.SIGTERM)
    await old.said("worker stopping")
    await open_gate(admin)
    assert await old.ended() == 0
    result = await cycle.result()
    assert (result["Outcome"], result["ReserveExpiredCount"], await whole(admin)) == ("completed", 40, 40)


@pytest.mark.slow
async def test_a_frozen_database_does_not_hold_up_the_stop(world: World) -> None:
    """L5, trap 28: a server that keeps connections and says nothing costs an idle worker's stop two seconds."""
    where = world.where("DATABASE_URL")
    async with a_proxy(where) as proxy:
        worker = await world.start(DATABASE_URL=world.database.worker.replace(where, proxy.address))
        await world.result()
        proxy.freeze()
        code, seconds = await worker.stop()
    assert (code, worker.err.read_text()) == (0, "")
    assert seconds < 15


@pytest.mark.slow
async def test_a_frozen_database_in_the_middle_of_a_batch(world: World, admin: Admin) -> None:
    """L5, trap 12: the worker ends in under 15 s one way or the other, the batch is whole, and the next worker ends the cycle."""
    await _due(admin, 20)
    await close_gate(admin, "write")
    where = world.where("DATABASE_URL")
    async with a_proxy(where) as proxy:
        worker = await world.start(DATABASE_URL=world.database.worker.replace(where, proxy.address))
        cycle = await world.cycle()
        await batch_waits(admin)
        proxy.freeze()
        code, seconds = await worker.stop()
    assert code in (0, WATCHDOG)
    assert seconds < 15
    await open_gate(admin)
    await world.start()
    await cycle.result()
    assert await whole(admin) == 20
