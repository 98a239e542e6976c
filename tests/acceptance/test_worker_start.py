"""The real worker process and its start: what it waits for, for how long, and what it says when it cannot run (issue 3, 8)."""

import asyncio
import re
import socket
import time
from collections.abc import Iterator

import pytest

from tests import floor
from tests.acceptance.held import whole
from tests.acceptance.process import PATIENCE, WorkerProcess, World
from tests.acceptance.proxy import a_proxy
from tests.floor import MINUTE, Admin

HIDDEN = "s3cret-Passw0rd"
SHORT = {"BOOKING_EXPIRATION_STARTUP_TIMEOUT": "1.5"}
NOWHERE = "127.0.0.1:1"
NAMED = r"127\.0\.0\.1\W+1\b"


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A server that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE)
        yield server


def _address(how: str, silent: socket.socket) -> str:
    return f"127.0.0.1:{silent.getsockname()[1]}" if how == "silent" else NOWHERE


def _url(address: str) -> str:
    return f"postgresql://booking_expiration_worker:{HIDDEN}@{address}/crm?sslmode=disable"


def _with_secret(url: str) -> str:
    return re.sub(r"//[^@]*@", f"//booking_expiration_worker:{HIDDEN}@", url)


async def _refusal(worker: WorkerProcess, code: int = 1) -> str:
    """What a worker that cannot run says on standard error: one line, no traceback, no secret anywhere."""
    assert await worker.ended() == code
    said = worker.err.read_text()
    assert (said.count("\n"), "Traceback" in said) == (1, False), said
    assert HIDDEN not in said + worker.out.read_text()
    return said


async def test_kafka_down_does_not_keep_bookings_from_expiring(world: World, admin: Admin) -> None:
    """S8, D10, D13: expiry goes on, the log and /readyz say what is wrong, and the cycle completes."""
    await floor.add(admin, 10, await floor.clock(admin) - MINUTE)
    worker = await world.start(KAFKA_BOOTSTRAP_SERVERS=NOWHERE)
    result = await world.result()
    assert (result["ReserveExpiredCount"], result["PublishedCount"], result["Outcome"]) == (10, 0, "completed")
    assert result["DurationMs"] < 10_000
    assert await whole(admin) == 10
    assert re.search(NAMED, (await worker.said("broker unavailable", level="warning"))["reason"])
    status, body = await worker.get("/readyz")
    assert (status, body["status"]) == (503, "unready")
    assert re.search(NAMED, body["checks"].pop("kafka"))
    assert set(body["checks"].values()) == {"ok"}
    assert ((await worker.stop())[0], worker.err.read_text()) == (0, "")


@pytest.mark.parametrize("how", ["nobody there", pytest.param("silent", marks=pytest.mark.slow)])
async def test_database_away(world: World, silent: socket.socket, how: str) -> None:
    """Issue 3, 8: waits a bounded time, then exits 1 with the address it tried, without the password."""
    address, began = _address(how, silent), time.monotonic()
    worker = await world.launch(DATABASE_URL=_url(address), **SHORT)
    assert f"worker: database at {address}/crm cannot be reached, after 2 s:" in await _refusal(worker)
    assert 0.5 < time.monotonic() - began < 28


@pytest.mark.parametrize("how", [pytest.param("nobody there", marks=pytest.mark.slow), "silent"])
async def test_temporal_away(world: World, silent: socket.socket, how: str) -> None:
    """Issue 3, 8: the same for Temporal, also when something takes the connection and does not answer."""
    address, began = _address(how, silent), time.monotonic()
    worker = await world.launch(DATABASE_URL=_with_secret(world.database.worker), TEMPORAL_ADDRESS=address, **SHORT)
    assert f"worker: Temporal at {address} cannot be reached, after 2 s:" in await _refusal(worker)
    assert 0.5 < time.monotonic() - began < 28


@pytest.mark.parametrize("what", [pytest.param("DATABASE_URL", marks=pytest.mark.slow), "TEMPORAL_ADDRESS"])
async def test_a_signal_ends_the_waiting(world: World, silent: socket.socket, what: str) -> None:
    """L5: SIGTERM while a server is silent ends the start at once, with exit code 0."""
    address = _address("silent", silent)
    worker = await world.launch(**{what: _url(address) if what == "DATABASE_URL" else address})
    taken, _ = await asyncio.to_thread(silent.accept)
    code, seconds = await worker.stop()
    taken.close()
    assert (code, worker.err.read_text()) == (0, "")
    assert seconds < 5
    assert [line["event"] for line in worker.lines()] == ["worker stopping", "worker stopped"]


