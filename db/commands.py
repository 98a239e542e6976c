"""The managers' commands (D16): read, decide in the domain, write with an optimistic version check.

For race tests, the demo's traffic and the checker; not a public CRM API.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final
from uuid import UUID

from db.errors import VersionConflictError
from db.unit_of_work import Connection
from domain.booking import Booking, Status

_READ: Final = """
    SELECT id, tenant_id, deal_id, property_object_id, status, reserve_expires_at, booking_expires_at, expired_at, updated_at,
           version
    FROM crm.bookings WHERE id = $1"""


async def read(connection: Connection, booking_id: UUID) -> Booking:
    """The booking as it stands now, without a lock. Raises `LookupError` when there is none."""
    row = await connection.fetchrow(_READ, booking_id)
    if row is None:
        raise LookupError(f"there is no booking {booking_id}")
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


async def command(
    connection: Connection,
    booking_id: UUID,
    decide: Callable[[Booking], None],
    *,
    actor: str,
    action: str,
    at: datetime,
    request: str,
) -> Booking:
    """Apply one decision (`confirm`, `extend`, `cancel`, …) to a booking: version + 1, one audit row (D16, D23).

    Raises `BookingError` when the domain refuses, `VersionConflictError` when somebody else committed first.
    """
    booking = await read(connection, booking_id)
    from_status, version = booking.status, booking.version
    decide(booking)
    written = await connection.fetchval(
        _WRITE, booking.id, version, booking.status, booking.reserve_expires_at, booking.booking_expires_at, at,
        actor, action, from_status, request,
    )  # fmt: skip
    if written is None:
        raise VersionConflictError(f"booking {booking_id} changed after version {version} was read; reread and decide again")
    return booking
