"""The operators' command, as people call it: as a process, or in this one, which saves two seconds of start each time."""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from typer.testing import CliRunner

import cli
from tests.acceptance.process import ROOT, World

COMMAND: Final = Path(sys.executable).parent / "booking-expiration"
_WATCHING: Final = (("drain", "--cap"), ("drain", "status", "--watch"), ("outbox", "requeue"))
"""What listens to Ctrl-C, as only a process of its own can."""


@dataclass(frozen=True)
class Done:
    """What a call came to."""

    code: int
    out: str
    err: str


async def call(world: World, *arguments: str, **settings: str) -> Done:
    """Run it in the test's world, as the operators' role there, without a process of its own where it needs none."""
    if any(arguments[: len(start)] == start for start in _WATCHING):
        return await typed(world, *arguments, **settings)
    environment = world.environment(_ours(world, settings))
    result = await asyncio.to_thread(CliRunner().invoke, cli.app, arguments, env=environment, catch_exceptions=False)
    return Done(result.exit_code, result.stdout, result.stderr)


async def typed(world: World, *arguments: str, **settings: str) -> Done:
    """The same as a process; a traceback is always a mistake."""
    environment = world.environment(_ours(world, settings))
    process = await asyncio.create_subprocess_exec(COMMAND, *arguments, cwd=ROOT, env=environment, stdout=-1, stderr=-1)
    out, err = await asyncio.wait_for(process.communicate(), 30)
    done = Done(process.returncode or 0, out.decode(), err.decode())
    assert "Traceback" not in done.out + done.err, done
    return done


def _ours(world: World, settings: dict[str, str]) -> dict[str, str]:
    return {"BOOKING_EXPIRATION_OPERATOR_DATABASE_URL": world.database.operator, **settings}
