"""The commands that change something, as people type them, against real workers (issue 4, parts 2 to 4)."""

import asyncio
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus

from tests import floor
from tests.acceptance.command import COMMAND, WHY, acts, answer, call
from tests.acceptance.held import batch_waits, close_gate, open_gate, whole
from tests.acceptance.process import ROOT, World, soon
from tests.floor import MINUTE, Admin


async def _due(admin: Admin, count: int, status: str = "Reserved") -> None:
    await floor.add(admin, count, await floor.clock(admin) - MINUTE, status)


async def test_cycle_stop_ends_the_running_one_whole(world: World, admin: Admin) -> None:
    """Issue 4 §2 and §4: the batch in hand commits, Booking does not start; the row is written once, by the command."""
    await _due(admin, 3)
    await _due(admin, 2, "Booked")
    await close_gate(admin, "write")
    await world.start()
    handle = await world.trigger()
    await batch_waits(admin)
    done = await call(world, "cycle", "stop", *WHY)
    assert (done.code, f"cycle {handle.id} will end after the batch in hand" in done.out) == (0, True), done
    await open_gate(admin)
    result = await handle.result()
    assert (result["Outcome"], result["ReserveExpiredCount"], result["BookingExpiredCount"]) == ("stopped", 3, 0)
    assert "INC-7: for the test" in result["Reason"]
    assert await acts(admin) == ["stop_cycle"]
    assert (await whole(admin), await admin.fetchval("SELECT outcome FROM crm.job_state")) == (3, "stopped")


async def test_cycle_cancel_and_show(world: World, admin: Admin) -> None:
    """L5, issue 4 §4: cancel leaves nothing half done; `cycle show` tells how it ended; the act stands once."""
    await _due(admin, 3)
    await close_gate(admin, "write")
    await world.start()
    handle = await world.trigger()
    await batch_waits(admin)
    assert (await call(world, "cycle", "cancel", *WHY)).code == 0

    async def canceled() -> bool:
        return (await handle.describe()).status is WorkflowExecutionStatus.CANCELED

    await soon(canceled, "the cycle's cancellation")
    told = await answer(world, "cycle", "show", handle.id)
    assert (told["run"]["status"], told["progress"]["step"], told["run"]["outcome"]) == (
        "canceled",
        "ended: canceled",
        "canceled",
    )
    assert (await acts(admin), await whole(admin)) == (["cancel_cycle"], 0)


async def test_cycle_list_shows_counts_and_outcomes(world: World, admin: Admin) -> None:
    """Issue 4 §4: recent cycles of this schedule, newest first, with what their search attributes say; filtered by outcome."""
    await world.start()
    await world.result()
    await _due(admin, 3)
    await world.result()

    async def listed() -> Any:
        cycles = (await answer(world, "cycle", "list"))["cycles"]
        return cycles if len(cycles) == 2 and cycles[0]["status"] == "completed" else None

    newest, first = await soon(listed, "both cycles in the list")
    assert [(run["outcome"], run["expired"]) for run in (newest, first)] == [("completed", 3), ("completed", 0)]
    assert (await answer(world, "cycle", "list", "--outcome", "held"))["cycles"] == []
    assert "completed" in (await call(world, "cycle", "list")).out


async def test_a_hold_until_it_is_released(world: World, admin: Admin) -> None:
    """Issue 4 §4: held cycles expire nothing and say so at ERROR; a release lets so many through; then they are held again."""
    await _due(admin, 30)
    worker = await world.start(BOOKING_EXPIRATION_HOLD_ABOVE="10")
    held = await world.result(5)
    assert (held["Outcome"], held["ReserveExpiredCount"]) == ("held", 0)
    assert (await worker.said("cycle held", due=30, hold_above=10, allowed=0))["level"] == "error"
    assert (await call(world, "release-hold", "--up-to", "7", *WHY)).code == 0
    outcomes = [(result["Outcome"], result["ReserveExpiredCount"]) for result in [await world.result(5) for _ in range(3)]]
    assert outcomes == [("completed", 5), ("completed", 2), ("held", 0)]
    assert await acts(admin) == ["release_hold"]
    success = await admin.fetchval("SELECT last_success_at < last_finished_at FROM crm.job_state")
    assert success is True


async def test_drain_until_nothing_due_is_left(world: World, admin: Admin) -> None:
    """Issue 4 §3: started by the command, watched to its end; every booking expired once, its event in Kafka."""
    await _due(admin, 700)
    await world.start()
    done = await call(world, "drain", "--cap", "600", "--lanes", "2", *WHY)
    assert done.code == 0, done
    assert "cap_reached" in done.out
    told = await answer(world, "drain", "status")
    assert (told["result"]["ReserveExpiredCount"], told["result"]["LeftOverdue"]) == (600, 100)
    assert (await whole(admin), await acts(admin)) == (600, ["start_drain"])
    assert await admin.fetchval("SELECT count(*) FROM crm.outbox WHERE published_at IS NULL") == 0


