"""`outbox list|show|requeue|skip` as people call them (issue 4 section 4, D10)."""

import asyncio
import json
import signal
from typing import Any

import pytest

from tests import outbox_rows
from tests.acceptance.command import COMMAND, call
from tests.acceptance.process import ROOT, World
from tests.floor import Admin

WHY = ("--reason", "INC-7: limit raised")


async def parked(admin: Admin, world: World, count: int, *, versions: int = 1) -> list[int]:
    """Parked records of as many bookings; their ids."""
    await outbox_rows.fill(admin, count, world.topic, versions=versions)
    rows = await admin.fetch("SELECT id FROM crm.outbox ORDER BY id LIMIT $1", count)
    ids = [row["id"] for row in rows]
    await admin.execute("UPDATE crm.outbox SET parked_at = now(), park_reason = 'too large' WHERE id = ANY ($1)", ids)
    return ids


async def acts(admin: Admin) -> list[tuple[str, str, str]]:
    """What is written down, in order."""
    rows = await admin.fetch("SELECT action, target, reason FROM crm.operator_actions ORDER BY id")
    return [(row["action"], row["target"], row["reason"]) for row in rows]


async def answer(world: World, *arguments: str) -> Any:
    """What the command prints for programs."""
    done = await call(world, "outbox", *arguments, "--json")
    assert done.code == 0, done
    return json.loads(done.out)


async def test_list_and_show(world: World, admin: Admin) -> None:
    """Issue 4, outbox list and show: the parked one with its reason, headers, payload as text, and what waits behind it."""
    record = (await parked(admin, world, 1, versions=2))[0]
    listed = await answer(world, "list", "--parked", "--topic", world.topic, "--error", "LARGE")
    assert [(each["id"], each["park_reason"]) for each in listed["records"]] == [(record, "too large")]
    assert len((await answer(world, "list"))["records"]) == 2
    assert [each["id"] for each in (await answer(world, "list", "--unpublished"))["records"]] == [record + 1]
    shown = await answer(world, "show", str(record))
    assert (shown["waiting_behind"], json.loads(shown["payload"])["Phase"]) == (1, "Reserve")
    people = await call(world, "outbox", "list", "--limit", "1", COLUMNS="200")
    assert "parked: too large" in people.out
    assert "There may be more" in people.out


async def test_requeued_records_go_out(world: World, admin: Admin) -> None:
    """D10, issue 4: a requeued record and the one behind it are published by the next cycle; the act is written down."""
    record = (await parked(admin, world, 1, versions=2))[0]
    await world.start()
    assert (await world.result())["PublishedCount"] == 0
    done = await call(world, "outbox", "requeue", str(record), *WHY)
    assert (done.code, done.out) == (0, "requeued 1 record\n")
    assert (await world.result())["PublishedCount"] == 2
    assert await acts(admin) == [("requeue_record", f"outbox/{record}", WHY[1])]


async def test_one_wrong_id_changes_nothing(world: World, admin: Admin) -> None:
    """Issue 4, bad input: ids are requeued all or none, at once and spread over time."""
    ids = await parked(admin, world, 2)
    for over in ([], ["--over", "10s"]):
        done = await call(world, "outbox", "requeue", *map(str, ids), "99999", *WHY, *over)
        assert (done.code, done.out, done.err) == (1, "", "outbox record 99999 does not exist: check the id\n")
    assert ((await outbox_rows.states(admin))["parked"], await acts(admin)) == (2, [])


async def test_a_skipped_one_is_not_requeued_with_others(world: World, admin: Admin) -> None:
    """Issue 4, bad input: one that was given up, though it is parked too, refuses the whole, at once and spread over time."""
    ids = await parked(admin, world, 2)
    await admin.execute("UPDATE crm.outbox SET skipped_at = now() WHERE id = $1", ids[0])
    for over in ([], ["--over", "10s"]):
        done = await call(world, "outbox", "requeue", *map(str, ids), *WHY, *over)
        assert (done.code, done.out, done.err.count("\n")) == (1, "", 1), done
        assert done.err.startswith(f"outbox record {ids[0]} was skipped at ")
    assert (await admin.fetchval("SELECT count(*) FROM crm.outbox WHERE parked_at IS NOT NULL"), await acts(admin)) == (2, [])


async def test_requeue_is_capped(world: World, admin: Admin) -> None:
    """Issue 4, requeue: --limit bounds what goes out, oldest first, and an act is written for each record."""
    ids = await parked(admin, world, 5)
    seen = await answer(world, "requeue", "--parked", "--error", "too large", "--limit", "3", *WHY)
    assert seen == {"requeued": 3, "gone": 0, "left": 0}
    assert [target for _, target, _ in await acts(admin)] == [f"outbox/{record}" for record in ids[:3]]
    assert await answer(world, "requeue", "--parked", "--error", "nothing like it", "--limit", "3", *WHY) == {
        "requeued": 0, "gone": 0, "left": 0,
    }  # fmt: skip


