"""The schedule that fires the cycle (D1, L1): created or brought up to date without ever touching what an operator set."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

from temporalio.api.enums.v1 import TaskQueueKind
from temporalio.api.schedule.v1 import Schedule as ScheduleProto
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleCalendarSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleRange,
    ScheduleSpec,
    ScheduleState,
)

from activities import schedule_note, schedule_state
from activities.messages import CycleInput
from workflows.expiration_cycle import EXECUTION_TIMEOUT, BookingExpirationCycle

CATCHUP_WINDOW: Final = timedelta(seconds=60)
NOTE: Final = schedule_note.NOTE
SUMMARY: Final = "Expire due bookings, publish their events"
DETAILS: Final = (
    "One cycle: up to one batch of reserves and one of bookings become expired, then their events go to Kafka. "
    "Safe to cancel: the batch in hand is committed whole or rolled back whole. Runbook: runbooks/booking-expiration.md"
)

ScheduleConflictError = schedule_state.ScheduleConflictError
describe = schedule_state.describe


@dataclass(frozen=True, slots=True)
class ScheduleSettings:
    """What may differ between installations; `batch_size` in rows per phase and cycle."""

    schedule_id: str
    task_queue: str
    batch_size: int


def wanted(settings: ScheduleSettings) -> Schedule:
    """The schedule as the code wants it: every minute of the UTC clock, no overlap (L1, D1).

    `* * * * *`, but written as the calendar that the server makes of a cron string, so that both can be compared (trap 41).
    """
    return Schedule(
        action=ScheduleActionStartWorkflow(
            BookingExpirationCycle.run,
            CycleInput(batch_size=settings.batch_size),
            id=settings.schedule_id,
            task_queue=settings.task_queue,
            execution_timeout=EXECUTION_TIMEOUT,
            static_summary=SUMMARY,
            static_details=DETAILS,
        ),
        spec=ScheduleSpec(
            calendars=[
                ScheduleCalendarSpec(second=[ScheduleRange(0)], minute=[ScheduleRange(0, 59)], hour=[ScheduleRange(0, 23)])
            ]
        ),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=CATCHUP_WINDOW, pause_on_failure=False),
        state=ScheduleState(note=NOTE),
    )


async def as_proto(client: Client, settings: ScheduleSettings) -> ScheduleProto:
    """The same in the form that the server returns, so that both can be compared."""
    proto = await wanted(settings)._to_proto(client)  # noqa: SLF001 # the public update has no conflict token and would undo a pause
    proto.action.start_workflow.task_queue.kind = TaskQueueKind.TASK_QUEUE_KIND_NORMAL  # as the server returns it
    return proto


async def ensure(client: Client, settings: ScheduleSettings) -> Literal["created", "updated", "unchanged"]:
    """Create the schedule, or bring its spec, action and policies up to date; pause, note and limits stay (trap 5).

    Safe to call by any number of workers at once: every write carries the conflict token of what was read and is read back,
    because the server answers OK to a stale token and drops the update. Raises `ScheduleConflictError`, `RPCError`.
    """
    schedule, proto = wanted(settings), await as_proto(client, settings)
    change: Literal["updated", "unchanged"] = "unchanged"
    for _ in range(schedule_state.ATTEMPTS):
        described = await describe(client, settings.schedule_id)
        if described is None:
            if await _created(client, settings.schedule_id, schedule):
                return "created"
        elif not differences(described.schedule, proto):
            return change
        else:
            proto.state.CopyFrom(described.schedule.state)
            await schedule_state.write(client, settings.schedule_id, described, proto)
            change = "updated"
        await asyncio.sleep(schedule_state.PAUSE)
    raise ScheduleConflictError(f"schedule {settings.schedule_id} kept changing; see who else writes it, then apply again")


async def _created(client: Client, schedule_id: str, schedule: Schedule) -> bool:
    try:
        await client.create_schedule(schedule_id, schedule)
    except ScheduleAlreadyRunningError:
        return False  # another worker was faster
    return True


def differences(server: ScheduleProto, ours: ScheduleProto) -> list[str]:
    """Which parts of the server's schedule are not as the code wants them; the operator's state is none of its business."""
    parts = {
        "spec": server.spec == ours.spec,
        "action": server.action == ours.action,
        "policies": server.policies == ours.policies,
    }
    return [part for part, same in parts.items() if not same]
