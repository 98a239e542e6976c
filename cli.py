#!/usr/bin/env python3
"""The operators' commands: `booking-expiration …`.

Exit codes: 0 done, 1 could not be done, 2 wrong use or settings, 130 stopped by Ctrl-C.
"""

import typer

from exits import leave
from operators.loading import LazyGroup

app = typer.Typer(
    cls=LazyGroup, no_args_is_help=True, pretty_exceptions_enable=False, help="The booking-expiration job, for operators."
)


@app.callback()
def _app() -> None:
    """Make it a group: its commands stand in `operators/loading.py`."""


def main() -> None:
    """Run the command line; the process ends with its exit code."""
    try:
        leave(app(standalone_mode=False) or 0)
    except typer.TyperException as wrong:
        leave(_refused(wrong))
    except typer.Abort:
        typer.echo("not confirmed: nothing was changed", err=True)
        leave(1)
    except SystemExit as ended:
        leave(ended.code if isinstance(ended.code, int) else bool(ended.code))


def _refused(wrong: typer.TyperException) -> int:
    """One line for what the library would put in a box below the usage; it says nothing where it has shown the help instead."""
    if line := " ".join(wrong.format_message().split()).rstrip("."):
        context = getattr(wrong, "ctx", None)
        typer.echo(f"{line} (see {context.command_path if context else 'booking-expiration'} --help)", err=True)
    return wrong.exit_code


if __name__ == "__main__":
    main()
