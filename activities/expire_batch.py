"""One batch of one phase: claim, decide, write, commit (A3 to A7, T1). The activity `expire_batch`."""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, TypeAlias
from uuid import UUID

from temporalio import activity

import telemetry
from activities.errors import reported
from activities.heartbeat import heartbeating
from activities.messages import BatchOrder, BatchResult
from db import bookings, controls, ledger
from db.bookings import Envelope
from db.errors import RowRefusedError, TooManyRefusalsError, translate
from db.ledger import POISON_IDS_KEPT, BatchKey, Counts, Refusal
from db.unit_of_work import Connection, Pool, UnitOfWork
from domain.booking import Booking, BookingError
from domain.events import Phase
from telemetry import Item

MAX_REFUSALS: Final = 1000
"""Poison rows per phase and cycle; more than that is a bug that refuses everything, not poison (D6)."""

Window: TypeAlias = tuple[datetime, UUID]
"""The greatest (deadline, id) that a batch walked to."""

_START: Final[Window] = (datetime.min.replace(tzinfo=UTC), UUID(int=0))
_LAST_ID: Final = UUID(int=2**128 - 1)


@dataclass(frozen=True, slots=True)
class Plan:
    """What one batch is to do: its identity, the moment to compare with (UTC), its size in rows, and the records' envelope.

    `spends_allowance`: a hold is on, and what expires was let through by an operator.
    """

    key: BatchKey
    as_of: datetime
    size: int
    envelope: Envelope
    spends_allowance: bool = False


@dataclass(slots=True)
class Batch:
    """What one batch did: its counts, and the rows behind them unless the ledger answered for an earlier attempt."""

    counts: Counts = field(default_factory=Counts)
    expired: list[Booking] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    repeated: bool = False


async def run_batch(pool: Pool, plan: Plan) -> Batch:
    """Expire up to `plan.size` due bookings of a phase in one transaction, or none.

    The first try writes all of them at once. Only where the database refuses a row is the batch done again in search of
    that row, so that the good path pays for no savepoint. Raises `DatabaseError`.
    """
    try:
        return await _attempt(pool, plan, _write_together)
    except RowRefusedError:
        return await _attempt(pool, plan, _write_around_poison)


async def _attempt(pool: Pool, plan: Plan, write: "Write") -> Batch:
    with telemetry.span("transaction"):
        return await _transaction(pool, plan, write)


async def _transaction(pool: Pool, plan: Plan, write: "Write") -> Batch:
    async with UnitOfWork(pool, telemetry.span) as connection:
        await ledger.lock(connection, plan.key)
        if (earlier := await ledger.find(connection, plan.key)) is not None:
            return Batch(earlier, repeated=True)
        if plan.spends_allowance:  # part of it may have been taken back since the cycle looked
            plan = replace(plan, size=min(plan.size, await controls.left(connection)))
        batch = Batch()
        window_end = await _fill(connection, batch, plan, write)
        batch.counts = await ledger.close(
            connection,
            plan.key,
            as_of=plan.as_of,
            expired=len(batch.expired),
            refusals=batch.refusals,
            window_end=window_end,
        )
        if plan.spends_allowance:
            await controls.spend(connection, len(batch.expired))
    return batch


async def _fill(connection: Connection, batch: Batch, plan: Plan, write: "Write") -> Window:
    """Claim and write until the batch is full or nothing due is left; poison never uses up the batch (D6)."""
    reached = _START
    while wanted := plan.size - len(batch.expired):
        with telemetry.span("claim"):
            refused_before = [refusal.booking_id for refusal in batch.refusals]
            claimed = await bookings.claim(connection, plan.key.phase, plan.as_of, wanted, refused_before)
        telemetry.batch_selected(plan.key.phase, len(claimed))
        # The greatest key, not the last row's: a row whose deadline moved comes back in its old place (trap 23).
        reached = max([reached, *((b.deadline, b.id) for b in claimed if b.deadline is not None)])
        due, refused = _decide(claimed, plan.as_of)
        with telemetry.span("write"):
            refused += await write(connection, due, plan)
        poison = {refusal.booking_id for refusal in refused}
        batch.refusals += refused
        batch.expired += [booking for booking in due if booking.id not in poison]
        if len(batch.refusals) > MAX_REFUSALS:
            raise TooManyRefusalsError(_too_many(plan.key.phase, batch.refusals))
        if len(claimed) < wanted:
            return plan.as_of, _LAST_ID
    return reached


