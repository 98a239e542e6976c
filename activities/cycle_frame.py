"""The first and the last step of a cycle: what it starts from, and what it leaves behind (D2, D24); a drain looks alike."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from temporalio import activity

import telemetry
from activities.drain_messages import Backlog
from activities.errors import reported
from activities.heartbeat import heartbeating
from activities.messages import ActsToRecord, ClosingCycle, OpenedCycle, PhasePause
from db import controls, job_state, operator_actions, outbox
from db.unit_of_work import Pool, UnitOfWork


class CycleFrame:
    """The activities `open_cycle`, `read_backlog`, `record_acts` and `close_cycle`, on one pool."""

    def __init__(
        self,
        pool: Pool,
        search_attributes: Sequence[str] = (),
        *,
        hold_above: int = 0,
        drain_limit: int = 50_000,
        runbook_url: str = "",
    ) -> None:
        """`search_attributes`: the names that the namespace has, so that the workflow sets no other (D28).

        `hold_above`: bookings due at once above which nothing expires (0: never); `drain_limit`: bookings per drain at most;
        `runbook_url`: below it the folder `runbooks` can be read.
        """
        self._pool = pool
        self._search_attributes = list(search_attributes)
        self._hold_above = hold_above
        self._drain_limit = drain_limit
        self._runbook_url = runbook_url

    @property
    def activities(self) -> list[Callable[..., Any]]:
        """All of them, for the worker."""
        return [self.open_cycle, self.read_backlog, self.record_acts, self.close_cycle]

    @activity.defn(name="open_cycle")
    @reported
    async def open_cycle(self) -> OpenedCycle:
        """Read AsOf from the database's clock (D2), the backlog and what operators stopped; mark the start."""
        async with heartbeating(), UnitOfWork(self._pool, telemetry.span) as connection:
            opening = await job_state.opened(connection, lambda: datetime.now(UTC))
            paused = await controls.paused(connection, opening.as_of)
            due = opening.reserve_backlog + opening.booking_backlog
            allowed = await controls.look(connection, due, self._hold_above, opening.as_of)
            parked = await outbox.parked(connection)
        telemetry.cycle_started(opening.as_of, opening.reserve_backlog, opening.booking_backlog)
        if allowed is not None:
            telemetry.cycle_held(due, self._hold_above, allowed)
        return OpenedCycle(
            as_of=opening.as_of,
            reserve_backlog=opening.reserve_backlog,
            booking_backlog=opening.booking_backlog,
            search_attributes=self._search_attributes,
            paused=_travelling(paused),
            allowed=allowed,
            hold_above=self._hold_above,
            parked_records=parked,
            runbook_url=self._runbook_url,
        )

    @activity.defn(name="read_backlog")
    @reported
    async def read_backlog(self) -> Backlog:
        """Read AsOf, what is due and which phases are paused, for one round of a drain (D14); nothing is written."""
        async with heartbeating(), UnitOfWork(self._pool, telemetry.span) as connection:
            opening = await job_state.backlog(connection)
            paused = await controls.paused(connection, opening.as_of)
        return Backlog(
            as_of=opening.as_of,
            reserve_backlog=opening.reserve_backlog,
            booking_backlog=opening.booking_backlog,
            paused=_travelling(paused),
            drain_limit=self._drain_limit,
            search_attributes=self._search_attributes,
            runbook_url=self._runbook_url,
        )

    @activity.defn(name="record_acts")
    @reported
    async def record_acts(self, order: ActsToRecord) -> None:
        """Write to `operator_actions` what operators did to this run from the Web UI, each act once."""
        run_id = activity.info().workflow_run_id or ""
        async with heartbeating(), UnitOfWork(self._pool, telemetry.span) as connection:
            for number, act in enumerate(order.acts, start=1):
                await operator_actions.record_once(connection, run_id, number, **act.model_dump())

    @activity.defn(name="close_cycle")
    @reported
    async def close_cycle(self, closing: ClosingCycle) -> list[str]:
        """Leave outcome and counts in `job_state` and in the log (A8, D24).

        Returns the search attributes that exist: a cycle that was stopped before it opened knows them from nowhere else.
        """
        result = closing.result
        counts = result.model_dump(mode="json", by_alias=True)
        async with heartbeating(), UnitOfWork(self._pool, telemetry.span) as connection:
            await job_state.finished(connection, activity.info().workflow_run_id or "", result.outcome, counts)
        telemetry.cycle_completed(result.outcome, result.duration_ms, result.skipped_locked_count, counts, closing.failures)
        return self._search_attributes


def _travelling(paused: Sequence[controls.Pause]) -> list[PhasePause]:
    return [PhasePause(phase=each.phase, reason=each.reason, actor=each.actor, until=each.until) for each in paused]
