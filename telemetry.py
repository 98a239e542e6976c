"""What the worker says about itself: one function per domain moment. Nobody else touches a logger, a counter or a span.

| moment | log event | level | fields |
|---|---|---|---|
| `cycle_started` | cycle started | info | as_of, reserve_backlog, booking_backlog |
| `cycle_held` | cycle held | error | due, hold_above, allowed, advice |
| `batch_selected` | batch selected | info | phase, count |
| `booking_expired` | booking expired | info | booking_id, deal_id, phase, tenant_id |
| `item_failed` | item failed | error | booking_id, phase, exception |
| `batch_committed` | batch committed | info | phase, expired, skipped_locked, poison |
| `batch_repeated` | batch already committed | warning | phase, expired |
| `records_published` | records published | info | count |
| `records_released` | records released | debug | count |
| `record_parked` | record parked | error | event_id, booking_id, reason |
| `broker_unavailable` | broker unavailable | warning | reason |
| `step_failed` | step failed | error | step, error, retryable |
| `cycle_completed` | cycle completed | info, else warning | outcome, counts, duration_ms, skipped_locked, failures |
| `gauges_unreadable` | gauges unreadable | warning | source, reason |
| `collector_unavailable` | collector unavailable | warning | signal |
| `collector_back` | collector back | info | signal |
| `core_not_pushed` | core metrics not pushed | warning | because, advice |
| `worker_started` | worker started | info | task_queue, temporal, web |
| `worker_waiting` | worker waiting | warning | what, reason |
| `worker_stopping` | worker stopping | info | signal |
| `worker_stopped` | worker stopped | info | |
| `worker_hung` | worker hung | error | seconds |
| `schedule_ensured` | schedule ensured | info | schedule_id, change |
| `search_attributes_missing` | search attributes missing | warning | names, advice |

Every line has `timestamp` (UTC), `level`, `event` and, inside a cycle, `run_id`: the correlation id (A1, O3); where there is a
trace also `trace_id` and `span_id`. No personal data. A library's line also has `logger`: who speaks.

| metric | type | labels | said by |
|---|---|---|---|
| `crm_booking_expiration_cycle_duration_seconds` | histogram | | `cycle_completed` |
| `crm_booking_expiration_items_total` | counter | phase | `batch_committed` |
| `crm_booking_expiration_skip_locked_total` | counter | | `batch_committed` |
| `crm_booking_expiration_batch_duration_seconds` | histogram | phase | `batch_committed` |
| `crm_booking_expiration_deadline_to_expired_seconds` | histogram | | `batch_committed` |
| `crm_booking_expiration_errors_total` | counter | kind | `item_failed`, `step_failed`, `record_parked`, `cycle_completed` |
| `crm_outbox_published_total` | counter | result | `records_published`, `records_released`, `record_parked` |
| `crm_outbox_commit_to_published_seconds` | histogram | | `records_published` |
| `crm_booking_expiration_backlog` | gauge | | `database_read` |
| `crm_booking_expiration_oldest_due_age_seconds` | gauge | phase | `database_read` |
| `crm_booking_expiration_last_success_timestamp_seconds` | gauge | | `database_read` |
| `crm_booking_expiration_poison_bookings` | gauge | | `database_read` |
| `crm_outbox_backlog` | gauge | | `database_read` |
| `crm_outbox_oldest_unpublished_age_seconds` | gauge | | `database_read` |
| `crm_outbox_parked` | gauge | | `database_read` |
| `crm_booking_expiration_schema_info` | gauge | version | `database_read` |
| `crm_booking_expiration_paused` | gauge | what | `database_read`, `schedule_read` |
| `crm_booking_expiration_missed_ticks_total` | counter | | `schedule_read` |
| `crm_booking_expiration_last_read_timestamp_seconds` | gauge | source | `database_read`, `schedule_read` |
| `crm_booking_expiration_pool_connections` | gauge | state | `pool_used` |
| `crm_booking_expiration_build_info` | gauge | version | `worker_built` |

| span | inside | covers |
|---|---|---|
| `transaction` | an activity | one transaction, with the wait for a connection |
| `claim` | `transaction` | selecting and locking due bookings |
| `write` | `transaction` | bookings, audit, cards and outbox records, one statement |
| `commit` | `transaction` | COMMIT |
| `kafka send` | `RunActivity:publish_outbox` | one claim of outbox records, until Kafka's yes |
| `chessboard apply` | `RunActivity:expire_batch` | the consumer's transaction with a batch's records, in its own process |

The Temporal SDK makes the spans around them: `RunWorkflow:BookingExpirationCycle` (the root), `StartActivity:…`, `RunActivity:…`.
Every span of a cycle has `correlationId`, the job run id; the root has an event `schedule tick` at the tick's own time, and
`RunActivity:expire_batch` an event `bookings expired` that lists `bookingId` and, in the same order, `tenantId`.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

import structlog

import logs
import metrics
import tracing

_log: structlog.stdlib.BoundLogger = structlog.get_logger("booking-expiration")
_KINDS: Final = {"expire_batch": "batch", "publish_outbox": "publish"}

configure = logs.configure
span, sending, traceparent = tracing.span, tracing.sending, tracing.traceparent


class Item(NamedTuple):
    """A booking whose expiry is committed; `delay`: seconds from its deadline (X8)."""

    booking_id: UUID
    tenant_id: UUID
    delay: float


def bind_run(run_id: str) -> None:
    """Put the job run id on every later line of this task (O3)."""
    structlog.contextvars.bind_contextvars(run_id=run_id)


def cycle_started(as_of: datetime, reserve_backlog: int, booking_backlog: int) -> None:
    """A cycle read the clock; backlogs in bookings."""
    _log.info("cycle started", as_of=as_of.isoformat(), reserve_backlog=reserve_backlog, booking_backlog=booking_backlog)


def cycle_held(due: int, hold_above: int, allowed: int) -> None:
    """More bookings are due at once than the safety catch allows: only `allowed` of them expire until somebody has looked."""
    advice = "look at the deadlines, then booking-expiration release-hold; runbooks/booking-expiration.md, Held"
    _log.error("cycle held", due=due, hold_above=hold_above, allowed=allowed, advice=advice)


def batch_selected(phase: str, count: int) -> None:
    """A batch claimed `count` due bookings."""
    _log.info("batch selected", phase=phase, count=count)


def booking_expired(phase: str, bookings: Iterable[tuple[UUID, UUID, UUID]]) -> None:
    """The expiry of these is committed, by booking, deal and tenant: a line each, all of a batch at once."""
    names, of = ("booking_id", "deal_id", "phase", "tenant_id"), str(phase)
    logs.each(_log, "booking expired", names, ((booking, deal, of, tenant) for booking, deal, tenant in bookings))


def item_failed(booking_id: UUID, phase: str, reason: str) -> None:
    """A booking is poison: left out of its batch, still due (R5, D6)."""
    metrics.now().errors.add(1, {"kind": "item"})
    _log.error("item failed", booking_id=booking_id, phase=phase, exception=reason)


def batch_committed(phase: str, expired: int, skipped_locked: int, poison: int, *, seconds: float, items: Sequence[Item]) -> None:
    """This attempt committed a batch; counts in bookings, `seconds` from its lock to its commit."""
    instruments, labels = metrics.now(), {"phase": str(phase)}  # an enum's hash is not its text's: it would be a second series
    instruments.items.add(expired, labels)
    instruments.skipped.add(skipped_locked)
    instruments.batch.record(seconds, labels)
    instruments.deadline.record(item.delay for item in items)
    tracing.expired([item.booking_id for item in items], [item.tenant_id for item in items])
    _log.info("batch committed", phase=phase, expired=expired, skipped_locked=skipped_locked, poison=poison)


def batch_repeated(phase: str, expired: int) -> None:
    """An earlier attempt had committed this batch; the ledger answered and nothing was done (D7)."""
    _log.warning("batch already committed", phase=phase, expired=expired)


def records_published(count: int, delays: Iterable[float]) -> None:
    """Kafka acknowledged `count` outbox records and the outbox says so; `delays` since their commit in seconds."""
    instruments = metrics.now()
    instruments.published.add(count, {"result": "published"})
    instruments.commit.record(delays)
    _log.info("records published", count=count)


def records_released(count: int) -> None:
    """So many outbox records were claimed and could not be sent; they go out later (D9)."""
    metrics.now().published.add(count, {"result": "unavailable"})
    _log.debug("records released", count=count)


def record_parked(event_id: UUID, booking_id: UUID, reason: str) -> None:
    """Kafka can never take this record; it waits for an operator (D10)."""
    metrics.now().published.add(1, {"result": "parked"})
    metrics.now().errors.add(1, {"kind": "publish"})
    _log.error("record parked", event_id=event_id, booking_id=booking_id, reason=reason)


def broker_unavailable(reason: str) -> None:
    """Publishing gave up for this cycle; expiry is not affected (D10)."""
    _log.warning("broker unavailable", reason=reason)


def step_failed(step: str, error: str, *, retryable: bool) -> None:
    """One attempt at a step failed; `step` begins with the activity's name."""
    metrics.now().errors.add(1, {"kind": _KINDS.get(step.partition(" ")[0], "cycle")})
    _log.error("step failed", step=step, error=error, retryable=retryable)


