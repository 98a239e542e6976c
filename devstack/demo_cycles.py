"""What the demo watches: the schedule's cycles in Temporal, and the events in Kafka."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from aiokafka import AIOKafkaConsumer
from temporalio.client import Client, ScheduleActionExecutionStartWorkflow, ScheduleActionResult, WorkflowFailureError

from activities.messages import CycleResult
from devstack.errors import StackError
from workflows.expiration_cycle import BookingExpirationCycle

_POLL: Final = 0.15
_PATIENCE: Final = 40.0
"""Seconds in which a cycle that was asked for must be over."""

_TOO_CLOSE: Final = timedelta(seconds=3)
_MINUTE: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Cycle:
    """One cycle that is over. `backlog`: bookings still due right after it."""

    workflow_id: str
    run_id: str
    started_at: datetime
    on_the_minute: bool
    result: CycleResult
    backlog: int


@dataclass(slots=True)
class Cycles:
    """The schedule's cycles, noticed however they were started."""

    client: Client
    schedule_id: str
    backlog: Callable[[], Awaitable[int]]
    tell: Callable[[Cycle], None]
    done: list[Cycle] = field(default_factory=list)
    running: bool = False

    async def follow(self) -> None:
        """Watch until cancelled. Raises `StackError` when a cycle does not complete."""
        handle, seen = self.client.get_schedule_handle(self.schedule_id), set[str]()
        while True:
            info = (await handle.describe()).info
            self.running = bool(info.running_actions)
            for ran in info.recent_actions:
                if isinstance(ran.action, ScheduleActionExecutionStartWorkflow) and ran.action.workflow_id not in seen:
                    seen.add(ran.action.workflow_id)
                    await self._finish(ran, ran.action)
            await asyncio.sleep(_POLL)

    async def another(self) -> Cycle:
        """Trigger a cycle and wait for its end; just before the full minute, let the schedule's own tick do it.

        The schedule skips what overlaps (L1), so the one before must be over first.
        """
        count = len(self.done)
        if next_minute() - datetime.now(UTC) > _TOO_CLOSE:
            await self._until(lambda: not self.running)
            await self.client.get_schedule_handle(self.schedule_id).trigger()
        return await self.next_after(count)

    async def next_after(self, count: int, patience: float = _PATIENCE) -> Cycle:
        """The first cycle after so many, when it is over; patience in seconds. Raises `StackError` when there is none."""
        await self._until(lambda: len(self.done) > count, patience)
        return self.done[count]

    async def _until(self, true: Callable[[], bool], patience: float = _PATIENCE) -> None:
        deadline = asyncio.get_running_loop().time() + patience
        while not true():
            if asyncio.get_running_loop().time() > deadline:
                raise StackError(f"no cycle was over within {patience:.0f} seconds, though one was due")
            await asyncio.sleep(_POLL / 3)

    async def _finish(self, ran: ScheduleActionResult, action: ScheduleActionExecutionStartWorkflow) -> None:
        handle = self.client.get_workflow_handle_for(
            BookingExpirationCycle.run, action.workflow_id, run_id=action.first_execution_run_id
        )
        try:
            result = await handle.result()
        except WorkflowFailureError as error:
            raise StackError(f"the cycle {action.workflow_id} did not complete: {error.cause}") from None
        on_the_minute = ran.scheduled_at.second == 0
        cycle = Cycle(handle.id, handle.run_id or "", ran.started_at, on_the_minute, result, await self.backlog())
        self.done.append(cycle)
        self.tell(cycle)


def next_minute() -> datetime:
    """The next full minute of the UTC clock, when the schedule fires by itself (L1)."""
    now = datetime.now(UTC)
    return now.replace(second=0, microsecond=0) + _MINUTE


@dataclass(frozen=True, slots=True)
class Event:
    """One record as a consumer of the topic gets it (D12)."""

    event_id: str
    booking_id: UUID
    phase: str
    expired_at: datetime
    partition: int
    offset: int


@dataclass(slots=True)
class Events:
    """Everything that arrived on the topic, in the order of arrival."""

    topic: str
    arrived: list[Event] = field(default_factory=list)

    @property
    def by_phase(self) -> Counter[str]:
        """How many arrived of each phase."""
        return Counter(event.phase for event in self.arrived)

    @property
    def bookings(self) -> set[UUID]:
        """The bookings that an event arrived for."""
        return {event.booking_id for event in self.arrived}

    @property
    def repeated(self) -> int:
        """How many records more than distinct events, or distinct events more than bookings."""
        return len(self.arrived) - min(len({event.event_id for event in self.arrived}), len(self.bookings))

    async def follow(self, arguments: dict[str, Any]) -> None:
        """Consume the topic from its beginning until cancelled. Raises `KafkaError`."""
        consumer = AIOKafkaConsumer(self.topic, **arguments, group_id=None, auto_offset_reset="earliest")
        try:
            await consumer.start()
            while True:
                received: dict[Any, Iterable[Any]] = await consumer.getmany(timeout_ms=200)
                self.arrived += [_event(record) for records in received.values() for record in records]
        finally:
            await consumer.stop()

    async def wait_for(self, count: int, patience: float = 10.0) -> None:
        """Until so many bookings' events are here, or `patience` seconds are over: the sums tell which."""
        deadline = asyncio.get_running_loop().time() + patience
        while len(self.bookings) < count:
            if asyncio.get_running_loop().time() > deadline:
                return
            await asyncio.sleep(_POLL)


def _event(record: Any) -> Event:
    payload, headers = json.loads(record.value), dict(record.headers)
    return Event(
        event_id=headers["ce_id"].decode(),
        booking_id=UUID(payload["BookingId"]),
        phase=payload["Phase"],
        expired_at=datetime.fromisoformat(payload["ExpiredAt"]),
        partition=record.partition,
        offset=record.offset,
    )
