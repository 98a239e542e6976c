"""The real batch path against the least that PostgreSQL itself needs: one statement that does the same writes.

`python -m bench.expire` under `python -m devstack exec --durable --`. Both sides take turns in one run on one connection
each, so that whatever else the machine does hits both.
"""

import asyncio
import json
import time
from datetime import datetime
from statistics import median
from typing import Any, Final

import asyncpg

import telemetry
from activities.expire_batch import Plan, run_batch
from bench.database import fresh_database
from db.bookings import Envelope
from db.ledger import BatchKey
from db.unit_of_work import Pool, open_pool
from domain.events import Phase, shared_headers, wire_time

BATCH: Final = 200
ROUNDS: Final = 60
WARM_UP: Final = 10
LIMIT: Final = 0.7
TOPIC: Final = "pin.crm.booking-expired.v1"

SEED: Final = """
    INSERT INTO crm.bookings (id, tenant_id, deal_id, property_object_id, status, reserve_expires_at)
    SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'Reserved',
           clock_timestamp() - make_interval(secs => 3600 + random() * 86400) FROM generate_series(1, $1)"""

# Claim, transition, audit, card, outbox and ledger in one go, the bytes of D12 included: nothing travels but the counts.
_ONE_STATEMENT: Final = """
    WITH claimed AS (
      SELECT * FROM crm.bookings
      WHERE status IN ('Reserved', 'AwaitingPayment') AND reserve_expires_at < $1::timestamptz
      ORDER BY reserve_expires_at, id LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED
    ), moved AS (
      UPDATE crm.bookings b SET status = 'ReserveExpired', expired_at = $1, updated_at = $1, version = b.version + 1
      FROM claimed c WHERE b.id = c.id RETURNING b.*, c.status AS from_status, gen_random_uuid() AS event_id
    ), audited AS (
      INSERT INTO crm.booking_audit (booking_id, version, actor, action, from_status, to_status, at, correlation_id)
      SELECT id, version, 'system', 'Expire', from_status, status, $1, $3::text FROM moved
    ), shown AS (
      INSERT INTO crm.deal_timeline_cards (deal_id, booking_id, booking_version, kind, at)
      SELECT deal_id, id, version, status, $1 FROM moved
    ), announced AS (
      INSERT INTO crm.outbox (event_id, aggregate_type, aggregate_id, aggregate_version, tenant_id, topic, contract_version,
                              payload, headers, correlation_id, occurred_at)
      SELECT event_id, 'Booking', id, version, tenant_id, $4::text, 1,
             convert_to(format('{"BookingId":"%s","TenantId":"%s","DealId":"%s","PropertyObjectId":"%s","Phase":"Reserve",'
               '"ExpiredAt":"%s"}', id, tenant_id, deal_id, property_object_id, $6::text), 'UTF8'),
             $7::jsonb || jsonb_build_object('ce_id', event_id, 'ce_subject', id), $3::text, $1
      FROM moved
    ), entered AS (
      INSERT INTO crm.expiration_batches
        (run_id, phase, batch_no, as_of, expired_count, skipped_locked_count, poison_count, poison_ids)
      SELECT $3::text, 'Reserve', $5, $1, count(*), 0, 0, '{}' FROM moved
    )
    SELECT count(*) FROM moved"""


async def run() -> dict[str, Any]:
    """Median milliseconds for a batch of 200 on either side, their ratio, and what an idle batch costs."""
    telemetry.configure("ERROR")
    async with fresh_database() as (worker_url, admin_url):
        admin = await asyncpg.connect(admin_url)
        await admin.execute(SEED, 2 * BATCH * (ROUNDS + WARM_UP))
        await admin.execute("VACUUM ANALYZE crm.bookings")
        as_of = await admin.fetchval("SELECT clock_timestamp()")
        pool = await open_pool(worker_url, size=1)
        limit, real = await _measure(admin, pool, as_of)
        idle = [await _real(pool, as_of, f"idle-{n}", 1, expect=0) for n in range(WARM_UP)]
        await pool.close()
        await admin.close()
    return {
        "what": f"expire a batch of {BATCH}, one connection",
        "limit_ms": median(limit),
        "real_ms": median(real),
        "ratio": median(limit) / median(real),
        "goal": LIMIT,
        "idle_ms": median(idle),
    }


async def _measure(admin: "asyncpg.Connection[asyncpg.Record]", pool: Pool, as_of: datetime) -> tuple[list[float], list[float]]:
    limit, real = [], []
    for number in range(1, ROUNDS + WARM_UP + 1):
        limit.append(await _one_statement(admin, as_of, number))
        real.append(await _real(pool, as_of, "real", number, expect=BATCH))
    return limit[WARM_UP:], real[WARM_UP:]


async def _one_statement(admin: "asyncpg.Connection[asyncpg.Record]", as_of: datetime, number: int) -> float:
    started = time.perf_counter()
    shared = json.dumps(shared_headers(as_of, topic=TOPIC, correlation_id="limit"))
    moved = await admin.fetchval(_ONE_STATEMENT, as_of, BATCH, "limit", TOPIC, number, wire_time(as_of), shared)
    took = (time.perf_counter() - started) * 1000
    assert moved == BATCH
    return took


async def _real(pool: Pool, as_of: datetime, run_id: str, number: int, *, expect: int) -> float:
    started = time.perf_counter()
    batch = await run_batch(pool, Plan(BatchKey(run_id, Phase.RESERVE, number), as_of, BATCH, Envelope(run_id, TOPIC)))
    took = (time.perf_counter() - started) * 1000
    assert batch.counts.expired == expect
    return took


if __name__ == "__main__":
    print(asyncio.run(run()))
