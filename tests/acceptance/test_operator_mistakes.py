"""Bad input and servers that are away: one clear line each, an exit code, and nothing changed (issue 4)."""

import asyncio
import json
import socket

import pytest

from tests import floor, outbox_rows
from tests.acceptance.command import call
from tests.acceptance.process import World
from tests.conftest import Administrator

NOBODY = "00000000-0000-0000-0000-000000000000"
WHY = ("--reason", "INC-7")
WRONG = [
    (["explain", "foo"], 2, "BOOKING: 'foo' is no id; for example "),
    (["explain", NOBODY[:-1]], 2, "is no id"),
    (["explain", NOBODY], 1, f"there is no booking {NOBODY} in "),
    (["history", NOBODY], 1, f"there is no booking {NOBODY} in "),
    (["history"], 2, "history: give a booking's id, or --operator"),
    (["history", NOBODY, "--operator"], 2, "history: give a booking's id, or --operator"),
    (["history", NOBODY, "--limit", "3"], 2, "--since and --limit go with --operator"),
    (["history", "--operator", "--limit", "0"], 2, "--limit: 0 is not from 1 to 10,000"),
    (["history", "--operator", "--since", "2026-07-01T12:00"], 2, "--since: '2026-07-01T12:00' does not say in which time zone"),
    (["preview", "--as-of", "yesterday"], 2, "--as-of: 'yesterday' is no moment; for example 2026-07-01T12:00:00Z"),
    (["preview", "--as-of", "2026-13-01T00:00Z"], 2, "is no moment; for example"),
    (["preview", "--as-of", "2026-07-01"], 2, "does not say in which time zone"),
    (["preview", "--as-of", "0001-01-01T00:00+14:00"], 2, "is out of range"),
    (["preview", "--phase", "Reserved"], 2, "--phase: 'Reserved' is no phase; it is Reserve or Booking"),
    (["outbox", "list", "--limit", "-1"], 2, "--limit: -1 is not from 1 to 10,000"),
    (["outbox", "list", "--tenant", "7"], 2, "--tenant: '7' is no id"),
    (["outbox", "list", "--older-than", "-5m"], 2, "--older-than: '-5m' is no length of time; for example 10m"),
    (["outbox", "show", "0"], 2, "'0' is no id of an outbox record"),
    (["outbox", "show", "9" * 30], 2, "is no id of an outbox record"),
    (["outbox", "show", "42"], 1, "outbox record 42 does not exist: check the id"),
    (["outbox", "skip", "42", "--yes", *WHY], 1, "outbox record 42 does not exist: check the id"),
    (["outbox", "skip", "42", "--yes", "--reason", " "], 2, "--reason: say why"),
    (["outbox", "requeue", *WHY], 2, "requeue: give ids, or --parked --limit N"),
    (["outbox", "requeue", "1", "--parked", *WHY], 2, "requeue: give ids, or --parked --limit N"),
    (["outbox", "requeue", "1", "--limit", "5", *WHY], 2, "filters and --limit go with --parked"),
    (["outbox", "requeue", "1", "--tenant", NOBODY, *WHY], 2, "filters and --limit go with --parked"),
    (["outbox", "requeue", "--parked", "--limit", "5", "--older-than", "soon", *WHY], 2, "--older-than: 'soon' is no length of"),
    (["outbox", "requeue", "--parked", *WHY], 2, "--parked needs --limit N"),
    (["outbox", "requeue", "--parked", "--limit", "10001", *WHY], 2, "--limit: 10001 is not from 1 to 10,000"),
    (["outbox", "requeue", "--parked", "--limit", "5", "--over", "soon", *WHY], 2, "--over: 'soon' is no length of time"),
    (["outbox", "requeue", "1", *WHY], 1, "outbox record 1 is not parked: it goes out by itself"),
]
COMMANDS = [
    ["status"],
    ["preview"],
    ["explain", NOBODY],
    ["history", "--operator"],
    ["outbox", "list"],
    ["outbox", "show", "1"],
    ["outbox", "requeue", "1", *WHY],
    ["outbox", "skip", "1", "--yes", *WHY],
]


def fast(number: int) -> list[pytest.MarkDecorator]:
    """A process each takes its time: every seventh one always, the others with the slow tests."""
    return [] if number % 7 == 0 else [pytest.mark.slow]


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [pytest.param(*wrong, marks=fast(number), id=" ".join(wrong[0])) for number, wrong in enumerate(WRONG)],
)
async def test_a_mistake_is_one_line(world: World, admin: Administrator, arguments: list[str], code: int, line: str) -> None:
    """Issue 4, bad input: one line on standard error that says what to do, and neither an act nor a change."""
    await outbox_rows.fill(admin, 1, "topic")
    done = await call(world, *arguments)
    assert (done.code, done.out, done.err.count("\n"), line in done.err) == (code, "", 1, True), done
    assert (await outbox_rows.states(admin))["waiting"] == 1
    assert await admin.fetchval("SELECT count(*) FROM crm.operator_actions") == 0


@pytest.mark.parametrize(
    "arguments",
    [pytest.param(each, marks=fast(number), id=" ".join(each[:2])) for number, each in enumerate(COMMANDS)],
)
async def test_no_database(world: World, arguments: list[str]) -> None:
    """Issue 4, bad input: the address that was tried and the variable to look at, exit code 1, for every command."""
    url = "postgresql://booking_expiration_operator@127.0.0.1:1/crm"
    done = await call(world, *arguments, BOOKING_EXPIRATION_OPERATOR_DATABASE_URL=url)
    assert (done.code, done.err.count("\n")) == (1, 1), done
    assert "the database at 127.0.0.1:1/crm cannot be reached (" in done.err
    assert "is BOOKING_EXPIRATION_OPERATOR_DATABASE_URL right?" in done.err


