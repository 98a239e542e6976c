"""`status`, `preview`, `explain` and `history` as people call them, beside real workers (issue 4 section 4)."""

import json
import socket
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from temporalio.api.schedule.v1 import ScheduleState

from activities import schedule_state
from activities.schedule_note import Pause
from operators import sources, status
from operators.sources import Schedule
from operators.status import Status
from tests import floor
from tests.acceptance.command import call
from tests.acceptance.process import World
from tests.floor import MINUTE, Admin

NOWHERE = "127.0.0.1:1"
ELSEWHERE = f"postgresql://booking_expiration_operator@{NOWHERE}/crm"
HOUR = timedelta(hours=1)


async def answer(world: World, *arguments: str, **settings: str) -> Any:
    """What the command prints for programs."""
    done = await call(world, *arguments, "--json", **settings)
    assert done.code == 0, done
    return json.loads(done.out)


async def test_status_of_a_job_that_is_well(world: World) -> None:
    """Issue 4, status: after a good cycle the last cycle, the backlog, the outbox, the workers and the schema are well."""
    worker = await world.start()
    await world.result()
    seen = await answer(world, "status")
    assert (seen["cycle"]["outcome"], seen["unreadable"], seen["schema"]["missing"]) == ("completed", {}, [])
    assert seen["attention"] == ["schedule"]  # the test's world is paused
    assert {poller["kind"] for poller in seen["workers"] if poller["live"]} == {"workflow", "activity"}
    assert all(str(worker.process.pid) in poller["identity"] for poller in seen["workers"])
    assert (seen["outbox"], seen["poison"]) == ({"waiting": 0, "oldest_seconds": 0.0, "parked": 0}, 0)


async def test_status_says_what_is_wrong(world: World, admin: Admin) -> None:
    """Issue 4, status: exit code 0 as it could be read, and a line for each thing that needs somebody, whatever its words."""
    await floor.add(admin, 101, await floor.clock(admin) - HOUR)
    await admin.execute(
        "UPDATE crm.phase_pauses SET paused_at = now(), actor = 'ann', reason = '[bold]INC-1' WHERE phase = 'Booking'"
    )
    done = await call(world, "status", COLUMNS="200")
    assert (done.code, done.err) == (0, "")
    lines = {line.split("│")[2].strip(): line.split("│")[1].strip() for line in done.out.splitlines() if line.startswith("│")}
    wrong = {"schedule", "last cycle", "backlog Reserve", "phase Booking", "workers, workflow", "workers, activity"}
    assert {name for name, mark in lines.items() if mark == "attention"} == wrong
    assert "101 overdue, the oldest for 1 h 0 min" in done.out
    assert "paused by ann until somebody resumes it: [bold]INC-1" in done.out
    assert "paused by the test" in done.out


@pytest.mark.parametrize(
    ("ahead", "timer_runs", "says"),
    [
        (MINUTE, True, ", until 2026-07-01 12:01:00Z; last run"),
        (-MINUTE, True, ", until 2026-07-01 11:59:00Z (over, and nothing has resumed it: does a worker poll?); last run"),
        (MINUTE, False, ", until somebody resumes it: its timer, for 2026-07-01 12:01:00Z, is gone; last run"),
    ],
)
def test_status_says_what_became_of_a_pauses_end(ahead: timedelta, timer_runs: bool, says: str) -> None:  # noqa: FBT001 # a case
    """Issue 4 §1 and §4: no pause is shown to end by itself when nothing will end it."""
    now = datetime(2026, 7, 1, 12, tzinfo=UTC)
    pause = Pause("anna", now - HOUR, "why", now + ahead, "ab")
    schedule = Schedule("s", exists=True, paused=True, pause=pause, timer_runs=timer_runs)
    (line, *_) = status.lines(Status(now, None, schedule, None))
    assert line.text.startswith(f"paused by anna: why{says}")


