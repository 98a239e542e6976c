"""`make demo`: it plays to the end by itself, tells it in plain lines, and leaves nothing behind (issue 3, section 9)."""

import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import asyncpg
import psutil
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from temporalio.client import Client

from activities.messages import CycleResult
from devstack import addresses as names
from devstack.demo_cycles import Cycle, Event, Events
from devstack.demo_ending import Ending
from devstack.demo_floor import Sums
from devstack.demo_grid import Objects

ROOT = Path(__file__).resolve().parent.parent.parent
MARK = "DEMO_TEST_MARK"
SUMS = re.compile(
    r"ok +Sums: (\d+) bookings expired = \1 in the cycles' results = \1 audit rows .* = \1 events consumed, each once"
)


def start(environment: Mapping[str, str]) -> "subprocess.Popen[str]":
    """The demo, with plain pipes for input and output."""
    return subprocess.Popen(
        [sys.executable, "-m", "devstack.demo"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env=dict(environment),
    )


def marked(mark: str) -> list[str]:
    """The processes that descend from a demo started with this mark, however they were detached."""
    return [process.name() for process in psutil.process_iter() if _mark_of(process) == mark]


def _mark_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(MARK)
    except psutil.Error:
        return None


@pytest.fixture
def mark() -> Iterator[str]:
    """A word in the environment of the demo and all its children; none of them may be left."""
    word = secrets.token_hex(8)
    yield word
    assert marked(word) == []


@pytest.fixture
def without_addresses(mark: str) -> dict[str, str]:
    """The environment of a newcomer: no server is given."""
    return {**{name: value for name, value in os.environ.items() if name not in names.NAMES}, MARK: mark, "FORCE_COLOR": "1"}


def ended(demo: "subprocess.Popen[str]", seconds: float) -> str:
    """What it said until its end; one that does not come to an end is stopped, and what it said is told."""
    try:
        return demo.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        demo.terminate()
        pytest.fail(f"the demo did not end within {seconds:.0f} seconds:\n{demo.communicate(timeout=60)[0]}")


@pytest.mark.slow
@pytest.mark.timeout(360)
def test_plays_to_the_end_by_itself(without_addresses: dict[str, str]) -> None:
    """Section 9: three triggered cycles or more, a tick on the minute, right sums, no colours in a pipe.

    It waits for one full minute of the clock, so how long it takes says little, and beside other tests nothing.
    """
    demo = start(without_addresses)
    output = ended(demo, 280)
    assert demo.returncode == 0, output
    assert re.search(r"^The demo took \d+ seconds; nothing of it is left\.$", output, re.MULTILINE)
    assert SUMS.search(output)
    assert "\x1b" not in output
    assert len(re.findall(r" completed$", output, re.MULTILINE)) >= 4
    assert re.search(r"on the minute .* completed$", output, re.MULTILINE)
    assert "ok     Locked by a manager: skipped" in output
    assert "ok     Poison: refused in" in output
    assert re.search(r"ok +Chessboard: \d+ flats turned free, each of an expired booking", output)


async def _left_on(addresses: Mapping[str, str]) -> tuple[list[str], list[str], list[str]]:
    """The demo's databases, topics and schedules on the given servers."""
    admin = await asyncpg.connect(addresses[names.ADMIN])
    databases = [row["datname"] for row in await admin.fetch("SELECT datname FROM pg_database WHERE datname LIKE '%demo%'")]
    await admin.close()
    kafka = AIOKafkaAdminClient(bootstrap_servers=addresses[names.KAFKA])
    await kafka.start()
    topics = [topic for topic in await kafka.list_topics() if "demo" in topic]
    await kafka.close()
    client = await Client.connect(addresses[names.TEMPORAL])
    return databases, topics, [listed.id async for listed in await client.list_schedules() if "demo" in listed.id]


@pytest.mark.slow
@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
async def test_stopped_on_given_servers_leaves_them_as_they_were(
    addresses: Mapping[str, str], mark: str, which: signal.Signals
) -> None:
    """On given servers the demo works in a database, topic and schedule of its own; stopped half way, it removes them."""
    demo = start({**os.environ, **addresses, MARK: mark})
    assert demo.stdout is not None
    seen = next((line for line in demo.stdout if "triggered  " in line), None)
    assert seen is not None
    assert all(len(found) == 1 for found in await _left_on(addresses))
    demo.send_signal(which)
    output, _ = demo.communicate(timeout=60)
    assert (demo.returncode, "nothing is left behind" in output) == (128 + which, True), output
    assert await _left_on(addresses) == ([], [], [])


def test_an_address_too_few_is_named(mark: str) -> None:
    """A database that is given without the roles that the demo needs is refused in one line, before anything starts."""
    demo = start({"DATABASE_URL": "postgresql://worker@127.0.0.1:1/crm", MARK: mark})
    output, _ = demo.communicate(timeout=60)
    assert demo.returncode == 1
    assert "demo: DATABASE_URL is set" in output.splitlines()[-1]
    assert names.ADMIN in output


def _ending(*, audited: int = 2, twice: bool = False, freed: int = 2, wrong: int = 0) -> Ending:
    ids = [uuid4(), uuid4()]
    events = Events("topic")
    for booking_id in [*ids, *ids[: int(twice)]]:
        events.arrived.append(Event(str(booking_id), booking_id, "Reserve", datetime.now(UTC), 0, 0))
    result = CycleResult(reserve_expired_count=2, skipped_locked_count=1, poison_count=1)
    sums = Sums(2, audited, 2, 2, poison_is_due=True, poison_times=1, locked_is_extended=True)
    objects = Objects(freed, still_taken=2, wrong=wrong)
    return Ending(sums, objects, events, [Cycle("cycle", "run", datetime.now(UTC), False, result, 0)], set(ids))


def test_sums_that_are_off_are_wrong() -> None:
    """Section 9, P3: a missing audit row, an event that came twice, a flat in the wrong hands fail the demo, and it says so."""
    assert _ending().right
    assert not _ending(audited=1).right
    assert not _ending(twice=True).right
    assert not _ending(freed=1).right
    assert not _ending(wrong=1).right
    assert _ending(twice=True).lines()[0].startswith("WRONG  Sums: 2 bookings")
