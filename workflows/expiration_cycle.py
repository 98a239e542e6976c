"""One cycle, as the schedule starts it every minute: open, expire Reserve, expire Booking, publish, close (D13)."""

import asyncio
from datetime import timedelta
from typing import Final

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities.messages import (
        BatchOrder,
        BatchResult,
        ClosingCycle,
        CycleInput,
        CycleProgress,
        CycleResult,
        OpenedCycle,
        Outcome,
        PublishResult,
        StopRequest,
    )
    from domain.events import Phase
    from workflows import details
    from workflows.steps import CLOSE_LIMIT, OPEN_LIMIT, Steps, Typed, canceled, mark, stop_request

EXECUTION_TIMEOUT: Final = timedelta(seconds=150)
RECORD_ACTS: Final = "record-acts"
"""Since 0.2.0; runs that began before it are over after 150 seconds (docs/versioning.md)."""

POISON_SHOWN: Final = 20
"""Poison ids that current details and `progress` name."""

_USUAL: Final = CycleInput()
"""What a start without any input means."""


# A code bug must fail the cycle: by default it would suspend it, and overlap SKIP would then stop the job (trap 3).
@workflow.defn(name="BookingExpirationCycle", failure_exception_types=[Exception])
class BookingExpirationCycle:
    """Decides what comes next and for how long; the activities do it. A failed step does not stop the others (D22)."""

    def __init__(self) -> None:
        self._steps = Steps("cancel_cycle")
        self._opened: OpenedCycle | None = None
        self._expired = {Phase.RESERVE: BatchResult(), Phase.BOOKING: BatchResult()}
        self._published = PublishResult()
        self._stop: StopRequest | None = None
        self._closing = False
        self._step = ("starting", "read the clock and the backlog")

    @workflow.run
    async def run(self, order: CycleInput | None = None) -> CycleResult:
        """One cycle. Fails, with the result so far as details, when a step failed for good; Canceled by a cancel (L5)."""
        started = workflow.now()
        if self._stop is None:
            await self._open()
        await self._expire((order or _USUAL).batch_size)
        if self._stop is None or self._expired_count():
            self._at("publishing", "close the cycle")
            self._published = await self._steps.publish()
        result = self._result(workflow.now() - started)
        self._closing = True
        self._at("closing", "nothing: the next tick starts a new cycle")
        closing = ClosingCycle(result=result, failures=self._steps.failures)
        names = await self._steps.run("close_cycle", closing, list[str], CLOSE_LIMIT, "Leave outcome and counts")
        if self._steps.unwritten() and workflow.patched(RECORD_ACTS):
            await self._steps.record_acts()
        result = result.model_copy(update={"outcome": self._outcome()})  # closing may have failed, or been cancelled, itself
        registered = self._opened.search_attributes if self._opened else names or []
        expired, poison, parked = self._expired_count(), result.poison_count, result.parked_count
        mark(registered, outcome=result.outcome, expired=expired, poison=poison, parked=parked)
        self._at(f"ended: {result.outcome}", "")
        return self._end(result)

    @workflow.signal(
        name="stop_after_current_batch",
        description='The batch in hand commits, nothing new starts, what was committed is published. {"reason": …, "actor": …}',
    )
    def stop_after_current_batch(self, given: Typed = None) -> None:
        """End the cycle early and whole; before the first batch it stops at once, and while it closes nothing is left to stop."""
        request = stop_request(given)
        self._steps.act("stop_cycle", actor=request.actor, reason=request.reason, recorded=request.recorded)
        if self._stop is None and not self._closing:
            self._stop = request
            self._at(*self._step)

    @workflow.query(name="progress", description="What the cycle is doing and what it has done so far, in numbers.")
    def progress(self) -> CycleProgress:
        """The facts of the current details, as data; also on closed runs."""
        opened = self._opened
        poison = [each for batch in self._expired.values() for each in batch.poison_ids]
        return CycleProgress(
            step=self._step[0],
            next_step=self._step[1],
            as_of=opened.as_of if opened else None,
            reserve_backlog=opened.reserve_backlog if opened else 0,
            booking_backlog=opened.booking_backlog if opened else 0,
            reserve_expired=self._expired[Phase.RESERVE].expired_count,
            booking_expired=self._expired[Phase.BOOKING].expired_count,
            skipped_locked=sum(batch.skipped_locked_count for batch in self._expired.values()),
            poison_count=sum(batch.poison_count for batch in self._expired.values()),
            poison_ids=poison[:POISON_SHOWN],
            published=self._published.published_count,
            parked=self._published.parked_count,
            parked_records=opened.parked_records if opened else 0,
            paused=opened.paused if opened else [],
            held=self._held(),
            reason=self._why(),
            failures=self._steps.failures,
        )

    def _at(self, step: str, next_step: str) -> None:
        """Say in the Web UI where the run is (trap 20: shown while a worker lives)."""
        self._step = (step, next_step)
        workflow.set_current_details(details.of_cycle(self.progress(), self._opened.runbook_url if self._opened else ""))

    async def _open(self) -> None:
        self._at("reading the clock and the backlog", "expire Reserve")
        self._opened = await self._steps.run("open_cycle", None, OpenedCycle, OPEN_LIMIT, "Read the clock and the backlog")

    async def _expire(self, batch_size: int) -> None:
        if (opened := self._opened) is None:
            return
        paused = {pause.phase for pause in opened.paused}
        for phase in self._expired:
            size = batch_size if opened.allowed is None else min(batch_size, opened.allowed - self._expired_count())
            if canceled() or self._stop or size <= 0:
                return
            if phase in paused:
                continue
            self._at(f"expiring {phase}", "expire Booking" if phase is Phase.RESERVE else "publish")
            batch = BatchOrder(phase=phase, as_of=opened.as_of, batch_size=size, spends_allowance=opened.allowed is not None)
            self._expired[phase] = await self._steps.expire(batch) or BatchResult()

    def _expired_count(self) -> int:
        return sum(batch.expired_count for batch in self._expired.values())

    def _held(self) -> bool:
        return self._opened is not None and self._opened.allowed == 0

    def _outcome(self) -> Outcome:
        if canceled():
            return Outcome.CANCELED
        if self._steps.failures:
            return Outcome.FAILED
        if self._stop:
            return Outcome.STOPPED
        if self._held():
            return Outcome.HELD
        return Outcome.PAUSED if self._opened and self._opened.paused else Outcome.COMPLETED

    def _why(self) -> str:
        """Why this cycle does less than it could: who stopped it, what holds it, which phase is paused."""
        if self._stop:
            return f"stopped by {self._stop.actor or 'somebody'}: {self._stop.reason or 'no reason given'}"
        if self._opened is None:
            return ""
        reasons = [f"{pause.phase} is paused by {pause.actor}: {pause.reason}" for pause in self._opened.paused]
        if self._opened.allowed is not None:
            due = self._opened.reserve_backlog + self._opened.booking_backlog
            reasons.insert(0, f"{due} bookings are due, more than {self._opened.hold_above}: {self._opened.allowed} may expire")
        return "; ".join(reasons)

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
            reason=self._why(),
        )

    def _end(self, result: CycleResult) -> CycleResult:
        if canceled():
            # The single cancel was taken so that closing could go on; now it ends the run (trap 10).
            raise asyncio.CancelledError
        if failures := self._steps.failures:
            message = f"The cycle could not do everything. {details.failed(failures)}"
            raise ApplicationError(message, result, type="CycleFailed", non_retryable=True)
        return result
