"""The operators' command as people call it: what it prints, its exit codes, and never a traceback (issue 3, 6)."""

import json
import socket
import time
from pathlib import Path

import pytest

from tests.acceptance.command import call
from tests.acceptance.process import World
from workflows import schedule

NOWHERE = "127.0.0.1:1"


async def test_apply_creates_once_and_changes_what_differs(world: World) -> None:
    """D1: created, unchanged, updated: each is said with the schedule's name, and the server then has it so."""
    new = {"BOOKING_EXPIRATION_SCHEDULE_ID": f"{world.name}-new"}
    try:
        said = [(await call(world, "schedule", "apply", **new)).out for _ in range(2)]
        said.append((await call(world, "schedule", "apply", BOOKING_EXPIRATION_BATCH_SIZE="50", **new)).out)
        described = await schedule.describe(world.client, f"{world.name}-new")
    finally:
        await world.client.get_schedule_handle(f"{world.name}-new").delete()
    assert said == [f"schedule {world.name}-new: {change}\n" for change in ("created", "unchanged", "updated")]
    assert described is not None
    assert described.schedule.action.start_workflow.input.payloads[0].data == b'{"batch_size":50}'


async def test_show_as_a_table_and_as_json(world: World) -> None:
    """D1, trap 5: state, note, overlap and next runs; an operator's note is shown as written, and apply leaves it alone."""
    note = "deadlines are corrected [/ticket 42] [bold]see #crm[/bold]"
    await world.client.get_schedule_handle(world.name).pause(note=note)
    assert (await call(world, "schedule", "apply")).out == f"schedule {world.name}: unchanged\n"
    table = await call(world, "schedule", "show", COLUMNS="200")
    assert (table.code, table.err) == (0, "")
    rows = {line.split("│")[1].strip(): line.split("│")[2].strip() for line in table.out.splitlines() if "│" in line}
    assert (rows["state"], rows["note"], rows["overlap"]) == ("paused", note, "skip")
    assert rows["starts"] == f"BookingExpirationCycle on task queue {world.name}, every minute (UTC)"
    as_json = json.loads((await call(world, "schedule", "show", "--json")).out)
    assert as_json["schedule"]["state"] == {"notes": note, "paused": True}
    assert len(as_json["info"]["futureActionTimes"]) > 3


async def test_show_where_there_is_none(world: World) -> None:
    """Exit code 1, and the command that creates it."""
    done = await call(world, "schedule", "show", "--json", BOOKING_EXPIRATION_SCHEDULE_ID="nowhere")
    assert (done.code, done.out) == (1, "")
    assert done.err == "there is no schedule nowhere; create it: booking-expiration schedule apply\n"


@pytest.mark.parametrize("command", ["apply", pytest.param("show", marks=pytest.mark.slow)])
async def test_temporal_away(world: World, command: str) -> None:
    """Exit code 1 and one line with the address that was tried."""
    done = await call(world, "schedule", command, TEMPORAL_ADDRESS=NOWHERE)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert done.err.startswith(f"Temporal at {NOWHERE}: ")


async def test_an_address_that_is_none(world: World) -> None:
    """D21: what is no address is a wrong setting: exit code 2, and one line that names the variable."""
    done = await call(world, "schedule", "show", TEMPORAL_ADDRESS="not a host")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith("settings: TEMPORAL_*: a host must be written host:port; ")


@pytest.mark.slow
async def test_temporal_silent(world: World) -> None:
    """A server that takes the connection and says nothing costs ten seconds, not for ever."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        began = time.monotonic()
        done = await call(world, "schedule", "show", TEMPORAL_ADDRESS=f"127.0.0.1:{server.getsockname()[1]}")
    assert (done.code, done.out) == (1, "")
    assert "no answer within 10 s" in done.err
    assert time.monotonic() - began < 28


async def test_bad_settings(world: World) -> None:
    """Exit code 2; each bad or misspelt variable is one line that names it; no value is repeated."""
    done = await call(world, "schedule", "show", BOOKING_EXPIRATION_BATCH_SIZE="many-s3cret", BOOKING_EXPIRATION_TASK_QUEU="x")
    assert (done.code, done.out, "s3cret" in done.err) == (2, "", False)
    first, second = sorted(done.err.splitlines())
    assert first.startswith("settings: BOOKING_EXPIRATION_BATCH_SIZE: ")
    assert second.endswith("BOOKING_EXPIRATION_TASK_QUEU: there is no such setting; did you mean BOOKING_EXPIRATION_TASK_QUEUE?")


async def test_schedule_commands_need_no_database(world: World) -> None:
    """Whoever looks after the schedule need not know the database's password or the brokers."""
    done = await call(world, "schedule", "show", "--json", DATABASE_URL="", KAFKA_BOOTSTRAP_SERVERS="")
    assert (done.code, done.err) == (0, "")


async def test_bad_temporal_settings(world: World, tmp_path: Path) -> None:
    """D21: a profile file that cannot be read is one line and exit code 2, without what stands in the file."""
    profile = tmp_path / "temporal.toml"
    profile.write_text('[profile.default]\napi_key = "s3cret\n')
    done = await call(world, "schedule", "show", TEMPORAL_CONFIG_FILE=str(profile))
    assert (done.code, done.out, "s3cret" in done.err) == (2, "", False)
    assert done.err.startswith("settings: TEMPORAL_*: ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--help"], ["for operators", "schedule"]),
        (
            ["schedule", "--help"],
            ["every minute", "apply", "Create the schedule or bring it up to date", "show", "Print the schedule"],
        ),
        (["schedule", "show", "--help"], ["--json", "Print JSON instead of text"]),
    ],
    ids=["all", "schedule", "show"],
)
async def test_help(world: World, arguments: list[str], words: list[str]) -> None:
    """Help says what each command is for, without any server or setting."""
    done = await call(world, *arguments, COLUMNS="150", DATABASE_URL="", TEMPORAL_ADDRESS=NOWHERE)
    assert done.code == 0
    assert [word for word in words if word not in done.out] == []


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["schedule", "aply"], "No such command 'aply'. Did you mean 'apply'? (see booking-expiration schedule --help)"),
        *(
            pytest.param(*wrong, marks=pytest.mark.slow)
            for wrong in (
                (["shedule"], "No such command 'shedule'. Did you mean 'schedule'? (see booking-expiration --help)"),
                (
                    ["schedule", "show", "--jason"],
                    "No such option: --jason (Possible options: --json) (see booking-expiration schedule show --help)",
                ),
                (
                    ["schedule", "apply", "now"],
                    "unexpected extra argument(s) (now) (see booking-expiration schedule apply --help)",
                ),
                (["preview", "--as-of"], "Option '--as-of' requires an argument (see booking-expiration --help)"),
                (["contract", "topic", "create", "--replicas", "0"], "Invalid value for '--replicas': "),
                (["contract", "topic", "crate"], "(see booking-expiration contract topic --help)"),
            )
        ),
    ],
)
async def test_wrong_use(world: World, arguments: list[str], line: str) -> None:
    """Issue 4, bad input: what is no command, option or value is one line that says where to look; exit code 2."""
    done = await call(world, *arguments)
    assert (done.code, done.out, done.err.count("\n"), line in done.err) == (2, "", 1, True), done


@pytest.mark.parametrize("arguments", [[], pytest.param(["contract", "topic"], marks=pytest.mark.slow)])
async def test_a_group_alone_shows_its_help(world: World, arguments: list[str]) -> None:
    """Exit code 2, and the help instead of a line."""
    done = await call(world, *arguments)
    assert (done.code, "Usage: booking-expiration" in done.out, done.err) == (2, True, ""), done
