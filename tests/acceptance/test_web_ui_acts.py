"""What operators do in the Web UI: the real worker's run writes it to `operator_actions` by itself (issue 4, part 4)."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle

from devstack import addresses
from tests import floor
from tests.acceptance.command import call
from tests.acceptance.held import batch_waits, close_gate, open_gate, whole
from tests.acceptance.process import World, soon
from tests.acceptance.web_ui import WebUi, a_browser
from tests.floor import MINUTE, Admin

NOBODY = "not given (Temporal Web UI or API)"
WHY = {"reason": "INC-7: wrong deadlines", "actor": "anna"}
_ACTS = "SELECT * FROM crm.operator_actions WHERE at BETWEEN $1 AND clock_timestamp() ORDER BY id"


@pytest.fixture
async def browser(world: World) -> AsyncIterator[WebUi]:
    """The Web UI of the test's Temporal."""
    if addresses.TEMPORAL_UI not in world.servers:
        pytest.skip(f"Temporal was given without its Web UI: {addresses.TEMPORAL_UI}")
    async with a_browser(world.servers[addresses.TEMPORAL_UI], world.client.namespace) as opened:
        yield opened


async def _hung(world: World, admin: Admin) -> WorkflowHandle[Any, Any]:
    """A cycle of the real worker whose first batch waits at the gate."""
    await floor.add(admin, 3, await floor.clock(admin) - MINUTE)
    await close_gate(admin, "write")
    await world.start()
    cycle = await world.cycle()
    await batch_waits(admin)
    return cycle


async def _drain(world: World, admin: Admin, browser: WebUi) -> WorkflowHandle[Any, Any]:
    """A drain that was started in the Web UI and rests after its first round of 200."""
    await floor.add(admin, 500, await floor.clock(admin) - MINUTE)
    await world.start()
    drain = world.client.get_workflow_handle(f"{world.name}-drain")
    await browser.start("BookingExpirationDrain", drain.id, world.name, {"cap": 400, "pause": 600, **WHY})

    async def resting() -> bool:
        return bool((await drain.query("progress"))["step"] == "pausing for 600 s")

    await soon(resting, "the rest after the first round")
    return drain


async def _ended(run: WorkflowHandle[Any, Any], status: WorkflowExecutionStatus) -> None:
    async def over() -> bool:
        return (await run.describe()).status is status

    await soon(over, f"the run's end as {status.name}")


async def _written(admin: Admin, run: WorkflowHandle[Any, Any], since: Any) -> list[tuple[str, str, str]]:
    """Who did what and why, in order; each row is of this run and was written since that moment."""
    rows = await admin.fetch(_ACTS, since)
    assert {row["target"] for row in rows} == {f"workflow/{run.id}"}
    assert len(rows) == await admin.fetchval("SELECT count(*) FROM crm.operator_actions")
    return [(row["actor"], row["action"], row["reason"]) for row in rows]


@pytest.mark.parametrize(
    ("typed", "who_and_why"),
    [
        pytest.param([WHY], ("anna", "INC-7: wrong deadlines"), id="who-and-why"),
        pytest.param([], (NOBODY, "not given"), id="nothing", marks=pytest.mark.slow),
        pytest.param([{"reason": "a\0b\x1b[31m\nc", "actor": "anna\0"}], ("anna", "a b [31m c"), id="odd"),
    ],
)
async def test_a_stop_of_a_cycle(
    world: World, admin: Admin, browser: WebUi, typed: list[Any], who_and_why: tuple[str, str]
) -> None:
    """Issue 4 §4: a signal from its form, filled in or not: the batch in hand commits; who, when, what and why are a row."""
    since, cycle = await floor.clock(admin), await _hung(world, admin)
    await browser.signal(cycle.id, "stop_after_current_batch", *typed)
    await open_gate(admin)
    assert (await cycle.result())["Outcome"] == "stopped"
    assert await _written(admin, cycle, since) == [(who_and_why[0], "stop_cycle", who_and_why[1])]
    assert await whole(admin) == 3


