"""What any instance can read of the job's state for its gauges (O2): index-only counts, the same from wherever they are read."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from db import server
from db.job_state import JOB
from db.unit_of_work import Connection
from domain import safety_catch


@dataclass(frozen=True, slots=True)
class Reading:
    """The state at `at`, the database's clock (UTC); ages in seconds, 0 where nothing waits.

    `held`: a cycle would expire nothing now, whatever became of the one before (the safety catch, and nothing is let through).
    """

    at: datetime
    reserve_backlog: int
    booking_backlog: int
    reserve_oldest_due: float
    booking_oldest_due: float
    poison: int
    outbox_backlog: int
    outbox_oldest: float
    outbox_parked: int
    last_success_at: datetime | None
    held: bool
    schema_version: str
    paused: list[str]


# Each line is answered by one partial index, whose columns are all it asks for: the two phases' deadline indexes (A3) with the
# claim's own literal predicates, the outbox's for what waits and for what is parked. Nothing is joined but the
# refusals, a handful of rows, with their bookings. One statement, so that all values are of one moment; $1 is the clock that was
# just read, because a comparison with clock_timestamp() cannot use an index.
_READ: Final = """
    SELECT (SELECT count(*) FROM crm.bookings WHERE status IN ('Reserved', 'AwaitingPayment') AND reserve_expires_at < $1),
           (SELECT count(*) FROM crm.bookings WHERE status = 'Booked' AND booking_expires_at < $1),
           (SELECT extract(epoch FROM $1 - min(reserve_expires_at))::float8 FROM crm.bookings
            WHERE status IN ('Reserved', 'AwaitingPayment') AND reserve_expires_at < $1),
           (SELECT extract(epoch FROM $1 - min(booking_expires_at))::float8 FROM crm.bookings
            WHERE status = 'Booked' AND booking_expires_at < $1),
           (SELECT count(*) FROM crm.expiration_refusals r JOIN crm.bookings b ON b.id = r.booking_id
            WHERE r.phase = 'Reserve' AND b.status IN ('Reserved', 'AwaitingPayment') AND b.reserve_expires_at < $1
               OR r.phase = 'Booking' AND b.status = 'Booked' AND b.booking_expires_at < $1),
           (SELECT count(*) FROM crm.outbox WHERE published_at IS NULL AND skipped_at IS NULL AND parked_at IS NULL),
           (SELECT extract(epoch FROM $1 - o.recorded_at)::float8 FROM crm.outbox o
            WHERE o.published_at IS NULL AND o.skipped_at IS NULL AND o.parked_at IS NULL ORDER BY o.id LIMIT 1),
           (SELECT count(*) FROM crm.outbox WHERE parked_at IS NOT NULL AND published_at IS NULL AND skipped_at IS NULL),
           (SELECT last_success_at FROM crm.job_state WHERE job = $2),
           (SELECT hold_above FROM crm.safety_catch WHERE job = $2),
           (SELECT allowance FROM crm.safety_catch WHERE job = $2),
           (SELECT max(version) FROM crm.schema_migrations),
           ARRAY(SELECT phase FROM crm.phase_pauses
                 WHERE paused_at IS NOT NULL AND (paused_until IS NULL OR paused_until > $1))"""


async def read(connection: Connection) -> Reading:
    """Read everything as it is now."""
    at = await server.clock(connection)
    row: Any = await connection.fetchrow(_READ, at, JOB)
    reserve, booking, oldest_reserve, oldest_booking, poison, waiting, oldest_record, parked, success, limit, allowance, *last = (
        row
    )
    return Reading(
        at=at,
        reserve_backlog=reserve,
        booking_backlog=booking,
        reserve_oldest_due=oldest_reserve or 0.0,
        booking_oldest_due=oldest_booking or 0.0,
        poison=poison,
        outbox_backlog=waiting,
        outbox_oldest=max(oldest_record or 0.0, 0.0),
        outbox_parked=parked,
        last_success_at=success,
        held=safety_catch.allowed(reserve + booking, limit or 0, allowance or 0) == 0,
        schema_version=last[0] or "",
        paused=last[1],
    )
