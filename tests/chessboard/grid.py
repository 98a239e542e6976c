"""What tests of the chessboard play with: sold objects, records about them, consumers that run or are processes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid4

import asyncpg
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from chessboard import objects
from chessboard.consumer import Consumer
from chessboard.membership import Group
from chessboard.record import Record
from db.unit_of_work import Pool, UnitOfWork
from domain import events
from domain.events import BookingExpired, Phase
from tests.acceptance.process import soon
from tests.conftest import Administrator, Database

TOPIC: Final = "pin.crm.booking-expired.v1"
AT: Final = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class Sold(NamedTuple):
    """A property object and the booking that holds it."""

    object_id: UUID
    booking_id: UUID


def event_of(sold: Sold) -> BookingExpired:
    """The domain's event about a sold object, as the worker would raise it."""
    return BookingExpired(sold.booking_id, uuid4(), uuid4(), sold.object_id, Phase.RESERVE, AT, "Reserved", "ReserveExpired", 2)


def record_of(sold: Sold, offset: int = 0, *, event_id: UUID | None = None, topic: str = TOPIC) -> Record:
    """The record of its expiry, made by the producer's own code."""
    headers = events.headers(event_id or uuid4(), sold.booking_id, AT, topic=topic, correlation_id="run-1")
    wire = tuple((name, value.encode()) for name, value in headers.items())
    return Record(topic, 0, offset, 1_772_366_400_000, str(sold.booking_id).encode(), events.payload(event_of(sold)), wire)


def with_header(record: Record, name: str, value: bytes | None) -> Record:
    """The same record with another value of one header; None leaves it out."""
    kept = tuple(pair for pair in record.headers if pair[0] != name)
    return record._replace(headers=kept if value is None else (*kept, (name, value)))


@dataclass(frozen=True)
class Grid:
    """The chessboard's tables."""

    pool: Pool
    admin: Administrator
    server: str

    async def sell(self, count: int = 1) -> list[Sold]:
        """New objects, each taken by a new booking."""
        sold = [Sold(uuid4(), uuid4()) for _ in range(count)]
        async with UnitOfWork(self.pool) as connection:
            await objects.add(connection, [each.object_id for each in sold])
        for each in sold:
            await self.take(each)
        return sold

    async def put(self, sold: Sold) -> None:
        """Put one object on the grid, taken by its booking."""
        async with UnitOfWork(self.pool) as connection:
            await objects.add(connection, [sold.object_id])
        await self.take(sold)

    async def take(self, sold: Sold) -> None:
        """Let the booking take the object."""
        async with UnitOfWork(self.pool) as connection:
            await objects.take(connection, sold.object_id, sold.booking_id)

    async def holders(self, sold: Sequence[Sold]) -> list[UUID | None]:
        """Which booking holds each of these objects."""
        rows = await self.admin.fetch("SELECT id, booking_id FROM chessboard.objects")
        held = {row["id"]: row["booking_id"] for row in rows}
        return [held[each.object_id] for each in sold]

    async def free(self, sold: Sequence[Sold]) -> bool:
        """Whether all of them are free."""
        return all(holder is None for holder in await self.holders(sold))

    async def processed(self) -> dict[str, int]:
        """How many events had which outcome."""
        rows = await self.admin.fetch("SELECT outcome, count(*)::int FROM chessboard.processed_events GROUP BY outcome")
        return {row["outcome"]: row["count"] for row in rows}

    @asynccontextmanager
    async def unreachable(self) -> AsyncIterator[None]:
        """No new connection to this database is possible; those that are open stay so."""
        name = await self.admin.fetchval("SELECT current_database()")
        elsewhere = await asyncpg.connect(self.server)
        await elsewhere.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        try:
            yield
        finally:
            await elsewhere.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
            await elsewhere.close()

    async def aside(self) -> list[Any]:
        """What was set aside, in order."""
        return await self.admin.fetch("SELECT * FROM chessboard.set_aside ORDER BY id")


@dataclass
class Running:
    """A consumer in this process."""

    consumer: Consumer
    stop: asyncio.Event
    task: "asyncio.Task[None]"

    async def stopped(self) -> None:
        """Stop it and wait for its end."""
        self.stop.set()
        await self.task


@dataclass
class Market:
    """A topic, somebody who writes to it, and those who read it."""

    servers: str
    topic: str
    grid: Grid
    database: Database
    producer: AIOKafkaProducer
    group: str = field(default_factory=lambda: f"chessboard-{uuid4()}")
    running: list[Running] = field(default_factory=list)

    @classmethod
    @asynccontextmanager
    async def opened(cls, servers: str, topic: str, grid: Grid, database: Database) -> AsyncIterator["Market"]:
        """With a producer that is closed at the end, as all consumers are."""
        async with AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer:
            market = cls(servers, topic, grid, database, producer)
            yield market
            for each in market.running:
                await each.stopped()

    async def send(self, record: Record, partition: int | None = None) -> None:
        """Put a record on the topic."""
        await self.producer.send_and_wait(self.topic, record.value, record.key, partition, headers=list(record.headers))

    async def expire(self, sold: Sequence[Sold], partition: int | None = None) -> list[Record]:
        """Publish one expiry for each; the records, so that a test can send them again."""
        records = [record_of(each, topic=self.topic) for each in sold]
        for record in records:
            await self.send(record, partition)
        return records

    def consume(self, pool: "Pool | None" = None, *, batch_size: int = 500, servers: str | None = None) -> Running:
        """Start a member of the group."""
        arguments = {"bootstrap_servers": servers or self.servers, "client_id": "chessboard"}
        group = Group(arguments=arguments, topic=self.topic, name=self.group, session_timeout=6)
        consumer, stop = Consumer(pool or self.grid.pool, group, batch_size), asyncio.Event()
        self.running.append(Running(consumer, stop, asyncio.create_task(consumer.run(stop))))
        return self.running[-1]

    async def until_free(self, sold: Sequence[Sold], seconds: float = 20) -> None:
        """Wait until all of them are free."""
        await soon(lambda: self.grid.free(sold), f"{len(sold)} objects free", seconds)

    async def lag(self) -> int:
        """Records that the group has not committed."""
        async with AIOKafkaConsumer(bootstrap_servers=self.servers, group_id=self.group, enable_auto_commit=False) as looking:
            ends = await looking.end_offsets([TopicPartition(self.topic, number) for number in range(3)])
            committed = [await looking.committed(partition) or 0 for partition in ends]
        return int(sum(ends.values()) - sum(committed))

    async def until_committed(self) -> None:
        """Wait until the group's offsets are at the end."""

        async def done() -> bool:
            return await self.lag() == 0

        await soon(done, "offsets at the end")