@pytest.mark.parametrize(
    ("source", "settings", "left"),
    [
        ("temporal", {"TEMPORAL_ADDRESS": NOWHERE}, "cycle"),
        ("database", {"BOOKING_EXPIRATION_OPERATOR_DATABASE_URL": ELSEWHERE}, "schedule"),
    ],
)
async def test_status_with_one_source_away(world: World, source: str, settings: dict[str, str], left: str) -> None:
    """Issue 4, status: exit code 1, one line that says which source and where, and the other source's part is shown."""
    done = await call(world, "status", "--json", **settings)
    seen = json.loads(done.out)
    assert (done.code, list(seen["unreadable"]), seen[left] is not None) == (1, [source], True)
    assert (done.err.count("\n"), NOWHERE in done.err) == (1, True)
    assert (seen["cycle"] is None, seen["schedule"] is None) == (source == "database", source == "temporal")


async def test_preview(world: World, admin: Admin) -> None:
    """Issue 4, preview: totals, groups, the oldest twenty, cycles by the batch size; and nothing is changed."""
    now = await floor.clock(admin)
    await floor.add(admin, 5, now - HOUR)
    booked = await floor.add(admin, 25, now - 2 * HOUR, "Booked")
    seen = await answer(world, "preview", "--by", "phase", BOOKING_EXPIRATION_BATCH_SIZE="10")
    assert (seen["groups"], seen["cycles"]) == ({"Booking": 25, "Reserve": 5}, 3)
    assert [each["id"] for each in seen["oldest"]] == [str(each) for each in booked[:20]]
    only = await answer(world, "preview", "--phase", "reserve", "--as-of", f"{now - 90 * MINUTE:%Y-%m-%dT%H:%M:%SZ}")
    assert (list(only["phases"]), only["phases"]["Reserve"]["total"], only["cycles"], only["oldest"]) == (["Reserve"], 0, 0, [])
    assert await floor.statuses(admin) == {"Reserved": 5, "Booked": 25}


async def test_preview_for_people(world: World, admin: Admin) -> None:
    """Issue 4, preview: says the moment, the totals and how long it takes, and that looking changes nothing."""
    assert "no cycle has anything to do" in (await call(world, "preview")).out
    await floor.add(admin, 201, await floor.clock(admin) - HOUR)
    done = await call(world, "preview", "--by", "hour", COLUMNS="200")
    assert (done.code, done.err) == (0, "")
    assert "nothing is changed by looking" in done.out
    assert "Reserve: 201 bookings, the oldest due since" in done.out
    assert "takes 2 cycles (200 of each phase a minute), once the schedule is no longer paused\n" in done.out


async def test_preview_tells_what_its_cycles_wait_for(world: World, admin: Admin) -> None:
    """Issue 4, preview: a number of cycles is no promise while schedule, phase or safety catch keep them."""
    await floor.add(admin, 11, await floor.clock(admin) - HOUR, "Booked")
    await admin.execute("UPDATE crm.safety_catch SET hold_above = 10")
    await admin.execute("UPDATE crm.phase_pauses SET paused_at = now(), actor = 'ann', reason = 'why'")
    seen = await answer(world, "preview")
    assert [each["code"] for each in seen["waits_for"]] == ["schedule_paused", "phase_paused", "held"]
    done = await call(world, "preview", TEMPORAL_ADDRESS=NOWHERE, COLUMNS="200")
    assert "once Booking is no longer paused and the hold of more than 10 is over or released\n" in done.out
    assert (done.code, done.err.count("\n"), done.err.startswith("temporal could not be read: ")) == (1, 1, True)
    await admin.execute("UPDATE crm.safety_catch SET allowance = 4")
    assert (await answer(world, "preview"))["waits_for"][-1]["what"].endswith("released; 4 bookings may pass before")


async def test_a_temporal_that_says_nothing(world: World, admin: Admin) -> None:
    """Issue 4, preview: what the database has told does not wait longer than a few seconds for the schedule."""
    await floor.add(admin, 3, await floor.clock(admin) - HOUR)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        done = await call(world, "preview", TEMPORAL_ADDRESS=f"127.0.0.1:{silent.getsockname()[1]}", COLUMNS="200")
    assert (done.code, "no answer within 5 s" in done.err, "Reserve: 3 bookings" in done.out) == (1, True, True), done


