"""What an operator's look costs with ten million bookings and ten million outbox rows (issue 4, "Speed and bad input").

`python -m bench.inspection` under `python -m devstack exec --durable --`; a number of rows may follow. Seeding takes many
minutes and about 3 KB of disk a row. Nearly all bookings are terminal and nearly all events published, as after years of work.
"""

import asyncio
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit
from uuid import UUID

import asyncpg

from bench.database import fresh_database
from db import due, outbox_reading, overview
from db.outbox_reading import Filter
from db.reading import reading
from db.unit_of_work import Connection, Pool, open_pool
from devstack import addresses
from domain.events import Phase
from operators import explain
from settings import OperatorSettings

ROWS: Final = 10_000_000
ACTIVE: Final = 100_000
BACKLOG: Final = 20_000
"""Of the active bookings: already due."""
UNPUBLISHED: Final = 20_000
PARKED: Final = 200
ROUNDS: Final = 7
LIMIT: Final = 1.0
"""Seconds that a whole command may take."""
BYTES_PER_ROW: Final = 3_000
CHUNK: Final = 500_000
COMMAND: Final = Path(sys.executable).parent / "booking-expiration"

Admin: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

# One booking in a hundred is active; deadlines of the active ones spread around now. Numbers below $3 are due.
_BOOKINGS: Final = """
    INSERT INTO crm.bookings (id, tenant_id, deal_id, property_object_id, status, reserve_expires_at, booking_expires_at,
                              expired_at, version)
    SELECT gen_random_uuid(), md5((n % 5000)::text)::uuid, gen_random_uuid(), gen_random_uuid(), status, deadline, deadline,
           CASE WHEN status IN ('ReserveExpired', 'BookingExpired') THEN deadline + interval '30 seconds' END, 2
      FROM generate_series($1::bigint, $2::bigint - 1) AS n
           CROSS JOIN LATERAL (SELECT
             CASE WHEN n < $4 THEN (ARRAY['Reserved', 'AwaitingPayment', 'Booked'])[1 + n % 3]
                  ELSE (ARRAY['ReserveExpired', 'BookingExpired', 'Cancelled', 'Completed'])[1 + n % 4] END AS status,
             CASE WHEN n < $3 THEN now() - random() * interval '3 hours'
                  WHEN n < $4 THEN now() + random() * interval '14 days'
                  ELSE now() - random() * interval '1000 days' END AS deadline) AS made"""

# The bytes of a real record: a payload of 290 and headers of 500. The newest are not published yet.
_OUTBOX: Final = """
    INSERT INTO crm.outbox (event_id, aggregate_type, aggregate_id, aggregate_version, tenant_id, topic, contract_version,
                            payload, headers, correlation_id, occurred_at, attempts, published_at, kafka_partition, kafka_offset,
                            parked_at, park_reason)
    SELECT gen_random_uuid(), 'Booking', gen_random_uuid(), 2, md5((n % 5000)::text)::uuid, 'pin.crm.booking-expired.v1', 1,
           (SELECT convert_to(repeat('x', 290), 'UTF8')), (SELECT jsonb_build_object('ce_type', repeat('h', 450))), 'run',
           now() - interval '1 hour', 1, CASE WHEN n >= $3 THEN now() END, CASE WHEN n >= $3 THEN n % 6 END,
           CASE WHEN n >= $3 THEN n END, CASE WHEN n < $4 THEN now() END, CASE WHEN n < $4 THEN 'too large' END
      FROM generate_series($1::bigint, $2::bigint - 1) AS n"""


# The due booking with the most of its phase before it, as far as a count of a window tells.
_LATEST_DUE: Final = """
    SELECT id FROM crm.bookings WHERE status = 'Booked' AND booking_expires_at < clock_timestamp() - interval '1 second'
    ORDER BY booking_expires_at DESC LIMIT 1"""


async def run(rows: int = ROWS) -> dict[str, Any]:
    """Seconds of processor time that whole commands take, and of their database part; `ratio`: the limit over the slower one."""
    needed = rows * BYTES_PER_ROW * 1.3
    if (free := shutil.disk_usage(".").free) < needed:
        sys.exit(f"{free / 1e9:.0f} GB are free here; {rows:,} rows need about {needed / 1e9:.0f}")
    async with fresh_database() as (_, admin_url):
        await seed(admin_url, rows)
        return {"what": f"look at {rows:,} bookings and {rows:,} outbox rows", **await measure(admin_url)}


