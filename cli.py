#!/usr/bin/env python3
"""The operators' commands: `booking-expiration …`.

Exit codes: 0 done, 1 could not be done, 2 wrong use or settings, 130 stopped by Ctrl-C.
"""

import errno
import io
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import typer

from exits import leave
from operators.loading import LazyGroup

UNWRITABLE: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""What a full or broken disk says to an answer that is kept in a file; a pipe that nobody reads is typer's business."""

app = typer.Typer(
    cls=LazyGroup, no_args_is_help=True, pretty_exceptions_enable=False, help="The booking-expiration job, for operators."
)


@app.callback()
def _app() -> None:
    """Make it a group: its commands stand in `operators/loading.py`."""


def main() -> None:
    """Run the command line; the process ends with its exit code."""
    _take_any_terminal()
    try:
        _require_text(sys.argv[1:])
        leave(app(standalone_mode=False) or 0)
    except typer.TyperException as wrong:
        leave(_refused(wrong))
    except typer.Abort:
        typer.echo("not confirmed: nothing was changed", err=True)
        leave(1)
    except SystemExit as ended:
        leave(ended.code if isinstance(ended.code, int) else bool(ended.code))
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        with suppress(OSError):  # standard error may be on the same disk
            done = "if it was to change something, that may be done: booking-expiration history --operator"
            typer.echo(f"the answer could not be written: {error.strerror}; {done}", err=True)
        leave(1)


def _take_any_terminal() -> None:
    """What a terminal of another encoding cannot show becomes a question mark; closed standard output shows nothing."""
    for name in ("stdout", "stderr"):
        if (stream := getattr(sys, name)) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 # it lives as long as the process
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _require_text(arguments: list[str]) -> None:
    """Bytes that are no text reach Python as halves of characters, which no server could take."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            typer.echo(f"{argument!a} is no text in the encoding of this terminal: type it again", err=True)
            raise SystemExit(2) from None


def _refused(wrong: typer.TyperException) -> int:
    """One line for what the library would put in a box below the usage; it says nothing where it has shown the help instead."""
    if line := " ".join(wrong.format_message().split()).rstrip("."):
        context = getattr(wrong, "ctx", None)
        typer.echo(f"{line} (see {context.command_path if context else 'booking-expiration'} --help)", err=True)
    return wrong.exit_code


if __name__ == "__main__":
    main()