def cycle_completed(outcome: str, duration_ms: int, skipped_locked: int, counts: dict[str, Any], failures: list[str]) -> None:
    """A cycle is over, whatever its outcome (D24)."""
    metrics.now().cycle.record(duration_ms / 1000)
    if outcome == "failed":
        metrics.now().errors.add(1, {"kind": "cycle"})
    log = _log.info if outcome == "completed" else _log.warning
    log(
        "cycle completed",
        outcome=outcome,
        counts=counts,
        duration_ms=duration_ms,
        skipped_locked=skipped_locked,
        failures=failures,
    )


def database_read(
    *,
    at: datetime,
    backlog: int,
    oldest_due: Mapping[str, float],
    last_success: datetime | None,
    poison: int,
    outbox: tuple[int, float, int],
    schema: str,
    paused: Mapping[str, bool],
) -> None:
    """What any instance can read, in bookings and seconds; of the outbox: backlog, age of the oldest record, parked records."""
    board = metrics.now().board
    board.set("crm_booking_expiration_backlog", backlog)
    for phase, age in oldest_due.items():
        board.set("crm_booking_expiration_oldest_due_age", age, phase=phase)
    board.set("crm_booking_expiration_last_success_timestamp", last_success.timestamp() if last_success else 0)
    board.set("crm_booking_expiration_poison_bookings", poison)
    for name, value in zip(("backlog", "oldest_unpublished_age", "parked"), outbox, strict=True):
        board.set(f"crm_outbox_{name}", value)
    board.replace("crm_booking_expiration_schema_info", 1, version=schema)
    for what, is_so in paused.items():
        board.set("crm_booking_expiration_paused", is_so, what=what)
    board.set("crm_booking_expiration_last_read_timestamp", at.timestamp(), source="database")


