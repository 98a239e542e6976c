"""Traces change no command: what ran with them replays without, and the other way round (trap 17, design card)."""

import asyncio

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from temporalio.client import Client
from temporalio.contrib.opentelemetry import OpenTelemetryPlugin, create_tracer_provider
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer

from operators.replaying.replay import ours
from tests.workflow.gate import NAMES, history
from tests.workflow.steps import Steps, running, start
from tracing import Correlation
from workflows.sandbox import guarded_runner


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Tracing as the worker has it, for this test alone; what was traced stays here."""
    exporter, provider = InMemorySpanExporter(), create_tracer_provider(shutdown_on_exit=False)
    provider.add_span_processor(Correlation())
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    return exporter


def _replayer(*, traced: bool) -> Replayer:
    return Replayer(
        workflows=ours(),
        data_converter=pydantic_data_converter,
        workflow_runner=guarded_runner(),
        plugins=[OpenTelemetryPlugin(add_temporal_spans=True)] if traced else [],
    )


@pytest.mark.parametrize("name", NAMES)
def test_recorded_histories_replay_with_traces(name: str, spans: InMemorySpanExporter) -> None:
    """Traps 1, 17: runs from before there were traces replay with them, in the guarded sandbox, and are not traced again."""
    asyncio.run(_replayer(traced=True).replay_workflow(history(name)))
    assert spans.get_finished_spans() == ()


@pytest.mark.parametrize("traced", [True, False])
async def test_a_traced_run_replays(client: Client, spans: InMemorySpanExporter, *, traced: bool) -> None:
    """Trap 17: a run with traces replays on workers with and without them; its spans were made once."""
    config = client.config()
    config["plugins"] = [OpenTelemetryPlugin(add_temporal_spans=True)]
    async with running(Client(**config), Steps()) as queue:
        handle = await start(client, queue)
        await handle.result()
    names = [span.name for span in spans.get_finished_spans()]
    assert names.count("RunWorkflow:BookingExpirationCycle") == 1
    assert names.count("StartActivity:expire_batch") == names.count("RunActivity:expire_batch") == 2
    await _replayer(traced=traced).replay_workflow(await handle.fetch_history())
    assert len(spans.get_finished_spans()) == len(names)
