"""One cycle, as the schedule starts it every minute: open, expire Reserve, expire Booking, publish, close (D13)."""

import asyncio
from datetime import timedelta
from typing import Any, Final, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy, SearchAttributeUpdate
from temporalio.exceptions import ActivityError, ApplicationError, FailureError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.messages import (
        BatchOrder,
        BatchResult,
        ClosingCycle,
        CycleInput,
        CycleResult,
        OpenedCycle,
        Outcome,
        PublishOrder,
        PublishResult,
    )
    from domain.events import Phase
    from workflows.search_attributes import EXPIRED, OUTCOME, PARKED, POISON

R = TypeVar("R")

EXECUTION_TIMEOUT: Final = timedelta(seconds=150)
OPEN_LIMIT: Final = timedelta(seconds=10)
EXPIRE_LIMIT: Final = timedelta(seconds=45)
PUBLISH_LIMIT: Final = timedelta(seconds=25)
CLOSE_LIMIT: Final = timedelta(seconds=10)
"""Schedule-to-close of each step (D1): together below the execution time-out, so that a slow cycle ends by itself."""

PUBLISH_LIMIT_CANCELED: Final = timedelta(seconds=6)
"""After a cancel, what was committed still goes out if Kafka answers within a few seconds (L5)."""

HEARTBEAT_TIMEOUT: Final = timedelta(seconds=5)
SETTLING_TIME: Final = 5.0
"""Seconds of publishing's limit that are left for settling what was sent."""

RETRIES: Final = RetryPolicy(
    initial_interval=timedelta(milliseconds=500), backoff_coefficient=2.0, maximum_interval=timedelta(seconds=5)
)
"""Within the step's limit, as often as needed; errors that no retry heals say so themselves (R4)."""


# A code bug must fail the cycle: by default it would suspend it, and overlap SKIP would then stop the job (trap 3).
@workflow.defn(name="BookingExpirationCycle", failure_exception_types=[Exception])
class BookingExpirationCycle:
    """Decides what comes next and for how long; the activities do it. A failed step does not stop the others (D22)."""

    def __init__(self) -> None:
        self._failures: list[str] = []
        self._expired = {Phase.RESERVE: BatchResult(), Phase.BOOKING: BatchResult()}
        self._published = PublishResult()

    @workflow.run
    async def run(self, order: CycleInput) -> CycleResult:
        """One cycle. Fails, with the result so far as details, when a step failed for good; Canceled by a cancel (L5)."""
        started = workflow.now()
        opened = await self._step("open_cycle", None, OpenedCycle, OPEN_LIMIT, "Read the clock and the backlog")
        if opened is not None:
            await self._expire(opened, order.batch_size)
        await self._publish()
        result = self._result(workflow.now() - started)
        closing = ClosingCycle(result=result, failures=self._failures)
        await self._step("close_cycle", closing, None, CLOSE_LIMIT, "Leave outcome and counts")
        result = result.model_copy(update={"outcome": self._outcome()})  # closing may have failed, or been cancelled, itself
        self._mark(result, opened.search_attributes if opened else [])
        return self._end(result)

    async def _expire(self, opened: OpenedCycle, batch_size: int) -> None:
        for phase in self._expired:
            if _canceled():
                return
            batch = BatchOrder(phase=phase, as_of=opened.as_of, batch_size=batch_size)
            done = await self._step("expire_batch", batch, BatchResult, EXPIRE_LIMIT, f"{phase}: up to {batch_size}")
            self._expired[phase] = done or BatchResult()

    async def _publish(self) -> None:
        limit = PUBLISH_LIMIT_CANCELED if _canceled() else PUBLISH_LIMIT
        budget = PublishOrder(time_budget=max(limit.total_seconds() - SETTLING_TIME, 1.0))
        done = await self._step("publish_outbox", budget, PublishResult, limit, "Send committed events to Kafka")
        self._published = done or PublishResult()

    async def _step(self, name: str, order: object, result: type[R] | None, limit: timedelta, summary: str) -> R | None:
        """Run one activity to its end; None when it failed for good, which is remembered, or was cancelled."""
        try:
            done: R = await workflow.execute_activity(
                name,
                args=[] if order is None else [order],
                result_type=result,
                schedule_to_close_timeout=limit,
                heartbeat_timeout=HEARTBEAT_TIMEOUT,
                retry_policy=RETRIES,
                # Only so does Canceled in the Web UI mean that the batch in hand is whole (trap 9).
                cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
                summary=summary,
            )
        except (ActivityError, asyncio.CancelledError) as error:
            if not is_cancelled_exception(error):
                self._failures.append(f"{name} ({summary}): {_reason(error)}")
            elif not _canceled():
                raise  # not an operator's cancel: the run is being evicted (trap 13)
            return None
        else:
            return done

    def _outcome(self) -> Outcome:
        return Outcome.CANCELED if _canceled() else Outcome.FAILED if self._failures else Outcome.COMPLETED

    def _result(self, took: timedelta) -> CycleResult:
        batches = self._expired.values()
        return CycleResult(
            reserve_expired_count=self._expired[Phase.RESERVE].expired_count,
            booking_expired_count=self._expired[Phase.BOOKING].expired_count,
            skipped_locked_count=sum(batch.skipped_locked_count for batch in batches),
            duration_ms=took // timedelta(milliseconds=1),
            poison_count=sum(batch.poison_count for batch in batches),
            published_count=self._published.published_count,
            parked_count=self._published.parked_count,
            outcome=self._outcome(),
        )

    def _mark(self, result: CycleResult, registered: list[str]) -> None:
        """Set the search attributes that exist; one that is not registered would stall the run (D28)."""
        expired = result.reserve_expired_count + result.booking_expired_count
        values: list[SearchAttributeUpdate[Any]] = [
            OUTCOME.value_set(result.outcome),
            EXPIRED.value_set(expired),
            POISON.value_set(result.poison_count),
            PARKED.value_set(result.parked_count),
        ]
        if updates := [update for update in values if update.key.name in registered]:
            workflow.upsert_search_attributes(updates)

    def _end(self, result: CycleResult) -> CycleResult:
        if _canceled():
            # The single cancel was taken so that closing could go on; now it ends the run (trap 10).
            raise asyncio.CancelledError
        if self._failures:
            raise ApplicationError(
                f"the cycle could not do everything: {'; '.join(self._failures)}", result, type="CycleFailed", non_retryable=True
            )
        return result


def _canceled() -> bool:
    """Whether somebody asked this run to stop; an activity that finished anyway swallows the cancel itself (trap 10)."""
    return workflow.cancellation_reason() is not None


def _reason(error: BaseException) -> str:
    """The causes behind an activity's failure, outermost first: a time-out and the last attempt's error, say."""
    reasons = []
    cause = error.__cause__
    while cause is not None:
        reasons.append(cause.message if isinstance(cause, FailureError) else str(cause))
        cause = cause.__cause__
    return ", last: ".join(dict.fromkeys(reasons)) or str(error)
