"""The life of a process: signals and the watchdog in a process of their own, patience at the start (issue 3, 8)."""

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from temporalio.worker._activity import _ActivityWorker
from temporalio.worker._workflow import _WorkflowWorker

import process
from exits import CannotStartError
from process import EXIT_HUNG, Patience, PollLoops, StoppedEarlyError

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = """
import asyncio, sys, time
import exits, process, telemetry

async def main():
    stop = process.stop_on_signals({limit})
    print("ready", file=sys.stderr, flush=True)
    {body}

telemetry.configure()
asyncio.run(main())
"""


def _end(body: str, *signals: signal.Signals, limit: float = 0.3) -> tuple[int, float]:
    """Exit code and seconds of a process that does this, is sent these signals, and has an output that nobody reads."""
    command = [sys.executable, "-c", SCRIPT.format(body=body, limit=limit)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr
        assert running.stderr.readline() == "ready\n"
        began = time.monotonic()
        for each in signals:
            running.send_signal(each)
            time.sleep(0.05)  # two signals at once could arrive as one
        code = running.wait(20)
        return code, time.monotonic() - began


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_sets_the_event(which: signal.Signals) -> None:
    """L5: both signals ask for the same end, with exit code 0."""
    assert _end("await stop.wait()", which, limit=10)[0] == 0


@pytest.mark.parametrize(
    "body",
    ["await stop.wait(); await asyncio.sleep(60)", "await stop.wait(); time.sleep(60)", "time.sleep(60)", "while True: pass"],
    ids=["waits", "blocks after the stop", "blocks before the stop", "spins"],
)
def test_the_watchdog_ends_what_hangs(body: str) -> None:
    """Trap 12: whether the loop turns, sleeps or spins, the process ends in time, with the watchdog's exit code."""
    code, seconds = _end(body, signal.SIGTERM)
    assert code == EXIT_HUNG
    assert 0.25 < seconds < 10


def test_the_watchdog_needs_nobody_to_read_the_log() -> None:
    """Trap 12: with an output that is full and never read, logging blocks; a second after its limit the kernel ends it."""
    code, seconds = _end("print('x' * 10_000_000)", signal.SIGTERM, limit=1.5)  # time for the pipe to be full by then
    assert code == -signal.SIGALRM
    assert 2 < seconds < 15


def test_a_second_signal_ends_it_at_once() -> None:
    """Issue 3, 8: the second signal has its default effect."""
    assert _end("await stop.wait(); time.sleep(60)", signal.SIGTERM, signal.SIGTERM, limit=10)[0] == -signal.SIGTERM


class _Server:
    """Refuses `refusals` connections, then takes one; or says nothing at all."""

    def __init__(self, refusals: int = 0, *, silent: bool = False) -> None:
        self.refusals = refusals
        self.silent = silent

    async def connect(self) -> str:
        if self.silent:
            await asyncio.Event().wait()
        self.refusals -= 1
        if self.refusals >= 0:
            raise ConnectionError("refused")
        return "connected"


async def _until(server: _Server, limit: float, stop: asyncio.Event | None = None, heals: type[Exception] = OSError) -> Any:
    patience = Patience(limit, stop or asyncio.Event())
    return await patience.until("server", "db:5432", server.connect, heals=heals)


async def test_what_heals_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 3, 8: a server that comes late is found."""
    monkeypatch.setattr(process, "_RETRY_EVERY", 0.01)
    assert await _until(_Server(3), 5) == "connected"


@pytest.mark.parametrize(("server", "reason"), [(_Server(10**6), "refused"), (_Server(silent=True), "no answer")])
async def test_the_waiting_is_bounded(monkeypatch: pytest.MonkeyPatch, server: _Server, reason: str) -> None:
    """Issue 3, 8: after the limit the address and the last reason are said, however the server fails."""
    monkeypatch.setattr(process, "_RETRY_EVERY", 0.01)
    began = time.monotonic()
    with pytest.raises(CannotStartError, match=f"server at db:5432 cannot be reached, after 0 s: {reason}"):
        await _until(server, 0.2)
    assert time.monotonic() - began < 5


async def test_what_does_not_heal_is_not_waited_for() -> None:
    """R4: an error that waiting cannot change ends the start at once."""
    with pytest.raises(ConnectionError):
        await _until(_Server(1), 5, heals=LookupError)


@pytest.mark.parametrize("server", [_Server(10**6), _Server(silent=True)], ids=["refuses", "silent"])
async def test_a_stop_ends_the_waiting(server: _Server) -> None:
    """L5: a stop during the waiting is a stop, not a failure."""
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(0.05, stop.set)
    with pytest.raises(StoppedEarlyError):
        await _until(server, 30, stop)


def test_the_sdk_has_the_loops_that_liveness_looks_for() -> None:
    """Issue 5 section 5: an SDK that renames its poll loops fails here, not silently in production."""
    assert {_WorkflowWorker.run.__qualname__, _ActivityWorker.run.__qualname__} == PollLoops.KNOWN


async def test_a_loop_that_nobody_ever_saw_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 5 section 5: a loop that ended before the first look, or has another name, is not alive after a while."""
    assert await PollLoops(asyncio.Event()).check() is None
    monkeypatch.setattr(PollLoops, "START", -1.0)
    stop = asyncio.Event()
    assert "_ActivityWorker.run, _WorkflowWorker.run was never seen" in str(await (loops := PollLoops(stop)).check())
    stop.set()
    assert await loops.check() is None


def test_leaving_skips_the_tear_down_but_not_the_output() -> None:
    """What was printed and logged is out, the exit code is kept, and nothing else of the interpreter's end runs."""
    body = "import atexit; atexit.register(print, 'torn down'); print('kept'); telemetry.worker_stopped(); exits.leave(3)"
    command = [sys.executable, "-c", SCRIPT.format(body=body, limit=1)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, "torn down" in done.stdout) == (3, False)
    assert sorted(line[:1] for line in done.stdout.splitlines()) == ["k", "{"]
