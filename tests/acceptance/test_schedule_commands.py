"""`schedule pause`, `resume` and `trigger` as people call them: what holds afterwards on the server and in the database."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from activities import schedule_note, schedule_state
from activities.schedule_note import NOTE
from operators import frame, schedule_acts
from operators.frame import CommandError
from tests.acceptance.command import Done, call
from tests.acceptance.process import World, soon
from tests.acceptance.test_worker_version import _set_current as set_current
from tests.acceptance.test_worker_version import _version as versioned
from tests.conftest import Administrator
from workflows import schedule

NOWHERE = "127.0.0.1:1"


@pytest.fixture
async def running(world: World) -> AsyncIterator[World]:
    """A world whose schedule is not paused, with the note that it was made with; a tick finds no worker."""
    await schedule_state.change(world.client, world.name, lambda state: schedule_state.altered(state, paused=False, note=NOTE))
    yield world
    for run in (await schedule_state.existing(world.client, world.name)).info.running_workflows:
        await world.client.get_workflow_handle(run.workflow_id).terminate()


async def _state(world: World) -> tuple[bool, str]:
    state = (await schedule_state.existing(world.client, world.name)).schedule.state
    return state.paused, state.notes


async def _acts(admin: Administrator) -> list[Any]:
    rows = await admin.fetch("SELECT actor, action, target, reason, details FROM crm.operator_actions ORDER BY id")
    return [{**row, "details": json.loads(row["details"])} for row in rows]


async def _data(done: Done) -> Any:
    assert done.code == 0, done
    return json.loads(done.out)


async def test_pause_and_resume(running: World, admin: Administrator) -> None:
    """Issue 4, sections 1 and 4: the note keeps what it says and adds who, when and why; each act is one row."""
    done = await call(running, "schedule", "pause", "--reason", "wrong\ndeadlines [bold]")
    assert (done.code, done.err) == (0, "")
    paused, note = await _state(running)
    read = schedule_note.read(note)
    assert read is not None
    assert (paused, note.startswith(f"{NOTE}\n\nPaused by "), read.reason, read.mark) == (
        True,
        True,
        "wrong deadlines [bold]",
        None,
    )
    assert (await call(running, "schedule", "resume", "-r", "corrected")).code == 0
    ended, last = await _state(running)
    assert (ended, last.startswith(f"{NOTE}\n\nResumed by {read.by} at 2"), last.endswith(": corrected")) == (False, True, True)
    first, second = await _acts(admin)
    assert (first["action"], first["target"], first["actor"]) == ("pause_schedule", f"schedule/{running.name}", read.by)
    assert first["details"] == {"before": {"paused": False, "note": NOTE}, "after": {"paused": True, "note": note}}
    assert (second["action"], second["details"]["before"], second["details"]["after"]["note"]) == (
        "resume_schedule",
        first["details"]["after"],
        last,
    )


async def test_a_redeploy_leaves_the_pause(running: World) -> None:
    """D1: a worker's start, with other settings too, changes neither pause nor note; the pause changed nothing else."""
    before = await schedule_state.existing(running.client, running.name)
    await call(running, "schedule", "pause", "--reason", "wrong deadlines")
    paused = await _state(running)
    assert await schedule.ensure(running.client, schedule.ScheduleSettings(running.name, running.name, 200)) == "unchanged"
    await running.start(BOOKING_EXPIRATION_BATCH_SIZE="100")
    assert (await _state(running), paused[0]) == (paused, True)
    after = await schedule_state.existing(running.client, running.name)
    assert schedule.differences(after.schedule, before.schedule) == ["action"]


async def test_pause_for_a_time_ends_by_itself(running: World, admin: Administrator) -> None:
    """Issue 4, section 4: `--for` names its timer, `show` says until when, and a worker ends the pause."""
    await running.start()
    paused = await _data(await call(running, "schedule", "pause", "-r", "a try", "--for", "12s", "--json"))
    shown = await _data(await call(running, "schedule", "show", "--json"))
    assert paused["warnings"] == []
    assert shown["pause"] == paused["pause"]
    assert shown["timer"] == {"workflow_id": f"booking-expiration-resume-{shown['pause']['mark']}", "running": True}

    async def resumed() -> bool:
        return not (await _state(running))[0]

    await soon(resumed, "the pause's end")
    result = await running.client.get_workflow_handle(paused["timer"]).result()
    acts = await _acts(admin)
    assert result["resumed"]
    assert [act["action"] for act in acts] == ["pause_schedule", "resume_schedule"]
    assert acts[1]["actor"] == f"timer for {acts[0]['actor']}"


async def test_pausing_twice_the_later_one_wins(running: World) -> None:
    """Issue 4, section 4: the first timer leaves the second pause alone, and both say so."""
    await running.start()
    first = await _data(await call(running, "schedule", "pause", "-r", "first", "--for", "15s", "--json"))
    second = await _data(await call(running, "schedule", "pause", "-r", "second", "--for", "2h", "--json"))
    assert second["replaced"] == first["pause"]
    assert not (await running.client.get_workflow_handle(first["timer"]).result())["resumed"]
    shown = await _data(await call(running, "schedule", "show", "--json"))
    assert (shown["schedule"]["state"]["paused"], shown["pause"]) == (True, second["pause"])
    assert (await _data(await call(running, "status", "--json")))["schedule"]["timer_runs"]
    await running.client.get_workflow_handle(second["timer"]).terminate()
    assert "until somebody resumes it: its timer, for" in (await call(running, "status", COLUMNS="200")).out
    assert "NOT by itself" in (await call(running, "schedule", "show", COLUMNS="200")).out