async def test_a_drain_beside_cycles_expires_nothing_twice(world: World, admin: Admin) -> None:
    """Issue 4 §3, D7: four lanes beside two workers' cycles: every booking once, with one audit row, card and event."""
    await _due(admin, 1500)
    await _due(admin, 700, "Booked")
    for _ in range(2):
        await world.start()
    started = await answer(world, "drain", "--cap", "5000", "--lanes", "4", *WHY)
    drain = world.client.get_workflow_handle(started["workflow_id"])
    results = await asyncio.gather(drain.result(), *(world.result() for _ in range(3)))
    counts = [result["ReserveExpiredCount"] + result["BookingExpiredCount"] for result in results]
    assert (sum(counts), await whole(admin)) == (2200, 2200)
    assert await floor.statuses(admin) == {"ReserveExpired": 1500, "BookingExpired": 700}


async def test_a_drain_survives_its_worker(world: World, admin: Admin) -> None:
    """L5, D7: the worker is killed with batches in hand; another one goes on, and nothing is done twice or left."""
    await _due(admin, 900)
    await close_gate(admin, "write")
    worker = await world.start()
    started = await answer(world, "drain", "--cap", "5000", "--lanes", "2", *WHY)
    await batch_waits(admin)
    worker.process.kill()
    await open_gate(admin)
    await world.start()
    result = await world.client.get_workflow_handle(started["workflow_id"]).result()
    assert (result["Outcome"], result["ReserveExpiredCount"], await whole(admin)) == ("drained", 900, 900)


async def test_drain_limits_and_stop(world: World, admin: Admin) -> None:
    """Issue 4 §3: one drain at a time; its limits change while it runs, a bad one is refused; stop ends it whole."""
    await _due(admin, 500)
    await world.start()
    started = await answer(world, "drain", "--cap", "400", "--pause", "10m", *WHY)

    async def resting() -> bool:
        return "pausing" in (await answer(world, "drain", "status"))["progress"]["step"]

    await soon(resting, "the pause after the first round")
    second = await call(world, "drain", "--cap", "5", *WHY)
    assert (second.code, "a drain is running already" in second.err) == (1, True)
    refused = await call(world, "drain", "limits", "--cap", "100", *WHY)
    assert (refused.code, "cap is 100: it must be at least 200, which have expired already" in refused.err) == (1, True)
    assert (await call(world, "drain", "limits", "--cap", "450", "--pause", "0", *WHY)).code == 0
    result = await world.client.get_workflow_handle(started["workflow_id"]).result()
    assert (result["Outcome"], result["ReserveExpiredCount"]) == ("cap_reached", 450)
    assert await acts(admin) == ["start_drain", "set_drain_limits"]
    over = await call(world, "drain", "stop", *WHY)
    assert (over.code, "no drain runs just now" in over.err) == (1, True)


async def test_ctrl_c_only_stops_watching_where_nobody_can_answer(world: World, admin: Admin) -> None:
    """Issue 4 §3: without a terminal Ctrl-C leaves the drain running and says how to stop it; then it is stopped."""
    await _due(admin, 500)
    await world.start()
    ours = {"BOOKING_EXPIRATION_OPERATOR_DATABASE_URL": world.database.operator}
    watching = await asyncio.create_subprocess_exec(
        COMMAND, "drain", "--cap", "400", "--pause", "10m", *WHY, cwd=ROOT, env=world.environment(ours), stdout=-1
    )
    assert watching.stdout is not None
    async with asyncio.timeout(20):
        while b"expired" not in await watching.stdout.readline():
            pass
    watching.send_signal(2)
    rest = (await watching.communicate())[0].decode()
    assert (watching.returncode, "the drain goes on" in rest) == (0, True)
    assert (await call(world, "drain", "stop", *WHY)).code == 0
    result = await world.client.get_workflow_handle(f"{world.name}-drain").result()
    assert (result["Outcome"], await acts(admin)) == ("stopped", ["start_drain", "stop_drain"])


