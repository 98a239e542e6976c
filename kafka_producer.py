"""One idempotent aiokafka producer: how it is made, sends records in batches, and ends at once (traps 31 to 33).

aiokafka cannot end a producer without flushing it first, which hangs on a frozen broker, so this module reaches into its
internals. That is why pyproject.toml pins aiokafka's minor version; nothing else of ours touches them.
"""

import asyncio
import itertools
import socket
import struct
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, ProducerClosed

REQUEST_TIMEOUT: Final = 2.5
"""Seconds that one request to one broker may take, so that a dead broker leaves time to try another before the deadline."""

_BATCH_BYTES: Final = 65_536
_ABANDON_TIMEOUT: Final = 1.0
_TOPIC_POLL: Final = 0.1
_SEED: Final = 0x9747B28C
_MIX: Final = 0x5BD1E995
_32_BITS: Final = 0xFFFFFFFF


class Delivered(NamedTuple):
    """Kafka has the record, on all in-sync replicas."""

    partition: int
    offset: int


class Wire(NamedTuple):
    """A record as bytes; headers keep their order."""

    topic: str
    value: bytes
    key: bytes
    headers: list[tuple[str, bytes]]


class _Batch(NamedTuple):
    topic: str
    partition: int
    indexes: list[int]
    builder: Any


Wires: TypeAlias = dict[int, Wire]
"""What is to be sent, by the caller's numbers."""


async def make(arguments: dict[str, Any], max_record_bytes: int) -> AIOKafkaProducer:
    """A started producer: acknowledged by all in-sync replicas, retried without duplicates or reordering.

    Raises `KafkaError` or `OSError` when no broker takes it; however it fails, nothing is left behind.
    """
    producer = AIOKafkaProducer(
        **arguments,
        enable_idempotence=True,
        acks="all",
        request_timeout_ms=int(REQUEST_TIMEOUT * 1000),
        max_batch_size=_BATCH_BYTES,
        max_request_size=max_record_bytes,
    )
    _reset_closed_connections(producer)
    try:
        await producer.start()
    except BaseException:
        await abandon(producer)
        raise
    return producer


async def topic_problem(producer: AIOKafkaProducer, topic: str, *, wait: float) -> str | None:
    """Why nothing can be sent to this topic; the broker has `wait` seconds to make it."""
    client, loop = producer.client, asyncio.get_running_loop()
    known, give_up = client.cluster.partitions_for_topic, loop.time() + wait
    client.add_topic(topic)
    while known(topic) is None:
        answered = await client.force_metadata_update()
        if known(topic) is not None:
            break
        if topic in client.cluster.unauthorized_topics:
            return f"no permission for topic {topic}: grant Write and Describe on it"
        if loop.time() >= give_up:
            return f"topic {topic} does not exist: create it" if answered else f"no broker answers for topic {topic}"
        await asyncio.sleep(_TOPIC_POLL)
    return None


async def attempt(producer: AIOKafkaProducer, wires: Wires, outcomes: MutableMapping[int, Any]) -> dict[int, KafkaError]:
    """Send once and note what is delivered, also when time runs out or the caller goes away; returns the other's errors."""
    sent: list[tuple[_Batch, asyncio.Future[Any]]] = []
    closed: KafkaError = ProducerClosed()
    try:
        counts = {topic: len(await producer.partitions_for(topic)) for topic in {wire.topic for wire in wires.values()}}
        for batch in _pack(producer, wires, counts):
            future = await producer.send_batch(batch.builder, batch.topic, partition=batch.partition)
            sent.append((batch, future))  # one by one: a cancel must find what is already under way
        for _, future in sent:
            if not future.done():
                await asyncio.wait((future,))  # not `await future`: a cancel would lose its outcome
    except KafkaError as error:
        closed = error
    finally:
        errors = _note(sent, outcomes)
    return {index: errors.get(index, closed) for index in wires if index not in outcomes}


