"""A drain: catching up a backlog on purpose, beside the minute's cycle, within limits that an operator sets (D14)."""

import asyncio
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities.drain_messages import (
        Backlog,
        DrainLimits,
        DrainOrder,
        DrainOutcome,
        DrainProgress,
        DrainResult,
        DrainSoFar,
    )
    from activities.messages import BatchOrder, StopRequest
    from domain.events import Phase
    from workflows import details, drain_limits
    from workflows.steps import OPEN_LIMIT, Steps, Typed, cancel_heeded_later, canceled, mark, stop_request

POISON_KEPT: Final = 20
WRITTEN_DOWN: Final = "operator_action"
"""The memo in which the command line repeats `recorded`: no form copies a memo."""

_NOTHING: Final = DrainOrder()
"""What a start without any input means; the refusal then says what is missing."""
_NO_CHANGE: Final = DrainLimits()


def _own(order: DrainOrder) -> DrainOrder:
    """The order without what belongs to another drain: the Web UI's form proposes the input of the one before."""
    continued = workflow.info().continued_run_id is not None
    written = workflow.memo_value(WRITTEN_DOWN, None) == order.recorded
    foreign: dict[str, Any] = {} if continued else {"so_far": None, "exhausted": []}
    return order.model_copy(update=foreign | ({} if written else {"recorded": None}))


