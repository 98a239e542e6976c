"""The schedule that fires the cycle (D1, L1): created or brought up to date without ever touching what an operator set."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

from temporalio.api.enums.v1 import TaskQueueKind
from temporalio.api.schedule.v1 import Schedule as ScheduleProto
from temporalio.api.workflowservice.v1 import DescribeScheduleRequest, DescribeScheduleResponse, UpdateScheduleRequest
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
from temporalio.service import RPCError, RPCStatusCode

from activities.messages import CycleInput
from workflows.expiration_cycle import EXECUTION_TIMEOUT, BookingExpirationCycle

CATCHUP_WINDOW: Final = timedelta(seconds=60)
NOTE: Final = (
    "Every minute: releases bookings whose timer ran out. Owner: PIN Platform (CRM squad). "
    "Runbook: runbooks/booking-expiration.md"
)
SUMMARY: Final = "Expire due bookings, publish their events"
DETAILS: Final = (
    "One cycle: up to one batch of reserves and one of bookings become expired, then their events go to Kafka. "
    "Safe to cancel: the batch in hand is committed whole or rolled back whole. Runbook: runbooks/booking-expiration.md"
)
_ATTEMPTS: Final = 10
_PAUSE: Final = 0.2
"""Seconds between writing and reading back: the server takes an update in without waiting for it."""


class ScheduleConflictError(Exception):
    """Somebody else kept changing the schedule while it was being brought up to date."""


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


async def ensure(client: Client, settings: ScheduleSettings) -> Literal["created", "updated", "unchanged"]:
    """Create the schedule, or bring its spec, action and policies up to date; pause, note and limits stay (trap 5).

    Safe to call by any number of workers at once: every write carries the conflict token of what was read and is read back,
    because the server answers OK to a stale token and drops the update. Raises `ScheduleConflictError`, `RPCError`.
    """
    schedule = wanted(settings)
    proto = await schedule._to_proto(client)  # noqa: SLF001 # the public update has no conflict token and would undo a pause
    proto.action.start_workflow.task_queue.kind = TaskQueueKind.TASK_QUEUE_KIND_NORMAL  # as the server returns it
    change: Literal["updated", "unchanged"] = "unchanged"
    for _ in range(_ATTEMPTS):
        described = await describe(client, settings.schedule_id)
        if described is None:
            if await _created(client, settings.schedule_id, schedule):
                return "created"
        elif _same(described.schedule, proto):
            return change
        else:
            await _write(client, settings.schedule_id, described, proto)
            change = "updated"
        await asyncio.sleep(_PAUSE)
    raise ScheduleConflictError(f"schedule {settings.schedule_id} kept changing; see who else writes it, then apply again")


async def describe(client: Client, schedule_id: str) -> DescribeScheduleResponse | None:
    """The schedule as the server has it, or None."""
    try:
        return await client.workflow_service.describe_schedule(
            DescribeScheduleRequest(namespace=client.namespace, schedule_id=schedule_id), retry=True
        )
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise


async def _created(client: Client, schedule_id: str, schedule: Schedule) -> bool:
    try:
        await client.create_schedule(schedule_id, schedule)
    except ScheduleAlreadyRunningError:
        return False  # another worker was faster
    return True


def _same(server: ScheduleProto, ours: ScheduleProto) -> bool:
    return server.spec == ours.spec and server.action == ours.action and server.policies == ours.policies


async def _write(client: Client, schedule_id: str, described: DescribeScheduleResponse, ours: ScheduleProto) -> None:
    await client.workflow_service.update_schedule(
        UpdateScheduleRequest(
            namespace=client.namespace,
            schedule_id=schedule_id,
            schedule=ScheduleProto(spec=ours.spec, action=ours.action, policies=ours.policies, state=described.schedule.state),
            conflict_token=described.conflict_token,
            identity=client.identity,
        )
    )
