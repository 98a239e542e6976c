"""What is pushed by OTLP, by whom, and what is said when it does not arrive (O2, O3, trap 19)."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import settings
from devstack import ports
from tests.acceptance.collector import a_collector
from tests.acceptance.process import ROOT, WorkerProcess

PUSHING = """
import time, exporting, settings, telemetry
telemetry.configure()
exporting._ITS_LIMIT = 5
exporting.WorkerExporting(settings.opentelemetry()).runtime().metric_meter.create_counter("pushed").add(1)
time.sleep(300)
"""
"""A process of its own: of several cores in one process only the first one's logs are forwarded."""


@pytest.mark.parametrize(
    ("given", "pushed"),
    [
        ({}, (False, False)),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, (True, True)),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_METRICS_EXPORTER": "prometheus"}, (True, False)),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"}, (False, False)),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "c", "OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "True"}, (False, False)),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, (True, False)),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "https://u:p@c.example/otlp/"}, (True, True)),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://[::1]:65535"}, (True, True)),
        ({"OTEL_METRICS_EXPORTER": "prometheus,otlp", "OTEL_TRACES_EXPORTER": "none"}, (False, True)),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL": "grpc"}, (True, True)),
    ],
)
def test_the_standard_variables_say_what_is_pushed(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], pushed: tuple[bool, bool]
) -> None:
    """Issue 5, 1 and 2: exporters and endpoints by their standard names; without any nothing is pushed."""
    monkeypatch.setattr(os, "environ", given)
    push = settings.opentelemetry()
    assert (push.traces, push.metrics) == pushed


def test_the_sdk_core_pushes_to_the_same_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap 19: address, headers and interval of the SDK core's exporter are those that the standard variables give ours."""
    given = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/",
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Basic%20a+b==,x=1",
        "OTEL_METRIC_EXPORT_INTERVAL": "15000",
    }
    monkeypatch.setattr(os, "environ", given)
    push = settings.opentelemetry()
    assert (push.metrics_url, push.metrics_interval) == ("http://c:4318/v1/metrics", 15)
    assert push.metrics_headers == {"authorization": "Basic a+b==", "x": "1"}
    assert "Basic" not in repr(push)


@pytest.mark.parametrize(
    ("name", "value", "advice"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "must be http/protobuf"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", "must be http/protobuf"),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc", "must be http/protobuf"),
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "deltas", "must be cumulative, delta or lowmemory"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318", "must be a URL; for example http://collector:4318"),
        ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://a collector/v1/metrics", "must be a URL"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:port", "must be a URL"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:99999", "must be a URL"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://:4318", "must be a URL"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://[::1", "must be a URL"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://<collector>:4318", "must be a URL"),
        ("OTEL_METRICS_EXPORTER", "otlp,console", "must be of otlp, prometheus, none"),
        ("OTEL_TRACES_EXPORTER", "jaeger", "must be of otlp, none"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "1m", "must be milliseconds"),
    ],
)
def test_what_cannot_be_pushed_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str, advice: str
) -> None:
    """Issue 3, 8: a variable that would silently do nothing ends the start with its name and what to do."""
    monkeypatch.setattr(os, "environ", {name: value})
    with pytest.raises(SystemExit):
        settings.opentelemetry()
    assert capsys.readouterr().err.startswith(f"settings: {name}: {advice}")


@pytest.mark.parametrize("name", ["CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY", "COMPRESSION", "TIMEOUT"])
@pytest.mark.parametrize("value", ["1", ""])
@pytest.mark.parametrize(("signal", "beyond"), [("", True), ("METRICS_", True), ("TRACES_", False)])
def test_what_the_sdk_core_cannot_do_keeps_it_from_pushing(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, *, signal: str, beyond: bool
) -> None:
    """Trap 19: the core would fail over these, or take a timeout for milliseconds; what is for traces does not concern it."""
    given = f"OTEL_EXPORTER_OTLP_{signal}{name}"
    monkeypatch.setattr(os, "environ", {given: value})
    assert settings.opentelemetry().beyond_the_core == ([given] if beyond else [])


@pytest.mark.parametrize(("given", "delta"), [(None, False), ("cumulative", False), ("Delta", True), ("lowmemory", True)])
def test_the_sdk_core_counts_as_ours_do(monkeypatch: pytest.MonkeyPatch, given: str | None, *, delta: bool) -> None:
    """Issue 5, 1: the temporality that was asked for, in any case; the core has only instruments that `lowmemory` makes delta."""
    name = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
    monkeypatch.setattr(os, "environ", {name: given} if given else {})
    assert settings.opentelemetry().metrics_delta is delta


@pytest.fixture
async def pushing(tmp_path: Path) -> AsyncIterator[tuple[WorkerProcess, int]]:
    """A process with a worker's exporting and a real SDK core, which pushes to a port where nobody listens yet."""
    port = ports.choose()
    told = {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"http://127.0.0.1:{port}/v1/metrics", "OTEL_METRIC_EXPORT_INTERVAL": "200"}
    out, err = tmp_path / "out", tmp_path / "err"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PUSHING, cwd=ROOT, env={**os.environ, **told}, stdout=stdout, stderr=stderr
        )
    yield WorkerProcess(process, out, err), port
    if process.returncode is None:
        process.kill()
    await process.wait()


@pytest.mark.slow
async def test_an_outage_of_the_sdk_cores_push_is_said_once(pushing: tuple[WorkerProcess, int]) -> None:
    """Issue 5, 2: the core repeats an outage with every attempt; the log has its beginning and its end, in our words."""
    process, port = pushing
    await process.said("collector unavailable", signal="core metrics")
    await asyncio.sleep(1)
    assert process.events("collector back") == []
    async with a_collector(port) as collector:
        await process.said("collector back", signal="core metrics")
        assert "pushed" in collector.metrics
        said = [line for line in process.lines() if line.get("signal") == "core metrics"]
        assert [line["event"] for line in said] == ["collector unavailable", "collector back"]
    assert [line for line in process.lines() if "logger" in line] == []
