"""`booking-expiration cycle …`: recent cycles, one cycle's story, stopping and cancelling the one that runs."""

from typing import Annotated, Any, Final

import typer
from rich.table import Table
from rich.text import Text
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

import settings as configuration
from activities import schedule_state
from activities.messages import Outcome, StopRequest
from operators import arguments, frame, runs, words
from operators.frame import CommandError, Json, Reason
from operators.runs import Run, Story
from settings import OperatorSettings, ScheduleSettings

MOST: Final = 1000
_ENDED: Final = {
    Outcome.FAILED: "ExecutionStatus IN ('Failed', 'TimedOut', 'Terminated')",
    Outcome.CANCELED: "ExecutionStatus = 'Canceled'",
}
"""A cycle that ended before it could set its outcome (the database was away, it was terminated) is found by the server's word."""

_OUTCOMES: Final = ", ".join(Outcome)

app = typer.Typer(no_args_is_help=True, help="Cycles: what they did, and how to stop the one that runs.")
Which = Annotated[str | None, typer.Argument(metavar="WORKFLOW_ID", help="As `cycle list` and the Web UI show it.")]
Limit = Annotated[int, typer.Option("--limit", help="At most so many.")]
Only = Annotated[str | None, typer.Option("--outcome", metavar="OUTCOME", help=f"Only these: {_OUTCOMES}.")]


@app.command("list")
def list_(*, limit: Limit = 20, outcome: Only = None, as_json: Json = False) -> None:
    """Show recent cycles, newest first, with counts and outcome."""
    arguments.between(limit, 1, MOST, "--limit")
    if outcome is not None and outcome not in list(Outcome):
        arguments.refuse(f"--outcome: {outcome!r} is none of {_OUTCOMES}")
    found = frame.run(_list(_schedule(), limit, Outcome(outcome) if outcome else None))
    if as_json:
        frame.print_json({"cycles": words.plain(found)})
    else:
        frame.console.print(
            _table(found) if found else Text("No such cycle is known to Temporal: see `booking-expiration schedule show`.")
        )


@app.command()
def show(workflow_id: Which = None, *, as_json: Json = False) -> None:
    """Show one cycle, the newest unless told: what it is doing or how it ended."""
    told = frame.run(_show(_schedule(), arguments.workflow_id(workflow_id)))
    if as_json:
        frame.print_json(words.plain(told))
    else:
        said = told.progress if told.progress and not told.result else {}
        frame.console.print(runs.table("cycle", told, ((name.replace("_", " "), Text(str(said[name]))) for name in said)))


@app.command()
def stop(workflow_id: Which = None, *, reason: Reason, as_json: Json = False) -> None:
    """End the running cycle early and whole: the batch in hand commits and is published, nothing new starts."""
    which, why = arguments.workflow_id(workflow_id), arguments.reason(reason)
    _say(frame.run(_stop(frame.settings(), which, why)), "will end after the batch in hand", as_json=as_json)


@app.command()
def cancel(workflow_id: Which = None, *, reason: Reason, as_json: Json = False) -> None:
    """Cancel the running cycle: the batch in hand is committed or rolled back whole, publishing gets a second; Canceled."""
    which, why = arguments.workflow_id(workflow_id), arguments.reason(reason)
    _say(frame.run(_cancel(frame.settings(), which, why)), "is being cancelled", as_json=as_json)


def _schedule() -> ScheduleSettings:
    return configuration.load_model(ScheduleSettings)


async def _list(given: ScheduleSettings, limit: int, outcome: Outcome | None) -> list[Run]:
    client = await frame.temporal()
    if outcome is None:
        return await runs.newest(client, runs.CYCLE, limit, _ours(given))
    ended, said = _ENDED.get(outcome), f"ExpirationOutcome = '{outcome}'"
    try:
        query = f" AND ({said} OR {ended})" if ended else f" AND {said}"
        return await runs.newest(client, runs.CYCLE, limit, _ours(given) + query)
    except RPCError as error:
        if error.status is not RPCStatusCode.INVALID_ARGUMENT or "ExpirationOutcome" not in str(error):
            raise
        lacking = "the namespace lacks the search attribute ExpirationOutcome; booking-expiration doctor says how to add it"
        if ended is None:
            raise CommandError(f"{lacking}. Without --outcome all cycles are listed") from None
    frame.say(f"warning: {lacking}. These are those that ended so by Temporal's own word", err=True)
    return await runs.newest(client, runs.CYCLE, limit, f"{_ours(given)} AND {ended}")


