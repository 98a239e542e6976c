"""The schedule on a real dev server (trap 8): created once, kept up to date, and never taken out of an operator's hands."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from temporalio.client import Client, ScheduleHandle, ScheduleOverlapPolicy

from tests.workflow.steps import Steps, hang_until_cancelled, running
from workflows import schedule
from workflows.expiration_cycle import EXECUTION_TIMEOUT
from workflows.schedule import ScheduleSettings


@pytest.fixture
async def settings(client: Client) -> AsyncIterator[ScheduleSettings]:
    """A schedule of this test's own, deleted afterwards."""
    name = f"schedule-{uuid4()}"
    yield ScheduleSettings(name, name, 200)
    await client.get_schedule_handle(name).delete()


def _handle(client: Client, settings: ScheduleSettings) -> ScheduleHandle:
    return client.get_schedule_handle(settings.schedule_id)


async def test_d1_every_minute_without_overlap(client: Client, settings: ScheduleSettings) -> None:
    """D1, L1: every full minute of the UTC clock, overlap SKIP, catch-up 60 s, no retries, 150 s a run."""
    assert await schedule.ensure(client, settings) == "created"
    described = await _handle(client, settings).describe()
    policy, action = described.schedule.policy, described.schedule.action
    assert (policy.overlap, policy.catchup_window) == (ScheduleOverlapPolicy.SKIP, timedelta(seconds=60))
    assert not policy.pause_on_failure
    assert (action.workflow, action.execution_timeout, action.retry_policy) == (  # type: ignore[attr-defined] # one kind of action
        "BookingExpirationCycle",
        EXECUTION_TIMEOUT,
        None,
    )
    first, second = described.info.next_action_times[:2]
    assert (first.second, first.microsecond, second - first) == (0, 0, timedelta(minutes=1))
    assert first - datetime.now(UTC) <= timedelta(minutes=1)


async def test_trap_41_applied_twice_changes_nothing(client: Client, settings: ScheduleSettings) -> None:
    """Trap 41: what the server returns equals what the code wants, so a second start does not write."""
    await schedule.ensure(client, settings)
    before = await schedule.describe(client, settings.schedule_id)
    assert await schedule.ensure(client, settings) == "unchanged"
    after = await schedule.describe(client, settings.schedule_id)
    assert before is not None
    assert after is not None
    assert before.conflict_token == after.conflict_token


async def test_trap_5_two_at_once_after_a_pause_with_a_note(client: Client, settings: ScheduleSettings) -> None:
    """Trap 5, D1: two workers of a new version update it once, and pause and note stay as the operator left them."""
    assert min(await asyncio.gather(*(schedule.ensure(client, settings) for _ in range(3)))) == "created"
    await _handle(client, settings).pause(note="deadlines are being corrected, Anna")
    newer = ScheduleSettings(settings.schedule_id, settings.task_queue, 100)
    assert "updated" in await asyncio.gather(*(schedule.ensure(client, newer) for _ in range(3)))
    described = await schedule.describe(client, settings.schedule_id)
    assert described is not None
    assert (described.schedule.state.paused, described.schedule.state.notes) == (True, "deadlines are being corrected, Anna")
    [argument] = described.schedule.action.start_workflow.input.payloads
    assert argument.data == b'{"batch_size":100}'


async def test_l1_overlap_skips_and_the_tick_after_a_hung_run_works(client: Client, settings: ScheduleSettings) -> None:
    """L1, L4, trap 6: a trigger while a cycle runs is skipped; once the hung one is gone the next one does its work."""
    steps, handle = Steps(), _handle(client, settings)
    steps.behave["Reserve"] = hang_until_cancelled
    await schedule.ensure(client, settings)
    async with running(client, steps, settings.task_queue), asyncio.timeout(30):
        await handle.trigger()
        await steps.called["Reserve"].wait()
        await handle.trigger()
        while not (info := (await handle.describe()).info).num_actions_skipped_overlap:  # noqa: ASYNC110 # only the server knows
            await asyncio.sleep(0.1)
        steps.behave.clear()
        await client.get_workflow_handle(info.running_actions[0].workflow_id).terminate()  # type: ignore[attr-defined] # ditto
        while "close_cycle" not in steps.calls:
            await handle.trigger()
            await asyncio.sleep(0.3)
    assert steps.calls.count("open_cycle") >= 2
