"""Where metrics and traces go: `/metrics` always; a collector, by OTLP, when the standard OTEL_* variables say so (O2, O3).

Whatever becomes of the collector, the work goes on: exporting has threads and limits of its own, and an outage is said once.
"""

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import aiohttp
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricReader, MetricsData, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from temporalio.client import Plugin
from temporalio.contrib.opentelemetry import OpenTelemetryPlugin, create_tracer_provider
from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    OpenTelemetryConfig,
    OpenTelemetryMetricTemporality,
    PrometheusConfig,
    Runtime,
    TelemetryConfig,
    TelemetryFilter,
)

import metrics
import telemetry
from settings import Push
from tracing import Correlation

VERSION: Final = "0.2.0"
"""Here, because the container's image has the files and no installed package to ask; a test compares it with pyproject.toml."""

FLUSH_LIMIT: Final = 2.0
"""Seconds that a stop waits for the collector to take the last spans and values."""

_ITS_EXPORTER: Final = "temporalio_common::telemetry::otel::metric_export"
"""Who says each attempt of the SDK core that failed, and nothing of one that went well."""

_ITS_LIMIT: Final = 10.0
"""Seconds that one attempt of it takes at most."""

_SCRAPE_LIMIT: Final = 1.0

_KEPT: Final[list[Runtime]] = []
"""The core panics when a runtime's last user is a connection attempt that was given up, so the process itself is the last one."""


class Exporting:
    """Traces of this process, from the moment it is made; `service` is its name where no OTEL_* variable gives another."""

    def __init__(self, push: Push, service: str) -> None:
        self._push = push
        self._resource = _resource(service)
        self._providers: list[Any] = []
        if push.traces:
            provider = create_tracer_provider(resource=self._resource, shutdown_on_exit=False)
            provider.add_span_processor(Correlation())
            provider.add_span_processor(BatchSpanProcessor(_Spans()))
            trace.set_tracer_provider(provider)
            self._providers.append(provider)

    async def stop(self) -> None:
        """Send what is left, within `FLUSH_LIMIT`: a collector that does not answer holds no stop up."""
        flushing = [threading.Thread(target=provider.shutdown, daemon=True) for provider in self._providers]
        for thread in flushing:
            thread.start()
        await asyncio.gather(*(asyncio.to_thread(thread.join, FLUSH_LIMIT) for thread in flushing))

    def _readers(self) -> list[MetricReader]:
        return [PeriodicExportingMetricReader(_Metrics())] if self._push.metrics else []


class MeteredExporting(Exporting):
    """The metrics too of a process that names its instruments by OpenTelemetry's own interface."""

    def __init__(self, push: Push, service: str) -> None:
        super().__init__(push, service)
        provider, self._registry = metrics.collecting(self._readers(), self._resource)
        set_meter_provider(provider)
        self._providers.append(provider)

    async def exposition(self) -> bytes:
        """What `/metrics` answers."""
        return metrics.exposition(self._registry)