async def test_a_pause_that_comes_to_nothing(running: World, monkeypatch: pytest.MonkeyPatch, admin: Administrator) -> None:
    """Issue 4, section 4: the timer starts first; where the pause itself is not known to be in place, the user is told."""
    for name, value in running.environment({"BOOKING_EXPIRATION_OPERATOR_DATABASE_URL": running.database.operator}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(schedule_acts, "WRITE_LIMIT", 0.0)
    with pytest.raises(CommandError, match="the schedule may not be paused: no answer within 0 s; look what holds now"):
        await schedule_acts.pause(frame.settings(), "why", timedelta(seconds=2), replace=False)
    [act] = await _acts(admin)
    read = schedule_note.read(act["details"]["after"]["note"])
    assert read is not None
    await running.start()
    timer = await running.client.get_workflow_handle(f"booking-expiration-resume-{read.mark}").result()
    assert (timer["resumed"], (await _state(running))[0]) == (False, False)


@pytest.mark.slow
async def test_the_timer_outlives_a_roll_out(running: World) -> None:
    """Trap 16: a timer that began on one version of the worker is ended by the next one; cycles are pinned, it is not."""
    first = await running.start(**versioned(running, "1"))
    await soon(lambda: set_current(running, "1"), "version 1 to be known")
    paused = await _data(await call(running, "schedule", "pause", "-r", "a roll-out", "--for", "20s", "--json"))
    handle = running.client.get_workflow_handle(paused["timer"])

    async def began() -> bool:
        return (await handle.describe()).history_length > 3

    await soon(began, "the timer's start on version 1")
    await first.stop()
    await running.start(**versioned(running, "2"))
    await soon(lambda: set_current(running, "2"), "version 2 to be known")
    assert (await handle.result())["resumed"]


async def test_a_pause_without_an_end_gets_none_by_accident(world: World, admin: Administrator) -> None:
    """Issue 4, section 4: a timer must not end what somebody else paused until further notice, unless that is asked for."""
    refused = await call(world, "schedule", "pause", "-r", "mine", "--for", "30m")
    assert (refused.code, refused.out, refused.err.count("\n")) == (1, "", 1)
    assert "paused by the test; a timer would resume that too" in refused.err
    assert (await _state(world), await _acts(admin)) == ((True, "paused by the test"), [])
    done = await _data(await call(world, "schedule", "pause", "-r", "mine", "--for", "30m", "--replace", "--json"))
    assert done["replaced"]["reason"] == "paused by the test"
    assert done["warnings"] == [f"no worker polls the task queue {world.name}: start one, and nobody resumes until then"]
    await world.client.get_workflow_handle(done["timer"]).terminate()


async def test_resume_after_a_pause_in_the_web_ui(world: World) -> None:
    """Issue 4, section 1: the Web UI's pause and its resume replace the note; `schedule resume` restores it after either."""
    shown = await _data(await call(world, "schedule", "show", "--json"))
    assert (shown["pause"]["reason"], shown["pause"]["at"], shown["timer"]) == ("paused by the test", None, None)
    await call(world, "schedule", "resume", "-r", "over")
    assert (await _state(world))[1].startswith(NOTE)
    await world.client.get_schedule_handle(world.name).unpause(note="resumed in the Web UI")
    assert (await _data(await call(world, "schedule", "resume", "-r", "note", "--json")))["changed"]
    assert (await _state(world))[1].startswith(NOTE)
    assert not (await _data(await call(world, "schedule", "resume", "-r", "note", "--json")))["changed"]


async def test_trigger_runs_one_cycle_though_paused(world: World, admin: Administrator) -> None:
    """Issue 4, section 4: it names the workflow that it started; the schedule stays paused."""
    await world.start()
    triggered = await _data(await call(world, "schedule", "trigger", "--json"))
    result = await world.client.get_workflow_handle(triggered["workflow_id"], run_id=triggered["run_id"]).result()
    assert (triggered["paused"], triggered["warnings"], result["Outcome"]) == (True, [], "completed")
    assert (await _state(world))[0]
    assert [act["action"] for act in await _acts(admin)] == ["trigger_schedule"]
    text = (await call(world, "schedule", "trigger")).out
    assert "triggered, once, though it is paused\nworkflow " in text


async def test_trigger_while_a_cycle_runs(world: World, admin: Administrator) -> None:
    """Trap 6: the server would drop it silently, so it is refused, with the workflow that is in the way."""
    cycle = await world.trigger()
    done = await call(world, "schedule", "trigger")
    assert (done.code, done.out, cycle.id in done.err) == (1, "", True)
    assert done.err.startswith("not triggered: a cycle is running ")
    assert await _acts(admin) == []
    assert cycle.id in (await call(world, "schedule", "show", COLUMNS="200")).out
    await cycle.terminate()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["pause"], "Missing option '--reason' / '-r' (see booking-expiration schedule pause --help)"),
        (["resume"], "Missing option '--reason' / '-r' (see booking-expiration schedule resume --help)"),
        (["pause", "--reason", " \n"], "--reason: say why"),
        pytest.param(["pause", "--reason", "x" * 501], "--reason: 501 characters are too many", marks=pytest.mark.slow),
        pytest.param(["apply", "--reason", ""], "--reason: say why", marks=pytest.mark.slow),
        *(
            pytest.param(
                ["pause", "-r", "x", "--for", wrong],
                f"--for: {wrong!r} is {'more than 7d' if wrong in ('8d', '168h1s') else 'no length of time'}",
                marks=[] if wrong == "0s" else [pytest.mark.slow],
            )
            for wrong in ("0s", "-5m", "8d", "168h1s", "soon", "", "30", "1.5h", "9" * 30 + "m", "٣m")
        ),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_wrong_use(world: World, admin: Administrator, arguments: list[str], says: str) -> None:
    """Issue 4, bad input: one line, exit code 2, nothing written, nothing changed."""
    done = await call(world, "schedule", *arguments)
    assert (done.code, done.out, done.err.count("\n"), says in done.err) == (2, "", 1, True), done
    assert (await _state(world), await _acts(admin)) == ((True, "paused by the test"), [])


