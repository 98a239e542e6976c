#!/usr/bin/env python3
"""The operators' commands: `booking-expiration …`. Exit codes: 0 done, 1 could not be done, 2 wrong use or settings."""

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
        app()
    except SystemExit as ended:
        leave(ended.code if isinstance(ended.code, int) else bool(ended.code))


if __name__ == "__main__":
    main()
