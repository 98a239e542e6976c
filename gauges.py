"""The gauges of every worker: read from the database and the schedule at a fixed interval: all instances say the same (O2)."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

from temporalio.client import Client
from temporalio.service import RPCError

import telemetry
from db import gauges
from db.errors import DatabaseError
from db.reading import reading
from db.unit_of_work import Pool
from workflows import schedule
from workflows.missed_ticks import MissedTicks


class ScheduleMissingError(Exception):
    """Somebody deleted the schedule: no cycle starts any more."""


EXPECTED: Final = (DatabaseError, RPCError, ScheduleMissingError)
"""Their text says all; any other error is a surprise, and its type belongs to it."""


class Gauges:
    """One worker's reader. A source that cannot be read leaves its gauges as they were; their last-read timestamp says so."""

    def __init__(self, pool: Pool, client: Client, schedule_id: str, interval: float) -> None:
        """`interval` in seconds."""
        self._pool = pool
        self._client = client
        self._schedule_id = schedule_id
        self._interval = interval
        self._ticks = MissedTicks()
        self._unreadable: set[str] = set()

    async def run(self) -> None:
        """Read again and again, until cancelled; a source that hangs does not hold the other one up."""
        await asyncio.gather(self._forever("database", self._database), self._forever("schedule", self._schedule))

    async def _forever(self, source: str, look: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(self._interval)
            await self._try(source, look)

    async def scraped(self, exposition: Callable[[], Awaitable[bytes]]) -> bytes:
        """What a scrape gets, with this worker's pool as it is just now."""
        idle, size = self._pool.get_idle_size(), self._pool.get_size()
        telemetry.pool_used(size - idle, idle, self._pool.get_max_size())
        return await exposition()

    async def read(self) -> None:
        """Read both sources once."""
        await asyncio.gather(self._try("database", self._database), self._try("schedule", self._schedule))

    async def _try(self, source: str, look: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(max(self._interval, 1.0)):
                await look()
        except TimeoutError:
            self._say(source, "no answer in time")
        except Exception as error:  # noqa: BLE001 # whatever it is, the next look is due: nobody waits for this reader's end
            self._say(source, str(error) if isinstance(error, EXPECTED) else repr(error))
        else:
            self._unreadable.discard(source)

    def _say(self, source: str, why: str) -> None:
        if source not in self._unreadable:
            self._unreadable.add(source)
            telemetry.gauges_unreadable(source, why)

    async def _database(self) -> None:
        async with reading(self._pool) as connection:
            seen = await gauges.read(connection)
        telemetry.database_read(
            at=seen.at,
            backlog=seen.reserve_backlog + seen.booking_backlog,
            oldest_due={"Reserve": seen.reserve_oldest_due, "Booking": seen.booking_oldest_due},
            last_success=seen.last_success_at,
            poison=seen.poison,
            outbox=(seen.outbox_backlog, seen.outbox_oldest, seen.outbox_parked),
            schema=seen.schema_version,
            paused={"held": seen.held, **{phase: phase in seen.paused for phase in ("Reserve", "Booking")}},
        )

    async def _schedule(self) -> None:
        described = await schedule.describe(self._client, self._schedule_id)
        now = datetime.now(UTC)
        if described is None:
            raise ScheduleMissingError(f"schedule {self._schedule_id} does not exist: booking-expiration schedule apply")
        info, state = described.info, described.schedule.state
        used_up = state.limited_actions and not state.remaining_actions
        missed = self._ticks.look(
            now,
            counted=info.missed_catchup_window + info.overlap_skipped,
            fired={action.schedule_time.ToDatetime(UTC) for action in info.recent_actions},
            paused=state.paused or used_up,
        )
        telemetry.schedule_read(at=now, paused=state.paused, missed_ticks=missed)
