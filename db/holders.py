"""Who holds the lock of a booking's row, as far as it can be seen from outside (D5): for people, never for a decision."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

from db.unit_of_work import Connection


class LockState(StrEnum):
    """What can be said of the row's lock."""

    FREE = "free"
    HELD = "held"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class Holder:
    """A session with an open transaction. `pid` is None for a prepared transaction; `since` (UTC) needs pg_read_all_stats."""

    pid: int | None
    role: str | None
    application: str | None
    since: datetime | None
    state: str | None


@dataclass(frozen=True, slots=True)
class RowLock:
    """HELD: by the one holder named. UNCLEAR: by several at once, or by nobody; `holders` are those who could.

    `sees_all`: whether our role may see since when (pg_read_all_stats).
    """

    state: LockState
    holders: Sequence[Holder]
    sees_all: bool


_LOCKER: Final = "SELECT xmax::text FROM crm.bookings WHERE id = $1"

# xmax is the transaction that locked the row last, running or not; for several at once it is the number of a set of them. Every
# running transaction that has a number holds an exclusive lock on that number, subtransactions included, which anybody may see
# in pg_locks; pg_stat_activity adds who it is.
_HOLDER: Final = """
    SELECT lock.pid, session.usename, session.application_name, session.xact_start, session.state
      FROM pg_locks AS lock LEFT JOIN pg_stat_activity AS session ON session.pid = lock.pid
     WHERE lock.locktype = 'transactionid' AND lock.granted AND lock.mode = 'ExclusiveLock' AND lock.transactionid::text = $1"""

# Whoever locks a row keeps one of these locks on its table until the end of the transaction; a mere reader has another.
_CANDIDATES: Final = """
    SELECT DISTINCT lock.pid, session.usename, session.application_name, session.xact_start, session.state
      FROM pg_locks AS lock LEFT JOIN pg_stat_activity AS session ON session.pid = lock.pid
     WHERE lock.locktype = 'relation' AND lock.relation = 'crm.bookings'::regclass AND lock.granted
       AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())
       AND lock.mode NOT IN ('AccessShareLock', 'ShareUpdateExclusiveLock') AND lock.pid IS DISTINCT FROM pg_backend_pid()
     ORDER BY session.xact_start NULLS LAST, lock.pid
     LIMIT 20"""


async def of_booking(connection: Connection, booking_id: UUID) -> RowLock:
    """Who holds this booking's lock; FREE where there is no such booking."""
    sees_all = bool(await connection.fetchval("SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')"))
    locker = await connection.fetchval(_LOCKER, booking_id)
    if locker in (None, "0"):
        return RowLock(LockState.FREE, (), sees_all)
    if holders := [Holder(*row) for row in await connection.fetch(_HOLDER, locker)]:
        return RowLock(LockState.HELD, holders, sees_all)
    candidates = [Holder(*row) for row in await connection.fetch(_CANDIDATES)]
    return RowLock(LockState.UNCLEAR if candidates else LockState.FREE, candidates, sees_all)