async def test_a_schedule_whose_runs_are_used_up(world: World, admin: Admin) -> None:
    """D1, issue 4 §4: neither `schedule apply` nor `resume` lifts an operator's limit; what is said to help does."""
    booking_id = (await floor.add(admin, 1, await floor.clock(admin) - HOUR))[0]
    described = await schedule_state.existing(world.client, world.name)
    limit = ScheduleState(limited_actions=True, remaining_actions=0, notes="once")
    described.schedule.state.CopyFrom(limit)
    await schedule_state.write(world.client, world.name, described, described.schedule)
    for act in ("apply", "resume"):
        await call(world, "schedule", act, "--reason", "why")
        told = (await answer(world, "explain", str(booking_id)))["verdict"][0]
        assert (told["code"], told["do"]) == ("schedule_used_up", sources.renew(world.name))
    assert "its limited number of runs is used up" in (await call(world, "schedule", "show", COLUMNS="200")).out
    await world.client.get_schedule_handle(world.name).delete()
    await call(world, "schedule", "apply")
    state = (await answer(world, "status"))["schedule"]
    assert (state["used_up"], state["next_run"] is not None) == (False, True)


async def test_schedule_show_tells_of_phases(world: World, admin: Admin) -> None:
    """Issue 4 §4: a phase's pause is shown where the schedule's is; without the database that is said, and the rest is shown."""
    await admin.execute("UPDATE crm.phase_pauses SET paused_at = now(), actor = 'ann', reason = '[b]why' WHERE phase = 'Booking'")
    people = await call(world, "schedule", "show", COLUMNS="200")
    assert "Booking paused by ann until somebody resumes it: [b]why" in people.out
    assert [each["phase"] for each in (await answer(world, "schedule", "show"))["paused_phases"]] == ["Booking"]
    away = await call(world, "schedule", "show", BOOKING_EXPIRATION_OPERATOR_DATABASE_URL=ELSEWHERE, COLUMNS="200")
    assert (away.code, "not read: the database at 127.0.0.1:1" in away.out, "paused by the test" in away.out) == (0, True, True)
    unset = await call(world, "schedule", "show", BOOKING_EXPIRATION_OPERATOR_DATABASE_URL="", COLUMNS="200")
    assert (unset.code, "OPERATOR_DATABASE_URL: is not set" in unset.out) == (0, True)


async def test_explain_an_expired_booking(world: World, admin: Admin) -> None:
    """Issue 4, explain: what an expired booking left behind, down to the partition and the offset of its event."""
    booking_id = (await floor.add(admin, 1, await floor.clock(admin) - MINUTE))[0]
    await world.start()
    await world.result()
    seen = await answer(world, "explain", str(booking_id))
    assert [finding["code"] for finding in seen["verdict"]] == ["expired_published"]
    assert (seen["booking"]["status"], seen["booking"]["version"], seen["lock"]["state"]) == ("ReserveExpired", 2, "free")
    assert [(entry["actor"], entry["action"]) for entry in seen["audit"]] == [("system", "Expire")]
    assert [card["kind"] for card in seen["timeline"]] == ["ReserveExpired"]
    record = seen["outbox"][0]
    assert (record["topic"], record["attempts"], record["kafka_offset"], record["parked_at"]) == (world.topic, 1, 0, None)
    people = await call(world, "explain", str(booking_id), COLUMNS="200")
    assert f"{world.topic}, partition {record['kafka_partition']}, offset 0" in people.out


async def test_explain_why_not(world: World, admin: Admin) -> None:
    """Issue 4, explain: a poison booking that somebody holds, while the schedule is paused: each cause, the weightiest first."""
    booking_id = (await floor.add(admin, 1, await floor.clock(admin) - MINUTE))[0]
    await floor.poison(admin, [booking_id])
    await world.start()
    await world.result()
    holder = await asyncpg.connect(world.database.crm_app, server_settings={"application_name": "import job"})
    async with holder.transaction():
        await holder.execute("SELECT id FROM crm.bookings FOR UPDATE")
        done = await call(world, "explain", str(booking_id), COLUMNS="200")
    await holder.close()
    told = [
        line.strip("│ ") for line in done.out.splitlines() if line.startswith("│ ") and "Now:" not in line and "See:" not in line
    ]
    assert told[0] == "The schedule is paused, paused by the test."
    assert told[1].startswith("Also: It is refused as poison, 1 time, last at")
    assert told[1].endswith("database: poison booking (SQLSTATE P0001).")
    assert told[2].startswith(f"Also: Its row is locked by session {holder.get_server_pid()} (import job, role crm_app), since")


