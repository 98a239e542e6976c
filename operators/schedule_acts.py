"""What operators do to the schedule: first written down in `operator_actions`, then done (issue 4, section 4)."""

import asyncio
import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from google.protobuf.json_format import MessageToDict
from temporalio.api.schedule.v1 import Schedule, ScheduleInfo, ScheduleState
from temporalio.client import Client
from temporalio.common import AutoUpgradeVersioningOverride
from temporalio.service import RPCError

from activities import schedule_note, schedule_state
from activities.resume_messages import ResumeOrder
from activities.resume_schedule import ACTION as RESUME
from activities.schedule_note import NOTE, Pause, moment
from activities.schedule_state import ScheduleConflictError, altered
from db import server
from db.unit_of_work import UnitOfWork
from operators import frame, pollers, timer
from operators.frame import CommandError
from operators.schedule_view import as_dict, who_paused
from settings import OperatorSettings
from workflows import resume_later, schedule

WRITE_LIMIT: Final = 10.0
"""Seconds that a pause may take to be in place; never longer than the pause itself, or its timer would look too early."""
SEEN_WITHIN: Final = 3.0
"""Seconds to wait for a triggered cycle to show."""
LOOK: Final = "look what holds now: booking-expiration schedule show"


@dataclass(frozen=True, slots=True)
class Done:
    """What an act came to: for people line by line, for programs as data; warnings for both."""

    data: dict[str, Any]
    lines: list[str]
    warnings: list[str] = field(default_factory=list)


async def apply(given: OperatorSettings, reason: str) -> str:
    """Create the schedule or bring it up to date (D1): `created`, `updated` or `unchanged`; the last one asks no database."""
    client, wanted = await frame.temporal(), schedule.ScheduleSettings(given.schedule_id, given.task_queue, given.batch_size)
    described, ours = await schedule.describe(client, given.schedule_id), await schedule.as_proto(client, wanted)
    there = described.schedule if described else Schedule()
    if not (parts := schedule.differences(there, ours)):
        return "unchanged"
    before, after = ({part: MessageToDict(getattr(each, part)) for part in parts} for each in (there, ours))
    details = {"change": "updated" if described else "created", "before": before, "after": after}
    await frame.write_down(given, "apply_schedule", f"schedule/{given.schedule_id}", reason, details)
    return await schedule.ensure(client, wanted)


async def pause(given: OperatorSettings, reason: str, limit: timedelta | None, *, replace: bool) -> Done:
    """Pause with a note that says who, when, why and until when; the timer starts first, so that no pause is without its end.

    Raises `CommandError` where somebody's pause without an end would get one, unless `replace`.
    """
    client = await frame.temporal()
    before = (await schedule_state.existing(client, given.schedule_id)).schedule.state
    earlier = who_paused(before)
    if limit and earlier and not earlier.until and not replace:
        raise CommandError(
            f"schedule {given.schedule_id} is paused without an end by {_told(earlier)}; a timer would resume that too. "
            "Leave --for out, or end it with --replace"
        )
    now = (await _clock(given)).replace(microsecond=0)  # as the note has it
    mark = secrets.token_hex(6) if limit else None
    wanted = Pause(frame.actor(), now, reason, now + limit if limit else None, mark)
    note = schedule_note.paused(wanted)
    await _write_down(given, "pause_schedule", reason, before, altered(before, paused=True, note=note))
    data: dict[str, Any] = {"schedule": given.schedule_id, "paused": True, "pause": as_dict(wanted), "replaced": as_dict(earlier)}
    if limit and mark and wanted.until:
        order = ResumeOrder(given.schedule_id, mark, limit.total_seconds(), wanted.until, wanted.by, reason)
        data["timer"] = await _start_timer(client, given, order)
    await _put(client, given, note, min(limit.total_seconds(), WRITE_LIMIT) if limit else WRITE_LIMIT)
    lines = [f"schedule {given.schedule_id}: paused, {_end(wanted)}"]
    lines += [f"this replaces the pause by {_told(earlier)}"] if earlier else []
    return Done(data, lines, await _nobody(client, given, "and nobody resumes until then") if limit else [])


async def resume(given: OperatorSettings, reason: str) -> Done:
    """Resume, and put the note right, also after a pause in the Web UI, which replaces it."""
    client = await frame.temporal()
    before = (await schedule_state.existing(client, given.schedule_id)).schedule.state
    data: dict[str, Any] = {"schedule": given.schedule_id, "paused": False, "ended": as_dict(who_paused(before))}
    if not before.paused and before.notes.startswith(NOTE):
        return Done(data | {"changed": False}, [f"schedule {given.schedule_id}: was not paused"])
    note = schedule_note.resumed(frame.actor(), await _clock(given), reason)
    await _write_down(given, RESUME, reason, before, altered(before, paused=False, note=note))
    await schedule_state.change(client, given.schedule_id, lambda state: altered(state, paused=False, note=note))
    what = "resumed, next cycle at the full minute" if before.paused else "was not paused; its note is put right"
    return Done(
        data | {"changed": True}, [f"schedule {given.schedule_id}: {what}"], await _nobody(client, given, "so no cycle can run")
    )