async def measure(admin_url: str) -> dict[str, Any]:
    """The figures for a database that is seeded."""
    url = urlsplit(os.environ[addresses.OPERATOR])._replace(path=urlsplit(admin_url).path).geturl()
    os.environ[addresses.OPERATOR] = url
    pool = await open_pool(url, size=2)
    async with reading(pool) as connection:
        booking_id = await connection.fetchval(_LATEST_DUE)
    database = await _database(pool, booking_id)
    await pool.close()
    commands = {name: _command(*arguments) for name, arguments in _commands(booking_id).items()}
    return {
        **{f"{name}_db_s": seconds for name, seconds in database.items()},
        **{f"{name}_s": seconds for name, (seconds, _) in commands.items()},
        **{f"{name}_cpu_s": seconds for name, (_, seconds) in commands.items()},
        "ratio": LIMIT / max(commands[name][1] for name in ("status", "explain")),
        "goal": 1.0,
    }


def _commands(booking_id: UUID) -> dict[str, list[str]]:
    return {
        "help": ["--help"],
        "status": ["status", "--json"],
        "explain": ["explain", str(booking_id), "--json"],
        "preview": ["preview", "--json"],
        "list": ["outbox", "list", "--parked", "--json"],
    }


def _command(*arguments: str) -> tuple[float, float]:
    """Median seconds of the whole process, start of the interpreter included: by the clock, and of processor time.

    The clock's say something on a quiet machine only.
    """
    clock, processor = [], []
    for _ in range(ROUNDS):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run([COMMAND, *arguments], capture_output=True, text=True, check=False)
        clock.append(time.perf_counter() - began)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert done.returncode == 0, done
    return median(clock), median(processor)


async def _database(pool: Pool, booking_id: UUID) -> dict[str, float]:
    """Median seconds of what each command asks the database, on an open connection."""
    given = OperatorSettings()  # from the environment

    async def of(work: Callable[[Connection], Awaitable[Any]]) -> float:
        taken = []
        for _ in range(ROUNDS):
            async with reading(pool) as connection:
                began = time.perf_counter()
                await work(connection)
                taken.append(time.perf_counter() - began)
        return median(taken)

    async def preview(connection: Connection) -> None:
        now = await connection.fetchval("SELECT now()")
        for phase in Phase:
            await due.count(connection, phase, now)
            await due.oldest(connection, phase, now, 20)
            await due.groups(connection, "tenant", phase, now)

    return {
        "status": await of(overview.read),
        "explain": await of(lambda connection: explain.facts(connection, booking_id, given.batch_size)),
        "preview": await of(preview),
        "list": await of(lambda connection: outbox_reading.find(connection, Filter(state="parked"), 50)),
    }


async def seed(admin_url: str, rows: int) -> None:
    """Fill both tables, side by side."""
    await asyncio.gather(
        _fill(admin_url, "bookings", _BOOKINGS, rows, (min(BACKLOG, rows // 10), min(ACTIVE, rows // 5))),
        _fill(admin_url, "outbox", _OUTBOX, rows, (min(UNPUBLISHED, rows // 10), min(PARKED, rows // 20))),
    )


async def _fill(admin_url: str, table: str, statement: str, rows: int, marks: tuple[int, int]) -> None:
    began, admin = time.monotonic(), await asyncpg.connect(admin_url)
    async with _without_indexes(admin, table):
        for start in range(0, rows, CHUNK):
            await admin.execute(statement, start, min(start + CHUNK, rows), *marks)
    await admin.execute(f"VACUUM ANALYZE crm.{table}")
    size = await admin.fetchval("SELECT pg_size_pretty(pg_total_relation_size($1::regclass))", f"crm.{table}")
    print(f"{rows:,} {table}: {time.monotonic() - began:.0f} s, {size}", file=sys.stderr, flush=True)
    await admin.close()


@asynccontextmanager
async def _without_indexes(admin: Admin, table: str) -> Any:
    """Load first, build the keys and indexes then; without a log, as nothing here must survive a crash."""
    keys = await admin.fetch(
        "SELECT conname AS name, pg_get_constraintdef(oid) AS is FROM pg_constraint "
        "WHERE conrelid = $1::regclass AND contype IN ('p', 'u')", f"crm.{table}",
    )  # fmt: skip
    indexes = await admin.fetch(
        "SELECT indexname AS name, indexdef AS is FROM pg_indexes WHERE schemaname = 'crm' AND tablename = $1 "
        "AND indexname <> ALL ($2)", table, [key["name"] for key in keys],
    )  # fmt: skip
    await admin.execute(f"ALTER TABLE crm.{table} SET UNLOGGED")
    for key in keys:
        await admin.execute(f"ALTER TABLE crm.{table} DROP CONSTRAINT {key['name']}")
    for index in indexes:
        await admin.execute(f"DROP INDEX crm.{index['name']}")
    yield
    await admin.execute("SET maintenance_work_mem = '1GB'")
    for key in keys:
        await admin.execute(f"ALTER TABLE crm.{table} ADD CONSTRAINT {key['name']} {key['is']}")
    for index in indexes:
        await admin.execute(index["is"])


if __name__ == "__main__":
    outcome = asyncio.run(run(*map(int, sys.argv[1:])))
    print(json.dumps(outcome, indent=2))
    sys.exit(outcome["ratio"] < outcome["goal"])
