"""`doctor` on real servers: each thing that can be wrong is made wrong, and found; the rest goes on (issue 4, section 4)."""

import json
import re
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from temporalio.api.schedule.v1 import Schedule

from activities import schedule_note, schedule_state
from activities.schedule_note import NOTE
from contracts import topic as code
from operators import doctor, sources
from operators.checks import clocks
from operators.checks.finding import Finding, State
from operators.checks.places import Places
from tests.acceptance.command import call
from tests.acceptance.process import World, a_namespace
from tests.conftest import Administrator
from workflows import schedule
from workflows.schedule import ScheduleSettings

NOWHERE = "127.0.0.1:1"
OPERATOR = "BOOKING_EXPIRATION_OPERATOR_DATABASE_URL"
Ask = Callable[..., Awaitable[dict[str, Finding]]]


@pytest.fixture
def ask(world: World, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """The findings by name, in this process: a command line for each would take ten times as long."""

    async def examined(**settings: str) -> dict[str, Finding]:
        with monkeypatch.context() as patched:
            for name, value in world.environment({OPERATOR: world.database.operator, **settings}).items():
                patched.setenv(name, value)
            return {finding.check: finding for finding in await doctor.examined()}

    return examined


@pytest.fixture
async def make_topic(world: World) -> AsyncIterator[Callable[..., Awaitable[str]]]:
    """Topics with the configuration of a test, gone after it."""
    admin, made = AIOKafkaAdminClient(bootstrap_servers=world.servers["KAFKA_BOOTSTRAP_SERVERS"]), list[str]()
    await admin.start()

    async def make(**configuration: str) -> str:
        made.append(f"test.{uuid4()}")
        wanted = {**code.CONFIGURATION, "min.insync.replicas": "1", **{k.replace("_", "."): v for k, v in configuration.items()}}
        await admin.create_topics([NewTopic(made[-1], code.PARTITIONS, 1, topic_configs=wanted)])
        return made[-1]

    yield make
    await admin.delete_topics(made)
    await admin.close()


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes connections and says nothing."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        yield f"127.0.0.1:{server.getsockname()[1]}"


def _bad(found: dict[str, Finding], state: State = State.FAIL) -> set[str]:
    return {name for name, finding in found.items() if finding.state is state}


async def _alter(world: World, change: Callable[[Schedule], Any]) -> None:
    """Change the schedule on the server, as another program might."""
    described = await schedule_state.existing(world.client, world.name)
    change(described.schedule)
    await schedule_state.write(world.client, world.name, described, described.schedule)


async def test_all_is_well(world: World, make_topic: Callable[..., Awaitable[str]]) -> None:
    """Issue 4, section 4: on a whole stack with a worker nothing fails, and only the single broker is warned of; exit code 0."""
    await schedule_state.change(world.client, world.name, lambda state: schedule_state.altered(state, paused=False, note=NOTE))
    await world.start()
    ours = {"BOOKING_EXPIRATION_TOPIC": await make_topic()}
    answered = json.loads((done := await call(world, "doctor", "--json", **ours)).out)
    assert (done.code, answered["ok"], done.err) == (0, True, "")
    assert {finding["check"] for finding in answered["findings"] if finding["state"] != "ok"} == {"topic"}
    lines = (await call(world, "doctor", **ours)).out.splitlines()
    assert [line for line in lines if "database: connected as booking_expiration_" in line] != []
    assert lines[-1] == f"{len(answered['findings']) - 1} ok, 1 warn, 0 FAIL"


async def test_what_fails_is_exit_code_1(world: World) -> None:
    """Issue 4, section 4: one line for each check, and below each that is not ok what to do; no worker polls here."""
    done = await call(world, "doctor", COLUMNS="40")
    lines = done.out.splitlines()
    assert (done.code, done.err) == (1, "")
    place = lines.index(f"FAIL  workers: nobody polls the task queue {world.name} for workflow work")
    assert lines[place + 1].startswith("      → start a worker")


async def test_a_missing_grant(ask: Ask, admin: Administrator) -> None:
    """Issue 4, section 4: the role, the right and the columns are named, and what it says to do heals it."""
    await admin.execute("REVOKE UPDATE (status, version) ON crm.bookings FROM booking_expiration_worker")
    await admin.execute("REVOKE SELECT ON crm.outbox FROM booking_expiration_operator")
    found = (await ask())["grants"]
    assert (found.state, found.what.split("; ")) == (
        State.FAIL,
        [
            "booking_expiration_worker lacks UPDATE (status, version) on crm.bookings",
            "booking_expiration_operator lacks SELECT on crm.outbox",
        ],
    )
    await admin.execute(found.todo.removeprefix("as booking_expiration_owner: "))
    assert (await ask())["grants"].state is State.OK


async def test_a_missing_right_on_the_schema(ask: Ask, admin: Administrator) -> None:
    """Issue 4, section 4: without the schema's own right no other one helps."""
    await admin.execute("REVOKE USAGE ON SCHEMA crm FROM booking_expiration_worker")
    assert (await ask())["grants"].todo == "as booking_expiration_owner: GRANT USAGE ON SCHEMA crm TO booking_expiration_worker"


async def test_migrations_that_differ(ask: Ask, admin: Administrator) -> None:
    """D18: a missing one fails and is named with the command; a database that is ahead is only said."""
    await admin.execute("INSERT INTO crm.schema_migrations VALUES ('9999')")
    ahead = (await ask())["migrations"]
    await admin.execute("DELETE FROM crm.schema_migrations WHERE version IN ('0002', '9999')")
    missing = (await ask())["migrations"]
    assert (ahead.state, ahead.what) == (State.WARN, "the database is ahead of this program: 9999")
    assert (missing.state, "0002" in missing.what, missing.todo[:6]) == (State.FAIL, True, "dbmate")


async def test_another_role(world: World, ask: Ask) -> None:
    """Issue 4, section 4: the wrong role fails and is named; an administrator is warned of."""
    wrong = await ask(**{OPERATOR: world.database.crm_app, "DATABASE_URL": world.database.admin})
    assert wrong["database"].state is State.FAIL
    assert "connected as crm_app" in wrong["database"].what
    assert wrong["database"].what.endswith("which is not booking_expiration_operator")
    assert (wrong["worker's database"].state, wrong["worker's database"].what[-11:]) == (State.WARN, "a superuser")


async def test_time_outs_of_a_role(world: World, ask: Ask, admin: Administrator) -> None:
    """Trap 24: a setting that somebody changed, here for this one database, is named with both values."""
    await admin.execute(f"ALTER ROLE booking_expiration_worker IN DATABASE {world.database.name} SET lock_timeout = '1h'")
    found = (await ask())["roles"]
    assert (found.state, found.what) == (State.WARN, "booking_expiration_worker: lock_timeout is 1h, not 5s")


async def test_no_search_attributes(world: World, ask: Ask) -> None:
    """D28: a fresh namespace has none of the four; each has its command."""
    async with a_namespace(world) as elsewhere:
        await schedule.ensure(elsewhere.client, ScheduleSettings(world.name, world.name, 200))
        found = (await ask(TEMPORAL_NAMESPACE=elsewhere.client.namespace))["search attributes"]
    assert (found.state, found.what.count(",")) == (State.WARN, 4)
    assert "temporal operator search-attribute create --name ExpirationOutcome --type Keyword; " in found.todo
    assert found.todo.count("--type Int") == 3


async def test_no_such_namespace(ask: Ask) -> None:
    """D21: a namespace that is not there fails, and nothing else of the database's or Kafka's does."""
    found = await ask(TEMPORAL_NAMESPACE="nowhere")
    assert "nowhere is not found" in found["Temporal"].what
    assert _bad(found) & {"database", "grants", "migrations", "Kafka"} == set()


async def test_a_schedule_that_is_not_the_codes(world: World, ask: Ask) -> None:
    """D1: changed policies and times fail by name, another batch size alone is a warning with both values."""
    await schedule.ensure(world.client, ScheduleSettings(world.name, world.name, 50))
    size = (await ask())["schedule"]
    assert (size.state, size.what) == (State.WARN, "batch size 50 there, 200 by the settings here")

    def change(server: Schedule) -> None:
        server.policies.pause_on_failure = True
        server.spec.structured_calendar[0].minute[0].step = 2

    await _alter(world, change)
    found = (await ask())["schedule"]
    assert (found.state, found.what) == (State.FAIL, "not as this program makes it: spec, action, policies")


async def test_a_schedule_that_does_not_fire(world: World, ask: Ask) -> None:
    """D1: no schedule and one that is used up fail; a pause is told with who, why, and whether its timer is there."""
    note = schedule_note.paused(schedule_note.Pause("anna", datetime.now(UTC), "why", datetime.now(UTC), "abcdef"))
    await schedule_state.change(world.client, world.name, lambda state: schedule_state.altered(state, paused=True, note=note))
    paused = (await ask())["schedule fires"]
    assert (paused.state, paused.what[:19], paused.what[-23:]) == (State.WARN, "paused by anna: why", ", but its timer is gone")
    await _alter(world, lambda server: server.state.MergeFrom(type(server.state)(limited_actions=True, remaining_actions=0)))
    assert (await ask())["schedule fires"] == paused  # bringing back a schedule that somebody paused would start it
    await schedule_state.change(world.client, world.name, lambda state: schedule_state.altered(state, paused=False, note="x"))
    assert (await ask())["schedule fires"].todo == sources.renew(world.name)
    none = await ask(BOOKING_EXPIRATION_SCHEDULE_ID="nowhere")
    assert (none["schedule"].state, none["schedule"].todo) == (State.FAIL, "booking-expiration schedule apply")


@pytest.mark.parametrize(
    ("configuration", "state", "says"),
    [
        ({"min_insync_replicas": "2"}, State.FAIL, "with acks=all nothing can be sent there"),
        ({"cleanup_policy": "compact"}, State.FAIL, "cleanup.policy is compact"),
        ({"retention_ms": "60000"}, State.WARN, "retention.ms: 60000, not 1209600000"),
    ],
    ids=["no quorum", "compacted", "short retention"],
)
async def test_a_topic_that_differs(
    ask: Ask, make_topic: Callable[..., Awaitable[str]], configuration: dict[str, str], state: State, says: str
) -> None:
    """Issue 4, section 4: what keeps events from going out, or loses them, fails; other differences are warnings."""
    found = (await ask(BOOKING_EXPIRATION_TOPIC=await make_topic(**configuration)))["topic"]
    assert (found.state, says in found.what) == (state, True), found


async def test_no_topic(ask: Ask) -> None:
    """Trap 33: a missing topic fails with the command that makes it; the brokers are well."""
    found = await ask(BOOKING_EXPIRATION_TOPIC="test.nowhere")
    assert (found["topic"].state, found["topic"].todo) == (State.FAIL, "booking-expiration contract topic create")
    assert found["Kafka"].state is State.OK


AWAY = {
    "Kafka": ("KAFKA_BOOTSTRAP_SERVERS", "{}", {"topic", "Kafka's TLS"}),
    "Temporal": ("TEMPORAL_ADDRESS", "{}", {"schedule", "schedule fires", "search attributes", "Temporal's TLS"}),
    "database": (OPERATOR, "postgresql://x@{}/crm", {"roles", "grants", "migrations", "database's TLS"}),
}


@pytest.mark.parametrize("what", AWAY)
@pytest.mark.parametrize("how", ["nobody there", pytest.param("silent", marks=pytest.mark.slow)])
async def test_a_server_away(ask: Ask, silent: str, what: str, how: str) -> None:
    """Issue 4, section 4: its own line fails within ten seconds, what depends on it says so, all else is looked at."""
    variable, form, depending = AWAY[what]
    began = time.monotonic()
    found = await ask(**{variable: form.format(NOWHERE if how == "nobody there" else silent)})
    assert time.monotonic() - began < 10
    assert (found[what].state, found[what].todo != "") == (State.FAIL, True)
    assert {name for name, finding in found.items() if finding.what.startswith("not looked at")} >= depending
    assert {found[name].state for name in AWAY if name != what} == {State.OK}


async def test_wrong_and_missing_settings(ask: Ask) -> None:
    """Issue 4, section 4: wrong ones fail with their line and keep nothing else from being looked at; missing ones are told."""
    found = await ask(BOOKING_EXPIRATION_DRAIN_LIMIT="many", DATABASE_URL="", TEMPORAL_ADDRESS="not a host", **{OPERATOR: ""})
    assert found["settings"].what.startswith(f"{OPERATOR}: is not set; for example ")
    assert "BOOKING_EXPIRATION_DRAIN_LIMIT: " in found["worker's settings"].what
    assert found["Temporal's settings"].what.startswith("TEMPORAL_*: a host must be written host:port")
    assert found["grants"].what == "not looked at: how to reach the database is not set here"
    assert found["Kafka"].state is State.OK
    assert "OTEL_METRICS_EXPORTER" in (await ask(OTEL_METRICS_EXPORTER="console"))["worker's settings"].what
    unset = await ask(DATABASE_URL="", KAFKA_BOOTSTRAP_SERVERS="")
    assert unset["worker's settings"].what == "not given here: DATABASE_URL, KAFKA_BOOTSTRAP_SERVERS"
    assert _bad(unset) == {"workers"}


@pytest.mark.parametrize(
    ("seconds", "state"), [(0, State.OK), (3, State.WARN), (-30, State.FAIL)], ids=["right", "3 s ahead", "30 s behind"]
)
async def test_clocks(world: World, monkeypatch: pytest.MonkeyPatch, seconds: int, state: State) -> None:
    """D2: against the real servers' clocks, a machine that is off by seconds is told by how much."""
    for name, value in world.environment({OPERATOR: world.database.operator}).items():
        monkeypatch.setenv(name, value)
    places = Places(now=lambda: datetime.now(UTC) + timedelta(seconds=seconds))
    found = await clocks.clocks(places)
    await places.close()
    assert found.state is state, found
    apart = [float(figure) for figure in re.findall(r"(\d+\.\d\d) s", found.what)]
    assert apart == pytest.approx([abs(seconds)] * 2, abs=0.5)


async def test_the_workers_clock(ask: Ask, admin: Administrator) -> None:
    """D2: by what the newest cycle left, since the worker's machine is elsewhere; without it nobody knows, and that is said."""
    unknown = (await ask())["clocks"]
    assert (unknown.state, unknown.what.endswith("the worker's clock is not known")) == (State.OK, True)
    await admin.execute("""
        INSERT INTO crm.job_state (job, last_started_at, worker_clock_at)
        VALUES ('booking-expiration', now() - interval '2 minutes', now() - interval '90 seconds')""")
    found = (await ask())["clocks"]
    assert found.state is State.FAIL
    assert re.search(r"the worker \(at the cycle 2 min \d+ s ago\) (29|30)\.\d\d s ahead of this machine", found.what), found


async def test_a_paused_phase(ask: Ask, admin: Administrator) -> None:
    """Issue 4, section 4: a phase's pause is shown wherever a pause is shown, with who, until when, why and what ends it."""
    await admin.execute("UPDATE crm.phase_pauses SET paused_at = now(), actor = 'ann', reason = 'why' WHERE phase = 'Booking'")
    found = (await ask())["phases"]
    assert (found.state, found.what) == (State.WARN, "Booking is paused by ann until somebody resumes it: why")
    assert found.todo == "when the reason is over: booking-expiration phase resume Booking --reason …"


async def test_every_check_is_in_the_list(world: World) -> None:
    """Issue 4, section 4: the operator's role alone, without the worker's variables, still sees all that is shared."""
    done = await call(
        world, "doctor", "--json", DATABASE_URL="", KAFKA_BOOTSTRAP_SERVERS=world.servers["KAFKA_BOOTSTRAP_SERVERS"]
    )
    states = {finding["check"]: finding["state"] for finding in json.loads(done.out)["findings"]}
    assert {states[name] for name in ("roles", "grants", "migrations", "phases", "Kafka", "clocks")} == {"ok"}
    assert "worker's database" not in states