async def trigger(given: OperatorSettings, reason: str) -> Done:
    """Run a cycle now. Raises `CommandError` where the overlap policy drops it, known before or seen afterwards (trap 6)."""
    client = await frame.temporal()
    described = await schedule_state.existing(client, given.schedule_id)
    state, info = described.schedule.state, described.info
    if info.running_workflows:
        raise CommandError(_dropped(info.running_workflows[0].workflow_id))
    await _write_down(given, "trigger_schedule", reason, state, state)
    await client.get_schedule_handle(given.schedule_id).trigger()
    started = await _started(client, given.schedule_id, info)
    data = {"schedule": given.schedule_id, "paused": state.paused, "workflow_id": started[0], "run_id": started[1]}
    lines = [f"schedule {given.schedule_id}: triggered" + (", once, though it is paused" if state.paused else "")]
    if started[0]:
        place = f"/namespaces/{client.namespace}/workflows/{started[0]}/{started[1]}"
        lines += [f"workflow {started[0]}, run {started[1]}", f"in the Web UI: {place}"]
    else:
        lines += [f"no cycle has shown within {SEEN_WITHIN:.0f} s; {LOOK}"]
    return Done(data, lines, await _nobody(client, given, "so the cycle waits for one, 150 s at most"))


async def _clock(given: OperatorSettings) -> datetime:
    async with frame.database(given) as pool, UnitOfWork(pool) as connection:
        return await server.clock(connection)


async def _write_down(given: OperatorSettings, action: str, reason: str, before: ScheduleState, after: ScheduleState) -> None:
    details = {name: {"paused": state.paused, "note": state.notes} for name, state in (("before", before), ("after", after))}
    await frame.write_down(given, action, f"schedule/{given.schedule_id}", reason, details)


async def _start_timer(client: Client, given: OperatorSettings, order: ResumeOrder) -> str:
    started = await client.start_workflow(
        resume_later.BookingExpirationResume.run,
        order,
        id=timer.workflow_id(order.mark),
        task_queue=given.task_queue,
        static_summary=resume_later.SUMMARY,
        static_details=resume_later.details(order),
        # It may outlive a roll-out, and must not wait for the version that it began on (trap 16). Said here, because a worker
        # without a version refuses a workflow whose class says it.
        versioning_override=AutoUpgradeVersioningOverride(),
    )
    return started.id


async def _put(client: Client, given: OperatorSettings, note: str, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await schedule_state.change(client, given.schedule_id, lambda state: altered(state, paused=True, note=note))
    except (RPCError, ScheduleConflictError, TimeoutError) as error:
        problem = str(error) or f"no answer within {seconds:.0f} s"
        raise CommandError(f"the schedule may not be paused: {problem}; {LOOK}") from error


async def _started(client: Client, schedule_id: str, before: ScheduleInfo) -> tuple[str | None, str | None]:
    """Workflow id and run id of the cycle that the trigger started, as soon as it shows."""
    known = {action.start_workflow_result.run_id for action in before.recent_actions}
    deadline = asyncio.get_running_loop().time() + SEEN_WITHIN
    while asyncio.get_running_loop().time() < deadline:
        info = (await schedule_state.existing(client, schedule_id)).info
        for action in reversed(info.recent_actions):
            if (run := action.start_workflow_result).run_id not in known:
                return run.workflow_id, run.run_id
        if info.overlap_skipped > before.overlap_skipped:
            running = info.running_workflows[0].workflow_id if info.running_workflows else "which has just ended"
            raise CommandError(_dropped(running))
        await asyncio.sleep(0.2)
    return None, None


def _dropped(workflow_id: str) -> str:
    return (
        f"not triggered: a cycle is running ({workflow_id}), and a second one would be dropped. It ends within 150 s, "
        "and does the same work; trigger again after that"
    )


async def _nobody(client: Client, given: OperatorSettings, so: str) -> list[str]:
    return [] if await pollers.live(client, given.task_queue) else [f"{pollers.none_polls(given.task_queue)}, {so}"]


def _told(earlier: Pause) -> str:
    return f"{earlier.by}: {earlier.reason}"


def _end(wanted: Pause) -> str:
    return f"until {moment(wanted.until)}" if wanted.until else "until somebody resumes it: booking-expiration schedule resume"
