"""What the worker says about itself: set-up, and one function per domain moment. Nobody else touches a logger or a counter.

| moment | log event | level | fields |
|---|---|---|---|
| `cycle_started` | cycle started | info | as_of, reserve_backlog, booking_backlog |
| `batch_selected` | batch selected | info | phase, count |
| `booking_expired` | booking expired | info | booking_id, deal_id, phase, tenant_id |
| `item_failed` | item failed | error | booking_id, phase, exception |
| `batch_committed` | batch committed | info | phase, expired, skipped_locked, poison |
| `batch_repeated` | batch already committed | warning | phase, expired |
| `records_published` | records published | info | count |
| `record_parked` | record parked | error | event_id, booking_id, reason |
| `broker_unavailable` | broker unavailable | warning | reason |
| `step_failed` | step failed | error | step, error, retryable |
| `cycle_completed` | cycle completed | info, else warning | outcome, counts, duration_ms, skipped_locked, failures |
| `worker_*`, `schedule_*`, `search_attributes_missing` | worker …, schedule … | info or warning | see below |

Every line has `timestamp` (UTC), `level`, `event` and, inside a cycle, `run_id`: the correlation id (A1, O3). No personal data.
A library's line also has `logger`: who speaks.
"""

import logging
import sys
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog
from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

_log: structlog.stdlib.BoundLogger = structlog.get_logger("booking-expiration")


def configure(level: str = "INFO") -> None:
    """Log JSON to standard output, or readable colours when that is a terminal; libraries' logs in the same shape (O1)."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
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
    # `step_failed` says it, in one line and without a stack.
    logging.getLogger("temporalio.activity").setLevel(logging.ERROR)


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


def temporal_runtime() -> Runtime:
    """The SDK core, its own logs in our shape instead of ANSI text on standard output (trap 19)."""
    core = LoggingConfig(
        filter=TelemetryFilter(core_level="WARN", other_level="ERROR"),
        forwarding=LogForwardingConfig(logger=logging.getLogger("temporalio.core")),
    )
    return Runtime(telemetry=TelemetryConfig(logging=core))


def bind_run(run_id: str) -> None:
    """Put the job run id on every later line of this task (O3)."""
    structlog.contextvars.bind_contextvars(run_id=run_id)


def cycle_started(as_of: datetime, reserve_backlog: int, booking_backlog: int) -> None:
    """A cycle read the clock; backlogs in bookings."""
    _log.info("cycle started", as_of=as_of.isoformat(), reserve_backlog=reserve_backlog, booking_backlog=booking_backlog)


def batch_selected(phase: str, count: int) -> None:
    """A batch claimed `count` due bookings."""
    _log.info("batch selected", phase=phase, count=count)


def booking_expired(booking_id: UUID, deal_id: UUID, phase: str, tenant_id: UUID) -> None:
    """A booking's expiry is committed."""
    _log.info("booking expired", booking_id=booking_id, deal_id=deal_id, phase=phase, tenant_id=tenant_id)


def item_failed(booking_id: UUID, phase: str, reason: str) -> None:
    """A booking is poison: left out of its batch, still due (R5, D6)."""
    _log.error("item failed", booking_id=booking_id, phase=phase, exception=reason)


def batch_committed(phase: str, expired: int, skipped_locked: int, poison: int) -> None:
    """A batch is committed; counts in bookings."""
    _log.info("batch committed", phase=phase, expired=expired, skipped_locked=skipped_locked, poison=poison)


def batch_repeated(phase: str, expired: int) -> None:
    """An earlier attempt had committed this batch; the ledger answered and nothing was done (D7)."""
    _log.warning("batch already committed", phase=phase, expired=expired)


def records_published(count: int) -> None:
    """Kafka acknowledged `count` outbox records and the outbox says so."""
    _log.info("records published", count=count)


def record_parked(event_id: UUID, booking_id: UUID, reason: str) -> None:
    """Kafka can never take this record; it waits for an operator (D10)."""
    _log.error("record parked", event_id=event_id, booking_id=booking_id, reason=reason)


def broker_unavailable(reason: str) -> None:
    """Publishing gave up for this cycle; expiry is not affected (D10)."""
    _log.warning("broker unavailable", reason=reason)


def step_failed(step: str, error: str, *, retryable: bool) -> None:
    """One attempt at a step failed."""
    _log.error("step failed", step=step, error=error, retryable=retryable)


def cycle_completed(outcome: str, duration_ms: int, skipped_locked: int, counts: dict[str, Any], failures: list[str]) -> None:
    """A cycle is over, whatever its outcome (D24)."""
    log = _log.info if outcome == "completed" else _log.warning
    log(
        "cycle completed",
        outcome=outcome,
        counts=counts,
        duration_ms=duration_ms,
        skipped_locked=skipped_locked,
        failures=failures,
    )


def worker_started(task_queue: str, temporal: str, web: str) -> None:
    """The worker polls its task queue; `web` is the address of /livez and /readyz."""
    _log.info("worker started", task_queue=task_queue, temporal=temporal, web=web)


def worker_waiting(what: str, reason: str) -> None:
    """A server that the worker cannot start without does not answer yet."""
    _log.warning("worker waiting", what=what, reason=reason)


def worker_stopping(signal: str) -> None:
    """A stop was asked for: no new work, the batch in hand is finished (L5)."""
    _log.info("worker stopping", signal=signal)


def worker_stopped() -> None:
    """Everything in hand was finished or rolled back whole."""
    _log.info("worker stopped")


def worker_hung(seconds: float) -> None:
    """The stop took too long; the watchdog ends the process."""
    _log.error("worker hung", seconds=seconds)


def schedule_ensured(schedule_id: str, change: str) -> None:
    """The schedule stands as the code wants it; `change` is created, updated or unchanged (D1)."""
    _log.info("schedule ensured", schedule_id=schedule_id, change=change)


def search_attributes_missing(names: list[str]) -> None:
    """These search attributes are not registered and will not be set (D28)."""
    _log.warning("search attributes missing", names=names, advice="temporal operator search-attribute create --name … --type …")
