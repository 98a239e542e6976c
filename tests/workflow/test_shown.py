"""What the Web UI shows: descriptions, summaries, poison, outcomes to filter by, a drain that goes on as new (issue 4 §1)."""

import re
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment

from activities.drain_messages import DrainLimits, DrainOrder, DrainOutcome, DrainProgress
from activities.messages import BatchResult, CycleProgress, OpenedCycle, Outcome, PhasePause, StopRequest
from devstack.schema import program
from domain.events import Phase
from operators import drain, drain_view
from tests.acceptance.command import call
from tests.acceptance.conftest import world
from tests.acceptance.process import ROOT, World
from tests.workflow.recording import Here, here, metadata
from tests.workflow.steps import AS_OF, Steps, refuse, running, start, start_drain
from workflows import details, schedule
from workflows.drain import BookingExpirationDrain
from workflows.expiration_cycle import BookingExpirationCycle
from workflows.search_attributes import ALL, OUTCOME

__all__ = ["here", "world"]
SUGGESTED_AFTER = 20
"""Events of a history after which the server below suggests to go on as new; a real one waits for 4,096."""


async def test_a_drains_forms_explain_themselves(client: Client) -> None:
    """Issue 4 §1, trap 20: each signal, query and update says what it does, and those with input name its fields."""
    async with running(client, Steps()) as queue:
        handle = await start_drain(client, queue, DrainOrder(cap=1))
        await handle.result()
        told = (await metadata(handle)).definition
    [stop], [set_limits] = told.signal_definitions, told.update_definitions
    progress = {each.name: each.description for each in told.query_definitions}["progress"]
    assert (stop.name, set_limits.name) == ("stop", "set_limits")
    assert all(words in stop.description for words in ("commit", "published", "nothing new starts", "reason", "actor"))
    assert all(words in progress for words in ("Limits", "so far", "rate", "time left"))
    assert [field for field in DrainLimits.model_fields if field not in set_limits.description] == ["recorded"]
    assert "1 to 8" in set_limits.description
    assert "seconds" in set_limits.description


async def test_a_cycle_of_the_schedule_says_what_it_does(world: World) -> None:
    """Issue 4 §1: static summary and details of what the schedule starts: what it does, that a cancel is safe, the runbook."""
    cycle = await world.trigger()
    described = await cycle.describe()
    summary, details = await described.static_summary(), await described.static_details()
    await cycle.terminate()
    assert (summary, details) == (schedule.SUMMARY, schedule.DETAILS)
    assert all(words in schedule.DETAILS for words in ("Safe to cancel", "runbooks/booking-expiration.md"))


async def test_a_drain_of_the_command_says_what_it_does(world: World) -> None:
    """Issue 4 §1: static summary and details of the command's drain: its cap and lanes, how to stop it, the runbook."""
    done = await call(world, "drain", "--cap", "1500", "--lanes", "3", "--detach", "--reason", "INC-7: for the test")
    assert done.code == 0, done
    handle = world.client.get_workflow_handle(f"{world.name}-drain")
    described = await handle.describe()
    summary, details = await described.static_summary(), await described.static_details()
    await handle.terminate()
    assert (summary, details) == ("Drain: up to 1,500 bookings, 3 batches at once", drain.DETAILS)
    assert all(words in drain.DETAILS for words in ("`stop`", "`set_limits`", "cancel", "runbooks/booking-expiration.md"))


def _named(details: str, ids: list[UUID]) -> list[UUID]:
    return [each for each in ids if str(each) in details]


async def test_a_cycle_names_the_first_20_poison_bookings(client: Client) -> None:
    """Issue 4 §1: 25 of each phase are poison: 50 are counted, the first 20 are named, in progress and in current details."""
    steps, ids = Steps(), [uuid4() for _ in range(40)]
    reserve = BatchResult(poison_count=25, poison_ids=ids[:20])
    booking = BatchResult(poison_count=25, poison_ids=ids[20:])
    steps.behave = {"Reserve": _answering(reserve), "Booking": _answering(booking)}
    async with running(client, steps) as queue:
        handle = await start(client, queue)
        await handle.result()
        progress, shown = await handle.query(BookingExpirationCycle.progress), (await metadata(handle)).current_details
    assert (progress.poison_count, progress.poison_ids, _named(shown, ids)) == (50, ids[:20], ids[:20])
    assert "poison: 50, the first 20" in shown