@pytest.mark.parametrize(
    ("given", "why"),
    [
        pytest.param({"reason": "INC-7: too slow"}, "INC-7: too slow", id="why"),
        pytest.param({}, "not given", id="nothing", marks=pytest.mark.slow),
    ],
)
async def test_a_cancel_of_a_cycle(world: World, admin: Admin, browser: WebUi, given: dict[str, str], why: str) -> None:
    """Issue 4 §4: a cancel, with a reason and without: nothing is half done, and a row says that it was in the Web UI."""
    since, cycle = await floor.clock(admin), await _hung(world, admin)
    await browser.cancel(cycle.id, **given)
    await _ended(cycle, WorkflowExecutionStatus.CANCELED)
    assert await _written(admin, cycle, since) == [(NOBODY, "cancel_cycle", why)]
    assert await whole(admin) == 0


async def test_a_drain_from_its_form_to_its_stop(world: World, admin: Admin, browser: WebUi) -> None:
    """Issue 4 §3 and §4: started, limits changed, stopped: each act is a row, the change with before and after."""
    since, drain = await floor.clock(admin), await _drain(world, admin, browser)
    told = await browser.update(drain.id, "set_limits", {"cap": 450, "pause": 300, "reason": "it goes well", "actor": "boris"})
    assert "success" in told, told
    await browser.signal(drain.id, "stop", WHY)
    assert (await drain.result())["Outcome"] == "stopped"
    assert await _written(admin, drain, since) == [
        ("anna", "start_drain", "INC-7: wrong deadlines"),
        ("boris", "set_drain_limits", "it goes well"),
        ("anna", "stop_drain", "INC-7: wrong deadlines"),
    ]
    details = json.loads(await admin.fetchval("SELECT details FROM crm.operator_actions WHERE action = 'set_drain_limits'"))
    assert (details["before"], details["after"]) == ({"cap": 400, "pause": 600.0}, {"cap": 450, "pause": 300.0})


@pytest.mark.slow
async def test_a_refused_update_is_no_act(world: World, admin: Admin, browser: WebUi) -> None:
    """Issue 4 §3: nine lanes are refused with the reason that the form then shows; nothing is written of it."""
    since, drain = await floor.clock(admin), await _drain(world, admin, browser)
    told = await browser.update(drain.id, "set_limits", {"lanes": 9, **WHY})
    assert "lanes is 9: it must be 1 to 8" in json.dumps(told["failure"])
    await browser.signal(drain.id, "stop", WHY)
    await drain.result()
    assert [action for _, action, _ in await _written(admin, drain, since)] == ["start_drain", "stop_drain"]


@pytest.mark.slow
async def test_a_cancel_of_a_drain(world: World, admin: Admin, browser: WebUi) -> None:
    """Issue 4 §4: a cancel while it rests: what was committed stays, whole, and the act is a row."""
    since, drain = await floor.clock(admin), await _drain(world, admin, browser)
    await browser.cancel(drain.id, reason="INC-7: enough")
    await _ended(drain, WorkflowExecutionStatus.CANCELED)
    assert (await _written(admin, drain, since))[1:] == [(NOBODY, "cancel_drain", "INC-7: enough")]
    assert await whole(admin) == 200


async def test_a_cancel_of_a_timer(world: World, admin: Admin, browser: WebUi) -> None:
    """Issue 4 §4: what the timer's own page proposes, so that a pause stays: it is a row like any other act."""
    await world.start()
    paused = await call(world, "schedule", "pause", "--for", "30m", "--replace", "--reason", "INC-7: wrong deadlines", "--json")
    assert paused.code == 0, paused
    since, timer = await floor.clock(admin), world.client.get_workflow_handle(json.loads(paused.out)["timer"])
    await browser.cancel(timer.id, reason="INC-7: stays paused")
    await _ended(timer, WorkflowExecutionStatus.CANCELED)
    rows = await admin.fetch(_ACTS, since)
    assert [(row["actor"], row["action"], row["target"], row["reason"]) for row in rows] == [
        (NOBODY, "cancel_resume", f"workflow/{timer.id}", "INC-7: stays paused")
    ]
    assert (await world.client.get_schedule_handle(world.name).describe()).schedule.state.paused
