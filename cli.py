#!/usr/bin/env python3
"""The operators' commands: `booking-expiration …`. Exit codes: 0 done, 1 could not be done, 2 wrong use or settings."""

import typer

from contracts import commands as contract
from operators import cycle, doctor, drain, explain, history, outbox, phase, preview, replay, schedule, status
from process import leave

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help="The booking-expiration job, for operators.")
app.add_typer(schedule.app, name="schedule")
app.add_typer(cycle.app, name="cycle")
app.add_typer(drain.app, name="drain")
app.add_typer(phase.app, name="phase")
app.add_typer(contract.app, name="contract")
app.add_typer(outbox.app, name="outbox")
app.command()(status.status)
app.command()(doctor.doctor)
app.command()(preview.preview)
app.command()(explain.explain)
app.command()(history.history)
app.command("replay")(replay.command)
app.command()(phase.release_hold)


@app.callback()
def _app() -> None:
    """Keep sub-commands named, however few there are."""


def main() -> None:
    """Run the command line; the process ends with its exit code."""
    try:
        app()
    except SystemExit as ended:
        leave(ended.code if isinstance(ended.code, int) else bool(ended.code))


if __name__ == "__main__":
    main()
