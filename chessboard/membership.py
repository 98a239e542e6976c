"""One member of the consumer group: joined, and left within a bounded time whatever the broker does (traps 31, 33).

aiokafka's consumer cannot leave when its broker is silent, or when its own coordination failed: `stop()` then hangs, or raises
and leaves sockets and tasks behind. So this module reaches into its internals, as `kafka_producer` does, and nothing else does.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from aiokafka import AIOKafkaConsumer
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import KafkaError

CONNECT_TIMEOUT: Final = 10.0
LEAVE_TIMEOUT: Final = 3.0
"""Seconds for saying goodbye to the group, so that its partitions move at once instead of after the session time-out."""

_METADATA_AGE_MS: Final = 10_000
"""How soon a topic that is made late, or a partition that is added, is noticed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Which topic is read in which group; `arguments` reach the brokers, `session_timeout` is in seconds."""

    arguments: dict[str, Any]
    topic: str
    name: str
    session_timeout: float = 10.0


@asynccontextmanager
async def member(group: Group) -> AsyncIterator[AIOKafkaConsumer]:
    """Somebody who may `join` the group, and has left it for sure at the end of the block.

    Offsets are committed by the caller alone; a new group starts at the beginning of the topic.
    """
    session_ms = int(group.session_timeout * 1000)
    consumer = AIOKafkaConsumer(
        **group.arguments,
        group_id=group.name,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=min(3000, session_ms // 3),
        request_timeout_ms=session_ms + 5000,  # a join waits for the other members, as long as a session lasts
        metadata_max_age_ms=_METADATA_AGE_MS,
    )
    try:
        yield consumer
    finally:
        await _leave(consumer)


async def join(consumer: AIOKafkaConsumer, group: Group, listener: ConsumerRebalanceListener) -> None:
    """Connect and ask for partitions; `listener` hears when they come and go.

    Raises `KafkaError`, `TimeoutError` or `OSError` when no broker answers.
    """
    async with asyncio.timeout(CONNECT_TIMEOUT):
        await consumer.start()
    consumer.subscribe([group.topic], listener=listener)


async def _leave(consumer: AIOKafkaConsumer) -> None:
    """Say goodbye in a task of its own: without a broker, aiokafka cancels its fetches and lets that out as a cancel of ours."""
    leaving = asyncio.ensure_future(consumer.stop())
    try:
        await asyncio.wait({leaving}, timeout=LEAVE_TIMEOUT)
    finally:
        leaving.cancel()
        await _abandon(consumer)  # also after a good stop: a connection that was just being made is left open
    await asyncio.wait({leaving}, timeout=1.0)
    with suppress(asyncio.CancelledError, asyncio.InvalidStateError, KafkaError, OSError, TimeoutError):
        leaving.result()


async def _abandon(consumer: AIOKafkaConsumer) -> None:
    """End the tasks and sockets that are left; a group that was not told notices by the session time-out."""
    client, fetcher, coordinator = consumer._client, consumer._fetcher, consumer._coordinator
    owners = [client, fetcher, coordinator]
    tasks = [task for task in asyncio.all_tasks() if any(_owner(task) is owner for owner in owners if owner is not None)]
    for task in tasks:
        task.cancel()
    for connection in list(client._conns.values()):
        connection.close()
    if tasks:
        await asyncio.wait(tasks, timeout=1.0)
    for task in tasks:
        with suppress(asyncio.CancelledError, asyncio.InvalidStateError):
            task.exception()  # asked for, so that the event loop does not complain that nobody did


def _owner(task: "asyncio.Task[Any]") -> object:
    """Whose method a task runs: aiokafka keeps no list of them."""
    frame = getattr(task.get_coro(), "cr_frame", None)
    return frame.f_locals.get("self") if frame else None
