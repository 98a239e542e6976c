"""`booking-expiration schedule …`: what fires the cycle every minute, and how to stop, resume and trigger it."""

from typing import Annotated

import typer

import settings as configuration
from operators import arguments, frame, schedule_acts, schedule_view
from operators.frame import Json
from operators.schedule_acts import Done

app = typer.Typer(no_args_is_help=True, help="The schedule that fires the cycle every minute.")

Reason = Annotated[str, typer.Option("--reason", "-r", help="Why; it stands on the schedule's page.")]
For = Annotated[str | None, typer.Option("--for", metavar="TIME", help="Resume by itself after: 30m, 2h, 90s, up to 7d.")]
Replace = Annotated[bool, typer.Option("--replace", help="With --for: also end a pause that has no end of its own.")]
WhyApplied = Annotated[str, typer.Option("--reason", "-r", help="Why; it is kept with the act.")]
WhyNow = Annotated[str, typer.Option("--reason", "-r", help="Why now; it is kept with the act.")]


@app.command()
def show(*, as_json: Json = False) -> None:
    """Print the schedule as the server has it: state, who paused it and why, next and recent runs."""
    given = configuration.load_model(configuration.ScheduleSettings)
    shown = frame.run(_show(given.schedule_id))
    frame.print_json(shown.as_json()) if as_json else frame.console.print(shown.table())


@app.command()
def apply(*, reason: WhyApplied = "as the code wants it", as_json: Json = False) -> None:
    """Create the schedule or bring it up to date; a pause, a note or a limit set by an operator stays (D1)."""
    given = frame.settings()
    change = frame.run(schedule_acts.apply(given, arguments.reason(reason)))
    if as_json:
        frame.print_json({"schedule": given.schedule_id, "change": change})
    else:
        frame.say(f"schedule {given.schedule_id}: {change}")


@app.command()
def pause(*, reason: Reason, limit: For = None, replace: Replace = False, as_json: Json = False) -> None:
    """Start no more cycles; the one that runs is finished. The reason is added to the schedule's note."""
    why, length = arguments.reason(reason), arguments.pause_length(limit)
    _say(frame.run(schedule_acts.pause(frame.settings(), why, length, replace=replace)), as_json=as_json)


@app.command()
def resume(*, reason: Reason, as_json: Json = False) -> None:
    """Start cycles again, and restore the schedule's note, whoever paused it and wherever."""
    _say(frame.run(schedule_acts.resume(frame.settings(), arguments.reason(reason))), as_json=as_json)


@app.command()
def trigger(*, reason: WhyNow = "a cycle is wanted now", as_json: Json = False) -> None:
    """Run one cycle now, also while the schedule is paused; refuses while a cycle runs, as the server would drop it silently."""
    _say(frame.run(schedule_acts.trigger(frame.settings(), arguments.reason(reason))), as_json=as_json)


async def _show(schedule_id: str) -> schedule_view.Shown:
    return await schedule_view.read(await frame.temporal(), schedule_id)


def _say(done: Done, *, as_json: bool) -> None:
    for warning in done.warnings:
        frame.say(f"warning: {warning}", err=True)
    if as_json:
        frame.print_json({**done.data, "warnings": done.warnings})
    else:
        frame.say(*done.lines)
