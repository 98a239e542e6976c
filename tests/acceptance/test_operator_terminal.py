"""What a terminal, a pipe or a disk does to the commands, and what data may do to a terminal (issue 4 section 4)."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests import floor
from tests.acceptance.command import COMMAND, Done, call
from tests.acceptance.process import ROOT, World
from tests.floor import MINUTE, Admin

HOSTILE = "gone\x1b[2J\x1b]0;all is well\x07 \x9b31m \u202egnorw"
"""It would clear the screen, rename the window, colour what follows and turn words round."""


async def _typed(world: World, *arguments: str | bytes, stdout: Any = -1, **settings: str) -> Done:
    """As `call`, with any bytes and any standard output."""
    environment = world.environment({"BOOKING_EXPIRATION_OPERATOR_DATABASE_URL": world.database.operator, **settings})
    process = await asyncio.create_subprocess_exec(
        COMMAND, *arguments, cwd=ROOT, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=stdout, stderr=-1
    )
    out, err = await asyncio.wait_for(process.communicate(), 30)
    done = Done(process.returncode or 0, (out or b"").decode("latin-1"), err.decode("latin-1"))
    assert "Traceback" not in done.out + done.err, done
    return done


@pytest.mark.parametrize(
    "arguments",
    [
        [b"cycle", b"show", b"\xff"],
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in (
                [b"cycle", b"stop", b"\xff", b"--reason", b"why"],
                [b"outbox", b"list", b"--topic", b"\xff"],
                [b"outbox", b"list", b"--error", b"\xe4"],
                [b"phase", b"pause", b"Reserve", b"--reason", b"\xff"],
            )
        ),
    ],
    ids=lambda each: b" ".join(each).decode("latin-1"),
)
async def test_bytes_that_are_no_text(world: World, admin: Admin, arguments: list[bytes]) -> None:
    """Issue 4, bad input: what is no text is wrong use, one line, exit code 2; nothing is asked and nothing written."""
    done = await _typed(world, *arguments, PYTHONUTF8="1")
    assert (done.code, done.out, done.err.count("\n"), "is no text" in done.err) == (2, "", 1, True), done
    assert await admin.fetchval("SELECT count(*) FROM crm.operator_actions") == 0


@pytest.mark.parametrize("encoding", ["latin-1", pytest.param("ascii", marks=pytest.mark.slow)])
async def test_a_terminal_without_arrows(world: World, encoding: str) -> None:
    """Issue 4, never a traceback: what the terminal's encoding lacks is shown as a question mark."""
    await call(world, "phase", "pause", "Reserve", "--reason", "Грюн")
    seen = [await _typed(world, *each, PYTHONIOENCODING=encoding) for each in (["doctor"], ["history", "--operator"], ["status"])]
    assert [done.code for done in seen] == [1, 0, 0], seen
    assert ("      ? " in seen[0].out, "????" in seen[1].out, "????" in seen[2].out) == (True, True, True)


@pytest.mark.parametrize("arguments", [["status"], pytest.param(["status", "--json"], marks=pytest.mark.slow)])
async def test_a_full_disk(world: World, arguments: list[str]) -> None:
    """Issue 4, never a traceback: an answer that cannot be kept is one line and exit code 1."""
    with Path("/dev/full").open("wb") as full:  # noqa: ASYNC230 # it holds nobody up
        done = await _typed(world, *arguments, stdout=full)
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert done.err.startswith("the answer could not be written: No space left on device; if it was to change something")


async def test_nobody_reads(world: World) -> None:
    """Whoever pipes into `head` wants no more, and no complaint."""
    process = await asyncio.create_subprocess_shell(
        f"({COMMAND} doctor --json; {COMMAND} doctor; {COMMAND} status >&-) | true",
        cwd=ROOT,
        env=world.environment({"BOOKING_EXPIRATION_OPERATOR_DATABASE_URL": world.database.operator}),
        stderr=-1,
    )
    assert (await asyncio.wait_for(process.communicate(), 30))[1] == b""


async def test_data_commands_no_terminal(world: World, admin: Admin) -> None:
    """Issue 4 §4: reasons, names and refusals come from others: on a terminal they are words alone; JSON has them whole."""
    booking_id = (await floor.add(admin, 1, await floor.clock(admin) - MINUTE))[0]
    await admin.execute("UPDATE crm.phase_pauses SET paused_at = now(), actor = $1, reason = $1", HOSTILE)
    await admin.execute("INSERT INTO crm.operator_actions (actor, action, target, reason) VALUES ($1, $1, $1, $1)", HOSTILE)
    await admin.execute("INSERT INTO crm.expiration_refusals VALUES ($1, 'Reserve', $2, now(), now(), 1)", booking_id, HOSTILE)
    await world.client.get_schedule_handle(world.name).pause(note=HOSTILE)
    commands = [
        ["status"],
        ["doctor"],
        ["history", "--operator"],
        ["schedule", "show"],
        ["explain", str(booking_id)],
        ["preview"],
    ]
    for command in [*commands, ["phase", "pause", "Booking", "--reason", "mine"]]:
        done = await call(world, *command, COLUMNS="200")
        assert [each for each in done.out + done.err if not each.isprintable() and each != "\n"] == [], done
        assert ("gone[2J" in done.out or "gone [2J" in done.out) == (command != ["preview"]), done
    told = await call(world, "history", "--operator", "--json")
    assert ("\x9b" in told.out, json.loads(told.out)["acts"][-1]["reason"]) == (False, HOSTILE)