async def test_a_drain_names_the_first_20_poison_bookings(client: Client) -> None:
    """Issue 4 §1: each batch meets the same 30 and names 20 of them: 30 are counted, 20 are named."""
    steps, ids = Steps(), [uuid4() for _ in range(30)]
    steps.due = {Phase.RESERVE: 32, Phase.BOOKING: 0}
    batches = iter([ids[:20], ids[10:], ids[10:]])

    async def batch() -> BatchResult:
        taken = await steps.take()
        return taken.model_copy(update={"poison_count": 30, "poison_ids": next(batches)})

    steps.behave["Reserve"] = batch
    async with running(client, steps) as queue:
        handle = await start_drain(client, queue, DrainOrder(cap=2, batch_size=1))
        await handle.result()
        progress, shown = await handle.query(BookingExpirationDrain.progress), (await metadata(handle)).current_details
    assert (progress.so_far.poison_ids, _named(shown, ids)) == (ids[:20], ids[:20])
    assert "poison: 30, the first 20" in shown


def _answering(answer: Any) -> Any:
    async def answered() -> Any:
        return answer

    return answered


@pytest.mark.parametrize("outcome", [Outcome.STOPPED, Outcome.HELD, Outcome.FAILED, Outcome.PAUSED])
async def test_d28_a_cycle_is_found_by_its_outcome(client: Client, outcome: Outcome) -> None:
    """D28, issue 4 §1: the outcomes that somebody looks for at night are values of the search attribute, too."""
    steps = Steps()
    kept = {"allowed": 0, "hold_above": 1} if outcome is Outcome.HELD else {}
    paused = [PhasePause(phase=Phase.BOOKING, reason="why", actor="anna")] if outcome is Outcome.PAUSED else []
    opened = OpenedCycle(as_of=AS_OF, search_attributes=[key.name for key in ALL], paused=paused, **kept)
    steps.behave["open_cycle"] = _answering(opened)
    async with running(client, steps) as queue:

        async def batch() -> BatchResult:
            if outcome is Outcome.FAILED:
                await refuse()
            if outcome is Outcome.STOPPED:
                stop = BookingExpirationCycle.stop_after_current_batch
                await client.get_workflow_handle(queue).signal(stop, StopRequest(reason="why", actor="anna"))
            return BatchResult()

        steps.behave["Reserve"] = batch
        handle = await start(client, queue)
        try:
            await handle.result()
        except WorkflowFailureError:
            assert outcome is Outcome.FAILED
        found = (await handle.describe()).typed_search_attributes
    assert found.get(OUTCOME) == outcome


@pytest.mark.parametrize("recorded", [None, 17])
async def test_d28_a_cycle_that_was_stopped_at_once_is_found_by_its_outcome(client: Client, recorded: int | None) -> None:
    """D28, issue 4 §2: it never opened, and so learns from closing which search attributes exist; whoever stopped it."""
    steps, queue, stop = Steps(), f"stopped-{uuid4()}", StopRequest(reason="why", actor="anna", recorded=recorded)
    steps.search_attributes = [key.name for key in ALL]
    handle = await client.start_workflow(
        "BookingExpirationCycle", id=queue, task_queue=queue, start_signal="stop_after_current_batch", start_signal_args=[stop]
    )
    async with running(client, steps, queue):
        await handle.result()
        found = (await handle.describe()).typed_search_attributes
    assert (steps.calls[0], [found.get(key) for key in ALL]) == ("close_cycle", ["stopped", 0, 0, 0])


