"""What the real worker shows of itself: /metrics, traces from the tick to the consumer, logs that belong to them (O1 to O3)."""

import asyncio
import re
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from db import migrations
from exporting import VERSION
from tests import floor
from tests.acceptance.collector import Collector, a_certificate, a_collector, attributes, listed, path_of
from tests.acceptance.installed import installed
from tests.acceptance.process import WorkerProcess, World, soon
from tests.chessboard.member import Members
from tests.floor import MINUTE, Admin

FAST = {"BOOKING_EXPIRATION_GAUGES_INTERVAL": "0.3", "OTEL_BSP_SCHEDULE_DELAY": "100", "OTEL_METRIC_EXPORT_INTERVAL": "500"}
NOWHERE = "http://127.0.0.1:1"
JOB = "crm_booking_expiration_"
STEPS = ("open_cycle", "expire_batch", "publish_outbox", "close_cycle")
WHOLE = {
    *("RunWorkflow:BookingExpirationCycle", "transaction", "claim", "write", "commit", "kafka send"),
    *(f"{what}Activity:{step}" for what in ("Start", "Run") for step in STEPS),
}
"""The spans of a cycle that expired a booking."""


async def _metrics(worker: WorkerProcess) -> dict[str, float]:
    """The series of a scrape."""
    return await _page((await worker.said("worker started"))["web"])


async def _page(web: str) -> dict[str, float]:
    async with aiohttp.ClientSession() as session, session.get(f"{web}/metrics") as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        lines = (await answer.text()).splitlines()
    series = [(name, float(value)) for name, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))]
    assert len(series) == len(dict(series)), "a series is there twice"
    return dict(series)


async def _due(admin: Admin) -> None:
    now = await floor.clock(admin)
    await floor.add(admin, 8, now - MINUTE)
    await floor.add(admin, 4, now - MINUTE, "Booked")


async def _are(found: list[Any], count: int) -> list[Any]:
    return found if len(found) >= count else []


def _consumer(world: World) -> Members:
    servers = world.servers["KAFKA_BOOTSTRAP_SERVERS"]
    market: Any = SimpleNamespace(database=world.database, topic=world.topic, servers=servers, group=world.name)
    return Members(market, world.folder)


@dataclass
class Traced:
    """A cycle that a collector, a consumer and the log saw to its end."""

    collector: Collector
    worker: WorkerProcess
    run_id: str | None
    headers: list[str]
    consumers_page: dict[str, float]


@pytest.fixture
async def traced(world: World, admin: Admin) -> AsyncIterator[Traced]:
    """One triggered cycle of 8 reserves and 4 bookings, traced from the tick to the chessboard."""
    await _due(admin)
    async with a_collector() as collector:
        exporting = {**FAST, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.address}
        worker = await world.start(**exporting)
        run = await world.trigger()
        await run.result()
        member = await _consumer(world).start(**exporting)
        await soon(lambda: _are(collector.named("chessboard apply"), 2), "the consumer's spans")
        page = await _page((await member.said("chessboard started"))["web"])
        assert [(await each.stop())[0] for each in (member, worker)] == [0, 0]
        rows = await admin.fetch("SELECT headers ->> 'traceparent' FROM crm.outbox")
        yield Traced(collector, worker, run.result_run_id, [row[0] for row in rows], page)


async def test_o3_one_trace_from_the_tick_to_the_consumer(traced: Traced) -> None:
    """O3, trap 17: workflow, activities, claim, write, commit, send and the consumer are one trace that began with the tick."""
    spans = traced.collector.spans
    assert len({span.trace_id for span in spans}) == 1
    [root] = [span for span in spans if not span.parent_span_id]
    assert (root.name, [event.name for event in root.events]) == ("RunWorkflow:BookingExpirationCycle", ["schedule tick"])
    assert 0 <= root.start_time_unix_nano - root.events[0].time_unix_nano < 10e9
    inside = {span.name: path_of(span, spans) for span in spans}
    transaction = [root.name, "StartActivity:expire_batch", "RunActivity:expire_batch", "transaction"]
    assert inside["claim"] == inside["write"] == transaction
    assert inside["chessboard apply"] == transaction[:3]
    assert inside["kafka send"] == [root.name, "StartActivity:publish_outbox", "RunActivity:publish_outbox"]
    assert inside["RunActivity:close_cycle"] == [root.name, "StartActivity:close_cycle"]
    assert transaction in [path_of(span, spans) for span in traced.collector.named("commit")]


