"""Reading and writing what an operator sets on the schedule: paused, and its note. Everything else of it stays (D1, trap 5)."""

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from temporalio.api.errordetails.v1 import NamespaceNotFoundFailure
from temporalio.api.schedule.v1 import Schedule, ScheduleState
from temporalio.api.workflowservice.v1 import DescribeScheduleRequest, DescribeScheduleResponse, UpdateScheduleRequest
from temporalio.service import RPCError, RPCStatusCode, WorkflowService

if TYPE_CHECKING:
    from temporalio.client import Client  # half a command's start, which those that only look need not wait for

ATTEMPTS: Final = 15
PAUSE: Final = 0.2
"""Seconds, at first and on average, between writing and reading back: the server takes an update in without waiting for it."""


class Frontend(Protocol):
    """What it takes to ask Temporal something: every `Client` has it."""

    @property
    def namespace(self) -> str:
        """Where the schedule and the cycles are."""

    @property
    def workflow_service(self) -> WorkflowService:
        """The calls."""


class ScheduleConflictError(Exception):
    """Somebody else kept changing the schedule while it was being written."""


class NoScheduleError(Exception):
    """There is no such schedule; the message says how to make it."""


def not_there(error: RPCError) -> bool:
    """Whether just what was asked for is missing. A namespace that is missing says nothing about what would be in it."""
    return error.status is RPCStatusCode.NOT_FOUND and not no_namespace(error)


def no_namespace(error: RPCError) -> bool:
    """Whether the server has no namespace of the name that was given."""
    return any(detail.Is(NamespaceNotFoundFailure.DESCRIPTOR) for detail in error.grpc_status.details)


async def describe(client: Frontend, schedule_id: str) -> DescribeScheduleResponse | None:
    """The schedule as the server has it, or None. Raises `RPCError`, also where there is no such namespace."""
    try:
        return await client.workflow_service.describe_schedule(
            DescribeScheduleRequest(namespace=client.namespace, schedule_id=schedule_id), retry=True
        )
    except RPCError as error:
        if not_there(error):
            return None
        raise


async def existing(client: Frontend, schedule_id: str) -> DescribeScheduleResponse:
    """The same, where it must be there. Raises `NoScheduleError`, `RPCError`."""
    if (described := await describe(client, schedule_id)) is None:
        raise NoScheduleError(f"there is no schedule {schedule_id}; create it: booking-expiration schedule apply")
    return described


async def write(client: "Client", schedule_id: str, described: DescribeScheduleResponse, schedule: Schedule) -> None:
    """Write it if nobody else did since `described`; only reading back tells, as the server may drop it with an OK (trap 5)."""
    await client.workflow_service.update_schedule(
        UpdateScheduleRequest(
            namespace=client.namespace,
            schedule_id=schedule_id,
            schedule=schedule,
            conflict_token=described.conflict_token,
            identity=client.identity,
        )
    )


async def change(client: "Client", schedule_id: str, wanted: Callable[[ScheduleState], ScheduleState | None]) -> bool:
    """Bring the operator's state to what `wanted` makes of the present one; False where it wants nothing and returns None.

    `wanted` is asked again after each write, until the server has what it asks for. Raises `NoScheduleError`,
    `ScheduleConflictError`, `RPCError`.
    """
    for attempt in range(ATTEMPTS):
        described = await existing(client, schedule_id)
        if (state := wanted(described.schedule.state)) is None:
            return False
        if state == described.schedule.state:
            return True
        schedule = Schedule()
        schedule.CopyFrom(described.schedule)
        schedule.state.CopyFrom(state)
        await write(client, schedule_id, described, schedule)
        # Two who want different things must not overwrite each other in step: one must read before the other writes.
        await asyncio.sleep(PAUSE * random.uniform(0.25, 1.5 + attempt))  # noqa: S311 # nobody gains by guessing it
    raise ScheduleConflictError(f"schedule {schedule_id} kept changing; see who else writes it, then try again")


def altered(state: ScheduleState, *, paused: bool, note: str) -> ScheduleState:
    """The state with another pause and note; limits on the number of runs stay."""
    copy = ScheduleState()
    copy.CopyFrom(state)
    copy.paused, copy.notes = paused, note
    return copy
