"""What the cycle and the drain share: how one step runs, what became of it, and what operators did to the run meanwhile."""

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy, SearchAttributeUpdate
from temporalio.exceptions import ActivityError, FailureError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.messages import ActsToRecord, BatchOrder, BatchResult, OperatorAct, PublishOrder, PublishResult, StopRequest
    from activities.schedule_note import kept
    from workflows.search_attributes import EXPIRED, OUTCOME, PARKED, POISON

R = TypeVar("R")

# What the SDK cannot decode by a signal's own type it drops without a word to anybody; raw it always arrives.
if TYPE_CHECKING:
    Typed: TypeAlias = Any
else:
    Typed = RawValue

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

RECORDED: Final = re.compile(r"\(operator action \d+\)$")
"""How the command line ends the reason of a cancel that it has written to `operator_actions` itself."""


class Steps:
    """Runs the steps of one run. A failed step is remembered and does not stop the others (D22)."""

    def __init__(self, cancel: str, **details: Any) -> None:
        """`cancel`: an operator's cancel of this run, as it stands in `operator_actions`, with these details."""
        self.failures: list[str] = []
        self.acts: list[OperatorAct] = []
        self._cancel, self._details = cancel, details
        self._recorded = 0

    async def run(self, name: str, order: object, result: type[R] | None, limit: timedelta, summary: str) -> R | None:
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
                self.failures.append(f"{name} ({summary}): {_reason(error)}")
            elif not canceled():
                raise  # not an operator's cancel: the run is being evicted (trap 13)
            return None
        else:
            return done

    async def expire(self, batch: BatchOrder) -> BatchResult | None:
        """One batch of one phase."""
        return await self.run("expire_batch", batch, BatchResult, EXPIRE_LIMIT, f"{batch.phase}: up to {batch.batch_size}")

    async def publish(self) -> PublishResult:
        """Send what is committed; after a cancel only for as long as an operator would wait (L5)."""
        limit = PUBLISH_LIMIT_CANCELED if canceled() else PUBLISH_LIMIT
        budget = PublishOrder(time_budget=max(limit.total_seconds() - SETTLING_TIME, 1.0))
        done = await self.run("publish_outbox", budget, PublishResult, limit, "Send committed events to Kafka")
        return done or PublishResult()

    def act(self, action: str, *, actor: str, reason: str, recorded: int | None = None, **details: Any) -> None:
        """An operator did something to this run; to be written down, unless the command line has done so (`recorded`)."""
        if recorded is None:
            target = f"workflow/{workflow.info().workflow_id}"
            who, why = kept(actor) or "not given (Temporal Web UI or API)", kept(reason) or "not given"
            self.acts.append(OperatorAct(action=action, actor=who, target=target, reason=why, details=details))

    def unwritten(self) -> bool:
        """Whether an act is still to be written down; a cancel is one, unless the command line wrote it down."""
        reason = workflow.cancellation_reason()
        if reason is not None and not RECORDED.search(reason) and all(act.action != self._cancel for act in self.acts):
            self.act(self._cancel, actor="", reason=reason, **self._details)
        return len(self.acts) > self._recorded

    async def record_acts(self, limit: timedelta = CLOSE_LIMIT) -> None:
        """Write down what operators did since the last time, and what they do meanwhile.

        A cancel may cut the call off: then all is asked for again, for each act is written once. What fails for good is a failure
        of the run, and is tried again at the next call.
        """
        while self.unwritten():
            told, failed, before = len(self.acts), len(self.failures), canceled()
            await self.run("record_acts", ActsToRecord(acts=self.acts), None, limit, "Write down what operators did")
            if canceled() and not before:
                continue
            if len(self.failures) == failed:
                self._recorded = told
            elif len(self.acts) == told:
                return


def stop_request(given: object) -> StopRequest:
    """What a stop says. The Web UI sends whatever was typed, or nothing: a stop that cannot be read is a stop all the same."""
    try:
        told = workflow.payload_converter().from_payload(given.payload) if isinstance(given, RawValue) else given
    except Exception:  # noqa: BLE001 # each converter has errors of its own
        told = given.payload.data.decode(errors="replace") if isinstance(given, RawValue) else ""
    try:
        request = StopRequest.model_validate(told or {})
    except ValueError:
        request = StopRequest(reason=str(told))
    return request.model_copy(update={"reason": kept(request.reason), "actor": kept(request.actor)})


def mark(registered: Sequence[str], *, outcome: str, expired: int, poison: int, parked: int) -> None:
    """Set the search attributes that exist; one that is not registered would stall the run (D28)."""
    values: list[SearchAttributeUpdate[Any]] = [
        OUTCOME.value_set(outcome),
        EXPIRED.value_set(expired),
        POISON.value_set(poison),
        PARKED.value_set(parked),
    ]
    if updates := [update for update in values if update.key.name in registered]:
        workflow.upsert_search_attributes(updates)


def canceled() -> bool:
    """Whether somebody asked this run to stop; an activity that finished anyway swallows the cancel itself (trap 10)."""
    return workflow.cancellation_reason() is not None


@contextmanager
def cancel_heeded_later() -> Iterator[None]:
    """An operator's cancel ends what is waited for, and `canceled` tells of it; any other is the run's eviction (trap 13)."""
    try:
        yield
    except asyncio.CancelledError:
        if not canceled():
            raise


def _reason(error: BaseException) -> str:
    """The causes behind an activity's failure, outermost first: a time-out and the last attempt's error, say."""
    reasons = []
    cause = error.__cause__
    while cause is not None:
        reasons.append(cause.message if isinstance(cause, FailureError) else str(cause))
        cause = cause.__cause__
    return ", last: ".join(dict.fromkeys(reasons)) or str(error)
