"""`booking-expiration schedule …`: what fires the cycle every minute, and how to stop, resume and trigger it."""

from datetime import timedelta
from typing import Annotated, Final

import typer

import settings as configuration
from activities import schedule_note
from operators import arguments, frame, schedule_acts, schedule_view
from operators.frame import Json
from operators.schedule_acts import Done
from workflows import schedule

LONGEST: Final = timedelta(days=7)
MAX_REASON: Final = 500

app = typer.Typer(no_args_is_help=True, help="The schedule that fires the cycle every minute.")


def duration(text: str) -> timedelta:
    """`30m`, `2h`, `90s`, `1h30m`; raises `BadParameter` for anything else, for nothing, and for more than 7 days."""
    seconds = arguments.seconds_in(text)
    if not 0 < seconds <= LONGEST.total_seconds():
        raise typer.BadParameter(f"{text!r} is no time from 1s to 7d, written as 30m, 2h, 90s or 1h30m")
    return timedelta(seconds=seconds)


def why(text: str) -> str:
    """The reason on one line; raises `BadParameter` for an empty one, or one of more than 500 characters."""
    reason = schedule_note.one_line(text)
    if not 0 < len(reason) <= MAX_REASON:
        raise typer.BadParameter(f"say why, in up to {MAX_REASON} characters: it stands on the schedule's page")
    return reason


Reason = Annotated[str, typer.Option("--reason", "-r", parser=why, metavar="TEXT", help="Why; it stands on the schedule's page.")]
For = Annotated[
    timedelta | None,
    typer.Option("--for", parser=duration, metavar="TIME", help="Resume by itself after: 30m, 2h, 90s, up to 7d."),
]
Replace = Annotated[bool, typer.Option("--replace", help="With --for: also end a pause that has no end of its own.")]
WhyNow = Annotated[str, typer.Option("--reason", "-r", parser=why, metavar="TEXT", help="Why now; it is kept with the act.")]


@app.command()
def show(*, as_json: Json = False) -> None:
    """Print the schedule as the server has it: state, who paused it and why, next and recent runs."""
    given = configuration.load_model(configuration.ScheduleSettings)
    shown = frame.run(_show(given.schedule_id))
    frame.print_json(shown.as_json()) if as_json else frame.console.print(shown.table())


@app.command()
def apply(*, as_json: Json = False) -> None:
    """Create the schedule or bring it up to date; a pause, a note or a limit set by an operator stays (D1)."""
    given = configuration.load_model(configuration.ScheduleSettings)
    wanted = schedule.ScheduleSettings(given.schedule_id, given.task_queue, given.batch_size)
    change = frame.run(_apply(wanted))
    if as_json:
        frame.print_json({"schedule": given.schedule_id, "change": change})
    else:
        typer.echo(f"schedule {given.schedule_id}: {change}")


@app.command()
def pause(*, reason: Reason, limit: For = None, replace: Replace = False, as_json: Json = False) -> None:
    """Start no more cycles; the one that runs is finished. The reason is added to the schedule's note."""
    done = frame.run(schedule_acts.pause(frame.settings(), reason, limit, replace=replace))
    _say(done, as_json=as_json)


@app.command()
def resume(*, reason: Reason, as_json: Json = False) -> None:
    """Start cycles again, and restore the schedule's note, whoever paused it and wherever."""
    _say(frame.run(schedule_acts.resume(frame.settings(), reason)), as_json=as_json)


@app.command()
def trigger(*, reason: WhyNow = "a cycle is wanted now", as_json: Json = False) -> None:
    """Run one cycle now, also while the schedule is paused; refuses while a cycle runs, as the server would drop it silently."""
    _say(frame.run(schedule_acts.trigger(frame.settings(), reason)), as_json=as_json)


async def _show(schedule_id: str) -> schedule_view.Shown:
    return await schedule_view.read(await frame.temporal(), schedule_id)


async def _apply(wanted: schedule.ScheduleSettings) -> str:
    return await schedule.ensure(await frame.temporal(), wanted)


def _say(done: Done, *, as_json: bool) -> None:
    for warning in done.warnings:
        typer.echo(f"warning: {warning}", err=True)
    if as_json:
        frame.print_json({**done.data, "warnings": done.warnings})
    else:
        typer.echo("\n".join(done.lines))
