"""The managers' commands (D16): read, decide in the domain, write with an optimistic version check.

For race tests, the demo's traffic and the checker; not a public CRM API.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from db.errors import VersionConflictError
from db.unit_of_work import Connection
from domain.booking import Booking, Status


class UnknownBookingError(LookupError):
    """No booking has this id."""


_READ: Final = """
    SELECT id, tenant_id, deal_id, property_object_id, status, reserve_expires_at, booking_expires_at, expired_at, updated_at,
           version
    FROM crm.bookings WHERE id = $1"""


async def read(connection: Connection, booking_id: UUID) -> Booking:
    """The booking as it stands now, without a lock. Raises `UnknownBookingError`."""
    row = await connection.fetchrow(_READ, booking_id)
    if row is None:
        raise UnknownBookingError(f"there is no booking {booking_id}")
    return Booking(**{**row, "status": Status(row["status"])})


# The version is the optimistic lock (R3): whoever commits first wins, the other one's UPDATE finds no row. The audit row
# comes from the UPDATE itself, so that there is never one without the other.
_WRITE: Final = """
    WITH moved AS (
      UPDATE crm.bookings
      SET status = $3, reserve_expires_at = $4, booking_expires_at = $5, updated_at = $6, version = version + 1
      WHERE id = $1 AND version = $2
      RETURNING id, version
    )
    INSERT INTO crm.booking_audit (booking_id, version, actor, action, from_status, to_status, at, correlation_id)
    SELECT id, version, $7, $8, $9, $3, $6, $10 FROM moved
    RETURNING version"""


@dataclass(frozen=True, slots=True, kw_only=True)
class By:
    """Who gives a command, which one, when (UTC), and in which request: what the audit row says."""

    actor: str
    action: str
    at: datetime
    request: str


async def write(connection: Connection, booking: Booking, was: Status, by: By) -> None:
    """Write a booking after one decision on it; `was` is the status that had been read (D16).

    Raises `VersionConflictError` when somebody else committed since it was read.
    """
    read_version = booking.version - 1
    written = await connection.fetchval(
        _WRITE,
        booking.id,
        read_version,
        booking.status,
        booking.reserve_expires_at,
        booking.booking_expires_at,
        by.at,
        by.actor,
        by.action,
        was,
        by.request,
    )
    if written is None:
        raise VersionConflictError(f"booking {booking.id} changed after version {read_version} was read; reread and decide again")


async def command(connection: Connection, booking_id: UUID, decide: Callable[[Booking], None], by: By) -> Booking:
    """Read a booking, let it decide (`confirm`, `extend`, `cancel`, …), write it: version + 1, one audit row (D16, D23).

    Raises `UnknownBookingError`, `BookingError` when the domain refuses, `VersionConflictError` when somebody else was faster.
    """
    booking = await read(connection, booking_id)
    was = booking.status
    decide(booking)
    await write(connection, booking, was, by)
    return booking