async def test_apply_is_written_down(world: World, admin: Administrator) -> None:
    """Issue 4 §4: what `schedule apply` creates or changes is an act, with what was there before; where nothing differs, none."""
    new = {"BOOKING_EXPIRATION_SCHEDULE_ID": f"{world.name}-new"}
    away = f"postgresql://booking_expiration_operator@{NOWHERE}/crm"
    try:
        refused = await call(world, "schedule", "apply", BOOKING_EXPIRATION_OPERATOR_DATABASE_URL=away, **new)
        assert (refused.code, refused.err.count("\n"), "cannot be reached" in refused.err) == (1, 1, True), refused
        assert await schedule.describe(world.client, f"{world.name}-new") is None
        for size in ("200", "200", "50"):
            await call(world, "schedule", "apply", "-r", f"size {size}", BOOKING_EXPIRATION_BATCH_SIZE=size, **new)
    finally:
        await world.client.get_schedule_handle(f"{world.name}-new").delete()
    created, updated = await _acts(admin)
    assert [act["details"]["change"] for act in (created, updated)] == ["created", "updated"]
    assert (updated["action"], updated["target"], updated["reason"]) == (
        "apply_schedule",
        f"schedule/{world.name}-new",
        "size 50",
    )
    assert sorted(created["details"]["after"]) == ["action", "policies", "spec"]
    assert updated["details"]["before"] == {"action": created["details"]["after"]["action"]} != updated["details"]["after"]


@pytest.mark.parametrize("command", ["pause", pytest.param("resume", marks=pytest.mark.slow)])
async def test_servers_away(world: World, command: str) -> None:
    """Exit code 1, one line with what was tried; without its row in the database nothing is changed on Temporal."""
    url = f"postgresql://booking_expiration_operator@{NOWHERE}/crm"
    away = [
        await call(world, "schedule", command, "-r", "x", TEMPORAL_ADDRESS=NOWHERE),
        await call(world, "schedule", command, "-r", "x", BOOKING_EXPIRATION_OPERATOR_DATABASE_URL=url),
        await call(world, "schedule", command, "-r", "x", BOOKING_EXPIRATION_SCHEDULE_ID="nowhere"),
    ]
    assert [(done.code, done.out, done.err.count("\n")) for done in away] == [(1, "", 1)] * 3
    assert [word in done.err for done, word in zip(away, (NOWHERE, "database", "no schedule nowhere"), strict=True)] == [True] * 3
    assert (await _state(world))[0]


@pytest.mark.parametrize("apart", [0.0, 0.1, 0.15])
async def test_two_in_step(running: World, apart: float) -> None:
    """Whoever writes between another's writing and reading back must not be overwritten for ever: both come to an end."""

    async def write(note: str, after: float) -> bool:
        await asyncio.sleep(after)
        wanted = lambda state: schedule_state.altered(state, paused=True, note=note)  # noqa: E731
        return await schedule_state.change(running.client, running.name, wanted)

    assert all(await asyncio.gather(write("one", 0), write("two", apart)))
    assert await _state(running) in {(True, "one"), (True, "two")}


async def test_two_operators_at_once(running: World, admin: Administrator) -> None:
    """Trap 5: two pauses in the same moment: both are written down, one note stands, whole."""
    both = await asyncio.gather(*(call(running, "schedule", "pause", "-r", reason) for reason in ("one", "two")))
    read = schedule_note.read((await _state(running))[1])
    assert [done.code for done in both] == [0, 0], both
    assert read is not None
    assert read.reason in {"one", "two"}
    assert {act["reason"] for act in await _acts(admin)} == {"one", "two"}