async def test_a_held_job_is_not_drained_by_accident(world: World, admin: Admin) -> None:
    """Issue 4 §4: while cycles are held a drain needs --past-hold."""
    await _due(admin, 30)
    await world.start(BOOKING_EXPIRATION_HOLD_ABOVE="10")
    await world.result()
    refused = await call(world, "drain", "--cap", "20", *WHY)
    assert (refused.code, "--past-hold" in refused.err) == (1, True)
    assert (await call(world, "drain", "--cap", "20", "--past-hold", *WHY)).code == 0
    assert (await whole(admin), await acts(admin)) == (20, ["start_drain"])


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["drain", "--cap", "5"], 2, "say --cap"),
        (["drain", "--cap", "0", *WHY], 2, "cap is 0: it must be at least 1"),
        (["drain", "--cap", "5", "--lanes", "9", *WHY], 2, "lanes is 9: it must be 1 to 8"),
        (["drain", "--cap", "5", "--time-budget", "soon", *WHY], 2, "'soon' is no length of time; for example 10m"),
        (["drain", "--cap", "5", "--phase", "Reserved", *WHY], 2, "--phase: 'Reserved' is no phase; it is Reserve or Booking"),
        (["drain", "limits", *WHY], 2, "nothing to change"),
        (["drain", "--cap", "5", "--time-budget", "", *WHY], 2, "'' is no length of time"),
        (["drain", "--cap", "many", *WHY], 2, "Invalid value for '--cap'"),
        (["drain", "away"], 2, "No such command 'away' (see booking-expiration drain --help)"),
        (["drain", "status"], 1, "no drain was ever started here"),
        (["drain", "status", "--watch"], 1, "no drain was ever started here"),
        (["drain", "stop", *WHY], 1, "no drain runs just now: nothing was changed"),
        (["drain", "stop", "nobody", *WHY], 1, "there is no drain nobody; see `booking-expiration drain status`"),
        (["drain", "stop", "", *WHY], 2, "WORKFLOW_ID: it is empty"),
        (["drain", "--cap", "5", "--reason", "x" * 501], 2, "--reason: 501 characters are too many; say why in up to 500"),
        (["cycle", "stop", *WHY], 1, "no cycle runs just now: nothing was changed"),
        (["cycle", "cancel", "nobody", *WHY], 1, "there is no cycle nobody"),
        (["cycle", "show", "nobody"], 1, "there is no cycle nobody"),
        (["cycle", "show"], 1, "no cycle is known"),
        (["cycle", "show", ""], 2, "WORKFLOW_ID: it is empty"),
        (["cycle", "cancel", " ", *WHY], 2, "WORKFLOW_ID: it is empty"),
        (["cycle", "list", "--limit", "0"], 2, "--limit: 0 is not from 1 to 1,000"),
        (["cycle", "list", "--outcome", "fine"], 2, "'fine' is none of completed"),
        (["cycle", "stop", "--reason", "  "], 2, "--reason: say why"),
        (["phase", "pause", "Payment", *WHY], 2, "PHASE: 'Payment' is no phase; it is Reserve or Booking"),
        (["phase", "pause", *WHY], 2, "Missing argument 'Reserve|Booking' (see booking-expiration phase pause --help)"),
        (["phase", "pause", "Reserve", "--for", "-5m", *WHY], 2, "'-5m' is no length of time"),
        (["phase", "pause", "Reserve", "--for", "8d", *WHY], 2, "more than 7d"),
        (["phase", "pause", "Reserve", "--for", "", *WHY], 2, "--for: '' is no length of time"),
        (["phase", "pause", "Reserve", "--reason", "x" * 100_000], 2, "--reason: 100,000 characters are too many"),
        (["phase", "pause", "Reserve"], 2, "Missing option '--reason' / '-r' (see booking-expiration phase pause --help)"),
        (["release-hold", "--up-to", "-1", *WHY], 2, "--up-to: -1 is not from 0"),
    ],
)
async def test_a_mistake_is_one_line_and_changes_nothing(
    world: World, admin: Admin, arguments: list[str], code: int, words: str
) -> None:
    """Issue 4, bad input: a clear line that says what to do, a non-zero exit, nothing changed and nothing written."""
    done = await call(world, *arguments)
    assert (done.code, done.out, done.err.count("\n"), words in done.err) == (code, "", 1, True), done
    assert await acts(admin) == []
    assert await admin.fetchval("SELECT count(*) FROM crm.phase_pauses WHERE paused_at IS NOT NULL") == 0


@pytest.mark.parametrize(
    ("arguments", "table"),
    [(["phase", "pause", "Reserve"], "phase_pauses"), (["release-hold", "--up-to", "5"], "safety_catch")],
)
async def test_a_missing_grant_is_named(world: World, admin: Admin, arguments: list[str], table: str) -> None:
    """Issue 4 §4: without its rights the command says which table it may not change; nothing is written."""
    await admin.execute(f"REVOKE ALL ON crm.{table} FROM booking_expiration_operator")
    done = await call(world, *arguments, *WHY)
    assert (done.code, table in done.err, len(done.err.splitlines())) == (1, True, 1), done
    assert await acts(admin) == []


@pytest.mark.parametrize(
    "arguments", [["cycle", "list"], ["cycle", "stop", *WHY], ["drain", "status"], ["drain", "--cap", "5", *WHY]]
)
async def test_an_unreachable_temporal_is_one_line(world: World, admin: Admin, arguments: list[str]) -> None:
    """Issue 4, bad input: a server that is not there is named, with a non-zero exit; nothing is written."""
    done = await call(world, *arguments, TEMPORAL_ADDRESS="localhost:1")
    assert (done.code, "Temporal at localhost:1" in done.err, len(done.err.splitlines())) == (1, True, 1), done
    assert await acts(admin) == []
