"""`BookingExpirationResume` on a real server: a pause ends by itself, and nobody else's does (issue 4, section 4)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeAlias
from uuid import uuid4

import pytest
from temporalio import activity, workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer, Worker

from activities import schedule_note, schedule_state
from activities.cycle_frame import CycleFrame
from activities.resume_messages import ResumeOrder, ResumeResult
from activities.resume_schedule import ResumeSchedule
from activities.schedule_note import NOTE, Pause
from activities.schedule_state import altered
from db.unit_of_work import Pool, open_pool
from tests.conftest import Administrator, Database
from tests.workflow.recording import ends_canceled, has_event, in_hand, locked, metadata, tried_again
from workflows import schedule
from workflows.resume_later import BookingExpirationResume
from workflows.sandbox import guarded_runner
from workflows.schedule import ScheduleSettings

Handle: TypeAlias = WorkflowHandle[BookingExpirationResume, ResumeResult]
UNTIL = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)


class Bench:
    """A paused schedule, and a timer for its pause."""

    def __init__(self, client: Client, name: str) -> None:
        self.client, self.name = client, name
        self.order = ResumeOrder(name, "0123456789ab", 0.3, UNTIL, "anna@host", "wrong deadlines")

    async def pause(self, mark: str = "0123456789ab") -> None:
        """As `schedule pause --for` does."""
        note = schedule_note.paused(Pause("anna@host", UNTIL, "wrong deadlines", UNTIL, mark))
        await schedule_state.change(self.client, self.name, lambda state: altered(state, paused=True, note=note))

    async def start(self, seconds: float = 0.3) -> Handle:
        """The timer of that pause."""
        order = replace(self.order, seconds=seconds)
        return await self.client.start_workflow(BookingExpirationResume.run, order, id=str(uuid4()), task_queue=self.name)

    async def state(self) -> tuple[bool, str]:
        """Paused or not, and the note."""
        state = (await schedule_state.existing(self.client, self.name)).schedule.state
        return state.paused, state.notes


def worker(bench: Bench, pool: Pool, step: Callable[..., Awaitable[Any]] | None = None) -> Worker:
    """A worker with the real activity, or with another one in its place."""
    return Worker(
        bench.client,
        task_queue=bench.name,
        workflows=[BookingExpirationResume],
        activities=[step or ResumeSchedule(bench.client, pool).resume_schedule, CycleFrame(pool).record_acts],
        workflow_runner=guarded_runner(),
    )


@pytest.fixture
async def bench(client: Client) -> AsyncIterator[Bench]:
    """A schedule of this test's own, paused with a mark."""
    name = f"resume-{uuid4()}"
    await schedule.ensure(client, ScheduleSettings(name, name, 200))
    made = Bench(client, name)
    await made.pause()
    yield made
    await client.get_schedule_handle(name).delete()


async def _acts(admin: Administrator) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in await admin.fetch("SELECT actor, action, reason FROM crm.operator_actions ORDER BY id")]


async def test_a_pause_ends_by_itself(bench: Bench, pool: Pool, admin: Administrator) -> None:
    """Issue 4, section 4: not before its time, then running, its note restored, one row of operator_actions; the rest stays."""
    before = await schedule_state.existing(bench.client, bench.name)
    async with worker(bench, pool):
        handle = await bench.start(seconds=1.5)
        await asyncio.sleep(0.7)
        assert (await bench.state())[0]
        assert await handle.result() == ResumeResult(resumed=True, because="the time is over")
    paused, note = await bench.state()
    assert (paused, note.startswith(f"{NOTE}\n\nResumed by timer for anna@host at 2")) == (False, True)
    assert note.endswith("UTC: the pause is over: wrong deadlines (mark 0123456789ab)")
    assert await _acts(admin) == [("timer for anna@host", "resume_schedule", "wrong deadlines")]
    after = await schedule_state.existing(bench.client, bench.name)
    assert schedule.differences(after.schedule, before.schedule) == []


async def test_a_later_pause_by_another_timer_stays(bench: Bench, pool: Pool, admin: Administrator) -> None:
    """Issue 4, section 4: pausing twice, the later one wins: the first timer leaves the second one's pause alone."""
    await bench.pause("ba9876543210")
    async with worker(bench, pool):
        result = await (await bench.start()).result()
    assert result == ResumeResult(resumed=False, because="left alone: paused anew")
    assert (await bench.state())[0]
    assert await _acts(admin) == []


async def test_a_later_pause_in_the_web_ui_stays(bench: Bench, pool: Pool) -> None:
    """Issue 4, section 4: the Web UI's pause replaces the note, and with it the mark."""
    await bench.client.get_schedule_handle(bench.name).pause(note="INC-123, ask Bob")
    async with worker(bench, pool):
        assert not (await (await bench.start()).result()).resumed
    assert await bench.state() == (True, "INC-123, ask Bob")


async def test_resumed_by_hand_before(bench: Bench, pool: Pool, admin: Administrator) -> None:
    """Issue 4, section 4: the timer finds nothing to do, and the note of whoever resumed stays."""
    await schedule_state.change(bench.client, bench.name, lambda state: altered(state, paused=False, note=NOTE))
    async with worker(bench, pool):
        result = await (await bench.start()).result()
    assert result.because == "left alone: not paused any more"
    assert (await bench.state(), await _acts(admin)) == ((False, NOTE), [])


async def test_no_schedule_any_more(bench: Bench, pool: Pool) -> None:
    """Issue 4, section 4: a deleted schedule is no reason to try for ever."""
    async with worker(bench, pool):
        handle = await bench.client.start_workflow(
            BookingExpirationResume.run,
            replace(bench.order, schedule_id="nowhere"),
            id=str(uuid4()),
            task_queue=bench.name,
        )
        assert (await handle.result()).because == "there is no schedule nowhere any more"


