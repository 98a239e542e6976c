"""The checker: follows every booking and every object, and says at once what is wrong.

Each round takes one snapshot of both schemas. It asks the rules of `rules.py`, compares each booking with what its manager was
told, and each record of the topic with the outbox. A wrong state is reported once.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias
from uuid import UUID

import asyncpg

from domain.booking import EXPIRED, Booking, Status
from traffic import rules
from traffic.floor import Wrong
from traffic.model import Model
from traffic.topic import Topic

Admin: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
EVERY: Final = 1.0
_REST: Final = 8
"""A round's time is followed by so many times that much rest: the checker must not be the load."""

_OVERLAP: Final = timedelta(seconds=30)
"""How far a round looks back behind the one before: what was in flight then is committed now."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds after which it is too late: from a deadline to expired, from a commit to the free object, to Kafka's reader."""

    expiry: float = 75.0
    free: float = 60.0
    arrival: float = 20.0


@dataclass(slots=True)
class Checker:
    """`tell` hears of every wrong state as soon as it is seen. The connection that it is given may read both schemas."""

    model: Model
    topic: Topic
    bounds: Bounds
    tell: Callable[[Wrong], None]
    wrong: dict[tuple[str, str], Wrong] = field(default_factory=dict)
    rounds: int = 0
    expired: int = 0
    _since: datetime | None = None

    def found(self, wrong: Wrong) -> None:
        """Report it, unless it is known."""
        if (wrong.rule, wrong.subject) not in self.wrong:
            self.wrong[wrong.rule, wrong.subject] = wrong
            self.tell(wrong)

    async def run(self, admin: Admin, stop: asyncio.Event) -> None:
        """One round after the other until `stop`."""
        while not stop.is_set():
            took = await self.round(admin)
            await asyncio.sleep(max(EVERY, _REST * took))

    async def round(self, admin: Admin) -> float:
        """One snapshot; how many seconds it took."""
        began = time.perf_counter()
        self.model.changed.clear()
        moving = set(self.model.busy)
        async with _snapshot(admin):
            for wrong in await rules.broken(admin, self.bounds.expiry, self.bounds.free):
                self.found(wrong)
            since = self._since or await admin.fetchval("SELECT now() - interval '1 day'")
            self._since = await admin.fetchval("SELECT now()") - _OVERLAP
            rows = await _bookings(admin, since)
            freed = await _freed(admin, list(self.model.waiting))
            await self._events(admin, since)
        self._compare(rows, moving | self.model.busy | self.model.changed)
        for object_id in freed:
            self.model.became_free(object_id)
        self.rounds += 1
        return time.perf_counter() - began

    async def settled(self, admin: Admin) -> bool:
        """Whether all that expired is published, read and free."""
        async with _snapshot(admin):
            return not await _open(admin) and not await self._unread(admin, self._since or self.model.now())

    def _compare(self, rows: dict[UUID, Any], moving: set[UUID]) -> None:
        """Each booking against what was acknowledged; those that a command is about are left for the next round."""
        for booking in list(self.model.bookings.values()):
            if booking.id not in moving and (row := rows.get(booking.id)) is not None:
                self._judge(booking, row)
            elif booking.id not in moving and booking.phase:
                self.found(Wrong("booking lost", str(booking.id), f"{booking.status}, version {booking.version}, is not there"))

    def _judge(self, known: Booking, row: Any) -> None:
        if row["version"] == known.version:
            if (row["status"], row["due"]) != (known.status, known.deadline):
                self.found(Wrong("changed by nobody", str(known.id), f"{row} instead of {known}"))
        elif known.phase and row["version"] == known.version + 1 and row["status"] == EXPIRED[known.phase]:
            if known.deadline is None or not known.deadline < row["expired_at"]:
                self.found(Wrong("expired early", str(known.id), f"acknowledged: {known.deadline}, expired {row['expired_at']}"))
            self.expired += 1
            self.model.over(known.id)
        else:
            self.found(Wrong("changed by nobody", str(known.id), f"{row} after {known}"))
            self.model.forget(known.id)

    async def _events(self, admin: Admin, since: datetime) -> None:
        """The topic's records against the outbox: none without a row, none with other bytes, none missing."""
        news = self.topic.take_new()
        written = await _written(admin, [record.event_id for record in news])
        for record in news:
            if written.get(record.event_id) != record.digest:
                detail = "other bytes than the outbox" if record.event_id in written else "not in the outbox"
                self.found(Wrong("event extra in Kafka", str(record.booking_id), f"{detail}: event {record.event_id}"))
        for booking_id, published_at in await self._unread(admin, since):
            if published_at < since + _OVERLAP - timedelta(seconds=self.bounds.arrival):
                self.found(Wrong("event missing in Kafka", str(booking_id), f"published {published_at}"))

    async def _unread(self, admin: Admin, since: datetime) -> list[tuple[UUID, datetime]]:
        """Bookings whose event is said to be published and has not come, with that moment."""
        rows = await _published(admin, since)
        return [(row["aggregate_id"], row["published_at"]) for row in rows if row["event_id"] not in self.topic.seen]


@asynccontextmanager
async def _snapshot(admin: Admin) -> AsyncIterator[None]:
    """Everything in it sees one and the same moment."""
    async with admin.transaction(isolation="repeatable_read", readonly=True):
        yield


_BOOKINGS: Final = """
    SELECT id, status, version, expired_at,
           CASE WHEN status IN ('Reserved', 'AwaitingPayment') THEN reserve_expires_at
                WHEN status = 'Booked' THEN booking_expires_at END AS due
      FROM crm.bookings
     WHERE status IN ('Reserved', 'AwaitingPayment', 'Booked') OR updated_at > $1::timestamptz - interval '5 minutes'"""


async def _bookings(admin: Admin, since: datetime) -> dict[UUID, Any]:
    rows = {row["id"]: row for row in await admin.fetch(_BOOKINGS, since)}
    return {booking_id: {**row, "status": Status(row["status"])} for booking_id, row in rows.items()}


_FREED: Final = "SELECT id FROM chessboard.objects WHERE id = ANY ($1::uuid[]) AND status = 'Free'"


async def _freed(admin: Admin, ids: list[UUID]) -> list[UUID]:
    return [row["id"] for row in await admin.fetch(_FREED, ids)]


_WRITTEN: Final = "SELECT event_id, md5(payload) AS digest FROM crm.outbox WHERE event_id = ANY ($1::uuid[])"


async def _written(admin: Admin, ids: list[UUID]) -> dict[UUID, str]:
    return {row["event_id"]: row["digest"] for row in await admin.fetch(_WRITTEN, ids)}


_PUBLISHED: Final = (
    "SELECT event_id, aggregate_id, published_at FROM crm.outbox WHERE published_at > $1::timestamptz - interval '5 minutes'"
)


async def _published(admin: Admin, since: datetime) -> list[Any]:
    return await admin.fetch(_PUBLISHED, since)


_OPEN: Final = """
    SELECT (SELECT count(*) FROM crm.outbox WHERE published_at IS NULL)
         + (SELECT count(*) FROM chessboard.objects AS object JOIN crm.bookings AS holder ON holder.id = object.booking_id
             WHERE holder.status IN ('ReserveExpired', 'BookingExpired', 'Cancelled'))"""


async def _open(admin: Admin) -> int:
    count: int = await admin.fetchval(_OPEN)
    return count