def schedule_read(*, at: datetime, paused: bool, missed_ticks: int) -> None:
    """What the schedule says of itself: whether somebody paused it, and how many ticks did not become a cycle."""
    board = metrics.now().board
    board.set("crm_booking_expiration_paused", paused, what="schedule")
    board.set("crm_booking_expiration_missed_ticks", missed_ticks)
    board.set("crm_booking_expiration_last_read_timestamp", at.timestamp(), source="schedule")


def gauges_unreadable(source: str, reason: str) -> None:
    """From now on the gauges of this source are old; their last-read timestamp says how old. Said once per outage."""
    _log.warning("gauges unreadable", source=source, reason=reason)


def pool_used(in_use: int, idle: int, most: int) -> None:
    """This worker's connections to the database, just now."""
    for state, count in (("in_use", in_use), ("idle", idle), ("max", most)):
        metrics.now().board.set("crm_booking_expiration_pool_connections", count, state=state)


def collector_unavailable(signal: str) -> None:
    """Pushed traces or metrics do not arrive; nothing else is affected. Said once per outage."""
    _log.warning("collector unavailable", signal=signal)


def collector_back(signal: str) -> None:
    """They arrive again."""
    _log.info("collector back", signal=signal)


def core_not_pushed(because: Sequence[str]) -> None:
    """The SDK core's exporter cannot do what these variables ask, so its metrics are not pushed: they stay on /metrics."""
    _log.warning("core metrics not pushed", because=because, advice="scrape /metrics for temporal_*, or unset these variables")


def worker_built(version: str) -> None:
    """What runs here; for `…_build_info`, not for the log."""
    metrics.now().board.replace("crm_booking_expiration_build_info", 1, version=version)


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