HERE = "https://git.example/booking-expiration"
LIMITS = DrainOrder(cap=5).model_dump(include={"cap", "lanes", "time_budget", "pause"})
LINKS: dict[str, Callable[[str], str]] = {
    "Cycle failed": partial(details.of_cycle, CycleProgress(failures=["expire_batch: no such table"])),
    "Held": partial(details.of_cycle, CycleProgress(held=True)),
    "": partial(details.of_cycle, CycleProgress()),
    "While a drain runs": partial(details.of_drain, DrainProgress(limits=DrainLimits(**LIMITS))),
}


@pytest.mark.parametrize("section", LINKS)
def test_the_runbook_is_a_link(section: str) -> None:
    """Issue 4 §1: it leads to the section for what is seen, which is there; without an address the words are the same."""
    shown = [LINKS[section](url).splitlines()[-1] for url in ("", HERE, f"{HERE}/")]
    words = details.RUNBOOK + (f", {section}" if section else "")
    place = f"{HERE}/{details.RUNBOOK}" + (f"#{section.lower().replace(' ', '-')}" if section else "")
    assert shown == [f"- runbook: {words}", *[f"- runbook: [{words}]({place})"] * 2]
    headings = re.findall(r"^#+ (.*)$", (ROOT / details.RUNBOOK).read_text(encoding="utf-8"), re.MULTILINE)
    assert not section or section in headings


@pytest.mark.parametrize(
    ("rate", "said"),
    [(1234.4, "1,234 bookings/s"), (1 / 6, "10 bookings/min"), (1 / 600, "0.1 bookings/min"), (0, "0 bookings/s")],
)
def test_a_drains_rate_is_never_rounded_to_nothing(rate: float, said: str) -> None:
    """Issue 4 §3: with pauses it is often below one a second: then it is said per minute, in the Web UI and by the command."""
    now = DrainProgress(limits=DrainLimits(**LIMITS), rate=rate)
    assert f"in 0 batches, {said}, left" in details.of_drain(now)
    assert drain_view._said(now) == f"{said.replace(' bookings', '')}; starting"


async def test_the_settings_say_where_the_runbook_is(here: Here) -> None:
    """Issue 4 §1: the worker's setting reaches the page of a cycle and of a drain."""
    cycle = await here.cycle(runbook_url=HERE)
    await cycle.result()
    drain = await here.world.client.start_workflow(
        "BookingExpirationDrain", {"cap": 5}, id=f"{here.world.name}-drain", task_queue=here.world.name
    )
    await drain.result()
    for run in (cycle, drain):
        assert f"]({HERE}/runbooks/booking-expiration.md" in (await metadata(run)).current_details


@pytest.fixture
async def suggesting() -> AsyncIterator[Client]:
    """A server of its own that suggests a new run early: the stack's is everybody's, and its limit is for all."""
    limit = f"limit.historyCount.suggestContinueAsNew={SUGGESTED_AFTER}"
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=program("temporal"),
        dev_server_extra_args=["--dynamic-config-value", limit],
        data_converter=pydantic_data_converter,
    ) as environment:
        yield environment.client


async def test_a_drain_goes_on_as_new_when_the_server_suggests_it(suggesting: Client) -> None:
    """Issue 4 §3: long before its own count of rounds; nothing is counted twice or forgotten, and the cap holds over all runs."""
    steps = Steps()
    steps.due, steps.behave["Reserve"] = {Phase.RESERVE: 100, Phase.BOOKING: 0}, steps.take
    async with running(suggesting, steps) as queue:
        handle = await start_drain(suggesting, queue, DrainOrder(cap=45, batch_size=10))
        result = await handle.result()
        first = await suggesting.get_workflow_handle(queue, run_id=handle.first_execution_run_id).fetch_history()
    assert first.events[-1].HasField("workflow_execution_continued_as_new_event_attributes")
    assert SUGGESTED_AFTER <= len(first.events) < 3 * SUGGESTED_AFTER
    assert (result.outcome, result.reserve_expired_count, result.batches) == (DrainOutcome.CAP_REACHED, 45, 5)
