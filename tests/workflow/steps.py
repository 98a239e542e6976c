"""The cycle's activities, played: what the workflow decides is tested here, what the activities do elsewhere."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from temporalio import activity
from temporalio.client import Client, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from activities.drain_messages import Backlog, DrainOrder, DrainResult
from activities.messages import (
    ActsToRecord,
    BatchOrder,
    BatchResult,
    ClosingCycle,
    CycleInput,
    CycleResult,
    OpenedCycle,
    PhasePause,
    PublishOrder,
    PublishResult,
)
from domain.events import Phase
from workflows.drain import BookingExpirationDrain
from workflows.expiration_cycle import EXECUTION_TIMEOUT, BookingExpirationCycle
from workflows.sandbox import guarded_runner

AS_OF = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
Behaviour = Callable[[], Awaitable[Any]]


class Steps:
    """Records each call; `behave[step]` (a step, or `Reserve`, `Booking`) replaces what it does."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.called: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.orders: list[Any] = []
        self.behave: dict[str, Behaviour] = {}
        self.search_attributes: list[str] = []
        self.due = {Phase.RESERVE: 0, Phase.BOOKING: 0}
        self.paused: list[PhasePause] = []

    async def _call(self, name: str, order: Any, answer: Any) -> Any:
        self.calls.append(name)
        self.called[name].set()
        self.orders.append(order)
        return await self.behave[name]() if name in self.behave else answer

    @activity.defn(name="open_cycle")
    async def open_cycle(self) -> OpenedCycle:
        """One due booking of each phase."""
        opened = OpenedCycle(as_of=AS_OF, reserve_backlog=1, booking_backlog=1, search_attributes=self.search_attributes)
        answer: OpenedCycle = await self._call("open_cycle", None, opened)
        return answer

    @activity.defn(name="expire_batch")
    async def expire_batch(self, order: BatchOrder) -> BatchResult:
        """3 of Reserve, 2 of Booking."""
        count = 3 if order.phase is Phase.RESERVE else 2
        done = BatchResult(expired_count=count, skipped_locked_count=1, poison_count=1, poison_ids=[uuid4()])
        answer: BatchResult = await self._call(order.phase, order, done)
        return answer

    @activity.defn(name="read_backlog")
    async def read_backlog(self) -> Backlog:
        """What `due` says; a drain may expire 1,000 at most."""
        backlog = Backlog(
            as_of=AS_OF,
            reserve_backlog=self.due[Phase.RESERVE],
            booking_backlog=self.due[Phase.BOOKING],
            paused=self.paused,
            drain_limit=1000,
            search_attributes=self.search_attributes,
        )
        answer: Backlog = await self._call("read_backlog", None, backlog)
        return answer

    @activity.defn(name="record_acts")
    async def record_acts(self, order: ActsToRecord) -> None:
        """Keeps what it was told."""
        await self._call("record_acts", order, None)

    @activity.defn(name="publish_outbox")
    async def publish_outbox(self, order: PublishOrder) -> PublishResult:
        """All five."""
        answer: PublishResult = await self._call("publish_outbox", order, PublishResult(published_count=5))
        return answer

    @activity.defn(name="close_cycle")
    async def close_cycle(self, closing: ClosingCycle) -> list[str]:
        """Keeps what it was told."""
        await self._call("close_cycle", closing, None)
        return self.search_attributes

    async def take(self) -> BatchResult:
        """For a drain: expire as many as the last batch's order allows of what is `due`."""
        order: BatchOrder = self.orders[-1]
        count = min(order.batch_size, self.due[order.phase])
        self.due[order.phase] -= count
        return BatchResult(expired_count=count)

    @property
    def acts(self) -> list[str]:
        """What operators did, as it was last told to be written down."""
        told: list[str] = [act.action for order in self.orders if isinstance(order, ActsToRecord) for act in order.acts]
        return told

    @property
    def closing(self) -> ClosingCycle:
        """What `close_cycle` was told."""
        told: ClosingCycle = self.orders[self.calls.index("close_cycle")]
        return told


async def refuse() -> Any:
    """Fail for good."""
    raise ApplicationError("no such table", type="DatabaseRefusedError", non_retryable=True)


async def hang_until_cancelled() -> Any:
    """Heartbeat for ever, as an activity does whose server does not answer."""
    while True:
        activity.heartbeat()
        await asyncio.sleep(0.1)


async def until(gate: asyncio.Event) -> None:
    """Wait with heartbeats, so that a step held up on a slow machine is not taken for lost."""
    while not gate.is_set():
        activity.heartbeat()
        await asyncio.sleep(0.1)


@asynccontextmanager
async def running(client: Client, steps: Steps, task_queue: str = "") -> AsyncIterator[str]:
    """A worker with these steps on a task queue of its own (trap 14)."""
    queue = task_queue or f"test-{uuid4()}"
    frame: list[Callable[..., Any]] = [steps.open_cycle, steps.read_backlog, steps.record_acts, steps.close_cycle]
    async with Worker(
        client,
        task_queue=queue,
        workflows=[BookingExpirationCycle, BookingExpirationDrain],
        activities=[*frame, steps.expire_batch, steps.publish_outbox],
        workflow_runner=guarded_runner(),
        max_heartbeat_throttle_interval=timedelta(seconds=0.2),
    ):
        yield queue


async def start(client: Client, queue: str) -> WorkflowHandle[BookingExpirationCycle, CycleResult]:
    """One cycle with the schedule's argument and time-out."""
    return await client.start_workflow(
        BookingExpirationCycle.run, CycleInput(batch_size=7), id=queue, task_queue=queue, execution_timeout=EXECUTION_TIMEOUT
    )


async def start_drain(client: Client, queue: str, order: DrainOrder) -> WorkflowHandle[BookingExpirationDrain, DrainResult]:
    """One drain."""
    return await client.start_workflow(BookingExpirationDrain.run, order, id=queue, task_queue=queue)
