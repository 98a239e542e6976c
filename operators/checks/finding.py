"""What one check of `doctor` says, and the limit that no check exceeds."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from temporalio.service import RPCError

from activities import schedule_state

LIMIT: Final = 8.0
"""Seconds that any check may take; all of them run at once."""


class State(StrEnum):
    """Whether somebody has to act: no, perhaps, yes."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was looked at, how it is, and what to do where it is not well."""

    check: str
    state: State
    what: str
    todo: str = ""


class NotLookedAtError(Exception):
    """What this check needs is away; another line says why."""


async def within_limit(check: str, work: Coroutine[Any, Any, Finding]) -> Finding:
    """The finding, whatever happens; a check that does not come back is left alone."""
    asking = asyncio.ensure_future(work)
    done, _ = await asyncio.wait({asking}, timeout=LIMIT)
    if not done:
        asking.add_done_callback(lambda asked: asked.cancelled() or asked.exception())
        asking.cancel()
        return Finding(
            check, State.FAIL, f"no answer within {LIMIT:.0f} s", "see whether that server, and the way to it, is well"
        )
    try:
        return asking.result()
    except NotLookedAtError as error:
        return Finding(check, State.WARN, f"not looked at: {error}")
    except RPCError as error:
        if schedule_state.no_namespace(error):  # another line says so
            return Finding(check, State.WARN, f"not looked at: {error}")
        return _broken(check, error)
    except Exception as error:  # noqa: BLE001 # one broken check must not hide what the others found
        return _broken(check, error)


def _broken(check: str, error: Exception) -> Finding:
    return Finding(check, State.FAIL, f"{type(error).__name__}: {error}", "put that right, then ask again")