def _pack(producer: AIOKafkaProducer, wires: Wires, counts: dict[str, int]) -> list[_Batch]:
    """Batches in the order of sending. Packed here, a record costs half of what aiokafka's own `send` costs it."""
    batches: list[_Batch] = []
    filling: dict[tuple[str, int], _Batch] = {}
    for index, (topic, value, key, headers) in wires.items():
        partition = partition_of(key, counts[topic])
        batch = filling.get((topic, partition))
        if batch is None or batch.builder.append(timestamp=None, key=key, value=value, headers=headers) is None:
            batch = filling[topic, partition] = _Batch(topic, partition, [], producer.create_batch())
            batch.builder.append(timestamp=None, key=key, value=value, headers=headers)
            batches.append(batch)
        batch.indexes.append(index)
    return batches


def _note(sent: list[tuple[_Batch, "asyncio.Future[Any]"]], outcomes: MutableMapping[int, Any]) -> dict[int, KafkaError]:
    errors: dict[int, KafkaError] = {}
    for (_, partition, indexes, _), future in sent:
        if not future.done():
            future.add_done_callback(_forget)
        elif (error := future.exception()) is not None:
            errors |= dict.fromkeys(indexes, error)
        else:
            offsets = itertools.count(future.result().offset)
            outcomes.update((index, Delivered(partition, offset)) for index, offset in zip(indexes, offsets, strict=False))
    return errors


def _forget(future: "asyncio.Future[Any]") -> None:
    """Nobody waits for this any more; without a look asyncio would log its error."""
    if not future.cancelled():
        future.exception()


def partition_of(key: bytes, partitions: int) -> int:
    """Where Kafka's own default puts a key (murmur2), in half the time aiokafka's takes: its greatest cost per record."""
    code = _SEED ^ len(key)
    for word in struct.unpack_from(f"<{len(key) // 4}I", key):
        mixed = word * _MIX & _32_BITS
        code = (code * _MIX ^ (mixed ^ mixed >> 24) * _MIX) & _32_BITS
    if rest := key[len(key) & ~3 :]:
        code = (code ^ int.from_bytes(rest, "little")) * _MIX & _32_BITS
    code = (code ^ code >> 13) * _MIX & _32_BITS
    return ((code ^ code >> 15) & 0x7FFFFFFF) % partitions


async def abandon(producer: AIOKafkaProducer) -> None:
    """End a producer at once, with its tasks and sockets, so that nothing of it can be sent later.

    What had reached the broker already stays there; `stop()` would flush the rest, and hang on a frozen broker (trap 31).
    """
    producer._closed = True
    accumulator = producer._message_accumulator
    accumulator.fail_all(ProducerClosed())
    for batch in itertools.chain(*accumulator._batches.values()):
        _forget(batch._drain_waiter)
    accumulator._batches.clear()
    owners = (producer._sender, producer.client)
    tasks = [task for task in asyncio.all_tasks() if any(_owner(task) is owner for owner in owners)]
    for task in tasks:
        task.cancel()
    for connection in list(producer.client._conns.values()):
        _reset(connection)
        connection.close()
    if tasks:
        await asyncio.wait(tasks, timeout=_ABANDON_TIMEOUT)


def _owner(task: "asyncio.Task[Any]") -> object:
    """Whose method a task runs: aiokafka keeps no list of the requests that are under way."""
    frame = getattr(task.get_coro(), "cr_frame", None)
    return frame.f_locals.get("self") if frame else None


def _reset_closed_connections(producer: AIOKafkaProducer) -> None:
    """A connection that aiokafka gives up is reset as well, or the kernel would go on delivering what it had taken."""
    client = producer.client
    forward = client._on_connection_closed

    def closed(connection: Any, reason: Any) -> None:
        _reset(connection)
        forward(connection, reason)

    client._on_connection_closed = closed


def _reset(connection: Any) -> None:
    transport = connection._protocol and connection._protocol._transport
    if transport is not None:
        with suppress(OSError):
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
