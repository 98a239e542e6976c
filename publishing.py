"""Sending to Kafka: every record comes back as delivered, rejected or unavailable, within a bounded time (D9 to D11)."""

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    CorruptRecordException,
    InvalidProducerEpoch,
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    ProducerClosed,
    ProducerFenced,
    RecordListTooLargeError,
    UnknownProducerId,
)
from aiokafka.helpers import create_ssl_context
from aiokafka.record.default_records import DefaultRecordBatchBuilder

import kafka_producer
from kafka_producer import Delivered, Wire, Wires

SEND_TIMEOUT: Final = 8.0
"""Seconds that one call of `send` may take: send deadline < lease < the activity's time-out (D9)."""

TOPIC_TIMEOUT: Final = 2.0
"""Seconds to wait for a topic that the broker does not know: it may be about to make it (trap 33)."""

MAX_RECORD_BYTES: Final = 1_000_000
"""Key, value and headers of one record with their framing; a broker's own default limit is 1,048,588 (trap 32)."""

__all__ = ["Delivered", "KafkaOptions", "Outcome", "Publisher", "Record", "Rejected", "Unavailable"]

_ROUNDS: Final = 3
"""How often what only shared a refused record's producer is sent again."""

_RECORD_ERRORS: Final = (MessageSizeTooLargeError, RecordListTooLargeError, CorruptRecordException, InvalidTimestampError)
_PRODUCER_ERRORS: Final = (
    OutOfOrderSequenceNumber,
    UnknownProducerId,
    ProducerFenced,
    InvalidProducerEpoch,
    ProducerClosed,
)
_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


class Record(Protocol):
    """What is sent: `key` is UTF-8 text, `headers` the text of a JSON object of strings, sent in its order."""

    @property
    def topic(self) -> str:
        """The topic's name."""

    @property
    def key(self) -> str:
        """Decides the partition."""

    @property
    def payload(self) -> bytes:
        """The value, as it is."""

    @property
    def headers(self) -> str:
        """JSON."""


class Rejected(NamedTuple):
    """Kafka can never take this record, whoever sends it and whenever."""

    reason: str


class Unavailable(NamedTuple):
    """Nobody knows whether Kafka has the record; sending it again is right (D11)."""

    reason: str


Outcome: TypeAlias = Delivered | Rejected | Unavailable
Outcomes: TypeAlias = dict[int, Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    """How to reach and to convince the brokers; the fields are the settings `kafka_*`."""

    bootstrap_servers: str
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = "PLAIN"
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    client_id: str = "booking-expiration"

    def arguments(self) -> dict[str, Any]:
        """Arguments for any aiokafka client. With TLS the broker's certificate and host name are verified.

        Raises `OSError` for a certificate file that cannot be read.
        """
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "client_id": self.client_id,
            "security_protocol": self.security_protocol,
            "sasl_mechanism": self.sasl_mechanism,
            "sasl_plain_username": self.sasl_username,
            "sasl_plain_password": self.sasl_password,
            "ssl_context": self._ssl_context() if self.security_protocol in ("SSL", "SASL_SSL") else None,
        }

    def _ssl_context(self) -> ssl.SSLContext:
        context: ssl.SSLContext = create_ssl_context(cafile=self.ssl_cafile, certfile=self.ssl_certfile, keyfile=self.ssl_keyfile)
        return context