def _ours(given: ScheduleSettings) -> str:
    """Those of this schedule, where several share a namespace: its id begins theirs, or, started by hand, its workers do them."""
    prefix, queue = runs.quoted(f"{given.schedule_id}-"), runs.quoted(given.task_queue)
    return f" AND (WorkflowId STARTS_WITH {prefix} OR TaskQueue = {queue})"


async def _show(given: ScheduleSettings, workflow_id: str | None) -> Story:
    client = await frame.temporal()
    if workflow_id is None:
        newest = await runs.newest(client, runs.CYCLE, 1, _ours(given))
        if not newest:
            raise CommandError("no cycle is known to Temporal: see `booking-expiration schedule show`")
        workflow_id = newest[0].workflow_id
    return await runs.story(client.get_workflow_handle(workflow_id), await _described(client, workflow_id))


async def _described(client: Client, workflow_id: str) -> WorkflowExecutionDescription:
    return await runs.of_type(client, workflow_id, runs.CYCLE, "cycle", "see `booking-expiration cycle list`")


async def _running(client: Client, given: OperatorSettings, workflow_id: str | None, command: str) -> "WorkflowHandle[Any, Any]":
    """The cycle to act on: unless told the one that runs, by the schedule's word or, started by hand, by the server's list.

    Raises `CommandError` when it does not run, or several do.
    """
    if workflow_id is None:
        found, which = await _all_running(client, given), "no cycle runs just now: nothing was changed"
        hint = f" {runs.JUST_BEGUN}."
    else:
        described = await _described(client, workflow_id)
        found = [described] if described.status is WorkflowExecutionStatus.RUNNING else []
        which, hint = f"cycle {workflow_id} does not run: nothing was changed", ""
    if not found:
        raise CommandError(f"{which}.{hint} To start no more of them: booking-expiration schedule pause --reason …")
    only = runs.only(found, "cycles", command)
    return client.get_workflow_handle(only.id, run_id=only.run_id)


async def _all_running(client: Client, given: OperatorSettings) -> list[WorkflowExecutionDescription]:
    """The schedule's own, and whatever else our workers do: an id that begins alike may be another schedule's."""
    schedule = await schedule_state.describe(client, given.schedule_id)
    ids = [run.workflow_id for run in schedule.info.running_workflows] if schedule else []
    return await runs.running(client, runs.CYCLE, f" AND TaskQueue = {runs.quoted(given.task_queue)}", ids)


async def _stop(given: OperatorSettings, workflow_id: str | None, reason: str) -> dict[str, Any]:
    handle = await _running(await frame.temporal(), given, workflow_id, "cycle stop")
    row = await frame.write_down(given, "stop_cycle", f"workflow/{handle.id}", reason, {"run_id": handle.run_id})
    await handle.signal("stop_after_current_batch", StopRequest(reason=reason, actor=frame.actor(), recorded=row))
    return {"workflow_id": handle.id, "run_id": handle.run_id, "act": row}


async def _cancel(given: OperatorSettings, workflow_id: str | None, reason: str) -> dict[str, Any]:
    handle = await _running(await frame.temporal(), given, workflow_id, "cycle cancel")
    row = await frame.write_down(given, "cancel_cycle", f"workflow/{handle.id}", reason, {"run_id": handle.run_id})
    await handle.cancel(reason=f"{reason} (operator action {row})")
    return {"workflow_id": handle.id, "run_id": handle.run_id, "act": row}


def _say(done: dict[str, Any], what: str, *, as_json: bool) -> None:
    look = f"see how it ends: booking-expiration cycle show {done['workflow_id']}"
    frame.print_json(done) if as_json else frame.say(f"cycle {done['workflow_id']} {what}; {look}")


def _table(found: list[Run]) -> Table:
    table = Table()
    for name in ("started", "took", "status", "outcome", "expired", "poison", "parked"):
        table.add_column(name, no_wrap=True)
    table.add_column("workflow id", overflow="fold")
    for run in found:
        took = words.age(run.closed_at - run.started_at) if run.closed_at else "runs"
        counts = ["" if count is None else f"{count:,}" for count in (run.expired, run.poison, run.parked)]
        good = run.outcome == "completed" or run.status == "running"
        table.add_row(
            words.moment(run.started_at), took, run.status, Text(run.outcome or "", style="" if good else "yellow"), *counts,
            Text(run.workflow_id),
        )  # fmt: skip
    return table