async def test_a_hold_is_told_by_what_is_due(world: World, admin: Admin) -> None:
    """Issue 4 §4: whatever the last cycle came to, `status` and `explain` tell of a hold, and a drain asks for --past-hold."""
    booking_id = (await floor.add(admin, 11, await floor.clock(admin) - HOUR))[0]
    await admin.execute("UPDATE crm.safety_catch SET hold_above = 10")
    await admin.execute("INSERT INTO crm.job_state VALUES ('booking-expiration', now(), now(), now(), 'run', 'stopped')")
    seen = await answer(world, "status")
    assert (seen["hold"], "hold" in seen["attention"]) == ({"held": True, "limit": 10, "allowance": 0}, True)
    assert "held" in {finding["code"] for finding in (await answer(world, "explain", str(booking_id)))["verdict"]}
    refused = await call(world, "drain", "--cap", "5", "--reason", "why")
    assert (refused.code, "--past-hold" in refused.err) == (1, True)
    await admin.execute("UPDATE crm.safety_catch SET hold_above = 11")
    nothing = await call(world, "release-hold", "--up-to", "5", "--reason", "why")
    assert (nothing.code, nothing.err[:16], nothing.err.count("\n")) == (1, "nothing is held ", 1)
    assert await admin.fetchval("SELECT count(*) FROM crm.operator_actions") == 0


async def test_explain_without_temporal(world: World, admin: Admin) -> None:
    """Issue 4, explain: with Temporal away all that the database knows is shown; exit code 1 says that a part is missing."""
    booking_id = (await floor.add(admin, 1, await floor.clock(admin) + HOUR))[0]
    done = await call(world, "explain", str(booking_id), "--json", TEMPORAL_ADDRESS=NOWHERE)
    seen = json.loads(done.out)
    assert (done.code, [finding["code"] for finding in seen["verdict"]]) == (1, ["not_due"])
    assert (done.err.count("\n"), done.err.startswith("temporal could not be read: ")) == (1, True)


async def test_history_of_a_booking(world: World, admin: Admin) -> None:
    """Issue 4, history: a booking's audit trail, and a word where there is none yet."""
    booking_id = (await floor.add(admin, 1, await floor.clock(admin) - MINUTE))[0]
    assert "Nothing has happened to it yet" in (await call(world, "history", str(booking_id))).out
    await world.start()
    await world.result()
    seen = await answer(world, "history", str(booking_id))
    assert [(entry["version"], entry["from_status"], entry["to_status"]) for entry in seen["audit"]] == [
        (2, "Reserved", "ReserveExpired")
    ]


async def test_history_of_operators(world: World, admin: Admin) -> None:
    """Issue 4, history --operator: newest first, since a moment, up to a limit; and where Temporal's own record is."""
    await admin.execute("""
        INSERT INTO crm.operator_actions (at, actor, action, target, reason)
        SELECT timestamptz '2026-07-01T00:00Z' + n * interval '1 hour', 'ann', 'act ' || n, 't', '[red]why'
        FROM generate_series(0, 4) n""")
    since = "2026-07-01T03:00:00+02:00"
    seen = await answer(world, "history", "--operator", "--since", since, "--limit", "3")
    assert [act["action"] for act in seen["acts"]] == ["act 4", "act 3", "act 2"]
    assert len((await answer(world, "history", "--operator", "--since", since))["acts"]) == 4
    people = await call(world, "history", "--operator", COLUMNS="200")
    assert "a resume, a trigger or a deletion of the schedule, and a terminate, done in the Web UI" in people.out
    assert "Temporal's own record" in people.out
    assert "[red]why" in people.out
