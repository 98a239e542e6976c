"""How a program of ours gives up and goes: nothing here waits for a library, so that commands start at once."""

import logging
import os
import sys
from contextlib import suppress
from typing import NoReturn


class CannotStartError(Exception):
    """The process cannot do its work; the message says why and what to do next."""


def leave(code: int) -> NoReturn:
    """End the process with this exit code, without the interpreter's own tear-down.

    The Temporal SDK's threads may be in the middle of handing something over; the tear-down then aborts, in one of four
    attempts to connect to a server that is not there, and the exit code is 134.
    """
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody reads it any more
            stream.flush()
    os._exit(code)
