"""What a cycle reads before and leaves behind: the database's clock, the backlog, and one row of `job_state` (D2, D24)."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from db import server
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
    return await _due(connection, await server.clock(connection))


async def _due(connection: Connection, as_of: datetime) -> Opening:
    reserve, booking = await connection.fetchrow(_BACKLOG, as_of) or (0, 0)
    return Opening(as_of, reserve, booking)


_STARTED: Final = """
    INSERT INTO crm.job_state (job, last_started_at, worker_clock_at) VALUES ($1, $2, $3)
    ON CONFLICT (job) DO UPDATE
    SET last_started_at = excluded.last_started_at, worker_clock_at = excluded.worker_clock_at"""


async def opened(connection: Connection, now: Callable[[], datetime]) -> Opening:
    """Read the clock, count the backlog and mark the start; run id and counts stay those of the last finished cycle.

    `now` is this worker's clock (UTC), which is left beside the database's: the moment between asking and answer that is nearest
    to it, so that a slow answer is no difference.
    """
    asked, as_of, answered = now(), await server.clock(connection), now()
    await connection.execute(_STARTED, JOB, as_of, min(max(as_of, asked), answered))
    return await _due(connection, as_of)


async def worker_clock(connection: Connection) -> tuple[datetime, datetime] | None:
    """The database's clock when the newest cycle began, and the worker's at the same moment (UTC); None where nobody left it."""
    told = await connection.fetchrow("SELECT last_started_at, worker_clock_at FROM crm.job_state WHERE job = $1", JOB)
    return (told[0], told[1]) if told and told[0] and told[1] else None


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
