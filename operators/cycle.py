"""`booking-expiration cycle …`: recent cycles, one cycle's story, stopping and cancelling the one that runs."""

from typing import Annotated, Any, Final

import typer
from rich.table import Table
from rich.text import Text
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus, WorkflowHandle

import settings as configuration
from activities import schedule_state
from activities.messages import Outcome, StopRequest
from operators import arguments, frame, runs, words
from operators.frame import CommandError, Json, Reason
from operators.runs import Run, Story
from settings import OperatorSettings, ScheduleSettings

TYPE: Final = "BookingExpirationCycle"
MOST: Final = 1000
OTHERS: Final = {
    "BookingExpirationDrain": "a drain: booking-expiration drain status, drain stop",
    "BookingExpirationResume": "the timer that ends a pause: booking-expiration schedule show, schedule resume",
}
"""What else runs here, and the commands for it."""

_ENDED: Final = {
    Outcome.FAILED: " OR ExecutionStatus IN ('Failed', 'TimedOut', 'Terminated')",
    Outcome.CANCELED: " OR ExecutionStatus = 'Canceled'",
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
    told = frame.run(_show(_schedule(), workflow_id))
    if as_json:
        frame.print_json(words.plain(told))
    else:
        said = told.progress if told.progress and not told.result else {}
        frame.console.print(runs.table("cycle", told, ((name.replace("_", " "), Text(str(said[name]))) for name in said)))


@app.command()
def stop(workflow_id: Which = None, *, reason: Reason, as_json: Json = False) -> None:
    """End the running cycle early and whole: the batch in hand commits and is published, nothing new starts."""
    _say(
        frame.run(_stop(frame.settings(), workflow_id, arguments.reason(reason))),
        "will end after the batch in hand",
        as_json=as_json,
    )


@app.command()
def cancel(workflow_id: Which = None, *, reason: Reason, as_json: Json = False) -> None:
    """Cancel the running cycle: the batch in hand is committed or rolled back whole, publishing gets a second; Canceled."""
    _say(frame.run(_cancel(frame.settings(), workflow_id, arguments.reason(reason))), "is being cancelled", as_json=as_json)


def _schedule() -> ScheduleSettings:
    return configuration.load_model(ScheduleSettings)


async def _list(given: ScheduleSettings, limit: int, outcome: Outcome | None) -> list[Run]:
    client = await frame.temporal()
    return await runs.newest(client, TYPE, limit, _ours(given) + _ended_as(outcome))


def _ended_as(outcome: Outcome | None) -> str:
    return f" AND (ExpirationOutcome = '{outcome}'{_ENDED.get(outcome, '')})" if outcome else ""


def _ours(given: ScheduleSettings) -> str:
    """Those of this schedule, where several share a namespace: its id begins theirs."""
    return f" AND WorkflowId STARTS_WITH '{given.schedule_id.replace(chr(39), '')}-'"


async def _show(given: ScheduleSettings, workflow_id: str | None) -> Story:
    client = await frame.temporal()
    if workflow_id is None:
        newest = await runs.newest(client, TYPE, 1, _ours(given))
        if not newest:
            raise CommandError("no cycle is known to Temporal: see `booking-expiration schedule show`")
        workflow_id = newest[0].workflow_id
    return await runs.story(client.get_workflow_handle(workflow_id), await _described(client, workflow_id))


async def _described(client: Client, workflow_id: str) -> WorkflowExecutionDescription:
    """What the server knows of a cycle. Raises `CommandError` where there is none, and for whatever else has this id."""
    look = "see `booking-expiration cycle list`"
    described = await runs.describe(client.get_workflow_handle(workflow_id), f"there is no cycle {workflow_id}; {look}")
    if (kind := described.workflow_type) != TYPE:
        raise CommandError(f"{workflow_id} is no cycle but {OTHERS.get(kind, f'a {kind}; {look}')}. Nothing was changed")
    return described


async def _running(client: Client, given: OperatorSettings, workflow_id: str | None) -> "WorkflowHandle[Any, Any]":
    """The cycle to act on, by the schedule's own word unless told. Raises `CommandError` when it does not run."""
    if workflow_id is None:
        known = (await schedule_state.existing(client, given.schedule_id)).info.running_workflows
        workflow_id = known[0].workflow_id if known else None
    if workflow_id is not None:
        described = await _described(client, workflow_id)
        if described.status is WorkflowExecutionStatus.RUNNING:
            return client.get_workflow_handle(workflow_id, run_id=described.run_id)
    which = f"cycle {workflow_id} does not run" if workflow_id else "no cycle runs just now"
    raise CommandError(f"{which}: nothing was changed. To start no more of them: booking-expiration schedule pause --reason …")


async def _stop(given: OperatorSettings, workflow_id: str | None, reason: str) -> dict[str, Any]:
    handle = await _running(await frame.temporal(), given, workflow_id)
    row = await frame.write_down(given, "stop_cycle", f"workflow/{handle.id}", reason, {"run_id": handle.run_id})
    await handle.signal("stop_after_current_batch", StopRequest(reason=reason, actor=frame.actor(), recorded=row))
    return {"workflow_id": handle.id, "run_id": handle.run_id, "act": row}


async def _cancel(given: OperatorSettings, workflow_id: str | None, reason: str) -> dict[str, Any]:
    handle = await _running(await frame.temporal(), given, workflow_id)
    row = await frame.write_down(given, "cancel_cycle", f"workflow/{handle.id}", reason, {"run_id": handle.run_id})
    await handle.cancel(reason=f"{reason} (operator action {row})")
    return {"workflow_id": handle.id, "run_id": handle.run_id, "act": row}


def _say(done: dict[str, Any], what: str, *, as_json: bool) -> None:
    look = f"see how it ends: booking-expiration cycle show {done['workflow_id']}"
    frame.print_json(done) if as_json else typer.echo(f"cycle {done['workflow_id']} {what}; {look}")


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
