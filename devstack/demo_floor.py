"""The demo's sales floor: who sells there, which bookings there are, and what may be counted at the end."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import cycle
from typing import Final
from uuid import NAMESPACE_URL, UUID, uuid4, uuid5

import asyncpg

from db.reading import reading
from db.unit_of_work import Pool, UnitOfWork
from devstack.demo_grid import Flat
from domain.booking import PHASE_OF, Status

TENANTS: Final = ("Linden Park", "North Harbour", "Old Mill Quarter", "Skyline Homes")
"""The developer companies; one cycle serves all of them (I3)."""

WATCHED: Final = 60
"""Bookings that become due while one watches, one every `WATCHED_EVERY`."""

WATCHED_EVERY: Final = timedelta(seconds=1.5)
_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Lot:
    """So many bookings in one status, with deadlines evenly spread from `first` to `last`, counted from now."""

    status: Status
    count: int
    first: timedelta
    last: timedelta


# 450 overdue reserves with the two special ones below: the bound of 200 per cycle (L3) makes three cycles of them.
LOTS: Final = (
    Lot(Status.RESERVED, 298, -3 * _HOUR, -_HOUR / 60),
    Lot(Status.AWAITING_PAYMENT, 150, -3 * _HOUR, -_HOUR / 60),
    Lot(Status.BOOKED, 64, -2 * _HOUR, -_HOUR / 60),
    Lot(Status.RESERVED, WATCHED // 3, WATCHED_EVERY, WATCHED * WATCHED_EVERY),
    Lot(Status.AWAITING_PAYMENT, WATCHED // 3, WATCHED_EVERY * 4 / 3, WATCHED * WATCHED_EVERY),
    Lot(Status.BOOKED, WATCHED // 3, WATCHED_EVERY * 5 / 3, WATCHED * WATCHED_EVERY),
    Lot(Status.RESERVED, 60, _HOUR, 2 * _DAY),
    Lot(Status.AWAITING_PAYMENT, 30, _HOUR, _DAY),
    Lot(Status.BOOKED, 90, _DAY, 30 * _DAY),
    Lot(Status.RESERVE_EXPIRED, 25, -7 * _DAY, -_DAY),
    Lot(Status.BOOKING_EXPIRED, 15, -7 * _DAY, -_DAY),
    Lot(Status.CANCELLED, 30, -7 * _DAY, _DAY),
    Lot(Status.COMPLETED, 40, -7 * _DAY, -_DAY),
)
OLDEST: Final = -4 * _HOUR
"""The deadline of the two special bookings: they stand at the head of the queue, where they would be in the way (A3)."""


@dataclass(slots=True)
class Floor:
    """What was put in: a name for each booking, the ids of the active ones, who holds which flat, and the two special ones."""

    now: datetime
    names: dict[UUID, str] = field(default_factory=dict)
    active: list[UUID] = field(default_factory=list)
    flats: dict[UUID, Flat] = field(default_factory=dict)
    holders: dict[UUID, UUID | None] = field(default_factory=dict)
    locked: UUID = field(default_factory=uuid4)
    poison: UUID = field(default_factory=uuid4)


_COLUMNS: Final = (
    "id", "tenant_id", "deal_id", "property_object_id", "status", "reserve_expires_at", "booking_expires_at", "expired_at",
    "created_at", "updated_at", "version",
)  # fmt: skip


async def seed(crm: Pool) -> Floor:
    """Put the whole floor in, as the CRM would. Raises `DatabaseError`."""
    async with UnitOfWork(crm) as connection:
        floor = Floor(await connection.fetchval("SELECT clock_timestamp()"))
        await connection.copy_records_to_table(
            "bookings", schema_name="crm", columns=_COLUMNS, records=list(_bookings(floor)), timeout=10
        )
    return floor


def _bookings(floor: Floor) -> Iterator[tuple[object, ...]]:
    flats = _flats()
    for booking_id in (floor.locked, floor.poison):
        yield _booking(floor, next(flats), booking_id, Status.RESERVED, OLDEST)
    for lot in LOTS:
        step = (lot.last - lot.first) / (lot.count - 1)
        for number in range(lot.count):
            yield _booking(floor, next(flats), uuid4(), lot.status, lot.first + number * step)


def _flats() -> Iterator[Flat]:
    """Each flat once, in a shuffled order that is the same every time."""
    flats = [(house, flat) for house in range(1, 5) for flat in range(1, 97)]
    random.Random(3).shuffle(flats)  # noqa: S311 # not a secret
    places = (flat for flat in flats for _ in TENANTS)
    return (Flat(tenant, house, number) for tenant, (house, number) in zip(cycle(TENANTS), places, strict=False))


def _booking(floor: Floor, flat: Flat, booking_id: UUID, status: Status, due: timedelta) -> tuple[object, ...]:
    floor.names[booking_id] = f"{flat.tenant}, house {flat.house}, flat {flat.number}"
    if status in PHASE_OF:
        floor.active.append(booking_id)
    booked = status in (Status.BOOKED, Status.BOOKING_EXPIRED, Status.COMPLETED)
    deadline = floor.now + due
    reserve_deadline = floor.now - 10 * _DAY if booked else deadline
    expired_at = deadline + timedelta(seconds=30) if status in (Status.RESERVE_EXPIRED, Status.BOOKING_EXPIRED) else None
    tenant_id, object_id = uuid5(NAMESPACE_URL, flat.tenant), uuid5(NAMESPACE_URL, floor.names[booking_id])
    floor.flats[object_id] = flat
    floor.holders[object_id] = booking_id if status in PHASE_OF or status is Status.COMPLETED else None
    version = 1 + booked + (status not in (Status.RESERVED, Status.BOOKED))
    return (
        booking_id, tenant_id, uuid4(), object_id, status, reserve_deadline, deadline if booked else None, expired_at,
        floor.now - 14 * _DAY, expired_at or floor.now - 11 * _DAY, version,
    )  # fmt: skip


async def make_poison(admin_url: str, booking_id: UUID) -> None:
    """Let the database refuse every change of this booking with P0001, as a broken trigger would (D6)."""
    connection = await asyncpg.connect(admin_url, timeout=10)
    try:
        await connection.execute(f"""
            CREATE FUNCTION crm.demo_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN RAISE EXCEPTION 'the demo made this booking refuse every change'; END $$;
            CREATE TRIGGER demo_refuse BEFORE UPDATE ON crm.bookings
            FOR EACH ROW WHEN (OLD.id = '{booking_id}') EXECUTE FUNCTION crm.demo_refuse()""")
    finally:
        await connection.close()


_STATUSES: Final = "SELECT status, count(*)::int FROM crm.bookings GROUP BY status"

# The worker's own predicates (A3), with the clock of this moment.
_BACKLOG: Final = """
    SELECT (SELECT count(*) FROM crm.bookings
             WHERE status IN ('Reserved', 'AwaitingPayment') AND reserve_expires_at < clock_timestamp())
         + (SELECT count(*) FROM crm.bookings WHERE status = 'Booked' AND booking_expires_at < clock_timestamp())"""


async def statuses(operator: Pool) -> Counter[str]:
    """How many bookings are in each status."""
    async with reading(operator) as connection:
        rows = await connection.fetch(_STATUSES)
    return Counter({row["status"]: row["count"] for row in rows})


async def backlog(operator: Pool) -> int:
    """How many bookings are due at this moment and still active."""
    async with reading(operator) as connection:
        count: int = await connection.fetchval(_BACKLOG)
    return count


@dataclass(frozen=True, slots=True)
class Sums:
    """What the database says at the end about the bookings that were active at the beginning."""

    expired: int
    audited: int
    cards: int
    published: int
    poison_is_due: bool
    poison_times: int
    locked_is_extended: bool


_SUMS: Final = """
    SELECT (SELECT count(*) FROM crm.bookings WHERE id = ANY($1) AND status IN ('ReserveExpired', 'BookingExpired')) AS expired,
           (SELECT count(*) FROM crm.booking_audit
             WHERE booking_id = ANY($1) AND actor = 'system' AND action = 'Expire') AS audited,
           (SELECT count(*) FROM crm.deal_timeline_cards WHERE booking_id = ANY($1)) AS cards,
           (SELECT count(*) FROM crm.outbox WHERE aggregate_id = ANY($1) AND published_at IS NOT NULL) AS published,
           EXISTS (SELECT FROM crm.bookings WHERE id = $2 AND status = 'Reserved' AND version = 1
                   AND reserve_expires_at < clock_timestamp()) AS poison_is_due,
           coalesce((SELECT times FROM crm.expiration_refusals WHERE booking_id = $2), 0) AS poison_times,
           EXISTS (SELECT FROM crm.bookings WHERE id = $3 AND status = 'Reserved' AND version = 2
                   AND reserve_expires_at > clock_timestamp()) AS locked_is_extended"""


async def sums(operator: Pool, floor: Floor) -> Sums:
    """Count what is left behind. Raises `DatabaseError`."""
    async with reading(operator) as connection:
        row = await connection.fetchrow(_SUMS, floor.active, floor.poison, floor.locked)
    return Sums(**dict(row or {}))
