"""Send what is committed to Kafka: claim, commit, send, settle (T3, D9, D10, D25). The activity `publish_outbox`."""

import asyncio
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID, uuid4

from temporalio import activity

import telemetry
from activities.errors import reported
from activities.heartbeat import heartbeating
from activities.messages import PublishOrder, PublishOutcome, PublishResult
from db import outbox
from db.outbox import Delivery, OutboxRecord
from db.unit_of_work import Pool, UnitOfWork
from publishing import SEND_TIMEOUT, Delivered, Outcome, Publisher, Rejected, Unavailable, hurry

CLAIM_SIZE: Final = 1000
"""Records per claim: enough to spread a transaction's cost, few enough to send well within the deadline."""

LANES: Final = 3
"""Claims under way at once, so that the database works on one while Kafka takes another."""

LEASE: Final = 20.0
"""Seconds a claim is ours. Send deadline (8) < lease < the activity's time-out (25): nothing goes out on an old lease (D9)."""

LAST_SEND: Final = 1.0
"""Seconds that what is claimed at the end of the time budget, or when a cancel arrives, still has to be acknowledged."""

STOP_LIMIT: Final = 3.0
"""Seconds after a cancel by which the lanes must have settled and released; a lease left behind ends by itself."""


async def publish(
    pool: Pool, publisher: Publisher, time_budget: float, *, claim_size: int = CLAIM_SIZE, lanes: int = LANES
) -> PublishResult:
    """Publish until nothing is left to claim, the broker is unavailable, or `time_budget` seconds are used up.

    A cancel stops it within about three seconds: what Kafka acknowledged is settled, the rest released. Raises
    `DatabaseError`; what was sent and not settled then goes out again (D11).
    """
    run = _Publishing(pool, publisher, asyncio.get_running_loop().time() + time_budget, claim_size)
    working = [asyncio.create_task(run.lane()) for _ in range(lanes)]
    try:
        await asyncio.wait(working, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        # Not cancelled but asked to stop, so that no statement is interrupted between Kafka's yes and the outbox's.
        if not all(lane.done() for lane in working):
            run.stop()
            await asyncio.wait(working, timeout=STOP_LIMIT)
        for lane in working:
            lane.cancel()
        ended = await asyncio.gather(*working, return_exceptions=True)
    for error in ended:
        if isinstance(error, BaseException):
            raise error
    return run.result()


@dataclass(slots=True)
class _Publishing:
    """What the lanes of one run share: where they work, and what they have done so far."""

    pool: Pool
    publisher: Publisher
    until: float
    claim_size: int
    published: int = 0
    parked: int = 0
    stopping: bool = False
    sending: set[asyncio.Timeout] = field(default_factory=set)
    outcome: PublishOutcome = PublishOutcome.DRAINED
    reason: str = ""

    def stop(self) -> None:
        self.stopping = True
        hurry(self.sending, LAST_SEND)

    def result(self) -> PublishResult:
        return PublishResult(published_count=self.published, parked_count=self.parked, outcome=self.outcome, reason=self.reason)

    async def lane(self) -> None:
        """Claim, commit, send, settle, again and again. A booking's next record can be claimed only when this is settled."""
        clock = asyncio.get_running_loop().time
        while not self.stopping:
            if (left := self.until - clock()) <= 0:
                self.outcome = PublishOutcome.OUT_OF_TIME
                return
            token, started = uuid4(), clock()
            async with UnitOfWork(self.pool, telemetry.span) as connection:
                records = await outbox.claim(connection, self.claim_size, LEASE, token)
            if not records:
                return
            # Counted from before the claim: a process that was frozen in between must not send on a lease that is over.
            limit = 0 if self.stopping else min(SEND_TIMEOUT, max(left, LAST_SEND)) - (clock() - started)
            with telemetry.sending([record.headers for record in records]):
                outcomes = await self.publisher.send(records, limit, self.sending)
            await self._settle(token, records, outcomes, clock() - started)

    async def _settle(self, token: UUID, records: list[OutboxRecord], outcomes: list[Outcome], took: float) -> None:
        """Write down what became of a claim, in one transaction; `took`: seconds from the claim to Kafka's answer."""
        pairs = list(zip(records, outcomes, strict=True))
        delivered = [Delivery(record.id, *outcome) for record, outcome in pairs if isinstance(outcome, Delivered)]
        unsent = [(record.id, outcome.reason) for record, outcome in pairs if isinstance(outcome, Unavailable)]
        rejected = [(record, outcome.reason) for record, outcome in pairs if isinstance(outcome, Rejected)]
        async with UnitOfWork(self.pool, telemetry.span) as connection:
            settled = await outbox.settle(connection, token, delivered) if delivered else 0
            if unsent:
                await outbox.release(connection, token, [record_id for record_id, _ in unsent])
            parked = [pair for pair in rejected if await outbox.park(connection, token, pair[0].id, pair[1])]
        if settled:
            ages = [record.age + took for record, outcome in pairs if isinstance(outcome, Delivered)]
            telemetry.records_published(settled, ages)
        self._count(settled, parked, unsent)

    def _count(self, settled: int, parked: list[tuple[OutboxRecord, str]], unsent: list[tuple[int, str]]) -> None:
        """Say and count only what is committed."""
        self.published += settled
        self.parked += len(parked)
        if unsent:
            telemetry.records_released(len(unsent))
        for record, reason in parked:
            telemetry.record_parked(record.event_id, record.booking_id, reason)
        if unsent and not self.stopping:
            self.stopping, self.outcome, self.reason = True, PublishOutcome.BROKER_UNAVAILABLE, unsent[0][1]
            telemetry.broker_unavailable(self.reason)


class PublishOutbox:
    """The step that sends committed events on their way; it holds what outlives a cycle: the pool and the producer."""

    def __init__(self, pool: Pool, publisher: Publisher) -> None:
        self._pool = pool
        self._publisher = publisher

    @activity.defn(name="publish_outbox")
    @reported
    async def publish_outbox(self, order: PublishOrder) -> PublishResult:
        """Publish for `order.time_budget` seconds at most; a broker outage is a result, not an error (D10).

        Raises `ApplicationError` when the database cannot or will not.
        """
        info = activity.info()
        used = info.current_attempt_scheduled_time - info.scheduled_time  # by attempts before this one, in the same step
        async with heartbeating():
            return await publish(self._pool, self._publisher, max(order.time_budget - used.total_seconds(), LAST_SEND))
