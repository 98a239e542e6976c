"""Outbox rows of the real shape for tests and benchmarks, and what a consumer then sees."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any, TypeAlias
from uuid import UUID, uuid4

import asyncpg
from aiokafka import AIOKafkaConsumer

from domain import events
from domain.events import BookingExpired, Phase

Admin: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
MOMENT = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)

_COLUMNS = [
    "event_id", "aggregate_type", "aggregate_id", "aggregate_version", "tenant_id", "topic", "contract_version",
    "payload", "headers", "correlation_id", "occurred_at",
]  # fmt: skip


def row(booking_id: UUID, version: int, topic: str) -> tuple[Any, ...]:
    """One record as the expiry of a booking writes it (D12)."""
    event = BookingExpired(booking_id, uuid4(), uuid4(), uuid4(), Phase.RESERVE, MOMENT, "Reserved", "ReserveExpired", version)
    event_id, run_id = uuid4(), "5c9f4c1e-8f0a-4b8c-9d3c-5b1c1c1c1c1c"
    headers = events.headers(event_id, booking_id, MOMENT, topic=topic, correlation_id=run_id)
    return (
        event_id, "Booking", booking_id, version, event.tenant_id, topic, 1, events.payload(event), json.dumps(headers),
        run_id, MOMENT,
    )  # fmt: skip


async def put(admin: Admin, rows: list[tuple[Any, ...]]) -> None:
    """Write rows in this order, so that their ids ascend."""
    await admin.copy_records_to_table("outbox", schema_name="crm", columns=_COLUMNS, records=rows)


async def fill(admin: Admin, count: int, topic: str, *, versions: int = 1) -> list[UUID]:
    """Unpublished records of `count` bookings, `versions` each, all first versions before all second ones."""
    ids = [uuid4() for _ in range(count)]
    await put(admin, [row(booking_id, version, topic) for version in range(2, 2 + versions) for booking_id in ids])
    return ids


async def states(admin: Admin) -> dict[str, int]:
    """How many records are published, parked, skipped, claimed and waiting."""
    found = await admin.fetchrow("""
        SELECT count(published_at)::int AS published, count(parked_at)::int AS parked, count(skipped_at)::int AS skipped,
               count(claim_token)::int AS claimed,
               count(*) FILTER (WHERE published_at IS NULL AND parked_at IS NULL AND skipped_at IS NULL)::int AS waiting
          FROM crm.outbox""")
    return dict(found or {})


async def consume(servers: str, topic: str) -> list[Any]:
    """Everything the topic holds now, partition by partition, in order of offset."""
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=servers, enable_auto_commit=False, auto_offset_reset="earliest")
    await consumer.start()
    try:
        ends = await consumer.end_offsets(consumer.assignment())
        found: list[Any] = []
        async with asyncio.timeout(20):
            while len(found) < sum(ends.values()):
                for batch in (await consumer.getmany(timeout_ms=500)).values():
                    found += batch
    finally:
        await consumer.stop()
    return sorted(found, key=lambda record: (record.partition, record.offset))


def header(record: Any, name: str) -> str:
    """One header of a consumed record."""
    return str(dict(record.headers)[name].decode())
