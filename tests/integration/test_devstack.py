"""The local stack as its users meet it: real starts, real signals, and nothing left behind (issue 3 §2)."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import psutil
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client

from contracts import topic as contract
from devstack import addresses as names
from devstack import kafka, ports, temporal
from devstack.stack import running_stack

SKIP_KAFKA = {names.KAFKA: "given.example:9092"}
SKIP_ALL_BUT_POSTGRES = {**SKIP_KAFKA, names.TEMPORAL: "given.example:7233"}
SKIP_ALL = {**SKIP_ALL_BUT_POSTGRES, names.DATABASE: "postgresql://given.example/crm"}


@dataclass
class Running:
    """A `python -m devstack` process of this test, and the processes below it."""

    process: "subprocess.Popen[str]"
    descendants: list[psutil.Process]

    def kill(self, which: signal.Signals) -> None:
        """Send a signal to the stack's own process only."""
        self.process.send_signal(which)

    def assert_nothing_left(self, seconds: float = 20) -> None:
        """Every process that was seen is gone."""
        self.process.wait(seconds)
        _, alive = psutil.wait_procs(self.descendants, timeout=seconds)
        assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """This process's environment without any server's address but those given."""
    return {name: value for name, value in os.environ.items() if name not in names.NAMES} | dict(given)


def devstack(*arguments: str, given: Mapping[str, str] = SKIP_ALL, **more: str) -> "subprocess.CompletedProcess[str]":
    """Run the command to its end."""
    command = [sys.executable, "-m", "devstack", *arguments]
    return subprocess.run(command, env=environment(given) | more, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    """Start the command in the background and wait until it says that it is ready."""
    started: list[Running] = []

    def go(*arguments: str, given: Mapping[str, str] = SKIP_ALL_BUT_POSTGRES, ready: str = "Ready") -> Running:
        command = [sys.executable, "-m", "devstack", *arguments]
        process = subprocess.Popen(command, env=environment(given), stdout=subprocess.PIPE, text=True)
        started.append(Running(process, []))
        assert process.stdout is not None
        assert any(ready in line for line in process.stdout), "ended before it was ready"
        started[-1].descendants = psutil.Process(process.pid).children(recursive=True)
        return started[-1]

    yield go
    for one in started:
        one.process.terminate()
        one.process.communicate(timeout=30)


async def test_all_pieces_are_ready_within_20_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 3 §2: PostgreSQL with the schema, Temporal with D28's search attributes, Kafka with the topic."""
    for name in names.NAMES:
        monkeypatch.delenv(name, raising=False)
    began = time.monotonic()
    with running_stack(tmp_path) as found:
        assert time.monotonic() - began < 20
        connection = await asyncpg.connect(found[names.DATABASE])
        assert await connection.fetchval("SELECT current_user || count(*) FROM crm.bookings") == "booking_expiration_worker0"
        await connection.close()
        assert await search_attributes(found[names.TEMPORAL]) >= {tuple(one.split("=")) for one in temporal.SEARCH_ATTRIBUTES}
        assert await partitions(found[names.KAFKA], kafka.TOPIC) == contract.PARTITIONS


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_everything(start: Callable[..., Running], tmp_path: Path, which: signal.Signals) -> None:
    """Issue 3 §2: Ctrl-C, SIGTERM and a closed terminal end `up` with exit code 0 and leave no process."""
    stack = start("up", "--data-dir", str(tmp_path))
    assert len(stack.descendants) > 3
    stack.kill(which)
    stack.assert_nothing_left()
    assert stack.process.returncode == 0


def test_kill_9_of_the_stack_stops_everything(start: Callable[..., Running]) -> None:
    """Issue 3 §2: the guardian stops PostgreSQL, Temporal, Kafka and the user's command, and removes the data."""
    stack = start("exec", "--", "sh", "-c", "sleep 600 & sleep 0.2; echo Ready; wait", given={})
    assert {"postgres", "java", "temporal", "sleep"} <= {process.name() for process in stack.descendants}
    kafka_file = next(process for process in stack.descendants if process.name() == "java").cmdline()[-1]
    assert Path(kafka_file).exists()
    stack.kill(signal.SIGKILL)
    stack.assert_nothing_left()
    assert not Path(kafka_file).parent.exists()


def test_death_of_the_parent_stops_everything(tmp_path: Path) -> None:
    """Issue 3 §2: when a terminal or make is killed, the stack notices within a second and ends."""
    command = f"{sys.executable} -m devstack up --data-dir {tmp_path}; true"
    parent = subprocess.Popen(["/bin/sh", "-c", command], env=environment(SKIP_ALL_BUT_POSTGRES), stdout=subprocess.PIPE)
    assert parent.stdout is not None
    assert any(b"Ready" in line for line in parent.stdout)
    stack = psutil.Process(parent.pid).children()[0]
    all_of_it = [stack, *stack.children(recursive=True)]
    parent.kill()
    parent.communicate()
    assert not psutil.wait_procs(all_of_it, timeout=20)[1]


def test_death_of_the_guardian_stops_everything(start: Callable[..., Running], tmp_path: Path) -> None:
    """Issue 3 §2: without a guardian a later kill -9 would leave servers, so the stack ends while it still can."""
    stack = start("up", "--data-dir", str(tmp_path))
    next(process for process in stack.descendants if "guardian.py" in " ".join(process.cmdline())).kill()
    stack.assert_nothing_left()
    assert stack.process.returncode == 1


def test_up_keeps_its_data_and_moves_from_a_taken_port(start: Callable[..., Running], tmp_path: Path) -> None:
    """Issue 3 §2: a second start finds the rows of the first; a preferred port that is taken is avoided."""
    for round_ in (1, 2):
        with taken(55432):
            stack = start("up", "--data-dir", str(tmp_path))
        found = json.loads((tmp_path / "addresses.json").read_text())
        assert ":55432/" not in found[names.DATABASE]
        statement = "CREATE TABLE IF NOT EXISTS kept (); SELECT 1"
        statement = statement if round_ == 1 else "SELECT count(*) FROM kept"
        attached = devstack("attach", "--data-dir", str(tmp_path), "--", *psql(statement), given={})
        assert attached.returncode == 0, attached.stderr
        stack.kill(signal.SIGTERM)
        stack.assert_nothing_left()


def test_a_given_address_skips_the_piece() -> None:
    """Issue 3 §2: with all three addresses given, no server starts and the command sees what was given."""
    done = devstack("exec", "--", "sh", "-c", f"echo ${names.DATABASE} ${names.TEMPORAL} ${names.KAFKA}")
    assert done.stdout.split() == [SKIP_ALL[names.DATABASE], SKIP_ALL[names.TEMPORAL], SKIP_ALL[names.KAFKA]]


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_exec_passes_a_signal_on(start: Callable[..., Running], which: signal.Signals) -> None:
    """Issue 3 §2: the command may finish its work, and what it leaves behind ends with it."""
    script = f"sleep 600 & trap 'sleep 0.5; exit 9' {which.value}; echo Ready; wait"
    stack = start("exec", "--", "sh", "-c", script, given=SKIP_ALL)
    stack.kill(which)
    stack.assert_nothing_left()
    assert stack.process.returncode == 9


def test_exec_ends_with_the_commands_exit_code() -> None:
    """Issue 3 §1: make sees whether the command failed."""
    assert devstack("exec", "--", "sh", "-c", "exit 7").returncode == 7


def test_attach_without_a_stack_says_how_to_start_one(tmp_path: Path) -> None:
    """Issue 3 §1: one line instead of a traceback."""
    done = devstack("attach", "--data-dir", str(tmp_path / "none"), "--", "true", given={})
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "make stack" in done.stderr


@pytest.mark.parametrize(("command", "said"), [(["no-such-program"], "no such command"), ([], "say what to run")])
def test_a_command_that_cannot_run_starts_nothing(command: list[str], said: str) -> None:
    """Issue 3 §1: a typing error costs one line, not a stack."""
    done = devstack("exec", "--", *command, given={})
    assert done.returncode == 1
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_second_up_on_the_same_folder_is_refused(start: Callable[..., Running], tmp_path: Path) -> None:
    """Issue 3 §2: two servers never write to one folder."""
    start("up", "--data-dir", str(tmp_path), given=SKIP_ALL)
    second = devstack("up", "--data-dir", str(tmp_path))
    assert second.returncode == 1
    assert "already runs" in second.stderr


def test_a_failed_start_shows_the_end_of_the_log(tmp_path: Path) -> None:
    """Issue 3 §1: what went wrong and where to read more, without a traceback."""
    broken = tmp_path / "postgres"
    broken.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo postgres 18.0 && exit\necho no space left on this planet\nexit 1\n'
    )
    broken.chmod(0o755)
    (tmp_path / "postgres-18").mkdir()
    (tmp_path / "postgres-18" / "PG_VERSION").write_text("18")
    tmp_path.chmod(0o755)
    done = devstack("up", "--data-dir", str(tmp_path), given=SKIP_ALL_BUT_POSTGRES, DEVSTACK_POSTGRES_BIN=str(tmp_path))
    assert done.returncode == 1
    assert "no space left on this planet" in done.stderr
    assert str(tmp_path / "logs" / "postgres.log") in done.stderr
    assert "Traceback" not in done.stderr


