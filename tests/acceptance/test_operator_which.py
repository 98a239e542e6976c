"""Which cycle or drain is meant: the one that runs, whoever started it and whatever its id (issue 4 sections 3 and 4)."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle

from tests.acceptance.command import WHY, call
from tests.acceptance.process import World, a_namespace, soon
from tests.floor import Admin
from workflows import schedule

CYCLE, DRAIN = "BookingExpirationCycle", "BookingExpirationDrain"
Start = Callable[..., Awaitable[str]]


@pytest.fixture
async def start(world: World) -> AsyncIterator[Start]:
    """Runs that nobody works on, as the Web UI's form starts them; each is listed already. Their end is the test's."""
    started = list["WorkflowHandle[Any, Any]"]()

    async def run(kind: str, workflow_id: str = "") -> str:
        order = {"cap": 5} if kind == DRAIN else {"batch_size": 200}
        started.append(await world.client.start_workflow(kind, order, id=workflow_id or str(uuid4()), task_queue=world.name))
        await _listed(world, len(started))
        return started[-1].id

    yield run
    for handle in started:
        if (await handle.describe()).status is WorkflowExecutionStatus.RUNNING:
            await handle.terminate()


async def _listed(world: World, count: int) -> None:
    async def listed() -> bool:
        query = f"TaskQueue = '{world.name}' AND ExecutionStatus = 'Running'"
        return (await world.client.count_workflows(query)).count == count

    await soon(listed, "the runs to be listed")


async def _targets(admin: Admin) -> list[tuple[str, str]]:
    return [tuple(row) for row in await admin.fetch("SELECT action, target FROM crm.operator_actions ORDER BY id")]


async def _signals(world: World, workflow_id: str) -> list[str]:
    events = world.client.get_workflow_handle(workflow_id).fetch_history_events()
    signals = [each.workflow_execution_signaled_event_attributes.signal_name async for each in events]
    return [name for name in signals if name]


async def test_a_drain_under_an_id_of_its_own_is_stopped(world: World, admin: Admin, start: Start) -> None:
    """Issue 4 §3: the Web UI's form gives a random id; `drain stop` must not say that none runs while it expires bookings."""
    drain = await start(DRAIN)
    assert json.loads((await call(world, "drain", "status", "--json")).out)["run"]["workflow_id"] == drain
    another = await call(world, "drain", "--cap", "5", *WHY)
    assert (another.code, f"a drain is running already ({drain})" in another.err) == (1, True), another
    assert (await call(world, "drain", "stop", *WHY)).code == 0
    assert (await _signals(world, drain), await _targets(admin)) == (["stop"], [("stop_drain", f"workflow/{drain}")])


async def test_of_several_drains_a_person_names_one(world: World, admin: Admin, start: Start) -> None:
    """Issue 4 §3: with two drains nothing is guessed: both are named, nothing is changed; by its id either one is stopped."""
    drains = [await start(DRAIN, f"{world.name}-drain"), await start(DRAIN)]
    for command in (["stop", *WHY], ["limits", "--cap", "3", *WHY], ["status"]):
        done = await call(world, "drain", *command)
        assert (done.code, done.out, done.err.count("\n"), [each in done.err for each in drains]) == (1, "", 1, [True, True]), (
            done
        )
    assert await _targets(admin) == []
    assert (await call(world, "drain", "stop", drains[1], *WHY)).code == 0
    assert ([await _signals(world, each) for each in drains], len(await _targets(admin))) == ([[], ["stop"]], 1)


async def test_a_cycle_of_another_schedule_is_left_alone(world: World, admin: Admin, start: Start) -> None:
    """Issue 4 §4: two schedules share a namespace, and the name of one begins the other's; without an id ours is meant."""
    theirs = await start(CYCLE, f"{world.name}-staging-2026-03-01T12:00:00Z")
    ours = {"BOOKING_EXPIRATION_TASK_QUEUE": f"{world.name}-production"}
    done = await call(world, "cycle", "cancel", *WHY, **ours)
    assert (done.code, "no cycle runs just now" in done.err, await _targets(admin)) == (1, True, [])
    assert (await call(world, "cycle", "cancel", theirs, *WHY, **ours)).code == 0


