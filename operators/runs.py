"""Workflow runs as operators see them: found by type, with what their search attributes, results and failures say."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from rich.table import Table
from rich.text import Text
from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
)
from temporalio.exceptions import ApplicationError, TemporalError
from temporalio.service import RPCError

from activities import schedule_state
from operators import words
from operators.frame import CommandError
from workflows import search_attributes

CYCLE: Final = "BookingExpirationCycle"
DRAIN: Final = "BookingExpirationDrain"
KINDS: Final = {
    CYCLE: "a cycle: booking-expiration cycle show, cycle stop",
    DRAIN: "a drain: booking-expiration drain status, drain stop",
    "BookingExpirationResume": "the timer that ends a pause: booking-expiration schedule show, schedule resume",
}
"""What runs here, and the commands for it."""

JUST_BEGUN: Final = "One that has just begun may take a second or two to be listed: ask again, or name its id"
"""What to say where nothing was found: the server's list is behind."""

AT_ONCE: Final = 20
"""Runs that are looked at; more than one of a kind is an accident already."""

QUERY_LIMIT: Final = timedelta(seconds=5)
"""How long a worker may take to answer a query."""

NO_ANSWER: Final = (RPCError, TemporalError)
"""What a query or an update raises where nobody answers it, or no answer is known."""


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


def quoted(text: str) -> str:
    """The text as a query has it."""
    return "'" + text.replace("'", "") + "'"


async def running(client: Client, workflow_type: str, query: str, ids: Sequence[str]) -> list[WorkflowExecutionDescription]:
    """The runs of a type that go on just now: those of `ids` first, then those that the server lists. Raises `RPCError`.

    Each by its own word, since the list is seconds behind. Without the list those of `ids` are all that is known of.
    """
    found = await _going_on(client, workflow_type, ids)
    try:
        listed = await newest(client, workflow_type, AT_ONCE, f"{query} AND ExecutionStatus = 'Running'")
    except RPCError:
        if not found:
            raise
        return found
    known_ids = {each.id for each in found}
    return found + await _going_on(client, workflow_type, [run.workflow_id for run in listed if run.workflow_id not in known_ids])


async def _going_on(client: Client, workflow_type: str, ids: Iterable[str]) -> list[WorkflowExecutionDescription]:
    looked_at = [await known(client, each) for each in dict.fromkeys(ids)]
    return [
        each
        for each in looked_at
        if each and each.workflow_type == workflow_type and each.status is WorkflowExecutionStatus.RUNNING
    ]


def only(found: Sequence[WorkflowExecutionDescription], kind: str, command: str) -> WorkflowExecutionDescription:
    """The one that there is. Raises `CommandError` where there are several: a person says which one is meant."""
    if len(found) == 1:
        return found[0]
    ids = ", ".join(each.id for each in found)
    raise CommandError(f"{len(found)} {kind} run, say which one is meant: {ids}; booking-expiration {command} {found[0].id} …")


async def known(client: Client, workflow_id: str) -> WorkflowExecutionDescription | None:
    """What the server knows of the newest run of this id, whatever its type, or None."""
    try:
        return await client.get_workflow_handle(workflow_id).describe()
    except RPCError as error:
        if schedule_state.not_there(error):
            return None
        raise


async def of_type(client: Client, workflow_id: str, wanted: str, kind: str, look: str) -> WorkflowExecutionDescription:
    """What the server knows of it. Raises `CommandError` where there is none, and for whatever else has this id."""
    if (described := await known(client, workflow_id)) is None:
        raise CommandError(f"there is no {kind} {workflow_id}; {look}")
    if (found := described.workflow_type) != wanted:
        raise CommandError(f"{workflow_id} is no {kind} but {KINDS.get(found, f'a {found}; {look}')}. Nothing was changed")
    return described


async def describe(handle: "WorkflowHandle[Any, Any]", missing: str) -> WorkflowExecutionDescription:
    """What the server knows of a run. Raises `CommandError` with `missing` when there is none."""
    try:
        return await handle.describe()
    except RPCError as error:
        if schedule_state.not_there(error):
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
    except NO_ANSWER as error:
        notes.append(f"no progress: {unanswered(error)}")
        return None
    return answer


def unanswered(error: Exception) -> str:
    """Why a run says nothing: it does not know the question, as one that began on an older version, or nobody works on it."""
    if isinstance(error, WorkflowQueryFailedError):
        return f"this run cannot answer ({error}); its worker is of an older version"
    return f"a worker must answer for it, and none did ({error}); is one running?"


async def _ended(handle: "WorkflowHandle[Any, Any]") -> tuple[dict[str, Any] | None, str | None]:
    try:
        return await handle.result(), None
    except WorkflowFailureError as error:
        cause = error.cause
        details = cause.details if isinstance(cause, ApplicationError) else ()
        return (details[0] if details and isinstance(details[0], dict) else None), str(cause)


def table(kind: str, told: Story, said: Iterable[tuple[str, str | Text]]) -> Table:
    """One run for people; `said`: what its progress says, in the words of its kind."""
    run = told.run
    made = Table(kind, run.workflow_id)
    made.add_row("run", run.run_id)
    made.add_row("started", words.moment(run.started_at))
    made.add_row("status", run.status + (f", {words.moment(run.closed_at)}" if run.closed_at else ""))
    for name, value in (told.result or {}).items():
        made.add_row(name, Text(str(value)))
    if told.failure:
        made.add_row("failure", Text(told.failure, style="red"))
    for row in said:
        made.add_row(*row)
    for note in told.notes:
        made.add_row("note", Text(note, style="yellow"))
    return made