class WorkerExporting(Exporting):
    """The worker's metrics too, and what the Temporal SDK has of both."""

    def __init__(self, push: Push) -> None:
        super().__init__(push, "booking-expiration")
        self._core: str | None = None
        self._providers.append(metrics.start(self._readers(), self._resource))
        telemetry.worker_built(VERSION)

    @property
    def plugins(self) -> list[Plugin]:
        """For the Temporal client: one trace per cycle, with real durations (trap 17)."""
        return [OpenTelemetryPlugin(add_temporal_spans=True)] if self._push.traces else []

    def runtime(self) -> Runtime:
        """The SDK core: its own metrics beside ours, its own logs in our shape instead of ANSI text on stdout (trap 19)."""
        forwarding = LogForwardingConfig(logger=logging.getLogger("temporalio.core"))
        forwarding.logger.addFilter(_CoreOutage(2 * (self._push.metrics_interval + _ITS_LIMIT)))
        logs = LoggingConfig(TelemetryFilter(core_level="WARN", other_level="ERROR"), forwarding)
        made = Runtime(telemetry=TelemetryConfig(logging=logs, metric_prefix="temporal_", **self._core_metrics()))
        _KEPT.append(made)
        return made

    def _core_metrics(self) -> dict[str, Any]:
        """The core has one exporter only: its metrics are pushed, or they are on a port of its own that `exposition` reads."""
        if self._push.metrics and not self._push.beyond_the_core:
            delta, cumulative = OpenTelemetryMetricTemporality.DELTA, OpenTelemetryMetricTemporality.CUMULATIVE
            pushed = OpenTelemetryConfig(
                url=self._push.metrics_url,
                headers=dict(self._push.metrics_headers),
                metric_periodicity=timedelta(seconds=self._push.metrics_interval),
                metric_temporality=delta if self._push.metrics_delta else cumulative,
                durations_as_seconds=True,
                http=True,
            )
            return {"metrics": pushed, "global_tags": {name: str(value) for name, value in self._resource.attributes.items()}}
        if self._push.metrics:
            telemetry.core_not_pushed(self._push.beyond_the_core)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._core = f"127.0.0.1:{free.getsockname()[1]}"
        on_a_port = PrometheusConfig(self._core, counters_total_suffix=True, unit_suffix=True, durations_as_seconds=True)
        return {"metrics": on_a_port}

    async def exposition(self) -> bytes:
        """What `/metrics` answers: ours, then the SDK core's."""
        return metrics.exposition() + (await _scraped(self._core) if self._core else b"")


def _resource(service: str) -> Resource:
    """Who speaks; every worker is an instance of its own, or pushed metrics of two would be taken for one's."""
    instance = f"{socket.gethostname()}-{os.getpid()}"
    ours = {"service.name": service, "service.version": VERSION, "service.instance.id": instance}
    return Resource(ours).merge(OTELResourceDetector().detect())


async def _scraped(address: str) -> bytes:
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_SCRAPE_LIMIT)) as session,
            session.get(f"http://{address}/metrics") as answer,
        ):
            return await answer.read()
    except (aiohttp.ClientError, TimeoutError):
        return b""


class _Outage:
    """Says an outage of the collector once, and its end; the SDK's own exporters would say each attempt."""

    def __init__(self, signal: str) -> None:
        self._signal = signal
        self._since_failing = False

    def note(self, *, well: bool) -> None:
        if well is self._since_failing:
            self._since_failing = not well
            (telemetry.collector_back if well else telemetry.collector_unavailable)(self._signal)


class _CoreOutage(logging.Filter):
    """The same for the SDK core: its exporter's lines go no further, and `patience` seconds without one end an outage."""

    def __init__(self, patience: float) -> None:
        super().__init__()
        self._outage, self._patience = _Outage("core metrics"), patience
        self._calm: threading.Timer | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Called by the SDK from a thread of its core."""
        if not record.name.endswith(_ITS_EXPORTER):
            return True
        if self._calm:
            self._calm.cancel()
        self._outage.note(well=False)
        self._calm = threading.Timer(self._patience, self._outage.note, kwargs={"well": True})
        self._calm.daemon = True
        self._calm.start()
        return False


class _Spans(OTLPSpanExporter):
    """OTLP over HTTP, as the OTEL_EXPORTER_OTLP_* variables describe it."""

    def __init__(self) -> None:
        super().__init__()
        self._outage = _Outage("traces")

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export(spans)
        self._outage.note(well=result is SpanExportResult.SUCCESS)
        return result


class _Metrics(OTLPMetricExporter):
    """The same for metrics."""

    def __init__(self) -> None:
        super().__init__()
        self._outage = _Outage("metrics")

    def export(self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **options: Any) -> MetricExportResult:
        result = super().export(metrics_data, timeout_millis, **options)
        self._outage.note(well=result is MetricExportResult.SUCCESS)
        return result
