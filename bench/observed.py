"""A batch and the whole activity with telemetry on against off, and with traces against off.

`python -m bench.observed` under `python -m devstack exec --durable --`. Off: no instruments, and no line below CRITICAL. On, as
the worker has it without a collector: counters and histograms are recorded and read every 50 batches, the log's INFO lines are
made and written to a file. Traced, as with one: spans too, in a trace whose header goes into each record; they are encoded as
for a collector, after each batch, and thrown away instead of sent. The three take turns in one run on one connection, the first
one changing, so that whatever else the machine does hits all of them. The worker's own CPU time beside it says what telemetry
costs where the machine is too busy for the clock to say so, and has the encoding in it, which a batch does not wait for.
"""

import asyncio
import contextlib
import logging
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime
from statistics import median
from typing import Any, Final
from uuid import uuid4

import asyncpg
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from temporalio.contrib.opentelemetry import create_tracer_provider
from temporalio.testing import ActivityEnvironment

import logs
import metrics
import telemetry
import tracing
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
FORMS: Final = ("off", "on", "traced")
GOALS: Final = {"lock to commit": {"on": 0.95, "traced": 0.9}, "whole activity": {"on": 0.9, "traced": 0.8}}
"""The first is what `bench.expire` measures; the second has the log's 200 lines in it, one per booking, which O1 asks for."""

Work = Callable[[Pool, datetime, int], Awaitable[None]]


class Nowhere(SpanExporter):
    """Encodes spans as for a collector and throws them away."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """All that an exporter does but sending."""
        encode_spans(spans).SerializeToString()
        return SpanExportResult.SUCCESS


async def run() -> list[dict[str, Any]]:
    """Median milliseconds of a batch of 200 without and with telemetry, and their ratio; of the batch and of the activity."""
    with tempfile.TemporaryFile("w", encoding="utf-8") as output, contextlib.redirect_stdout(output):
        telemetry.configure("INFO")
        return [*await _compare("lock to commit", _batch), *await _compare("whole activity", _activity)]


async def _compare(what: str, work: Work) -> list[dict[str, Any]]:
    async with fresh_database() as (worker_url, admin_url):
        admin = await asyncpg.connect(admin_url)
        await admin.execute(SEED, len(FORMS) * BATCH * (ROUNDS + WARM_UP))
        await admin.execute("VACUUM ANALYZE crm.bookings")
        as_of = await admin.fetchval("SELECT clock_timestamp()")
        await admin.close()
        pool = await open_pool(worker_url, size=1)
        took = await _measure(pool, as_of, work)
        await pool.close()
    (off, cpu_off), *others = ([median(figures) for figures in zip(*took[form], strict=True)] for form in FORMS)
    return [
        {
            "what": f"batch of {BATCH}, telemetry {form}, {what}",
            "off_ms": off,
            f"{form}_ms": on,
            "cpu_off_ms": cpu_off,
            f"cpu_{form}_ms": cpu_on,
            "ratio": off / on,
            "goal": GOALS[what][form],
        }
        for form, (on, cpu_on) in zip(FORMS[1:], others, strict=True)
    ]


async def _measure(pool: Pool, as_of: datetime, work: Work) -> dict[str, list[tuple[float, float]]]:
    """Milliseconds of the clock and of this process's CPU for each batch, in each form."""
    forms = _Forms()
    took: dict[str, list[tuple[float, float]]] = {form: [] for form in FORMS}
    for number in range(len(FORMS) * (ROUNDS + WARM_UP)):
        form = FORMS[(number + number // len(FORMS)) % len(FORMS)]
        used = time.process_time()
        with forms.take(form):
            started = time.perf_counter()
            await work(pool, as_of, number + 1)
            took_by_clock = time.perf_counter() - started
        forms.encode()
        took[form].append((took_by_clock * 1000, (time.process_time() - used) * 1000))
        if number % LOOK_EVERY == 0:
            metrics.exposition()
    forms.stop()
    return {form: each[WARM_UP:] for form, each in took.items()}


class _Forms:
    """No worker turns its telemetry on and off while it runs; only this does, behind the modules' backs."""

    def __init__(self) -> None:
        self._silent = metrics.now()
        metrics.start()
        self._heard = metrics.now()
        self._provider = create_tracer_provider(shutdown_on_exit=False)
        self._provider.add_span_processor(tracing.Correlation())
        self._provider.add_span_processor(BatchSpanProcessor(Nowhere()))

    @contextlib.contextmanager
    def take(self, form: str) -> Iterator[None]:
        """As the worker is in this form, inside the activity's span where there are any."""
        _switch(*((self._silent, "CRITICAL") if form == "off" else (self._heard, "INFO")))
        tracer = self._provider.get_tracer("bench") if form == "traced" else trace.NoOpTracer()
        tracing._tracer = tracer  # type: ignore[misc] # noqa: SLF001 # see the class
        with tracer.start_as_current_span("RunActivity:expire_batch"):
            yield

    def encode(self) -> None:
        """What a worker's batch processor does every five seconds in a thread of its own."""
        self._provider.force_flush()

    def stop(self) -> None:
        """Off, and no thread is left."""
        _switch(self._silent, "CRITICAL")
        self._provider.shutdown()


def _switch(instruments: metrics.Instruments, level: str) -> None:
    metrics._instruments = instruments  # noqa: SLF001 # see _Forms
    logging.getLogger(logs.NAME).setLevel(level)


async def _batch(pool: Pool, as_of: datetime, number: int) -> None:
    run_id = str(uuid4())
    envelope = Envelope(run_id, TOPIC, telemetry.traceparent())
    batch = await run_batch(pool, Plan(BatchKey(run_id, Phase.RESERVE, number), as_of, BATCH, envelope))
    assert batch.counts.expired == BATCH


async def _activity(pool: Pool, as_of: datetime, number: int) -> None:
    order = BatchOrder(phase=Phase.RESERVE, batch_no=number, as_of=as_of, batch_size=BATCH)
    result = await ActivityEnvironment().run(ExpireBatch(pool, TOPIC).expire_batch, order)
    assert result.expired_count == BATCH


if __name__ == "__main__":
    for outcome in asyncio.run(run()):
        print("  ".join(f"{name} {value:,.2f}" if isinstance(value, float) else str(value) for name, value in outcome.items()))
