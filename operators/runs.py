"""Workflow runs as operators see them: found by type, with what their search attributes, results and failures say."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from db import operator_actions
from db.unit_of_work import UnitOfWork
from operators import frame
from operators.frame import CommandError
from settings import OperatorSettings
from workflows import search_attributes

QUERY_LIMIT: Final = timedelta(seconds=5)
"""How long a worker may take to answer a query."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run; moments in UTC. Counts are None where the namespace lacks the search attribute or the run has not set it."""

    workflow_id: str
    run_id: str
    status: str
    started_at: datetime
    closed_at: datetime | None
    outcome: str | None
    expired: int | None
    poison: int | None
    parked: int | None


@dataclass(frozen=True, slots=True)
class Story:
    """A run with what it says of itself: `progress` while a worker answers, `result` when it ended well, `failure` when not."""

    run: Run
    progress: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    failure: str | None = None
    notes: list[str] = field(default_factory=list)


async def newest(client: Client, workflow_type: str, limit: int, query: str = "") -> list[Run]:
    """The latest runs of a type, newest first. The server may need a second until a new one shows. Raises `RPCError`."""
    found = client.list_workflows(f"WorkflowType = '{workflow_type}'{query}", limit=limit)
    return [_run(each) async for each in found]


def _run(each: WorkflowExecution) -> Run:
    its = each.typed_search_attributes
    return Run(
        workflow_id=each.id,
        run_id=each.run_id,
        status=status(each),
        started_at=each.start_time,
        closed_at=each.close_time,
        outcome=its.get(search_attributes.OUTCOME),
        expired=its.get(search_attributes.EXPIRED),
        poison=its.get(search_attributes.POISON),
        parked=its.get(search_attributes.PARKED),
    )


def status(each: WorkflowExecution) -> str:
    """As the Web UI calls it, in lower case."""
    return each.status.name.lower() if each.status else "unknown"


async def describe(handle: "WorkflowHandle[Any, Any]", missing: str) -> WorkflowExecutionDescription:
    """What the server knows of a run. Raises `CommandError` with `missing` when there is none."""
    try:
        return await handle.describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise CommandError(missing) from None
        raise


async def story(handle: "WorkflowHandle[Any, Any]", described: WorkflowExecutionDescription) -> Story:
    """The run with its progress, and its result or failure where it has ended."""
    notes: list[str] = []
    progress = await _progress(handle, notes)
    result, failure = None, None
    if described.status is not WorkflowExecutionStatus.RUNNING:
        result, failure = await _ended(handle)
    return Story(_run(described), progress, result, failure, notes)


async def _progress(handle: "WorkflowHandle[Any, Any]", notes: list[str]) -> dict[str, Any] | None:
    try:
        answer: dict[str, Any] = await handle.query("progress", rpc_timeout=QUERY_LIMIT)
    except RPCError as error:
        notes.append(f"no progress: a worker must answer for it, and none did ({error}); is one running?")
        return None
    return answer


async def _ended(handle: "WorkflowHandle[Any, Any]") -> tuple[dict[str, Any] | None, str | None]:
    try:
        return await handle.result(), None
    except WorkflowFailureError as error:
        cause = error.cause
        details = cause.details if isinstance(cause, ApplicationError) else ()
        return (details[0] if details and isinstance(details[0], dict) else None), str(cause)


async def write_down(given: OperatorSettings, action: str, workflow_id: str, reason: str, details: dict[str, Any]) -> int:
    """The row of `operator_actions`, before the call to Temporal. Its id travels with the call: nobody writes it twice."""
    async with frame.database(given) as pool, UnitOfWork(pool) as connection:
        return await operator_actions.record(
            connection, actor=frame.actor(), action=action, target=f"workflow/{workflow_id}", reason=reason, details=details
        )
