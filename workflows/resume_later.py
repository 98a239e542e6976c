"""The timer behind `schedule pause --for`: it resumes the schedule even if nobody remembers."""

import asyncio
from datetime import timedelta
from typing import Final

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.resume_messages import ResumeOrder, ResumeResult
    from activities.schedule_note import moment
    from workflows.details import plain
    from workflows.steps import Steps, canceled

SUMMARY: Final = "Ends a pause of the schedule"
ATTEMPT_LIMIT: Final = timedelta(seconds=30)
RETRIES: Final = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(minutes=1))
"""Without an end: a pause that outlives an outage of hours would be what this timer is there to prevent."""
RECORD_LIMIT: Final = timedelta(minutes=10)
"""For writing a cancel down: nobody waits for the end of a timer, so a database may be away for a while."""


def details(order: ResumeOrder) -> str:
    """What the Web UI says about this timer."""
    return (
        f"Resumes the schedule {order.schedule_id} at {moment(order.until)}, "
        f"if the pause of mark {order.mark} is still the present one. "
        "A later pause by somebody else stays, and a schedule that was resumed by hand is left alone. "
        "To keep the schedule paused: pause it again without --for; cancelling this timer has the same effect, "
        "and is written down. Runbook: runbooks/booking-expiration.md"
    )


# As for the cycle: a code bug must fail it where everybody sees it, not suspend it (trap 3).
@workflow.defn(name="BookingExpirationResume", failure_exception_types=[Exception])
class BookingExpirationResume:
    """Sleeps, then asks its activity to end the pause. It has no time-out of its own."""

    def __init__(self) -> None:
        self._time_is_over = False

    @workflow.run
    async def run(self, order: ResumeOrder) -> ResumeResult:
        """One pause. Completes whether it had to resume or found nothing to do; Canceled by a cancel, which is written down."""
        result: ResumeResult | None = None
        try:
            result = await self._resume(order)
        except (ActivityError, asyncio.CancelledError) as error:
            if not canceled() or not is_cancelled_exception(error):
                raise  # no operator's cancel: the run is being evicted (trap 13)
        told = "The pause has no end any more"
        if self._time_is_over:  # the attempt may have resumed it, and failed or been cancelled after that
            told = "An attempt was in hand: `booking-expiration schedule show` says whether it resumed"
        if result is not None:
            told = f"{'Resumed' if result.resumed else 'Nothing done'}: {result.because}"
        if result is None or canceled():
            steps = Steps("cancel_resume", schedule=order.schedule_id, until=order.until.isoformat())
            await steps.record_acts(RECORD_LIMIT)
            workflow.set_current_details(". ".join([f"Cancelled. {told}", *map(plain, steps.failures)]))
            raise asyncio.CancelledError
        workflow.set_current_details(told)
        return result

    async def _resume(self, order: ResumeOrder) -> ResumeResult:
        workflow.set_current_details(f"Waits until {moment(order.until)}: {plain(order.reason)}")
        await workflow.sleep(order.seconds, summary=f"Until {moment(order.until)}")
        self._time_is_over = True
        result: ResumeResult = await workflow.execute_activity(
            "resume_schedule",
            order,
            result_type=ResumeResult,
            start_to_close_timeout=ATTEMPT_LIMIT,
            retry_policy=RETRIES,
            # An attempt in hand may resume the schedule in spite of a cancel: Canceled must not be shown before that is known.
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=f"Resume, if mark {order.mark} is still there",
        )
        return result
