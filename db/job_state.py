"""What a cycle reads before and leaves behind: the database's clock, the backlog, and one row of `job_state` (D2, D24)."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from db.unit_of_work import Connection

JOB: Final = "booking-expiration"


@dataclass(frozen=True, slots=True)
class Opening:
    """The cycle's moment by the database's clock (UTC), and how many bookings of each phase are due at it."""

    as_of: datetime
    reserve_backlog: int
    booking_backlog: int


# The same predicates as the claim's, deadline columns alone: both counts are served by the partial indexes (A3).
_BACKLOG: Final = """
    SELECT (SELECT count(*) FROM crm.bookings WHERE status IN ('Reserved', 'AwaitingPayment') AND reserve_expires_at < $1),
           (SELECT count(*) FROM crm.bookings WHERE status = 'Booked' AND booking_expires_at < $1)"""


async def backlog(connection: Connection) -> Opening:
    """Read the clock and count what is due at it; nothing is written."""
    as_of: datetime = await connection.fetchval("SELECT clock_timestamp()")
    reserve, booking = await connection.fetchrow(_BACKLOG, as_of) or (0, 0)
    return Opening(as_of, reserve, booking)


_STARTED: Final = """
    INSERT INTO crm.job_state (job, last_started_at) VALUES ($1, $2)
    ON CONFLICT (job) DO UPDATE SET last_started_at = excluded.last_started_at"""


async def opened(connection: Connection) -> Opening:
    """Read the clock, count the backlog and mark the start; run id and counts stay those of the last finished cycle."""
    opening = await backlog(connection)
    await connection.execute(_STARTED, JOB, opening.as_of)
    return opening


# Success keeps its old value unless this cycle completed: only `completed` counts for liveness (O5). The clock stands in FROM, so
# that it is read once: the end of a completed cycle and the last success are one moment.
_FINISHED: Final = """
    INSERT INTO crm.job_state (job, run_id, outcome, counts, last_finished_at, last_success_at)
    SELECT $1, $2, $3, $4::jsonb, moment, CASE WHEN $3 = 'completed' THEN moment END FROM clock_timestamp() AS moment
    ON CONFLICT (job) DO UPDATE
    SET run_id = excluded.run_id, outcome = excluded.outcome, counts = excluded.counts,
        last_finished_at = excluded.last_finished_at,
        last_success_at = coalesce(excluded.last_success_at, job_state.last_success_at)"""


async def finished(connection: Connection, run_id: str, outcome: str, counts: dict[str, Any]) -> None:
    """Leave the outcome and the counts of a cycle, where any instance can read them."""
    await connection.execute(_FINISHED, JOB, run_id, outcome, json.dumps(counts))


async def outcome(connection: Connection) -> str | None:
    """How the last finished cycle ended (D24), or None before the first."""
    last: str | None = await connection.fetchval("SELECT outcome FROM crm.job_state WHERE job = $1", JOB)
    return last