class Publisher:
    """Owns one idempotent producer: made when first needed, abandoned when it failed or hung, then made anew (traps 31, 32).

    Times in seconds. `topic` is what `check` looks for. `last_error` says why the latest `send` or `check` was not all well.
    """

    def __init__(
        self,
        options: KafkaOptions,
        *,
        topic: str | None = None,
        send_timeout: float = SEND_TIMEOUT,
        max_record_bytes: int = MAX_RECORD_BYTES,
    ) -> None:
        self._arguments = options.arguments()
        self._servers = options.bootstrap_servers
        self._topic = topic
        self._send_timeout = send_timeout
        self._max_record_bytes = max_record_bytes
        self._producer: AIOKafkaProducer | None = None
        self._making = asyncio.Lock()
        self._closed = False
        self.last_error: str | None = None

    async def send(
        self,
        records: Sequence[Record],
        timeout: float = SEND_TIMEOUT,  # noqa: ASYNC109 # it reports
        under_way: set[asyncio.Timeout] | None = None,
    ) -> list[Outcome]:
        """One outcome per record, in their order, after `timeout` seconds at the latest; records of one key keep their order.

        `under_way` holds the deadline while it sends, for `hurry`.
        A batch that the broker refuses is sent again record by record, so that only the culprit is rejected. A broker that is
        down, frozen or without the topic is no error but `Unavailable`, and so is an outcome nobody knows (D10, D11).
        """
        if timeout <= 0:
            return [Unavailable("no time was left to send it")] * len(records)
        encoded = [_encode(record, self._max_record_bytes) for record in records]
        outcomes: Outcomes = {index: wire for index, wire in enumerate(encoded) if isinstance(wire, Rejected)}
        wires: Wires = {index: wire for index, wire in enumerate(encoded) if not isinstance(wire, Rejected)}
        reason = None
        try:
            async with _deadline(min(timeout, self._send_timeout), set() if under_way is None else under_way):
                await self._deliver(wires, outcomes)
        except TimeoutError:
            reason = f"no acknowledgement from {self._servers} in time"
        except (KafkaError, OSError) as error:
            reason = _text(error)
        missing = Unavailable(reason or "the broker keeps refusing this producer")
        result = [outcomes.get(index, missing) for index in range(len(records))]
        self.last_error = next((outcome.reason for outcome in result if isinstance(outcome, Unavailable)), None)
        return result

    async def check(self) -> str | None:
        """What keeps us from publishing, or None; answers within 2.5 seconds (trap 33)."""
        problem: str | None = None
        try:
            async with asyncio.timeout(kafka_producer.REQUEST_TIMEOUT):
                producer = await self._shared()
                if not await producer.client.force_metadata_update():
                    problem = f"no broker of {self._servers} answers"
                elif self._topic is not None:
                    problem = await kafka_producer.topic_problem(producer, self._topic, wait=0)
        except TimeoutError:
            problem = f"no answer from {self._servers} in time"
        except (KafkaError, OSError) as error:
            problem = _text(error)
        self.last_error = problem
        return problem

    async def close(self) -> None:
        """Give up whatever is under way and let no socket or task behind, in about a second."""
        self._closed = True
        await self._retire(self._producer)

    async def _deliver(self, wires: Wires, outcomes: Outcomes) -> None:
        """Send all; after a refusal find its record, and send again what only shared its fate (trap 32)."""
        for _ in range(_ROUNDS):
            producer = await self._shared()
            try:
                await _set_topicless_aside(producer, wires, outcomes)
                errors = await kafka_producer.attempt(producer, wires, outcomes)
            except BaseException:
                await self._retire(producer)
                raise
            if not errors:
                return
            await self._retire(producer)
            await self._one_by_one({index: wires[index] for index in errors if _is_refusal(errors[index])}, outcomes)
            wires = {index: wires[index] for index in errors if isinstance(errors[index], _PRODUCER_ERRORS)}
            final = [index for index in errors if index not in wires and index not in outcomes]
            outcomes.update({index: Unavailable(_text(errors[index])) for index in final})

    async def _one_by_one(self, wires: Wires, outcomes: Outcomes) -> None:
        """Each in a batch of its own, so that a refusal names its record; on a producer that nobody else's records share."""
        producer = None
        try:
            for index, wire in wires.items():
                producer = producer or await kafka_producer.make(self._arguments, self._max_record_bytes)
                for error in (await kafka_producer.attempt(producer, {index: wire}, outcomes)).values():
                    outcomes[index] = Rejected(_text(error)) if _is_refusal(error) else Unavailable(_text(error))
                    await kafka_producer.abandon(producer)
                    producer = None
        finally:
            if producer is not None:
                await kafka_producer.abandon(producer)

    async def _shared(self) -> AIOKafkaProducer:
        async with self._making:
            if self._closed:
                raise ProducerClosed
            if self._producer is None:
                self._producer = await kafka_producer.make(self._arguments, self._max_record_bytes)
            return self._producer

    async def _retire(self, producer: AIOKafkaProducer | None) -> None:
        """Abandon a producer, whoever notices first; others that were using it send again on the next one."""
        if producer is not None and producer is self._producer:
            self._producer = None
            await kafka_producer.abandon(producer)


def hurry(under_way: Iterable[asyncio.Timeout], seconds: float) -> None:
    """Bring these deadlines forward: somebody wants to stop, and others who send on the same producer do not."""
    soon = asyncio.get_running_loop().time() + seconds
    for deadline in under_way:
        if not deadline.expired():
            deadline.reschedule(min(soon, deadline.when() or soon))


@asynccontextmanager
async def _deadline(seconds: float, under_way: set[asyncio.Timeout]) -> AsyncIterator[None]:
    async with asyncio.timeout(seconds) as deadline:
        under_way.add(deadline)
        try:
            yield
        finally:
            under_way.discard(deadline)


def _encode(record: Record, limit: int) -> Wire | Rejected:
    """The record's bytes; rejected when no broker could take them, before it costs the producer its place (trap 32)."""
    try:
        headers = [(name, value.encode()) for name, value in json.loads(record.headers).items()]
        wire = Wire(record.topic, record.payload, record.key.encode(), headers)
    except (AttributeError, ValueError):
        return Rejected("headers or key are not text: headers must be a JSON object of strings")
    size = DefaultRecordBatchBuilder.estimate_size_in_bytes(wire.key, wire.value, headers)
    if size > limit:
        return Rejected(f"{size} bytes with key and headers, more than the {limit} that Kafka takes")
    if not _TOPIC_NAME.fullmatch(record.topic):
        return Rejected(f"{record.topic!r} is no name for a topic")
    return wire


async def _set_topicless_aside(producer: AIOKafkaProducer, wires: Wires, outcomes: Outcomes) -> None:
    for topic in {wire.topic for wire in wires.values()}:
        if problem := await kafka_producer.topic_problem(producer, topic, wait=TOPIC_TIMEOUT):
            for index in [index for index, wire in wires.items() if wire.topic == topic]:
                outcomes[index] = Unavailable(problem)
                del wires[index]


def _is_refusal(error: KafkaError) -> bool:
    return isinstance(error, _RECORD_ERRORS)


def _text(error: Exception) -> str:
    text, kind = str(error), type(error).__name__
    return text if kind in text else f"{kind}: {text}" if text else kind  # aiokafka's own errors name themselves
