"""Who would expire at a given moment, read from the deadline indexes: without a lock, and never all of a huge table."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

from db.unit_of_work import Connection
from domain.events import Phase

COUNTED: Final = 1_000_000
"""Due bookings of a phase that are counted; the answer says when there are more."""

GROUPED: Final = 100_000
"""Due bookings of a phase, by deadline, that are read for a table by tenant or hour; the answer says when there are more."""

Group: TypeAlias = Literal["tenant", "hour"]


@dataclass(frozen=True, slots=True)
class DueBooking:
    """One of the oldest: what it is, when it ran out (UTC), and why it was refused before, if it was."""

    id: UUID
    tenant_id: UUID
    phase: Phase
    status: str
    deadline: datetime
    refusal: str | None


# The claim's own literal predicates, so that the partial index of the phase serves each arm (A3). The LIMIT bounds what is
# walked when a mistaken mass update made everything due; a count of a million index entries takes a fraction of a second.
_COUNT: Final = {
    Phase.RESERVE: """
        SELECT count(*), min(deadline) FROM (
          SELECT reserve_expires_at AS deadline FROM crm.bookings
          WHERE status IN ('Reserved', 'AwaitingPayment') AND reserve_expires_at < $1
          ORDER BY reserve_expires_at LIMIT $2) AS due""",
    Phase.BOOKING: """
        SELECT count(*), min(deadline) FROM (
          SELECT booking_expires_at AS deadline FROM crm.bookings
          WHERE status = 'Booked' AND booking_expires_at < $1
          ORDER BY booking_expires_at LIMIT $2) AS due""",
}


async def up_to(connection: Connection, as_of: datetime, limit: int) -> int:
    """How many bookings of both phases are due before `as_of` (UTC); of each phase no more than `limit` are counted."""
    found = [await connection.fetchrow(statement, as_of, limit) or (0,) for statement in _COUNT.values()]
    return sum(row[0] for row in found)


# The refusals are few and have an index entry each; the booking is looked up by its id.
_POISON: Final = {
    Phase.RESERVE: """
        SELECT count(*) FROM crm.expiration_refusals r JOIN crm.bookings b ON b.id = r.booking_id
        WHERE r.phase = 'Reserve' AND b.status IN ('Reserved', 'AwaitingPayment') AND b.reserve_expires_at < $1""",
    Phase.BOOKING: """
        SELECT count(*) FROM crm.expiration_refusals r JOIN crm.bookings b ON b.id = r.booking_id
        WHERE r.phase = 'Booking' AND b.status = 'Booked' AND b.booking_expires_at < $1""",
}


@dataclass(frozen=True, slots=True)
class PhaseDue:
    """The due bookings of a phase: `total` up to `COUNTED`, of which `poison` were refused before; the oldest deadline (UTC)."""

    phase: Phase
    total: int
    poison: int
    oldest: datetime | None


async def count(connection: Connection, phase: Phase, as_of: datetime) -> PhaseDue:
    """Count a phase's bookings whose deadline is before `as_of` (UTC)."""
    total, oldest = await connection.fetchrow(_COUNT[phase], as_of, COUNTED) or (0, None)
    return PhaseDue(phase, total, await connection.fetchval(_POISON[phase], as_of), oldest)


_OLDEST: Final = {
    Phase.RESERVE: """
        SELECT b.id, b.tenant_id, b.status, b.reserve_expires_at, r.reason FROM crm.bookings b
        LEFT JOIN crm.expiration_refusals r ON r.booking_id = b.id AND r.phase = 'Reserve'
        WHERE b.status IN ('Reserved', 'AwaitingPayment') AND b.reserve_expires_at < $1
        ORDER BY b.reserve_expires_at, b.id LIMIT $2""",
    Phase.BOOKING: """
        SELECT b.id, b.tenant_id, b.status, b.booking_expires_at, r.reason FROM crm.bookings b
        LEFT JOIN crm.expiration_refusals r ON r.booking_id = b.id AND r.phase = 'Booking'
        WHERE b.status = 'Booked' AND b.booking_expires_at < $1
        ORDER BY b.booking_expires_at, b.id LIMIT $2""",
}


async def oldest(connection: Connection, phase: Phase, as_of: datetime, limit: int) -> list[DueBooking]:
    """The first `limit` due bookings of a phase, in the order in which the claim takes them."""
    rows: Sequence[Any] = await connection.fetch(_OLDEST[phase], as_of, limit)
    return [DueBooking(row[0], row[1], phase, row[2], row[3], row[4]) for row in rows]


# Grouped over a window that the index gives in order, so that the rows to be fetched are bounded too. An hour is one of UTC.
_GROUPS: Final[dict[tuple[Group, Phase], str]] = {
    ("tenant", Phase.RESERVE): """
        SELECT key, count(*) FROM (
          SELECT tenant_id::text AS key FROM crm.bookings
          WHERE status IN ('Reserved', 'AwaitingPayment') AND reserve_expires_at < $1
          ORDER BY reserve_expires_at LIMIT $2) AS due
        GROUP BY key""",
    ("tenant", Phase.BOOKING): """
        SELECT key, count(*) FROM (
          SELECT tenant_id::text AS key FROM crm.bookings
          WHERE status = 'Booked' AND booking_expires_at < $1
          ORDER BY booking_expires_at LIMIT $2) AS due
        GROUP BY key""",
    ("hour", Phase.RESERVE): """
        SELECT to_char(date_trunc('hour', deadline, 'UTC') AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI"Z"') AS key, count(*) FROM (
          SELECT reserve_expires_at AS deadline FROM crm.bookings
          WHERE status IN ('Reserved', 'AwaitingPayment') AND reserve_expires_at < $1
          ORDER BY reserve_expires_at LIMIT $2) AS due
        GROUP BY key""",
    ("hour", Phase.BOOKING): """
        SELECT to_char(date_trunc('hour', deadline, 'UTC') AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI"Z"') AS key, count(*) FROM (
          SELECT booking_expires_at AS deadline FROM crm.bookings
          WHERE status = 'Booked' AND booking_expires_at < $1
          ORDER BY booking_expires_at LIMIT $2) AS due
        GROUP BY key""",
}


async def groups(connection: Connection, by: Group, phase: Phase, as_of: datetime) -> dict[str, int]:
    """How many of the first `GROUPED` due bookings of a phase belong to each tenant (its id) or hour of the deadline (UTC)."""
    return dict(map(tuple, await connection.fetch(_GROUPS[by, phase], as_of, GROUPED)))
