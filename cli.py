#!/usr/bin/env python3
"""The operators' commands: `booking-expiration …`. Exit codes: 0 done, 1 could not be done, 2 wrong use or settings."""

import asyncio
import json
from collections.abc import Coroutine
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from google.protobuf.json_format import MessageToDict
from rich.console import Console
from rich.table import Table
from rich.text import Text
from temporalio.service import RPCError

import connections
import settings as configuration
from contracts import commands as contract
from process import CannotStartError, leave
from workflows import schedule

T = TypeVar("T")
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help="The booking-expiration job, for operators.")
schedule_app = typer.Typer(no_args_is_help=True, help="The schedule that fires the cycle every minute.")
app.add_typer(schedule_app, name="schedule")
app.add_typer(contract.app, name="contract")


@app.callback()
def _app() -> None:
    """Keep sub-commands named, however few there are."""


@schedule_app.command()
def apply() -> None:
    """Create the schedule or bring it up to date; a pause, a note or a limit set by an operator stays (D1)."""
    given = configuration.load_model(configuration.ScheduleSettings)
    wanted = schedule.ScheduleSettings(given.schedule_id, given.task_queue, given.batch_size)
    typer.echo(f"schedule {given.schedule_id}: {_run(_apply(wanted))}")


@schedule_app.command()
def show(*, as_json: Json = False) -> None:
    """Print the schedule as the server has it: state, note, next and recent runs."""
    given = configuration.load_model(configuration.ScheduleSettings)
    described = _run(_describe(given.schedule_id))
    if described is None:
        _fail(f"there is no schedule {given.schedule_id}; create it: booking-expiration schedule apply")
    typer.echo(json.dumps(described, indent=2)) if as_json else _print(given.schedule_id, described)


async def _apply(wanted: schedule.ScheduleSettings) -> str:
    return await schedule.ensure(await connections.temporal(configuration.temporal()), wanted)


async def _describe(schedule_id: str) -> dict[str, Any] | None:
    described = await schedule.describe(await connections.temporal(configuration.temporal()), schedule_id)
    return None if described is None else MessageToDict(described)


def _print(schedule_id: str, described: dict[str, Any]) -> None:
    state, info = described["schedule"].get("state", {}), described.get("info", {})
    action = described["schedule"]["action"]["startWorkflow"]
    table = Table("schedule", schedule_id, show_header=True)
    table.add_row("state", "paused" if state.get("paused") else "running")
    table.add_row("note", Text(state.get("notes", "")))  # an operator's words are no markup
    table.add_row("starts", f"{action['workflowType']['name']} on task queue {action['taskQueue']['name']}, every minute (UTC)")
    table.add_row("overlap", described["schedule"]["policies"].get("overlapPolicy", "").rpartition("_")[2].lower())
    table.add_row("next runs", "\n".join(info.get("futureActionTimes", [])[:3]) or "none")
    for ran in info.get("recentActions", [])[-5:]:
        table.add_row("ran", f"{ran['actualTime']}  {ran.get('startWorkflowResult', {}).get('workflowId', '')}")
    table.add_row("skipped by overlap", str(info.get("overlapSkipped", 0)))
    Console().print(table)


def _run(work: Coroutine[Any, Any, T]) -> T:
    try:
        return asyncio.run(work)
    except CannotStartError as error:
        _fail(str(error))
    except (RuntimeError, RPCError, schedule.ScheduleConflictError) as error:
        _fail(f"Temporal at {configuration.temporal()['target_host']}: {error}")


def _fail(message: str) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(1)


def main() -> None:
    """Run the command line; the process ends with its exit code."""
    try:
        app()
    except SystemExit as ended:
        leave(ended.code if isinstance(ended.code, int) else bool(ended.code))


if __name__ == "__main__":
    main()