async def test_the_last_drain_is_told_of_whatever_its_id(world: World, start: Start) -> None:
    """Issue 4 §4: `drain status` tells how the last one ended; what is no drain, or runs no more, is left alone."""
    drain, cycle = await start(DRAIN), await start(CYCLE)
    await world.client.get_workflow_handle(drain).terminate()
    told = json.loads((await call(world, "drain", "status", "--json")).out)["run"]
    assert (told["workflow_id"], told["status"]) == (drain, "terminated")
    ended = await call(world, "drain", "stop", drain, *WHY)
    assert (ended.code, f"drain {drain} does not run: nothing was changed" in ended.err) == (1, True), ended
    other = await call(world, "drain", "stop", cycle, *WHY)
    assert (other.code, f"{cycle} is no drain but a cycle: booking-expiration cycle show" in other.err) == (1, True), other
    none = await call(world, "drain", "stop", *WHY)
    assert (none.code, "no drain runs just now: nothing was changed. One that has just begun" in none.err) == (1, True), none


@pytest.mark.parametrize("by_hand", [True, False], ids=["by-hand", "random"])
async def test_a_cycle_that_the_schedule_did_not_start(world: World, admin: Admin, start: Start, *, by_hand: bool) -> None:
    """Issue 4 §4: `cycle stop` and `cancel` without an id find the one that was started by hand, as `cycle list` shows it."""
    cycle = await start(CYCLE, f"{world.name}-by-hand-1" if by_hand else "")
    listed = json.loads((await call(world, "cycle", "list", "--json")).out)["cycles"]
    assert [each["workflow_id"] for each in listed] == [cycle]
    for command in ("stop", "cancel"):
        done = await call(world, "cycle", command, *WHY)
        assert (done.code, done.out.startswith(f"cycle {cycle} ")) == (0, True), done
    assert await _targets(admin) == [("stop_cycle", f"workflow/{cycle}"), ("cancel_cycle", f"workflow/{cycle}")]


async def test_of_several_cycles_a_person_names_one(world: World, admin: Admin, start: Start) -> None:
    """Issue 4 §4: the schedule's cycle beside one by hand: both are named, nothing is changed; without the schedule, too."""
    by_hand, scheduled = await start(CYCLE, f"{world.name}-by-hand-1"), await world.trigger()
    await _listed(world, 2)
    for schedule_id in (world.name, f"{world.name}-deleted"):
        done = await call(world, "cycle", "cancel", *WHY, BOOKING_EXPIRATION_SCHEDULE_ID=schedule_id)
        assert (done.code, done.err.count("\n"), by_hand in done.err, scheduled.id in done.err) == (1, 1, True, True), done
    assert await _targets(admin) == []
    await scheduled.terminate()
    assert (await call(world, "cycle", "cancel", *WHY)).out.startswith(f"cycle {by_hand} is being cancelled")


async def test_outcomes_without_their_search_attribute(world: World) -> None:
    """D28: a namespace may lack it: what the server knows by itself is listed, else one line says who can help."""
    async with a_namespace(world) as fresh:
        await schedule.ensure(fresh.client, schedule.ScheduleSettings(fresh.name, fresh.name, 200))
        where = {"TEMPORAL_NAMESPACE": fresh.client.namespace}
        known = await call(fresh, "cycle", "list", "--outcome", "failed", "--json", **where)
        other = await call(fresh, "cycle", "list", "--outcome", "held", **where)
    lacking = "the namespace lacks the search attribute ExpirationOutcome; booking-expiration doctor says how to add it"
    assert (known.code, json.loads(known.out)["cycles"], known.err.startswith(f"warning: {lacking}")) == (0, [], True), known
    assert (other.code, other.out, other.err) == (1, "", f"{lacking}. Without --outcome all cycles are listed\n")