async def test_too_many_ids(world: World) -> None:
    """Issue 4, requeue is capped: ids that are given by hand, too."""
    done = await call(world, "outbox", "requeue", *map(str, range(1, 10_002)), *WHY)
    assert (done.code, done.out, done.err[:44]) == (2, "", "requeue: 10,001 ids are more than 10,000; gi"), done


@pytest.mark.parametrize(
    "arguments",
    [
        ["schedule", "show"],
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in (["schedule", "pause", *WHY], ["drain", "status"], ["drain", "stop", *WHY], ["cycle", "stop", *WHY])
        ),
    ],
    ids=" ".join,
)
async def test_a_wrong_namespace(world: World, admin: Administrator, arguments: list[str]) -> None:
    """Issue 4, bad input: a namespace that is not there is no missing schedule or drain; nothing is written or advised."""
    done = await call(world, *arguments, TEMPORAL_NAMESPACE="nosuch")
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1), done
    assert done.err.endswith(": Namespace nosuch is not found: is TEMPORAL_NAMESPACE right?\n")
    assert await admin.fetchval("SELECT count(*) FROM crm.operator_actions") == 0


async def test_what_is_told_in_a_wrong_namespace(world: World, admin: Administrator) -> None:
    """Issue 4: `explain` and `preview` leave the schedule open, and `doctor` does not tell anybody to create one."""
    booking = str((await floor.add(admin, 1, await floor.clock(admin) - floor.MINUTE))[0])
    explained, previewed, examined = [
        await call(world, *command, "--json", TEMPORAL_NAMESPACE="nosuch")
        for command in (["explain", booking], ["preview"], ["doctor"])
    ]
    assert (json.loads(explained.out)["schedule"], "no_schedule" in explained.out + previewed.out) == (None, False)
    assert [list(json.loads(done.out)["unreadable"]) for done in (explained, previewed)] == [["temporal"]] * 2
    found = {each["check"]: each for each in json.loads(examined.out)["findings"]}
    assert [found[name]["state"] for name in ("Temporal", "schedule", "schedule fires", "workers")] == ["FAIL", *["warn"] * 3]
    assert "schedule apply" not in examined.out


@pytest.mark.slow
async def test_a_database_that_says_nothing(world: World) -> None:
    """Issue 4, bad input: a server that takes the connection and stays silent costs seconds, not for ever."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"postgresql://booking_expiration_operator@127.0.0.1:{server.getsockname()[1]}/crm?sslmode=disable"
        async with asyncio.timeout(25):
            done = await call(world, "preview", BOOKING_EXPIRATION_OPERATOR_DATABASE_URL=url)
    assert (done.code, done.out, done.err.count("\n"), "(no answer)" in done.err) == (1, "", 1, True), done


@pytest.mark.parametrize(
    ("revoked", "arguments", "words"),
    [
        ("SELECT ON crm.bookings", ["preview"], "the command needs SELECT on crm.bookings"),
        (
            "INSERT ON crm.operator_actions",
            ["outbox", "skip", "1", "--yes", *WHY],
            "needs SELECT and INSERT on crm.operator_actions",
        ),
        ("UPDATE ON crm.outbox", ["outbox", "skip", "1", "--yes", *WHY], "needs SELECT and UPDATE (claim_token, claimed_until"),
        ("SELECT ON crm.phase_pauses", ["status"], "needs SELECT and UPDATE (paused_at, paused_until, actor, reason) on crm.ph"),
        ("USAGE ON SCHEMA crm", ["preview"], "permission denied for schema crm"),
    ],
)
async def test_a_missing_grant_is_named(
    world: World, admin: Administrator, revoked: str, arguments: list[str], words: str
) -> None:
    """Issue 4: without its role's rights the command says which grant is missing, on which table; nothing is changed."""
    await outbox_rows.fill(admin, 1, "topic")
    await admin.execute(f"REVOKE {revoked} FROM booking_expiration_operator")
    done = await call(world, *arguments)
    assert (done.code, done.err.count("\n"), words in done.err) == (1, 1, True), done
    assert "booking_expiration_operator" in done.err
    assert (await outbox_rows.states(admin))["skipped"] == 0


async def test_another_role(world: World) -> None:
    """Issue 4: connected as a role that is not the operators', the refusal names the one to connect as."""
    done = await call(world, "history", "--operator", BOOKING_EXPIRATION_OPERATOR_DATABASE_URL=world.database.crm_app)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1), done
    assert done.err.startswith(
        "database: permission denied for table operator_actions (SQLSTATE 42501); the command needs SELECT"
    )


@pytest.mark.parametrize("value", ["", "mysql://somewhere"])
async def test_no_url_or_a_wrong_one(world: World, value: str) -> None:
    """Issue 4, bad input: a setting that is missing or wrong is exit code 2 and names the variable, with an example."""
    done = await call(world, "preview", BOOKING_EXPIRATION_OPERATOR_DATABASE_URL=value)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done
    assert done.err.startswith("settings: BOOKING_EXPIRATION_OPERATOR_DATABASE_URL: ")
