"""A drain watched in a terminal: what Ctrl-C asks there, and what each answer does (issue 4, part 3)."""

import pytest
from temporalio.client import WorkflowExecutionStatus

from devstack.session_terminal import Key, Terminal
from tests import floor
from tests.acceptance.held import whole
from tests.acceptance.process import World
from tests.floor import MINUTE, Admin

QUESTION = "Stop the drain, too?"
START = 'booking-expiration drain --cap 400 --pause 10m --reason "INC-7: for the test"'


async def _watched(world: World, admin: Admin, answer: str) -> str:
    """What a person sees who starts a drain of 400, presses Ctrl-C while it rests after 200, and gives this answer."""
    await floor.add(admin, 500, await floor.clock(admin) - MINUTE)
    await world.start()
    ours = {**world.environment({}), "BOOKING_EXPIRATION_OPERATOR_DATABASE_URL": world.database.operator}
    keys = [Key(r"200/400 .*pausing", "\x03"), Key(rf"{QUESTION.replace('?', '[?]')}.*\[y/N\]", answer)]
    return await Terminal(ours).run(START, keys=keys)


async def _acts(admin: Admin) -> list[tuple[str, str]]:
    rows = await admin.fetch("SELECT action, reason FROM crm.operator_actions ORDER BY id")
    return [(row["action"], row["reason"]) for row in rows]


@pytest.mark.slow
async def test_yes_stops_the_drain(world: World, admin: Admin) -> None:
    """Issue 4 §3: the drain ends early and whole, is watched to its end, and the stop is an operator's act."""
    shown = await _watched(world, admin, "y\n")
    assert all(words in shown for words in (QUESTION, "the drain ends after the batches in hand", "stopped")), shown
    result = await world.client.get_workflow_handle(f"{world.name}-drain").result()
    assert (result["Outcome"], result["ReserveExpiredCount"], await whole(admin)) == ("stopped", 200, 200)
    assert await _acts(admin) == [("start_drain", "INC-7: for the test"), ("stop_drain", "Ctrl-C while watching")]


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["n\n", "\n", "\x03"], ids=["no", "enter", "Ctrl-C again"])
async def test_no_leaves_the_drain_running(world: World, admin: Admin, answer: str) -> None:
    """Issue 4 §3: watching ends, also with Enter or another Ctrl-C; the drain goes on, and how to stop it is said."""
    shown = await _watched(world, admin, answer)
    assert all(words in shown for words in (QUESTION, "the drain goes on", "drain stop")), shown
    drain = world.client.get_workflow_handle(f"{world.name}-drain")
    assert (await drain.describe()).status is WorkflowExecutionStatus.RUNNING
    await drain.terminate()
    assert await _acts(admin) == [("start_drain", "INC-7: for the test")]
