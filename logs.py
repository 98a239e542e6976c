"""How the log looks: one JSON object a line, from us and from libraries alike (O1). What is said is telemetry.py's business."""

import logging
import sys
from typing import Any

import structlog
from opentelemetry import trace


def configure(level: str = "INFO") -> None:
    """Log JSON to standard output, or readable colours when that is a terminal; libraries' logs in the same shape (O1)."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _traced,
        _readable_first,
    ]
    last: list[Any] = (
        [_harmless, structlog.dev.ConsoleRenderer()] if sys.stdout.isatty() else [structlog.processors.JSONRenderer(default=str)]
    )
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    logging.captureWarnings(True)
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("booking-expiration").setLevel(level)
    # aiokafka repeats an unreachable broker several times a second; `broker_unavailable` says it once per attempt.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    # The exporters repeat an unreachable collector with every attempt; `collector_unavailable` says it once per outage.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    # `step_failed` says it, in one line and without a stack.
    logging.getLogger("temporalio.activity").setLevel(logging.ERROR)


def _traced(_logger: Any, _name: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Trace and span, where there is a trace (O3)."""
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"], event["span_id"] = f"{context.trace_id:032x}", f"{context.span_id:016x}"
    return event


def _readable_first(_logger: Any, _name: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """When, how bad and what, at the start of every line."""
    first = ("timestamp", "level", "event")
    return {**{key: event[key] for key in first if key in event}, **event}


def _harmless(_logger: Any, _name: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """No escape sequence in data reaches a terminal; a stack trace keeps its lines. JSON needs none of this."""
    for key, value in event.items():
        if isinstance(value, str):
            kept = "\n" if key == "exception" else ""
            event[key] = "".join(c if c.isprintable() or c in kept else ascii(c)[1:-1] for c in value)
    return event
