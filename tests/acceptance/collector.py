"""A collector as OpenTelemetry's exporters expect one: takes OTLP over HTTP and keeps the spans and the metrics."""

import ssl
import subprocess
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass
class Collector:
    """What arrived so far."""

    address: str = ""
    spans: list[Span] = field(default_factory=list)
    services: dict[bytes, str] = field(default_factory=dict)
    pushed: list[tuple[dict[str, str], Metric]] = field(default_factory=list)
    """Every metric that arrived, behind who sent it: the attributes of its resource."""

    @property
    def metrics(self) -> set[str]:
        """The names of all metrics that arrived."""
        return {metric.name for _, metric in self.pushed}

    def senders(self, metric: str) -> set[tuple[str, ...]]:
        """Who sent this metric: service, version, instance."""
        names = ("service.name", "service.version", "service.instance.id")
        return {tuple(who.get(name, "") for name in names) for who, each in self.pushed if each.name == metric}

    def temporality(self, prefix: str) -> set[int]:
        """How sums and histograms whose names begin so are counted: 1 is since the last push, 2 since the start."""
        kept = [metric for _, metric in self.pushed if metric.name.startswith(prefix)]
        return {int(metric.sum.aggregation_temporality or metric.histogram.aggregation_temporality) for metric in kept} - {0}

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
            who = attributes(resource.resource)
            self.pushed += [(who, metric) for scope in resource.scope_metrics for metric in scope.metrics]
        return web.Response()


def attributes(span: Any) -> dict[str, Any]:
    """The attributes of a span, an event or a resource, as text."""
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


def a_certificate(folder: Path) -> Path:
    """A certificate for 127.0.0.1 that nobody else trusts, with its key beside it. Needs openssl."""
    made = folder / "collector.crt"
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(made.with_suffix(".key")), "-out", str(made)]
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *name, *files]
    subprocess.run(request, check=True, capture_output=True)
    return made


@asynccontextmanager
async def a_collector(port: int = 0, certificate: Path | None = None) -> AsyncIterator[Collector]:
    """A collector on a port, else a free one; with a certificate it speaks TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if certificate else None
    if certificate and context:
        context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    collector, app = Collector(), web.Application()
    app.add_routes([web.post("/v1/traces", collector._traces), web.post("/v1/metrics", collector._metrics)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
    collector.address = f"http{'s' if certificate else ''}://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield collector
    finally:
        await runner.cleanup()
