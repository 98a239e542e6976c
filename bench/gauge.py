"""What one reading of the gauges costs with ten million bookings, and how PostgreSQL answers it (O2).

`python -m bench.gauge` under `python -m devstack exec --durable --`: minutes, 5 GB of disk. Ten million bookings, 10,000 of
them active and 200 due, and a million outbox records, 200 of them waiting; then 30 readings as a worker makes them.
"""

import asyncio
import re
import sys
import time
from statistics import median
from typing import Any, Final

import asyncpg

from bench.database import fresh_database
from db import gauges
from db.job_state import JOB
from db.unit_of_work import Pool, UnitOfWork, open_pool

BOOKINGS: Final = 10_000_000
ACTIVE: Final = 10_000
DUE: Final = 200
RECORDS: Final = 1_000_000
WAITING: Final = 200
READINGS: Final = 30
LIMIT_MS: Final = 10.0
"""A reading comes every 10 s: a thousandth of the time."""

# Ordinary logged tables with all their indexes; deadlines of active bookings lie ahead but for DUE of them.
_BOOKINGS: Final = """
    INSERT INTO crm.bookings
      (id, tenant_id, deal_id, property_object_id, status, reserve_expires_at, booking_expires_at, expired_at, version)
    SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), gen_random_uuid(),
           CASE WHEN n > $2 THEN 'ReserveExpired' WHEN n % 2 = 0 THEN 'Reserved' ELSE 'Booked' END,
           clock_timestamp() + make_interval(mins => CASE WHEN n > $2 OR n <= $3 THEN -60 ELSE 60 + n END),
           clock_timestamp() + make_interval(mins => CASE WHEN n <= $3 THEN -60 ELSE 60 + n END),
           CASE WHEN n > $2 THEN clock_timestamp() END, 2
    FROM generate_series(1, $1::int) n"""

_RECORDS: Final = """
    INSERT INTO crm.outbox
      (event_id, aggregate_type, aggregate_id, aggregate_version, tenant_id, topic, contract_version, payload, correlation_id,
       occurred_at, published_at)
    SELECT gen_random_uuid(), 'Booking', gen_random_uuid(), 2, gen_random_uuid(), 't', 1, convert_to(repeat('x', 250), 'UTF8'),
           'r', clock_timestamp(), CASE WHEN n <= $1::int - $2::int THEN clock_timestamp() END
    FROM generate_series(1, $1::int) n"""


async def run() -> dict[str, Any]:
    """Median and longest milliseconds of a reading, BEGIN and COMMIT included; the plan, and what in it reads a whole table."""
    async with fresh_database() as (worker_url, admin_url):
        admin = await asyncpg.connect(admin_url)
        await admin.execute(_BOOKINGS, BOOKINGS, ACTIVE, DUE)
        await admin.execute(_RECORDS, RECORDS, WAITING)
        await admin.execute("VACUUM ANALYZE crm.bookings, crm.outbox")
        await admin.close()
        pool = await open_pool(worker_url, size=1)
        took = [await _reading(pool) for _ in range(READINGS)]
        plan = await _plan(pool)
        await pool.close()
    whole = re.findall(r"Seq Scan on (bookings|outbox)", plan)
    return {"median_ms": median(took), "longest_ms": max(took), "whole_tables": whole, "plan": plan}


async def _reading(pool: Pool) -> float:
    started = time.perf_counter()
    async with UnitOfWork(pool) as connection:
        reading = await gauges.read(connection)
    took = (time.perf_counter() - started) * 1000
    assert reading.reserve_backlog + reading.booking_backlog == DUE, reading
    assert reading.outbox_backlog == WAITING, reading
    return took


async def _plan(pool: Pool) -> str:
    async with UnitOfWork(pool) as connection:
        at = await connection.fetchval("SELECT clock_timestamp()")
        question = f"EXPLAIN (ANALYZE, COSTS OFF, BUFFERS OFF) {gauges._READ}"  # noqa: SLF001 # the measured one
        lines = [line for (line,) in await connection.fetch(question, at, JOB)]
    return "\n".join(line for line in lines if re.search(r"Scan|Heap Fetches|Time", line))


if __name__ == "__main__":
    outcome = asyncio.run(run())
    print(outcome["plan"])
    print(f"\n{BOOKINGS:,} bookings: median {outcome['median_ms']:.2f} ms, longest {outcome['longest_ms']:.2f} ms")
    sys.exit(bool(outcome["whole_tables"]) or outcome["median_ms"] > LIMIT_MS)