def test_a_free_port_is_free() -> None:
    """Issue 3 §2: a port that somebody listens on is never chosen, also when it is preferred."""
    with taken() as port:
        assert not ports.is_free(port)
        assert ports.choose(port) != port
    assert ports.choose(port) == port


class taken:  # noqa: N801 # reads as a word where it is used
    """Listens on a port, or on any; where somebody else already does, that will do."""

    def __init__(self, port: int = 0) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port = port

    def __enter__(self) -> int:
        if self._port == 0 or ports.is_free(self._port):
            self._socket.bind((ports.HOST, self._port))
            self._socket.listen()
            self._port = int(self._socket.getsockname()[1])
        return self._port

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def psql(statement: str) -> list[str]:
    """A command that runs a statement as the administrator."""
    script = f"import asyncio, asyncpg, os\nasync def main():\n c = await asyncpg.connect(os.environ['{names.ADMIN}'])\n"
    return [sys.executable, "-c", f"{script} await c.execute({statement!r})\n await c.close()\nasyncio.run(main())"]


async def search_attributes(address: str) -> set[tuple[str, ...]]:
    """Names and types that the server knows beyond its own."""
    client = await Client.connect(address)
    answer = await client.operator_service.list_search_attributes(ListSearchAttributesRequest(namespace="default"))
    kinds = {name: IndexedValueType.Name(kind) for name, kind in answer.custom_attributes.items()}
    return {(name, kind.removeprefix("INDEXED_VALUE_TYPE_").title()) for name, kind in kinds.items()}


async def partitions(address: str, topic: str) -> int:
    """How many partitions the topic has."""
    client = AIOKafkaAdminClient(bootstrap_servers=address)
    await client.start()
    try:
        return len((await client.describe_topics([topic]))[0]["partitions"])
    finally:
        await client.close()