async def test_it_outlives_trouble(bench: Bench, database: Database, admin: Administrator) -> None:
    """Issue 4, section 4: a missing right, which no repetition heals, is waited out until somebody grants it."""
    grant = "INSERT ON crm.operator_actions {} booking_expiration_worker"
    await admin.execute(f"REVOKE {grant.format('FROM')}")
    pool = await open_pool(database.worker)
    async with worker(bench, pool):
        handle = await bench.start(seconds=0.1)
        while not (tried := (await handle.describe()).raw_description.pending_activities) or tried[0].attempt < 2:  # noqa: ASYNC110 # only the server knows
            await asyncio.sleep(0.1)
        assert (await bench.state())[0]
        await admin.execute(f"GRANT {grant.format('TO')}")
        assert (await handle.result()).resumed
    pool.terminate()


async def test_a_repeated_attempt_changes_nothing(bench: Bench, pool: Pool, admin: Administrator) -> None:
    """Issue 4, section 4: an attempt whose answer was lost has resumed; the next one says so and writes no second row."""
    real, attempts = ResumeSchedule(bench.client, pool), []

    @activity.defn(name="resume_schedule")
    async def losing(order: ResumeOrder) -> ResumeResult:
        result = await real.resume_schedule(order)
        attempts.append(result)
        if len(attempts) == 1:
            raise ConnectionError("the answer is lost")
        return result

    async with worker(bench, pool, losing):
        assert (await (await bench.start(seconds=0.1)).result()).resumed
    assert ([result.resumed for result in attempts], len(await _acts(admin))) == ([True, True], 1)


@pytest.mark.parametrize(
    ("reason", "written"),
    [
        ("stays\npaused", [("not given (Temporal Web UI or API)", "cancel_resume", "stays paused")]),
        ("", [("not given (Temporal Web UI or API)", "cancel_resume", "not given")]),
        ("stays paused (operator action 17)", []),
    ],
)
async def test_a_cancel_is_written_down(
    bench: Bench, pool: Pool, admin: Administrator, reason: str, written: list[tuple[str, ...]]
) -> None:
    """Issue 4, section 4: the timer's page recommends a cancel there: it is a row, and the pause has no end any more."""
    async with worker(bench, pool):
        handle = await bench.start(seconds=600)
        await has_event(handle, "timer_started_event_attributes")
        await handle.cancel(reason=reason)
        await ends_canceled(handle)
        assert (await metadata(handle)).current_details == "Cancelled. The pause has no end any more"
    assert ((await bench.state())[0], await _acts(admin)) == (True, written)


async def test_a_cancel_that_comes_too_late(bench: Bench, database: Database, pool: Pool, admin: Administrator) -> None:
    """Trap 10: the attempt in hand resumes all the same; both are written down, and Canceled is shown only after that."""
    async with worker(bench, pool):
        async with locked(database, "crm.operator_actions"):
            handle = await bench.start(seconds=0.1)
            await in_hand(handle, "resume_schedule")
            await handle.cancel(reason="stays paused")
            await has_event(handle, "activity_task_cancel_requested_event_attributes")
        await ends_canceled(handle)
    assert not (await bench.state())[0]
    assert [action for _, action, _ in await _acts(admin)] == ["resume_schedule", "cancel_resume"]


async def test_a_cancel_between_two_attempts(bench: Bench, pool: Pool) -> None:
    """Issue 4, section 4: an attempt may have resumed and failed after that: then nobody is told that the pause goes on."""

    @activity.defn(name="resume_schedule")
    async def resumes_and_fails(order: ResumeOrder) -> ResumeResult:
        await ResumeSchedule(bench.client, pool).resume_schedule(order)
        raise ConnectionError("the answer is lost")

    async with worker(bench, pool, resumes_and_fails):
        handle = await bench.start(seconds=0.1)
        await tried_again(handle)
        await handle.cancel(reason="stays paused")
        await ends_canceled(handle)
        details = (await metadata(handle)).current_details
    assert not (await bench.state())[0]
    assert details == "Cancelled. An attempt was in hand: `booking-expiration schedule show` says whether it resumed"


async def test_a_timer_whose_reason_cannot_be_stored_ends_the_pause(bench: Bench, pool: Pool, admin: Administrator) -> None:
    """Issue 4, section 4: one that was started by hand with a NUL in its words would try for ever, and the pause would stay."""
    bench.order = replace(bench.order, reason="a\0b\x1b[31m", actor="anna\0")
    async with worker(bench, pool):
        assert (await asyncio.wait_for((await bench.start()).result(), 20)).resumed
    assert await _acts(admin) == [("timer for anna", "resume_schedule", "a b [31m")]


async def test_a_run_replays(bench: Bench, pool: Pool) -> None:
    """Trap 1, design card: the sandbox's guard accepts the workflow, and a finished run replays."""
    async with worker(bench, pool):
        handle = await bench.start(seconds=0.1)
        await handle.result()
    replayer = Replayer(
        workflows=[BookingExpirationResume], data_converter=pydantic_data_converter, workflow_runner=guarded_runner()
    )
    await replayer.replay_workflow(await handle.fetch_history())


def test_names_on_the_wire() -> None:
    """Layout rule 8: names and fields that a running timer depends on."""
    assert workflow._Definition.must_from_class(BookingExpirationResume).name == "BookingExpirationResume"
    assert activity._Definition.must_from_callable(ResumeSchedule.resume_schedule).name == "resume_schedule"
    assert [*ResumeOrder.__annotations__] == ["schedule_id", "mark", "seconds", "until", "actor", "reason"]
    assert [*ResumeResult.__annotations__] == ["resumed", "because"]
