"""Which drain is meant: the one that runs, whatever its id, as the Web UI's form gives it one of its own; else the last one."""

from typing import Any, Final

from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus, WorkflowHandle

from operators import frame, runs
from operators.frame import CommandError
from settings import OperatorSettings

MISSING: Final = "no drain was ever started here: booking-expiration drain --cap N --reason …"
LOOK: Final = "see `booking-expiration drain status`"


def usual_id(given: OperatorSettings) -> str:
    """The id of those that the command starts: one, so that Temporal lets only one of them run at a time."""
    return f"{given.schedule_id}-drain"


async def running(client: Client, given: OperatorSettings) -> list[WorkflowExecutionDescription]:
    """All that run just now, the usual one first. Raises `RPCError`."""
    return await runs.running(client, runs.DRAIN, _ours(given), [usual_id(given)])


def _ours(given: OperatorSettings) -> str:
    return f" AND TaskQueue = {runs.quoted(given.task_queue)}"


async def to_act_on(given: OperatorSettings, workflow_id: str | None, command: str) -> "WorkflowHandle[Any, Any]":
    """The drain that runs, or the one of this id. Raises `CommandError` where none or several do; `command` is what was typed."""
    client = await frame.temporal()
    if workflow_id is None:
        found = await running(client, given)
        which = f"no drain runs just now: nothing was changed. {runs.JUST_BEGUN}"
    else:
        described = await runs.of_type(client, workflow_id, runs.DRAIN, "drain", LOOK)
        found = [described] if described.status is WorkflowExecutionStatus.RUNNING else []
        which = f"drain {workflow_id} does not run: nothing was changed"
    if not found:
        raise CommandError(f"{which}; booking-expiration drain status tells how the last one ended")
    return client.get_workflow_handle(runs.only(found, "drains", command).id)


async def to_look_at(given: OperatorSettings, workflow_id: str | None) -> WorkflowExecutionDescription:
    """The drain of this id, else the one that runs, else the last one. Raises `CommandError` where none is or several run."""
    client = await frame.temporal()
    if workflow_id is not None:
        return await runs.of_type(client, workflow_id, runs.DRAIN, "drain", LOOK)
    if found := await running(client, given):
        return runs.only(found, "drains", "drain status")
    ids = {usual_id(given), *(run.workflow_id for run in await runs.newest(client, runs.DRAIN, 1, _ours(given)))}
    ended = [each for each in [await runs.known(client, each) for each in ids] if each and each.workflow_type == runs.DRAIN]
    if not ended:
        raise CommandError(MISSING)
    return max(ended, key=lambda each: each.start_time)
