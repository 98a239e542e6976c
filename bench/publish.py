"""The real publish path against the least that Kafka needs: plain sends of the same records by the same kind of producer.

`python -m bench.publish` under `python -m devstack exec --durable --`. Both sides take turns in one run, so that whatever
else the machine does hits both. The real path also claims, settles and commits every record in PostgreSQL.
"""

import asyncio
import gc
import json
import os
import secrets
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import median
from typing import Any, Final, TypeAlias
from uuid import uuid4

import asyncpg
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

import kafka_producer
import telemetry
from activities.publish_outbox import publish
from bench.database import fresh_database
from db.unit_of_work import Pool, open_pool
from devstack import addresses
from domain import events
from domain.events import BookingExpired, Phase
from publishing import MAX_RECORD_BYTES, KafkaOptions, Publisher

RECORDS: Final = 20_000
ROUNDS: Final = 7
WARM_UP: Final = 2
PARTITIONS: Final = 6
GOAL: Final = 0.4

Admin: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Raw: TypeAlias = list[tuple[bytes, bytes, list[tuple[str, bytes]]]]

_COLUMNS: Final = [
    "event_id", "aggregate_type", "aggregate_id", "aggregate_version", "tenant_id", "topic", "contract_version",
    "payload", "headers", "correlation_id", "occurred_at",
]  # fmt: skip


async def run() -> dict[str, Any]:
    """Median records a second on either side, and their ratio."""
    telemetry.configure("ERROR")
    options = KafkaOptions(bootstrap_servers=os.environ[addresses.KAFKA])
    async with fresh_database() as (worker_url, admin_url), fresh_topic(options) as topic:
        admin, pool = await asyncpg.connect(admin_url), await open_pool(worker_url)
        producer, publisher = await kafka_producer.make(options.arguments(), MAX_RECORD_BYTES), Publisher(options)
        raw, real = [], []
        for _ in range(ROUNDS + WARM_UP):
            records = await _fill(admin, topic)
            raw.append(await _send_plainly(producer, topic, records))
            del records  # a worker has no such heap for its garbage collector to walk
            gc.collect()
            real.append(await _drain(pool, publisher))
        await publisher.close()
        await kafka_producer.abandon(producer)
        await pool.close()
        await admin.close()
    raw_rate, real_rate = (RECORDS / median(seconds[WARM_UP:]) for seconds in (raw, real))
    return {
        "what": f"publish {RECORDS:,} records",
        "raw_per_s": raw_rate,
        "real_per_s": real_rate,
        "ratio": real_rate / raw_rate,
        "goal": GOAL,
    }


async def _fill(admin: Admin, topic: str) -> Raw:
    """An outbox of unpublished records of as many bookings, as expiry writes them (D12); and the same for plain sends."""
    now, run_id = await admin.fetchval("SELECT now()"), str(uuid4())
    rows: list[tuple[Any, ...]] = []
    raw: Raw = []
    for _ in range(RECORDS):
        event = BookingExpired(uuid4(), uuid4(), uuid4(), uuid4(), Phase.RESERVE, now, "Reserved", "ReserveExpired", 2)
        event_id, value = uuid4(), events.payload(event)
        headers = events.headers(event_id, event.booking_id, now, topic=topic, correlation_id=run_id)
        key, text = event.booking_id, json.dumps(headers)
        rows.append((event_id, "Booking", key, 2, event.tenant_id, topic, 1, value, text, run_id, now))
        raw.append((str(key).encode(), value, [(name, part.encode()) for name, part in headers.items()]))
    await admin.execute("TRUNCATE crm.outbox")
    await admin.copy_records_to_table("outbox", schema_name="crm", columns=_COLUMNS, records=rows)
    return raw


async def _send_plainly(producer: AIOKafkaProducer, topic: str, records: Raw) -> float:
    started = time.perf_counter()
    futures = [await producer.send(topic, value, key, headers=headers) for key, value, headers in records]
    for future in futures:
        await future
    return time.perf_counter() - started


async def _drain(pool: Pool, publisher: Publisher) -> float:
    started = time.perf_counter()
    result = await publish(pool, publisher, 60)
    assert result.published_count == RECORDS, result
    return time.perf_counter() - started


@asynccontextmanager
async def fresh_topic(options: KafkaOptions) -> AsyncIterator[str]:
    """A topic of the benchmark's own, which is deleted afterwards."""
    topic, admin = f"bench.{secrets.token_hex(4)}", AIOKafkaAdminClient(bootstrap_servers=options.bootstrap_servers)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
        yield topic
        await admin.delete_topics([topic])
    finally:
        await admin.close()


if __name__ == "__main__":
    outcome = asyncio.run(run())
    print("  ".join(f"{name} {value:,.2f}" if isinstance(value, float) else str(value) for name, value in outcome.items()))
    sys.exit(outcome["ratio"] < GOAL)
