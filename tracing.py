"""Spans: what takes time, where it belongs, and how a trace goes on through the outbox to the consumer (O3)."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import datetime
from typing import Final
from uuid import UUID

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import Span, SpanProcessor
from opentelemetry.util.types import AnyValue
from temporalio import activity, workflow
from temporalio.common import SearchAttributeKey

_tracer: Final = trace.get_tracer("booking-expiration")
_TRACEPARENT: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_IN_HEADERS: Final = re.compile(rf'"traceparent": ?"{_TRACEPARENT.pattern}"')
_TICK: Final = SearchAttributeKey.for_datetime("TemporalScheduledStartTime")
_MAX_LINKS: Final = 100


@contextmanager
def span(name: str) -> Iterator[None]:
    """A part of the work that takes time; without a trace it costs next to nothing.

    Of an error only the kind is kept: a driver's text may quote the row.
    """
    with _tracer.start_as_current_span(name, record_exception=False, set_status_on_exception=False) as current:
        try:
            yield
        except Exception as error:
            current.set_status(trace.StatusCode.ERROR, type(error).__name__)
            raise


def traceparent() -> str | None:
    """The present trace as a W3C header, for the outbox record and so for the consumer; None when there is none (D12)."""
    context = trace.get_current_span().get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}" if context.is_valid else None


def sending(headers: Sequence[str]) -> AbstractContextManager[trace.Span]:
    """A send to Kafka; `headers` are the records' JSON texts. Records of other cycles are linked to the traces they come from."""
    here = trace.get_current_span().get_span_context()
    found = {match[1]: match for text in headers if (match := _IN_HEADERS.search(text))} if here.trace_flags.sampled else {}
    links = [trace.Link(_remote(match)) for trace_id, match in found.items() if trace_id != f"{here.trace_id:032x}"]
    attributes: dict[str, AnyValue] = {
        "messaging.system": "kafka",
        "messaging.operation.type": "send",
        "messaging.batch.message_count": len(headers),
    }
    return _tracer.start_as_current_span(
        "kafka send", kind=trace.SpanKind.PRODUCER, attributes=attributes, links=links[:_MAX_LINKS]
    )


@contextmanager
def consuming(name: str, records: Iterable[tuple[str | None, str | None]]) -> Iterator[None]:
    """A consumer's work on records, given by `traceparent` and correlation id: one span in each trace that they come from."""
    parents = {parent: run_id for parent, run_id in records if parent}
    with ExitStack() as opened:
        for parent, run_id in parents.items():
            if match := _TRACEPARENT.fullmatch(parent):
                above = trace.set_span_in_context(trace.NonRecordingSpan(_remote(match)), Context())
                attributes = {"messaging.system": "kafka", "correlationId": run_id or ""}
                opened.enter_context(_tracer.start_as_current_span(name, above, trace.SpanKind.CONSUMER, attributes))
        yield


def _remote(match: "re.Match[str]") -> trace.SpanContext:
    return trace.SpanContext(
        int(match[1], 16), int(match[2], 16), is_remote=True, trace_flags=trace.TraceFlags(int(match[3], 16))
    )


def expired(bookings: Iterable[UUID], tenants: Iterable[UUID]) -> None:
    """What this activity expired, and whose. One event with lists: one per booking would cost five times as much."""
    if (current := trace.get_current_span()).is_recording():
        lists = {"bookingId": [str(each) for each in bookings], "tenantId": [str(each) for each in tenants]}
        current.add_event("bookings expired", lists)


class Correlation(SpanProcessor):
    """Puts the job run id on every span of a cycle, and the moment of the schedule's tick on the first (O3)."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:  # noqa: ARG002 # the interface
        """Called by the SDK, also inside workflows; only reads."""
        if workflow.in_workflow():
            span.set_attribute("correlationId", workflow.info().run_id)
            tick = workflow.info().typed_search_attributes.get(_TICK)
            if isinstance(tick, datetime) and span.parent is None:
                span.add_event("schedule tick", timestamp=int(tick.timestamp() * 1e9))
        elif activity.in_activity():
            span.set_attribute("correlationId", activity.info().workflow_run_id or "")
