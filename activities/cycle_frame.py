"""The first and the last step of a cycle: what it starts from, and what it leaves behind (D2, D24)."""

from collections.abc import Sequence

from temporalio import activity

import telemetry
from activities.errors import reported
from activities.heartbeat import heartbeating
from activities.messages import ClosingCycle, OpenedCycle
from db import job_state
from db.unit_of_work import Pool, UnitOfWork


class CycleFrame:
    """The activities `open_cycle` and `close_cycle`, on one pool."""

    def __init__(self, pool: Pool, search_attributes: Sequence[str] = ()) -> None:
        """`search_attributes`: the names that the namespace has, so that the workflow sets no other (D28)."""
        self._pool = pool
        self._search_attributes = list(search_attributes)

    @activity.defn(name="open_cycle")
    @reported
    async def open_cycle(self) -> OpenedCycle:
        """Read AsOf from the database's clock (D2), count the backlog, mark the start."""
        async with heartbeating(), UnitOfWork(self._pool, telemetry.span) as connection:
            opening = await job_state.opened(connection)
        telemetry.cycle_started(opening.as_of, opening.reserve_backlog, opening.booking_backlog)
        return OpenedCycle(
            as_of=opening.as_of,
            reserve_backlog=opening.reserve_backlog,
            booking_backlog=opening.booking_backlog,
            search_attributes=self._search_attributes,
        )

    @activity.defn(name="close_cycle")
    @reported
    async def close_cycle(self, closing: ClosingCycle) -> None:
        """Leave outcome and counts in `job_state` and in the log (A8, D24)."""
        result = closing.result
        counts = result.model_dump(mode="json", by_alias=True)
        async with heartbeating(), UnitOfWork(self._pool, telemetry.span) as connection:
            await job_state.finished(connection, activity.info().workflow_run_id or "", result.outcome, counts)
        telemetry.cycle_completed(result.outcome, result.duration_ms, result.skipped_locked_count, counts, closing.failures)