@pytest.mark.parametrize("what", [pytest.param("DATABASE_URL", marks=pytest.mark.slow), "TEMPORAL_ADDRESS"])
async def test_a_server_that_comes_late_is_waited_for(world: World, what: str) -> None:
    """Issue 3, 8: the worker starts by itself once the server takes connections."""
    target = world.where(what)
    async with a_proxy(target) as proxy:
        await proxy.cut()
        worker = await world.launch(**{what: world.environment({})[what].replace(target, proxy.address)})
        await worker.said("worker waiting")
        await proxy.open()
        await worker.said("worker started")
        assert (await worker.stop())[0] == 0


async def test_missing_migrations(world: World) -> None:
    """Issue 3, 8: exits with the command that applies what is missing."""
    empty = re.sub(r"/test_\w+", "/postgres", _with_secret(world.database.worker))
    said = await _refusal(await world.launch(DATABASE_URL=empty))
    assert "lacks migrations 0001" in said
    assert 'dbmate --url "$BOOKING_EXPIRATION_MIGRATION_DATABASE_URL" --migrations-dir migrations' in said


@pytest.mark.parametrize(
    ("user", "words"),
    [
        ("chessboard", "may not see them (it must be booking_expiration_worker)"),
        pytest.param("nobody", 'role "nobody" does not exist (SQLSTATE 28000); check user', marks=pytest.mark.slow),
    ],
    ids=["other", "unknown"],
)
async def test_wrong_role(world: World, user: str, words: str) -> None:
    """Issue 3, 8: a role that cannot do the work is named as the likely reason."""
    url = _with_secret(world.database.worker).replace("booking_expiration_worker", user)
    assert words in await _refusal(await world.launch(DATABASE_URL=url))


@pytest.mark.slow
async def test_wrong_database(world: World) -> None:
    """Issue 3, 8: a database that does not exist is said so at once, without waiting."""
    url = re.sub(r"/test_\w+", "/nowhere", _with_secret(world.database.worker))
    assert 'database "nowhere" does not exist (SQLSTATE 3D000); check the database name' in await _refusal(
        await world.launch(DATABASE_URL=url)
    )


async def test_wrong_namespace(world: World) -> None:
    """Issue 3, 8: a namespace that Temporal does not have is named, with the server that was asked."""
    said = await _refusal(await world.launch(TEMPORAL_NAMESPACE="nowhere"))
    assert said == f"worker: Temporal at {world.servers['TEMPORAL_ADDRESS']}: Namespace nowhere is not found.\n"


async def test_taken_port(world: World, silent: socket.socket) -> None:
    """Issue 3, 8: a taken port is said with the setting that chooses another; nothing was started."""
    port = str(silent.getsockname()[1])
    worker = await world.launch(BOOKING_EXPIRATION_HTTP_PORT=port, DATABASE_URL=_with_secret(world.database.worker))
    said = await _refusal(worker)
    assert f"worker: port {port} of 127.0.0.1, for /livez and /readyz: " in said
    assert "already in use; choose another one: BOOKING_EXPIRATION_HTTP_PORT" in said


async def test_an_address_that_is_none(world: World) -> None:
    """Issue 3, 8: what is no address is a wrong setting and not waited for; the line gives an example."""
    said = await _refusal(await world.launch(TEMPORAL_ADDRESS="not a host"), code=2)
    assert said.startswith("settings: TEMPORAL_*: a host must be written host:port")
    assert said.endswith("for example TEMPORAL_ADDRESS=localhost:7233\n")


async def test_bad_settings(world: World) -> None:
    """Issue 3, 8: exit code 2, and the line names the variable, what is wrong and an example."""
    worker = await world.launch(BOOKING_EXPIRATION_BATCH_SIZE="0", DATABASE_URL=_with_secret(world.database.worker))
    assert await _refusal(worker, code=2) == (
        "settings: BOOKING_EXPIRATION_BATCH_SIZE: Input should be greater than or equal to 1; for example 200\n"
    )
