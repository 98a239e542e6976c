"""The life of a long-running process: patience at the start, signals and a watchdog at the end."""

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

import telemetry

T = TypeVar("T")

EXIT_CANNOT_START: Final = 1
EXIT_HUNG: Final = 70
_RETRY_EVERY: Final = 1.0


class CannotStartError(Exception):
    """The process cannot do its work; the message says why and what to do next."""


class StoppedEarlyError(Exception):
    """A stop was asked for before there was anything to stop."""


def stop_on_signals(limit: float) -> asyncio.Event:
    """An event that SIGTERM or SIGINT sets; `limit` seconds later a watchdog ends the process with exit code 70.

    A second signal ends it at once: from the first one on, signals have their default effect again.
    """
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def stopping(number: signal.Signals) -> None:
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)
        telemetry.worker_stopping(number.name)
        watchdog = threading.Timer(limit, _end_hung_process, [limit])
        watchdog.daemon = True
        watchdog.start()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping, number)
    return stop


def _end_hung_process(limit: float) -> None:
    telemetry.worker_hung(limit)
    os._exit(EXIT_HUNG)  # nothing politer is left: the event loop did not come back


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a start waits for servers that do not answer yet: `limit` seconds for each, or until `stop`."""

    limit: float
    stop: asyncio.Event

    async def until(self, what: str, address: str, connect: Callable[[], Awaitable[T]], *, heals: type[Exception]) -> T:
        """Call `connect` each second until it works. Only `heals` is worth waiting for.

        Raises `CannotStartError` with the address that was tried, `StoppedEarlyError` when a stop came first.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.limit
        while True:
            try:
                return await connect()
            except heals as error:
                if loop.time() >= deadline:
                    raise CannotStartError(f"{what} at {address} cannot be reached, after {self.limit:.0f} s: {error}") from error
                telemetry.worker_waiting(what, str(error))
            with suppress(TimeoutError):
                async with asyncio.timeout(_RETRY_EVERY):
                    await self.stop.wait()
            if self.stop.is_set():
                raise StoppedEarlyError
