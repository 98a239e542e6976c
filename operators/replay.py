"""`booking-expiration replay`: do the runs on the server fit the code at hand? The check before a deploy (trap 15)."""

import logging
import re
import warnings
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer
from temporalio.client import Client, WorkflowExecution, WorkflowHistory
from temporalio.service import RPCError

from activities import schedule_state
from operators import arguments, frame, runs, words
from operators.frame import Json
from operators.replaying.replay import ours, replay, type_of

Last = Annotated[int, typer.Option("--last", metavar="N", help="How many runs, the most recent ones; up to 10,000.")]
Type = Annotated[str, typer.Option("--workflow-type", metavar="TYPE", help="Only runs of this workflow.")]
Since = Annotated[
    str, typer.Option("--since", metavar="TIME", help="Only runs that started since: 2h, 1d or 2026-07-01T12:00:00Z.")
]

_NEVER_BEGUN: Final = r"coroutine '_WorkflowInstanceImpl\._apply_initialize_workflow\.<locals>\.run_workflow' was never awaited"

LOOK_AT: Final = "Are TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE right, and --workflow-type and --since not too narrow?"


@dataclass(frozen=True, slots=True)
class Run:
    """One run on the server and how the code differs from it; `stopped`: the replay could not even go on."""

    workflow_id: str
    run_id: str
    workflow_type: str
    status: str
    differences: Sequence[str]
    stopped: bool


@dataclass(slots=True)
class Found:
    """The runs that were replayed, and how many were gone before they could be read; where they were looked for."""

    namespace: str
    runs: list[Run] = field(default_factory=list)
    gone: int = 0

    @property
    def differing(self) -> list[Run]:
        """Those that the code at hand would do otherwise."""
        return [run for run in self.runs if run.differences]

    def summary(self) -> str:
        """One line for people."""
        gone = f"; {words.number(self.gone, 'run')} gone before it could be read" if self.gone else ""
        alike = len(self.runs) - len(self.differing)
        return f"{words.number(len(self.runs), 'run')} replayed: {alike} as recorded, {len(self.differing)} differ{gone}"


def command(*, last: Last = 100, workflow_type: Type = "", since: Since = "", as_json: Json = False) -> None:
    """Replay recent runs of the server, closed or not, against this code: the check before a deploy.

    A difference is a sentence: an activity's input, time-out or summary, the order, the result. Exit code 1 when there is one,
    and when there was no run to replay.
    """
    arguments.between(last, 1, 10_000, "--last")
    types = [type_of(each) for each in ours()]
    if workflow_type and workflow_type not in types:
        arguments.refuse(f"--workflow-type: {workflow_type!r} is no workflow of this code; there are {', '.join(types)}")
    without_noise()
    found = frame.run(_replayed([workflow_type] if workflow_type else types, last, _moment(since)))
    if as_json:
        frame.print_json(as_data(found))
    elif found.runs:
        _print(found)
    if not found.runs:  # a check that looked at nothing has found nothing out
        frame.fail(f"nothing was replayed: namespace {found.namespace} has no such run. {LOOK_AT}")
    if found.differing:
        raise typer.Exit(1)


def without_noise() -> None:
    """A replay that fails is told by us, in one line, for the rest of this process.

    The SDK would add a traceback, and Python, of a run whose constructor refuses its arguments, that its body was never begun.
    """
    logging.getLogger("temporalio").setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", _NEVER_BEGUN, RuntimeWarning)


def _moment(since: str) -> datetime | None:
    if not since:
        return None
    if re.match(r"\d{4}-", since):
        return arguments.moment(since, "--since")
    return datetime.now(UTC) - arguments.span(since, "--since")


async def _replayed(types: Sequence[str], last: int, since: datetime | None) -> Found:
    client, listed = await frame.temporal(), list[WorkflowExecution]()
    found = Found(client.namespace)
    query = f"WorkflowType IN ({', '.join(repr(each) for each in types)})"
    if since:
        query += f" AND StartTime >= '{since.isoformat()}'"
    async for replayed in replay(_histories(client, query, last, listed, found), namespace=client.namespace):
        execution = listed[-1]
        found.runs.append(
            Run(
                workflow_id=execution.id,
                run_id=execution.run_id,
                workflow_type=execution.workflow_type,
                status=runs.status(execution),
                differences=replayed.differences,
                stopped=replayed.stopped is not None,
            )
        )
    return found


async def _histories(
    client: Client, query: str, last: int, listed: list[WorkflowExecution], found: Found
) -> AsyncIterator[WorkflowHistory]:
    """The histories one by one, the most recent first; `listed` says whose it is."""
    async for execution in client.list_workflows(query, limit=last):
        try:
            history = await client.get_workflow_handle(execution.id, run_id=execution.run_id).fetch_history()
        except RPCError as error:
            if not schedule_state.not_there(error):
                raise
            found.gone += 1  # the namespace keeps runs for a time only
            continue
        listed.append(execution)
        yield history


def _print(found: Found) -> None:
    for run in found.differing:
        more = f" (and {len(run.differences) - 1} more, see --json)" if len(run.differences) > 1 else ""
        frame.say(f"{run.workflow_id} {run.run_id} {run.status}: {run.differences[0]}{more}")
    frame.say(found.summary())


def as_data(found: Found) -> dict[str, Any]:
    """What `--json` prints; of the runs those that differ."""
    return {"replayed": len(found.runs), "differ": len(found.differing), "gone": found.gone, "runs": words.plain(found.differing)}
