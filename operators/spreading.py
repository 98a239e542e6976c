"""Requeueing many records, at once or spread over time: in slices, each a transaction of its own with an audit row per record."""

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import typer

from db import outbox, outbox_reading
from db.outbox_reading import Filter
from db.reading import reading
from db.unit_of_work import Pool, UnitOfWork
from operators import frame, words
from settings import OperatorSettings

SLICE: Final = 1_000
"""Records in one transaction at most, so that none lasts long."""

EVERY: Final = 5.0
"""Seconds between two slices when spread over time, where there are records enough."""


@dataclass(frozen=True, slots=True)
class Requeued:
    """What came of it, in records: requeued, found to be parked no more, left parked because somebody stopped it in between."""

    requeued: int
    gone: int = 0
    left: int = 0

    @property
    def stopped(self) -> bool:
        """Whether something was left undone."""
        return self.left > 0


async def ids(given: OperatorSettings, wanted: Sequence[int], reason: str, seconds: float) -> Requeued:
    """Requeue exactly these: first each is asked whether it may be, so that one mistake changes nothing. Raises `OutboxError`."""
    async with frame.database(given) as pool:
        if seconds:
            await _ask(pool, wanted)
            return await _spread(pool, wanted, reason, seconds)
        async with UnitOfWork(pool) as connection:
            actor = frame.actor()
            for record_id in wanted:
                await outbox.requeue(connection, record_id, actor, reason)
    return Requeued(len(wanted))


async def _ask(pool: Pool, wanted: Sequence[int]) -> None:
    async with reading(pool) as connection:
        for record_id in wanted:
            record = await outbox_reading.show(connection, record_id)
            if record.skipped_at is not None:  # it is still marked as parked
                raise outbox.AlreadySkippedError(f"outbox record {record_id} was skipped at {record.skipped_at}, for good")
            if record.parked_at is None:
                raise outbox.NotParkedError(f"outbox record {record_id} is not parked; nothing was requeued")


async def parked(given: OperatorSettings, wanted: Filter, limit: int, reason: str, seconds: float) -> Requeued:
    """Requeue up to `limit` parked records that the filter lets through, oldest first."""
    async with frame.database(given) as pool:
        async with reading(pool) as connection:
            found = [record.id for record in await outbox_reading.find(connection, wanted, limit)]
        return await _spread(pool, found, reason, seconds)


async def _spread(pool: Pool, wanted: Sequence[int], reason: str, seconds: float) -> Requeued:
    """Slice after slice, the last one when the time is over; Ctrl-C ends it between two of them."""
    slices, pause = _slices(wanted, seconds)
    done, taken, actor = 0, 0, frame.actor()
    async with _stop_asked() as stop:
        for number, part in enumerate(slices, 1):
            async with UnitOfWork(pool) as connection:
                done += await outbox.requeue_parked(connection, part, actor, reason)
            taken += len(part)
            if len(slices) > 1:
                typer.echo(f"requeued {done:,} of {words.number(len(wanted), 'record')}", err=True)
            if number < len(slices) and await _waited(stop, pause):
                break
    return Requeued(done, taken - done, len(wanted) - taken)


def _slices(wanted: Sequence[int], seconds: float) -> tuple[list[Sequence[int]], float]:
    """Parts of nearly the same size in the given order, and the seconds between two of them."""
    count = max(-(-len(wanted) // SLICE), min(len(wanted), round(seconds / EVERY) + 1 if seconds else 1), 1)
    ends = [len(wanted) * number // count for number in range(count + 1)]
    parts = [wanted[start:end] for start, end in pairwise(ends) if start < end]
    return parts, seconds / (len(parts) - 1) if len(parts) > 1 else 0.0


@asynccontextmanager
async def _stop_asked() -> AsyncIterator[asyncio.Event]:
    """An event that Ctrl-C and SIGTERM set, so that the slice in hand is finished whole."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def _waited(stop: asyncio.Event, seconds: float) -> bool:
    """Wait; True as soon as a stop is asked for."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return stop.is_set()
    return True
