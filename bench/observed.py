"""A batch and the whole activity with telemetry on against off, as the worker has it without a collector.

`python -m bench.observed` under `python -m devstack exec --durable --`. On: counters and histograms are recorded and read every
50 batches, the log's INFO lines are made and written to a file. Off: no instruments, and no line below CRITICAL. Both take turns
in one run on one connection, the first one changing, so that whatever else the machine does hits both. The worker's own CPU time
beside it says what telemetry costs where the machine is too busy for the clock to say so.
"""

import asyncio
import contextlib
import logging
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from statistics import median
from typing import Any, Final
from uuid import uuid4

import asyncpg
from temporalio.testing import ActivityEnvironment

import logs
import metrics
import telemetry
from activities.expire_batch import ExpireBatch, Plan, run_batch
from activities.messages import BatchOrder
from bench.database import fresh_database
from bench.expire import BATCH, SEED, TOPIC
from db.bookings import Envelope
from db.ledger import BatchKey
from db.unit_of_work import Pool, open_pool
from domain.events import Phase

ROUNDS: Final = 150
WARM_UP: Final = 15
LOOK_EVERY: Final = 50
GOALS: Final = {"lock to commit": 0.95, "whole activity": 0.9}
"""The first is what `bench.expire` measures; the second has the log's 200 lines in it, one per booking, which O1 asks for."""

Work = Callable[[Pool, datetime, int], Awaitable[None]]


async def run() -> list[dict[str, Any]]:
    """Median milliseconds of a batch of 200 without and with telemetry, and their ratio; of the batch and of the activity."""
    with tempfile.TemporaryFile("w", encoding="utf-8") as output, contextlib.redirect_stdout(output):
        telemetry.configure("INFO")
        return [await _compare("lock to commit", _batch), await _compare("whole activity", _activity)]


async def _compare(what: str, work: Work) -> dict[str, Any]:
    async with fresh_database() as (worker_url, admin_url):
        admin = await asyncpg.connect(admin_url)
        await admin.execute(SEED, 2 * BATCH * (ROUNDS + WARM_UP))
        await admin.execute("VACUUM ANALYZE crm.bookings")
        as_of = await admin.fetchval("SELECT clock_timestamp()")
        await admin.close()
        pool = await open_pool(worker_url, size=1)
        took = await _measure(pool, as_of, work)
        await pool.close()
    (off, on), (cpu_off, cpu_on) = [[median(each[kind] for each in took[is_on]) for is_on in (False, True)] for kind in (0, 1)]
    figures = {"off_ms": off, "on_ms": on, "cpu_off_ms": cpu_off, "cpu_on_ms": cpu_on, "ratio": off / on}
    return {"what": f"batch of {BATCH} with telemetry, {what}", **figures, "goal": GOALS[what]}


async def _measure(pool: Pool, as_of: datetime, work: Work) -> dict[bool, list[tuple[float, float]]]:
    """Milliseconds of the clock and of this process's CPU for each batch, without telemetry and with it."""
    silent, heard = metrics.now(), _instruments()
    took: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for number in range(1, 2 * (ROUNDS + WARM_UP) + 1):
        is_on = bool(number % 2) is bool(number // 2 % 2)
        _switch(heard if is_on else silent, "INFO" if is_on else "CRITICAL")
        started, used = time.perf_counter(), time.process_time()
        await work(pool, as_of, number)
        took[is_on].append(((time.perf_counter() - started) * 1000, (time.process_time() - used) * 1000))
        if number % LOOK_EVERY == 0:
            metrics.exposition()
    _switch(silent, "CRITICAL")
    return {is_on: each[WARM_UP:] for is_on, each in took.items()}


def _instruments() -> metrics.Instruments:
    metrics.start()
    return metrics.now()


def _switch(instruments: metrics.Instruments, level: str) -> None:
    metrics._instruments = instruments  # noqa: SLF001 # no worker turns its telemetry off while it runs; only this does
    logging.getLogger(logs.NAME).setLevel(level)


async def _batch(pool: Pool, as_of: datetime, number: int) -> None:
    run_id = str(uuid4())
    batch = await run_batch(pool, Plan(BatchKey(run_id, Phase.RESERVE, number), as_of, BATCH, Envelope(run_id, TOPIC)))
    assert batch.counts.expired == BATCH


async def _activity(pool: Pool, as_of: datetime, number: int) -> None:
    order = BatchOrder(phase=Phase.RESERVE, batch_no=number, as_of=as_of, batch_size=BATCH)
    result = await ActivityEnvironment().run(ExpireBatch(pool, TOPIC).expire_batch, order)
    assert result.expired_count == BATCH


if __name__ == "__main__":
    for outcome in asyncio.run(run()):
        print("  ".join(f"{name} {value:,.2f}" if isinstance(value, float) else str(value) for name, value in outcome.items()))
