"""A collector as OpenTelemetry's exporters expect one: takes OTLP over HTTP and keeps the spans and the names of metrics."""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass
class Collector:
    """What arrived so far."""

    address: str = ""
    spans: list[Span] = field(default_factory=list)
    services: dict[bytes, str] = field(default_factory=dict)
    metrics: set[str] = field(default_factory=set)

    def named(self, name: str) -> list[Span]:
        """The spans of this name."""
        return [span for span in self.spans if span.name == name]

    def tree(self, trace_id: bytes) -> str:
        """One trace as text: indented names with milliseconds."""
        below: dict[bytes, list[Span]] = defaultdict(list)
        for span in sorted(self.spans, key=lambda span: span.start_time_unix_nano):
            if span.trace_id == trace_id:
                below[span.parent_span_id].append(span)

        def lines(parent: bytes, depth: int) -> list[str]:
            found = []
            for span in below[parent]:
                took = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e6
                found += [f"{'  ' * depth}{span.name}  {took:.1f} ms", *lines(span.span_id, depth + 1)]
            return found

        return "\n".join(lines(b"", 0))

    async def _traces(self, request: web.Request) -> web.Response:
        for resource in ExportTraceServiceRequest.FromString(await request.read()).resource_spans:
            service = next(pair.value.string_value for pair in resource.resource.attributes if pair.key == "service.name")
            found = [span for scope in resource.scope_spans for span in scope.spans]
            self.spans += found
            self.services |= {span.span_id: service for span in found}
        return web.Response()

    async def _metrics(self, request: web.Request) -> web.Response:
        for resource in ExportMetricsServiceRequest.FromString(await request.read()).resource_metrics:
            self.metrics |= {metric.name for scope in resource.scope_metrics for metric in scope.metrics}
        return web.Response()


def attributes(span: Any) -> dict[str, Any]:
    """A span's or an event's attributes, as text."""
    return {pair.key: pair.value.string_value for pair in span.attributes}


def listed(event: Any) -> dict[str, list[str]]:
    """An event's lists."""
    return {pair.key: [each.string_value for each in pair.value.array_value.values] for pair in event.attributes}


def path_of(span: Span, spans: Iterable[Span]) -> list[str]:
    """The names of the spans around a span, outermost first."""
    by_id, names = {each.span_id: each for each in spans}, []
    while span.parent_span_id:
        span = by_id[span.parent_span_id]
        names.append(span.name)
    return names[::-1]


@asynccontextmanager
async def a_collector() -> AsyncIterator[Collector]:
    """A collector on a free port."""
    collector, app = Collector(), web.Application()
    app.add_routes([web.post("/v1/traces", collector._traces), web.post("/v1/metrics", collector._metrics)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    collector.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield collector
    finally:
        await runner.cleanup()
