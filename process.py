"""The life of a long-running process: patience at the start, signals and a watchdog at the end."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, TypeVar

import telemetry
from exits import CannotStartError

T = TypeVar("T")

EXIT_CANNOT_START: Final = 1
EXIT_HUNG: Final = 70
_RETRY_EVERY: Final = 1.0
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class StoppedEarlyError(Exception):
    """A stop was asked for before there was anything to stop."""


def stop_on_signals(limit: float) -> asyncio.Event:
    """An event that SIGTERM or SIGINT sets; `limit` seconds later a watchdog ends the process with exit code 70.

    A second signal ends it at once: from the first one on, signals have their default effect again.
    """
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def stopping(name: str) -> None:
        telemetry.worker_stopping(name)
        stop.set()

    # Not the loop's own signal handlers: they need a loop that still turns, and the watchdog is for one that does not.
    def received(number: int, _frame: FrameType | None) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        # SIGALRM is the watchdog's own: it needs no thread, no lock and no log that somebody reads.
        signal.setitimer(signal.ITIMER_REAL, limit + 1)
        watchdog = threading.Timer(limit, _end_hung_process, [limit])
        watchdog.daemon = True
        watchdog.start()
        loop.call_soon_threadsafe(stopping, signal.Signals(number).name)

    for each in _SIGNALS:
        signal.signal(each, received)
    return stop


def _end_hung_process(limit: float) -> None:
    telemetry.worker_hung(limit)
    os._exit(EXIT_HUNG)  # nothing politer is left: the event loop did not come back


class PollLoops:
    """Notices that a poll loop of the Temporal SDK has ended while the process lives on and takes no more work.

    The SDK ends a worker whose loop failed, but waits for ever beside one that was cancelled or returned: nothing raises, and
    every other check is well. Only this process is looked at, never a server.
    """

    KNOWN: Final = frozenset({"_WorkflowWorker.run", "_ActivityWorker.run"})
    """By the SDK's own names; a test compares them with the installed SDK's."""

    START: Final = 30.0
    """Seconds after which a loop that nobody has seen counts as gone: it ended before the first look, or has another name."""

    def __init__(self, stop: asyncio.Event) -> None:
        """After `stop` the loops end because they shall."""
        self._stop = stop
        self._seen: set[str] = set()
        self._late = time.monotonic() + self.START

    async def check(self) -> str | None:
        """None while all is well, else which loop is gone."""
        running = {getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()}
        self._seen |= running & self.KNOWN
        if self._stop.is_set():
            return None
        if ended := ", ".join(sorted(self._seen - running)):
            return f"{ended} has ended: no more work is taken"
        if (never := ", ".join(sorted(self.KNOWN - self._seen))) and time.monotonic() > self._late:
            return f"{never} was never seen: no work is taken, or this version of the Temporal SDK has other names for its loops"
        return None


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a start waits for servers that do not answer yet: `limit` seconds for each, or until `stop`."""

    limit: float
    stop: asyncio.Event

    async def until(self, what: str, address: str, connect: Callable[[], Awaitable[T]], *, heals: type[Exception]) -> T:
        """Call `connect` each second until it works. Only `heals`, or no answer at all, is worth waiting for.

        Raises `CannotStartError` with the address that was tried, `StoppedEarlyError` when a stop came first.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.limit
        while True:
            try:
                return await self._unless_stopped(connect(), deadline - loop.time())
            except (heals, TimeoutError) as error:
                reason = str(error) or "no answer"
                if loop.time() + _RETRY_EVERY >= deadline:
                    message = f"{what} at {address} cannot be reached, after {self.limit:.0f} s: {reason}"
                    raise CannotStartError(message) from error
                telemetry.worker_waiting(what, reason)
            await self._unless_stopped(asyncio.sleep(_RETRY_EVERY), self.limit)

    async def _unless_stopped(self, work: Awaitable[T], seconds: float) -> T:
        """What `work` returns; it is given up after `seconds`, with a `TimeoutError`, or at a stop."""
        working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(self.stop.wait())
        both: set[asyncio.Future[Any]] = {working, stopping}
        try:
            await asyncio.wait(both, timeout=max(seconds, 0), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            raise StoppedEarlyError if self.stop.is_set() else TimeoutError
        finally:
            for each in both:
                each.cancel()
            await asyncio.wait(both)