@workflow.defn(name="BookingExpirationDrain", failure_exception_types=[Exception])
class BookingExpirationDrain:
    """Rounds of batches, each its own SKIP LOCKED batch, and their events to Kafka, until a limit or the end is reached."""

    @workflow.init
    def __init__(self, order: DrainOrder | None = None) -> None:
        self._order = order = _own(order or _NOTHING)
        self._limits = drain_limits.of_order(order)
        self._so_far = order.so_far or DrainSoFar(started_at=workflow.now())
        self._exhausted = set(order.exhausted)
        self._steps = Steps("cancel_drain")
        self._backlog: Backlog | None = None
        self._stop: StopRequest | None = None
        self._step, self._ending = "starting", False
        self._rests_until: datetime | None = None
        self._owes_rest = False
        self._rounds = 0
        self._batch_no = dict.fromkeys(Phase, 0)

    @workflow.run
    async def run(self, order: DrainOrder | None = None) -> DrainResult:
        """Expire up to `cap` due bookings. Fails before anything expires when the limits are not acceptable (D14)."""
        self._require_limits(None)
        if (order := self._order).so_far is None:
            limits = self._limits.given()
            self._steps.act("start_drain", actor=order.actor, reason=order.reason, recorded=order.recorded, limits=limits)
        await self._look()
        if self._backlog is not None:
            self._require_limits(self._backlog.drain_limit)
        await self._steps.record_acts()
        while (outcome := self._ended()) is None:
            await self._round()
            await self._publish()
            await self._rest()
            if self._ended() is None and self._is_long():
                await self._go_on_as_new()
            await self._look()
        return await self._end(outcome)

    @workflow.signal(
        name="stop", description='The batches in hand commit and are published, nothing new starts. {"reason": …, "actor": …}'
    )
    def stop(self, given: Typed = None) -> None:
        """End the drain early and whole."""
        request = stop_request(given)
        self._steps.act("stop_drain", actor=request.actor, reason=request.reason, recorded=request.recorded)
        if not self._ending:  # it ends for another reason, which its result says
            self._stop = self._stop or request

    @workflow.query(name="progress", description="Limits, what the drain has done so far, rate and time left, in numbers.")
    def progress(self) -> DrainProgress:
        """The facts of the current details, as data; also on closed runs."""
        rate, left = self._so_far.expired / self._seconds(), min((self._limits.cap or 0) - self._so_far.expired, self._due())
        return DrainProgress(
            step=self._step,
            limits=self._limits,
            drain_limit=self._backlog.drain_limit if self._backlog else 0,
            reserve_backlog=self._backlog.reserve_backlog if self._backlog else 0,
            booking_backlog=self._backlog.booking_backlog if self._backlog else 0,
            so_far=self._so_far,
            rate=rate,
            seconds_left=left / rate if rate else None,
            reason=self._why(),
            failures=self._steps.failures,
        )

    @workflow.update(
        name="set_limits",
        description='Change cap, lanes (1 to 8), time_budget or pause (seconds) of the running drain, with "reason" and "actor".',
    )
    def set_limits(self, wanted: DrainLimits | None = None) -> DrainProgress:
        """What is left out stays; takes effect with the next round."""
        wanted = wanted or _NO_CHANGE
        given = wanted.given()
        before = self._limits.model_dump(include=set(given))
        self._limits = self._limits.model_copy(update=given)
        self._steps.act(
            "set_drain_limits", actor=wanted.actor, reason=wanted.reason, recorded=wanted.recorded, before=before, after=given
        )
        return self.progress()

    @set_limits.validator
    def _acceptable(self, wanted: DrainLimits | None = None) -> None:
        if self._ending:
            raise ValueError("the drain is ending: start another one")
        if self._backlog is None:  # and with it the limit of the settings, which no cap may pass
            raise ValueError("the drain is just reading how much is due: try again in a few seconds")
        if wrong := drain_limits.change_refusals(wanted or _NO_CHANGE, self._backlog.drain_limit, self._so_far.expired):
            raise ValueError("; ".join(wrong))

    def _require_limits(self, drain_limit: int | None) -> None:
        if wrong := drain_limits.order_refusals(self._order, drain_limit):
            raise ApplicationError(f"The drain did not start: {'; '.join(wrong)}.", type="DrainRefused", non_retryable=True)

    def _at(self, step: str) -> None:
        self._step = step
        workflow.set_current_details(details.of_drain(self.progress(), self._backlog.runbook_url if self._backlog else ""))

    async def _look(self) -> None:
        """Read AsOf anew, and what is due at it."""
        self._at("reading the clock and the backlog")
        read = await self._steps.run("read_backlog", None, Backlog, OPEN_LIMIT, "Read the clock and the backlog")
        self._backlog = read or self._backlog  # a failed drain still says what it last knew

    def _due_in(self, phase: Phase) -> int:
        if self._backlog is None:
            return 0
        return self._backlog.reserve_backlog if phase is Phase.RESERVE else self._backlog.booking_backlog

    def _phases(self) -> list[Phase]:
        return [self._order.phase] if self._order.phase else list(Phase)

    def _paused(self) -> set[Phase]:
        return {pause.phase for pause in self._backlog.paused} if self._backlog else set()

    def _open(self) -> list[Phase]:
        """Phases with something due that nobody paused, and that did not come up empty in this drain."""
        kept_out = self._paused() | self._exhausted
        return [phase for phase in self._phases() if self._due_in(phase) and phase not in kept_out]

    def _due(self) -> int:
        return sum(self._due_in(phase) for phase in self._open())

    def _started(self) -> datetime:
        return self._so_far.started_at or workflow.now()

    def _seconds(self) -> float:
        """How long it took so far, with the pause that is owed for what was counted: the first round would promise too much."""
        owed = (self._limits.pause or 0) if self._owes_rest and self._ended() is None else 0
        until = self._rests_until or workflow.now() + timedelta(seconds=owed)
        return max((until - self._started()).total_seconds(), 0.001)

    def _ended(self) -> DrainOutcome | None:
        """Why to end now, or None."""
        if canceled():
            return DrainOutcome.CANCELED
        if self._steps.failures:
            return DrainOutcome.FAILED
        if self._stop:
            return DrainOutcome.STOPPED
        if self._so_far.expired >= (self._limits.cap or 0):
            return DrainOutcome.CAP_REACHED
        if workflow.now() - self._started() >= timedelta(seconds=self._limits.time_budget or 0):
            return DrainOutcome.OUT_OF_TIME
        if self._open():
            return None
        waiting = [phase for phase in self._phases() if self._due_in(phase) and phase in self._paused()]
        return DrainOutcome.PAUSED if waiting else DrainOutcome.DRAINED

    async def _round(self) -> None:
        """As many batches at once as there are lanes, all of one phase; what each did is counted by itself."""
        phase, before = self._open()[0], self._so_far.expired
        sizes = drain_limits.sizes((self._limits.cap or 0) - before, self._limits.lanes or 1, self._order.batch_size)
        self._at(f"expiring {phase}, {len(sizes)} batches at once")
        with cancel_heeded_later():
            await asyncio.gather(*(self._batch(phase, size) for size in sizes))
        self._rounds += 1
        if self._so_far.expired == before:
            self._exhausted.add(phase)  # what is left of it is poison, or in somebody's hands

    async def _batch(self, phase: Phase, size: int) -> None:
        if self._backlog is None:
            return
        self._batch_no[phase] += 1
        order = BatchOrder(phase=phase, as_of=self._backlog.as_of, batch_no=self._batch_no[phase], batch_size=size)
        if (done := await self._steps.expire(order)) is None:
            return
        self._owes_rest, so_far = True, self._so_far
        name = "reserve_expired" if phase is Phase.RESERVE else "booking_expired"
        poison = [each for each in done.poison_ids if each not in so_far.poison_ids]
        self._so_far = so_far.model_copy(
            update={
                name: getattr(so_far, name) + done.expired_count,
                "batches": so_far.batches + 1,
                "poison": {**so_far.poison, phase: max(so_far.poison.get(phase, 0), done.poison_count)},
                "poison_ids": [*so_far.poison_ids, *poison][:POISON_KEPT],
            }
        )

    async def _publish(self) -> None:
        """Send what is committed, as a cycle does; Kafka being down keeps no booking from expiring (D10)."""
        self._at("publishing")
        done, so_far = await self._steps.publish(), self._so_far
        sums = {"published": so_far.published + done.published_count, "parked": so_far.parked + done.parked_count}
        self._so_far = so_far.model_copy(update=sums)

    async def _rest(self) -> None:
        """The pause between rounds; a stop or new limits end it."""
        await self._steps.record_acts()
        if self._limits.pause and self._ended() is None:
            limits, self._rests_until = self._limits, workflow.now() + timedelta(seconds=self._limits.pause)
            self._at(f"pausing for {limits.pause:g} s")
            changed = lambda: self._stop is not None or self._limits is not limits  # noqa: E731 # a condition of two names
            with suppress(TimeoutError), cancel_heeded_later():
                await workflow.wait_condition(changed, timeout=limits.pause)
        self._rests_until, self._owes_rest = None, False

    def _is_long(self) -> bool:
        return self._rounds >= self._order.rounds_per_run or workflow.info().is_continue_as_new_suggested()

    async def _go_on_as_new(self) -> None:
        """A new run with the limits as they are now, so that no history grows large."""
        await workflow.wait_condition(workflow.all_handlers_finished)
        await self._steps.record_acts()
        if self._ended() is not None:  # somebody stopped it meanwhile, which no new run would know
            return
        carried = {**self._limits.given(), "so_far": self._so_far, "exhausted": sorted(self._exhausted)}
        workflow.continue_as_new(self._order.model_copy(update=carried))

    def _why(self) -> str:
        """What an operator must know: who stopped it, which phase is paused."""
        if self._stop:
            return f"stopped by {self._stop.actor or 'somebody'}: {self._stop.reason or 'no reason given'}"
        pauses = self._backlog.paused if self._backlog else []
        return "; ".join(f"{pause.phase} is paused by {pause.actor}: {pause.reason}" for pause in pauses)

    async def _end(self, outcome: DrainOutcome) -> DrainResult:
        self._ending = True
        if self._backlog is None and not self._steps.failures:  # cancelled while it read: what can it be found by?
            await self._look()
        await self._steps.record_acts()
        outcome = self._last(outcome)
        result = self._result(outcome)
        registered = self._backlog.search_attributes if self._backlog else []
        expired, poison, parked = self._so_far.expired, result.poison_count, result.parked_count
        mark(registered, outcome=outcome, expired=expired, poison=poison, parked=parked)
        self._at(f"ended: {outcome}")
        if outcome is DrainOutcome.CANCELED:
            raise asyncio.CancelledError
        if failures := self._steps.failures:
            message = f"The drain could not go on. {details.failed(failures)}"
            raise ApplicationError(message, result, type="DrainFailed", non_retryable=True)
        return result

    def _last(self, outcome: DrainOutcome) -> DrainOutcome:
        """How it ended after all: while it ends it may be cancelled (trap 10), or fail to write down what operators did."""
        if canceled():
            return DrainOutcome.CANCELED
        return DrainOutcome.FAILED if self._steps.failures else outcome

    def _result(self, outcome: DrainOutcome) -> DrainResult:
        done = self._so_far
        return DrainResult(
            reserve_expired_count=done.reserve_expired,
            booking_expired_count=done.booking_expired,
            poison_count=sum(done.poison.values()),
            published_count=done.published,
            parked_count=done.parked,
            batches=done.batches,
            left_overdue=sum(self._due_in(phase) for phase in self._phases()),
            duration_ms=(workflow.now() - self._started()) // timedelta(milliseconds=1),
            outcome=outcome,
            reason=self._why(),
        )