async def test_o3_the_run_id_is_on_every_span_and_the_tenant_on_each_item(traced: Traced) -> None:
    """O3, D12: correlation id everywhere, one event per booking with its tenant, records that name the span they come from."""
    spans = traced.collector.spans
    assert {attributes(span).get("correlationId") for span in spans} == {traced.run_id}
    batches = traced.collector.named("RunActivity:expire_batch")
    lists = [listed(event) for span in batches for event in span.events if event.name == "bookings expired"]
    assert sorted(len(found["bookingId"]) for found in lists) == [4, 8]
    assert len({tenant for found in lists for tenant in found["tenantId"]}) == 12
    parents = {f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01" for span in batches}
    assert set(traced.headers) == parents
    services = {traced.collector.services[span.span_id] for span in traced.collector.named("chessboard apply")}
    assert services == {"chessboard"}
    assert {name for name in traced.consumers_page if "events_total" in name} == {
        f'crm_chessboard_events_total{{outcome="{outcome}"}}' for outcome in ("freed", "late", "duplicate", "set_aside")
    }


async def test_o1_log_lines_belong_to_their_span(traced: Traced) -> None:
    """O1, O3: lines of a cycle carry run, trace and span; no personal data or secret is on spans, and metrics were pushed too."""
    spans = {span.span_id.hex(): span for span in traced.collector.spans}
    lines = [line for line in traced.worker.lines() if line.get("run_id") == traced.run_id]
    assert {line["event"] for line in lines} >= {"cycle started", "booking expired", "records published", "cycle completed"}
    for line in lines:
        assert spans[line["span_id"]].trace_id.hex() == line["trace_id"]
    assert traced.collector.metrics >= {"crm_booking_expiration_items", "crm_outbox_backlog", "temporal_num_pollers"}
    assert traced.collector.temporality("crm_") == traced.collector.temporality("temporal_") == {2}
    assert traced.worker.err.read_text() == ""


async def test_pushed_metrics_of_two_workers_are_told_apart(world: World) -> None:
    """Issue 5, 1: ours and the SDK core's come from the same instance, each worker is one, and both heed the temporality."""
    async with a_collector() as collector:
        pushing = {**FAST, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.address, "OTEL_RESOURCE_ATTRIBUTES": "team=crm"}
        for _ in range(2):
            await world.start(**pushing, OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE="delta")

        async def both() -> bool:
            return len(collector.senders("temporal_num_pollers")) == len(collector.senders(f"{JOB}backlog")) == 2

        await soon(both, "metrics of two instances")
    assert collector.senders("temporal_num_pollers") == collector.senders(f"{JOB}backlog")
    assert {each[:2] for each in collector.senders("temporal_num_pollers")} == {("booking-expiration", VERSION)}
    assert collector.temporality("crm_") == collector.temporality("temporal_") == {1}
    assert {who.get("team") for who, _ in collector.pushed} == {"crm"}


async def test_what_the_core_cannot_push_stays_on_the_page(world: World, tmp_path: Path) -> None:
    """Trap 19: where a certificate is needed, or a compression asked for, the core's metrics are not pushed, and it is said."""
    installed("openssl", package="openssl")
    certificate = a_certificate(tmp_path)
    async with a_collector(certificate=certificate) as collector:
        asked = {"OTEL_EXPORTER_OTLP_CERTIFICATE": str(certificate), "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"}
        bare = {"REQUESTS_CA_BUNDLE": "", "CURL_CA_BUNDLE": ""}  # where the machine sets one, it would count more
        worker = await world.start(**FAST, **asked, **bare, OTEL_EXPORTER_OTLP_ENDPOINT=collector.address)

        async def arrived() -> bool:
            return f"{JOB}backlog" in collector.metrics

        await soon(arrived, "our own metrics")

        async def polling() -> bool:
            return any(name.startswith("temporal_num_pollers{") for name in await _metrics(worker))

        await soon(polling, "the core's metrics on the page")
    assert [line["because"] for line in worker.events("core metrics not pushed")] == [sorted(asked)]


async def test_sampling_by_the_standard_variables(world: World, admin: Admin) -> None:
    """Issue 5, 2: a trace that is not sampled is sent by nobody, and the record tells the consumer so."""
    await _due(admin)
    async with a_collector() as collector:
        worker = await world.start(
            **FAST, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"{collector.address}/v1/traces", OTEL_TRACES_SAMPLER="always_off"
        )
        await world.result()
        await worker.stop()
    assert collector.spans == []
    sampled = await admin.fetch("SELECT DISTINCT right(headers ->> 'traceparent', 2) FROM crm.outbox")
    assert [row[0] for row in sampled] == ["00"]


async def test_a_sampled_trace_is_whole(world: World, admin: Admin) -> None:
    """Issue 5, 2: of each cycle all spans are sent or none, as its trace id decides and its records tell the consumer."""
    sampling = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.5"}
    async with a_collector() as collector:
        worker = await world.start(**FAST, **sampling, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"{collector.address}/v1/traces")
        for _ in range(8):
            await floor.add(admin, 1, await floor.clock(admin) - MINUTE)
            await world.result()
        await worker.stop()
    headers = [row[0].split("-") for row in await admin.fetch("SELECT headers ->> 'traceparent' FROM crm.outbox")]
    sampled = {trace_id for _, trace_id, _, flags in headers if flags == "01"}
    assert sampled == {trace_id for _, trace_id, *_ in headers if int(trace_id[16:], 16) < 2**63}
    assert sampled == {span.trace_id.hex() for span in collector.spans}
    for trace_id in sampled:
        assert {span.name for span in collector.spans if span.trace_id.hex() == trace_id} == WHOLE
    assert len(headers) == 8


@pytest.mark.parametrize(
    ("how", "given", "signals"),
    [
        ("nobody there", {}, ["core metrics", "metrics", "traces"]),
        pytest.param("silent", {}, ["core metrics"], marks=pytest.mark.slow),
        pytest.param("silent", {"OTEL_EXPORTER_OTLP_TIMEOUT": "1"}, ["metrics", "traces"], marks=pytest.mark.slow),
    ],
)
async def test_an_unreachable_collector_costs_nothing(
    world: World, admin: Admin, *, how: str, given: dict[str, str], signals: list[str]
) -> None:
    """Issue 5, 2: cycles are as quick as ever, the outage is said once per signal and no more, and the stop is in time."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = NOWHERE if how == "nobody there" else f"http://127.0.0.1:{silent.getsockname()[1]}"
        worker = await world.start(**FAST, OTEL_EXPORTER_OTLP_ENDPOINT=address, **given)
        await _due(admin)
        results = [await world.result() for _ in range(3)]
        await asyncio.gather(*(worker.said("collector unavailable", signal=signal) for signal in signals))
        await asyncio.sleep(2.5)  # for attempts enough to be said more than once
        code, seconds = await worker.stop()
    assert [result["ReserveExpiredCount"] for result in results] == [8, 0, 0]
    assert max(result["DurationMs"] for result in results[1:]) < 1000
    assert (code, worker.err.read_text(), seconds < 6) == (0, "", True)
    said = [line["signal"] for line in worker.events("collector unavailable")]
    assert len(said) == len(set(said))
    assert [line["because"] for line in worker.events("core metrics not pushed")] == [[name] for name in given]
    assert [line for line in worker.lines() if "logger" in line] == []


async def test_o2_metrics_after_a_cycle(world: World, admin: Admin) -> None:
    """O2, trap 19: a scrape of a worker, the SDK core's metrics included, agrees with what a cycle did and left behind."""
    await _due(admin)
    poison = await floor.add(admin, 1, await floor.clock(admin) - MINUTE)
    await floor.poison(admin, poison)
    worker = await world.start(**FAST)
    before = await _metrics(worker)
    assert (
        before[f"{JOB}backlog"],
        before[f'{JOB}items_total{{phase="Reserve"}}'],
        before[f"{JOB}cycle_duration_seconds_count"],
    ) == (13, 0, 0)
    await world.result()
    await asyncio.sleep(0.7)
    after = await _metrics(worker)
    counted = {
        f'{JOB}items_total{{phase="Reserve"}}': 8, f'{JOB}items_total{{phase="Booking"}}': 4, f"{JOB}skip_locked_total": 0,
        f'{JOB}errors_total{{kind="item"}}': 1, f"{JOB}backlog": 1, f"{JOB}poison_bookings": 1,
        f"{JOB}cycle_duration_seconds_count": 1, f"{JOB}deadline_to_expired_seconds_count": 12,
        'crm_outbox_published_total{result="published"}': 12, "crm_outbox_commit_to_published_seconds_count": 12,
        f'{JOB}paused{{what="schedule"}}': 1, f'{JOB}schema_info{{version="{max(migrations.known())}"}}': 1,
    }  # fmt: skip
    assert {name: after[name] for name in counted} == counted
    assert 12 * 60 < after[f"{JOB}deadline_to_expired_seconds_sum"] < 12 * 75
    assert abs(time.time() - after[f"{JOB}last_success_timestamp_seconds"]) < 5
    assert any(name.startswith("temporal_num_pollers{") for name in after)
    assert [name for name in after if "service_instance_id" in name] == [], "a scrape names the instance already"


async def test_o2_every_instance_shows_the_same(world: World, admin: Admin) -> None:
    """O2, D24: what comes from the database is the same on a worker that has run no cycle as on the one that ran all of them."""
    await _due(admin)
    worked = await world.start(**FAST)
    await world.result()
    idle = await world.start(**FAST)
    await asyncio.sleep(0.7)
    shared = re.compile(r"backlog|last_success|poison|parked|paused|schema_info|outbox_oldest|missed")
    pages = [
        {name: value for name, value in (await _metrics(worker)).items() if shared.search(name)} for worker in (worked, idle)
    ]
    assert pages[0] == pages[1]
    assert pages[0][f"{JOB}last_success_timestamp_seconds"] > 0
