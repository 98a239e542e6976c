"""What the chessboard says about itself: one function per moment. Nobody else here touches a logger or a counter.

| moment | log event | level | fields |
|---|---|---|---|
| `started`, `stopped` | chessboard started, … stopped | info | topic, group, web |
| `partitions_assigned`, `partitions_revoked` | partitions assigned, … revoked | info | partitions |
| `batch_applied` | batch applied | info | partition, offset, freed, late, duplicate, set_aside, lag |
| `object_freed` | object freed | info | object_id, booking_id, event_id |
| `event_late` | event late | warning | object_id, booking_id, event_id |
| `record_set_aside` | record set aside | error | partition, offset, reason, detail |
| `database_unavailable`, `database_back` | database unavailable, … back | error, info | reason; seconds |
| `kafka_unavailable` | kafka unavailable | error | reason |
| `offsets_not_committed` | offsets not committed | warning | reason |
| `records_missing` | records missing | error | partition, expected, found |

A set-aside record and the lag in records are what the chessboard's team can alert on (README, Watching it). Metrics, by
OpenTelemetry's API, on `/metrics` of the process: `crm_chessboard_events_total{outcome}` and `crm_chessboard_lag{partition}`.
"""

import logging
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Final
from uuid import UUID

import structlog
from opentelemetry import metrics

import telemetry
import tracing
from chessboard.record import Record

_log: structlog.stdlib.BoundLogger = structlog.get_logger("chessboard")
_meter = metrics.get_meter("chessboard")
_events: Final = _meter.create_counter("crm_chessboard_events", description="records by what they did")
_lag: Final = _meter.create_gauge("crm_chessboard_lag", description="records of a partition that are not applied yet")


def configure(level: str) -> None:
    """Log in the same shape as the worker does."""
    telemetry.configure(level)
    logging.getLogger("chessboard").setLevel(level)


def count_from_zero() -> None:
    """Show each outcome from the first scrape: an alert cannot see a series rise that was not there."""
    for outcome in ("freed", "late", "duplicate", "set_aside"):
        _events.add(0, {"outcome": outcome})


def started(topic: str, group: str, web: str) -> None:
    """The process is up; partitions follow."""
    _log.info("chessboard started", topic=topic, group=group, web=web)


def stopped() -> None:
    """What was in hand is committed whole or rolled back whole."""
    _log.info("chessboard stopped")


def partitions_assigned(partitions: Iterable[int]) -> None:
    """The group gave this member these partitions."""
    _log.info("partitions assigned", partitions=sorted(partitions))


def partitions_revoked(partitions: Iterable[int]) -> None:
    """The group is about to share its partitions anew."""
    _log.info("partitions revoked", partitions=sorted(partitions))


def applying(records: Sequence[Record]) -> AbstractContextManager[None]:
    """A batch's transaction, as a span in each cycle's trace that its records come from."""
    return tracing.consuming(
        "chessboard apply", [(record.header("traceparent"), record.header("CorrelationId")) for record in records]
    )


def batch_applied(partition: int, offset: int, counts: dict[str, int], lag: int | None) -> None:
    """A batch is committed in the database; `offset` is its last record's, counts and lag are in records."""
    for outcome, count in counts.items():
        _events.add(count, {"outcome": outcome})
    if lag is not None:
        _lag.set(lag, {"partition": str(partition)})
    _log.info("batch applied", partition=partition, offset=offset, **counts, lag=lag)


def object_freed(object_id: UUID, booking_id: UUID, event_id: UUID) -> None:
    """A property object is open for sale again (P3)."""
    _log.info("object freed", object_id=object_id, booking_id=booking_id, event_id=event_id)


def event_late(object_id: UUID, booking_id: UUID, event_id: UUID) -> None:
    """The booking did not hold the object any more; nothing changed (D17)."""
    _log.warning("event late", object_id=object_id, booking_id=booking_id, event_id=event_id)


def record_set_aside(partition: int, offset: int, reason: str, detail: str) -> None:
    """A record means nothing to us; it waits for an operator, and the partition goes on (D17)."""
    _log.error("record set aside", partition=partition, offset=offset, reason=reason, detail=detail)


def database_unavailable(reason: str) -> None:
    """Consumption pauses; nothing is skipped (D17)."""
    _log.error("database unavailable", reason=reason)


def database_back(seconds: float) -> None:
    """A batch was committed again, after so long."""
    _log.info("database back", seconds=round(seconds, 1))


def kafka_unavailable(reason: str) -> None:
    """The member was lost or could not join; a new one joins from the committed offsets."""
    _log.error("kafka unavailable", reason=reason)


def offsets_not_committed(reason: str) -> None:
    """The database is ahead of the group's offsets: the same records may come again, which changes nothing (D11)."""
    _log.warning("offsets not committed", reason=reason)


def records_missing(partition: int, expected: int, found: int) -> None:
    """Kafka went on at a later offset: retention deleted records before anybody had read them."""
    _log.error("records missing", partition=partition, expected=expected, found=found)
