"""The end of a pause that was made for a limited time."""

from typing import Final

from temporalio import activity
from temporalio.api.schedule.v1 import ScheduleState
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

import telemetry
from activities import schedule_note, schedule_state
from activities.resume_messages import ResumeOrder, ResumeResult
from activities.schedule_note import kept
from db import operator_actions, server
from db.unit_of_work import Pool, UnitOfWork

ACTION: Final = "resume_schedule"
"""As it stands in `operator_actions`, whoever resumed it."""


class ResumeSchedule:
    """The activity `resume_schedule`, with the worker's own client and pool."""

    def __init__(self, client: Client, pool: Pool) -> None:
        self._client = client
        self._pool = pool

    @activity.defn(name="resume_schedule")
    async def resume_schedule(self, order: ResumeOrder) -> ResumeResult:
        """Resume if this pause is still the present one; a later one, or somebody's resuming, is left alone.

        Every error is worth a retry: what keeps the pause from ending may take hours, and somebody's hand, to be put right.
        """
        run_id = activity.info().workflow_run_id or ""
        telemetry.bind_run(run_id)
        try:
            return await self._resume(order, run_id)
        except Exception as error:
            telemetry.step_failed("resume_schedule", str(error), retryable=True)
            raise ApplicationError(str(error), type=type(error).__name__) from error

    async def _resume(self, order: ResumeOrder, run_id: str) -> ResumeResult:
        described = await schedule_state.describe(self._client, order.schedule_id)
        if described is None:
            return ResumeResult(resumed=False, because=f"there is no schedule {order.schedule_id} any more")
        before = described.schedule.state
        if _resumed(before, order, "") is None:
            return ResumeResult(resumed=False, because=f"left alone: {'paused anew' if before.paused else 'not paused any more'}")
        note = await self._recorded(order, run_id, before)
        resumed = await schedule_state.change(self._client, order.schedule_id, lambda state: _resumed(state, order, note))
        return ResumeResult(resumed=resumed, because="the time is over" if resumed else "left alone: somebody else was faster")

    async def _recorded(self, order: ResumeOrder, run_id: str, before: ScheduleState) -> str:
        """Write the act down before the call, as for every act on Temporal; returns the schedule's new note."""
        who, why = f"timer for {kept(order.actor)}", kept(order.reason)
        async with UnitOfWork(self._pool) as connection:
            now = await server.clock(connection)
            note = f"{schedule_note.resumed(who, now, f'the pause is over: {why}')} {_sign(order)}"
            await operator_actions.record_once(
                connection,
                run_id,
                0,  # beside those of the workflow, which begin with 1
                actor=who,
                action=ACTION,
                target=f"schedule/{order.schedule_id}",
                reason=why,
                details={"before": {"paused": before.paused, "note": before.notes}, "after": {"paused": False, "note": note}},
            )
        return note


def _resumed(state: ScheduleState, order: ResumeOrder, note: str) -> ScheduleState | None:
    """The state without this order's pause; None where it is not the present one. What an earlier attempt did stays as it is."""
    if not state.paused and state.notes.endswith(_sign(order)):
        return state
    pause = schedule_note.read(state.notes) if state.paused else None
    return schedule_state.altered(state, paused=False, note=note) if pause and pause.mark == order.mark else None


def _sign(order: ResumeOrder) -> str:
    return f"(mark {order.mark})"