def _too_many(phase: str, refusals: Sequence[Refusal]) -> str:
    """The rollback leaves no other trace of them, so the message names the first ones and why."""
    ids = ", ".join(str(refusal.booking_id) for refusal in refusals[:POISON_IDS_KEPT])
    return f"more than {MAX_REFUSALS} {phase} bookings refused to expire, the first for: {refusals[0].reason}; first ids: {ids}"


def _decide(claimed: Sequence[Booking], as_of: datetime) -> tuple[list[Booking], list[Refusal]]:
    """Let each booking decide (A4); one that refuses is poison, and the rest goes on (A7)."""
    due, refused = [], []
    for booking in claimed:
        try:
            booking.expire(as_of)
        except BookingError as error:
            refused.append(Refusal(booking.id, str(error)))
        else:
            due.append(booking)
    return due, refused


async def _write_together(connection: Connection, due: Sequence[Booking], plan: Plan) -> list[Refusal]:
    """One statement for all; a refused row ends the transaction."""
    if due:
        await bookings.record(connection, due, plan.as_of, plan.envelope)
    return []


async def _write_around_poison(connection: Connection, due: Sequence[Booking], plan: Plan) -> list[Refusal]:
    """The same under a savepoint; what is refused is halved until the poison stands alone (D6)."""
    try:
        async with connection.transaction():
            await connection.execute("SET CONSTRAINTS ALL IMMEDIATE")  # a deferred check would speak at COMMIT, too late
            return await _write_together(connection, due, plan)
    except Exception as error:
        if not isinstance(refused := translate(error), RowRefusedError):
            raise
        if len(due) == 1:
            return [Refusal(due[0].id, str(refused))]
    middle = len(due) // 2
    return [
        *await _write_around_poison(connection, due[:middle], plan),
        *await _write_around_poison(connection, due[middle:], plan),
    ]


Write: TypeAlias = Callable[[Connection, Sequence[Booking], Plan], Awaitable[list[Refusal]]]


class ExpireBatch:
    """The activity `expire_batch`, on one pool and for one topic."""

    def __init__(self, pool: Pool, topic: str) -> None:
        self._pool = pool
        self._topic = topic

    @activity.defn(name="expire_batch")
    @reported
    async def expire_batch(self, order: BatchOrder) -> BatchResult:
        """Expire one batch exactly once, however often it is called for the same run, phase and number (D7)."""
        run_id = activity.info().workflow_run_id or ""
        key = BatchKey(run_id, order.phase, order.batch_no)
        envelope = Envelope(run_id, self._topic, telemetry.traceparent())
        plan = Plan(key, order.as_of, order.batch_size, envelope, order.spends_allowance)
        began = time.perf_counter()
        async with heartbeating():
            batch = await run_batch(self._pool, plan)
        _say(order.phase, batch, time.perf_counter() - began)
        counts = batch.counts
        return BatchResult(
            expired_count=counts.expired,
            skipped_locked_count=counts.skipped_locked,
            poison_count=counts.poison,
            poison_ids=counts.poison_ids,
        )


def _say(phase: Phase, batch: Batch, seconds: float) -> None:
    """After the commit, so that neither log nor metrics say what a rollback undid."""
    if batch.repeated:
        telemetry.batch_repeated(phase, batch.counts.expired)
        return
    telemetry.booking_expired(phase, [(booking.id, booking.deal_id, booking.tenant_id) for booking in batch.expired])
    for refusal in batch.refusals:
        telemetry.item_failed(refusal.booking_id, phase, refusal.reason)
    counts = batch.counts
    items = [Item(each.id, each.tenant_id, _delay(each, phase, counts.closed_at)) for each in batch.expired]
    telemetry.batch_committed(phase, counts.expired, counts.skipped_locked, counts.poison, seconds=seconds, items=items)


def _delay(booking: Booking, phase: Phase, closed_at: datetime | None) -> float:
    """Seconds from the deadline to the end of the batch, both by the database's clock (X8)."""
    deadline = booking.reserve_expires_at if phase is Phase.RESERVE else booking.booking_expires_at
    return (closed_at - deadline).total_seconds() if closed_at and deadline else 0.0
