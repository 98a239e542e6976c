"""The operators' command as a process, as people call it."""

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.acceptance.process import ROOT, World
from tests.floor import Admin

COMMAND: Final = Path(sys.executable).parent / "booking-expiration"
WHY: Final = ("--reason", "INC-7: for the test")


@dataclass(frozen=True)
class Done:
    """What a call came to."""

    code: int
    out: str
    err: str


async def call(world: World, *arguments: str, **settings: str) -> Done:
    """Run it in the test's world, as the operators' role there; a traceback is always a mistake."""
    ours = {"BOOKING_EXPIRATION_OPERATOR_DATABASE_URL": world.database.operator, **settings}
    process = await asyncio.create_subprocess_exec(
        COMMAND, *arguments, cwd=ROOT, env=world.environment(ours), stdout=-1, stderr=-1
    )
    out, err = await asyncio.wait_for(process.communicate(), 30)
    done = Done(process.returncode or 0, out.decode(), err.decode())
    assert "Traceback" not in done.out + done.err, done
    return done


async def answer(world: World, *arguments: str) -> Any:
    """What it answers to a program."""
    done = await call(world, *arguments, "--json")
    assert done.code == 0, done
    return json.loads(done.out)


async def acts(admin: Admin) -> list[str]:
    """What was done, in its order, by the rows that say so."""
    return [row["action"] for row in await admin.fetch("SELECT action FROM crm.operator_actions ORDER BY id")]