@pytest.mark.parametrize("option", ["--topic", "--tenant", "--older-than"])
async def test_requeue_takes_the_filters_of_list(world: World, admin: Admin, option: str) -> None:
    """Issue 4, requeue: by topic, tenant or age; the others stay parked."""
    ids = await parked(admin, world, 3)
    topic, tenant = "another.topic", "00000000-0000-0000-0000-00000000000a"
    await admin.execute(
        "UPDATE crm.outbox SET topic = $2, tenant_id = $3, recorded_at = now() - interval '1 hour' WHERE id = $1",
        ids[1],
        topic,
        tenant,
    )
    value = {"--topic": topic, "--tenant": tenant, "--older-than": "30m"}[option]
    assert (await answer(world, "requeue", "--parked", option, value, "--limit", "9", *WHY))["requeued"] == 1
    assert [target for _, target, _ in await acts(admin)] == [f"outbox/{ids[1]}"]


async def test_spread_over_time_in_slices(world: World, admin: Admin) -> None:
    """Issue 4, requeue --over: slice after slice over the given time, the progress on standard error."""
    await parked(admin, world, 5)
    done = await call(world, "outbox", "requeue", "--parked", "--limit", "5", "--over", "6s", *WHY)
    assert (done.code, done.out) == (0, "requeued 5 records\n")
    assert done.err.splitlines() == ["requeued 2 of 5 records", "requeued 5 of 5 records"]


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
async def test_ctrl_c_leaves_the_rest_parked(world: World, admin: Admin, which: signal.Signals) -> None:
    """Issue 4, requeue --over: stopped between two slices; it says how many went, the database agrees, exit code 130."""
    await parked(admin, world, 10)
    ours = {"BOOKING_EXPIRATION_OPERATOR_DATABASE_URL": world.database.operator}
    running = await asyncio.create_subprocess_exec(
        COMMAND, "outbox", "requeue", "--parked", "--limit", "10", "--over", "10m", *WHY,
        cwd=ROOT, env=world.environment(ours), stdout=-1, stderr=-1,
    )  # fmt: skip
    assert running.stderr is not None
    assert await asyncio.wait_for(running.stderr.readline(), 20) == b"requeued 1 of 10 records\n"
    running.send_signal(which)
    out, err = await asyncio.wait_for(running.communicate(), 10)
    assert (running.returncode, out, err) == (130, b"requeued 1 record; stopped: 9 stay parked\n", b"")
    assert ((await outbox_rows.states(admin))["parked"], len(await acts(admin))) == (9, 1)


async def test_skip_says_what_is_lost(world: World, admin: Admin) -> None:
    """Issue 4, skip: the event, booking and object that downstream never hears of; the later record of the booking goes out."""
    record = (await parked(admin, world, 1, versions=2))[0]
    row = await admin.fetchrow("SELECT event_id, aggregate_id, convert_from(payload, 'UTF8') AS text FROM crm.outbox ORDER BY id")
    assert row is not None
    done = await call(world, "outbox", "skip", str(record), "--yes", *WHY)
    assert (done.code, done.err) == (0, "")
    lost = (
        row["event_id"],
        row["aggregate_id"],
        json.loads(row["text"])["PropertyObjectId"],
        "1 later record of this booking",
    )
    assert [word for word in map(str, lost) if word not in done.out] == []
    await world.start()
    assert (await world.result())["PublishedCount"] == 1
    assert await acts(admin) == [("skip_record", f"outbox/{record}", WHY[1])]


@pytest.mark.parametrize(("typed", "code", "skipped"), [(b"y\n", 0, 1), (b"n\n", 1, 0), (b"", 1, 0)])
async def test_skip_asks_first(world: World, admin: Admin, typed: bytes, code: int, skipped: int) -> None:
    """Issue 4, skip: without --yes it asks; no, or nobody there to answer, changes nothing."""
    record = (await parked(admin, world, 1))[0]
    ours = {"BOOKING_EXPIRATION_OPERATOR_DATABASE_URL": world.database.operator}
    asking = await asyncio.create_subprocess_exec(
        COMMAND, "outbox", "skip", str(record), *WHY, cwd=ROOT, env=world.environment(ours), stdin=-1, stdout=-1, stderr=-1
    )
    _, err = await asyncio.wait_for(asking.communicate(typed), 20)
    assert (asking.returncode, b"This cannot be taken back." in err, b"Traceback" in err) == (code, True, False)
    assert err.endswith(b"not confirmed: nothing was changed\n") == bool(code)
    assert ((await outbox_rows.states(admin))["skipped"], len(await acts(admin))) == (skipped, skipped)
