"""The figures of X8, by the moments that stand in the rows, and their goals (D27)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

import asyncpg
from rich import box
from rich.table import Table

Admin: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
EXPIRED, SENT, FREE, OPEN_AGAIN = "deadline → expired", "expired → event in Kafka", "expired → object free", "deadline → free"
MINUTE: Final = 60.0
P99_FREE: Final = 2.0


class Span(NamedTuple):
    """One way from one moment to another: how many bookings went it, and percentiles of their seconds."""

    name: str
    bookings: int
    p50: float
    p95: float
    p99: float
    most: float


class Goal(NamedTuple):
    """One promise, and whether it was kept."""

    kept: bool
    text: str


# recorded_at, published_at and processed_at are the database's clock in the transactions that commit these facts; AsOf is not:
# it is the moment that a cycle began with.
_SPANS: Final = """
    WITH moments AS (
      SELECT CASE booking.status WHEN 'ReserveExpired' THEN booking.reserve_expires_at ELSE booking.booking_expires_at END AS due,
             event.recorded_at, event.published_at, processed.processed_at
        FROM crm.outbox AS event
             JOIN crm.bookings AS booking ON booking.id = event.aggregate_id
             LEFT JOIN chessboard.processed_events AS processed ON processed.event_id = event.event_id
    ), spans (number, name, seconds) AS (
      SELECT 1, 'deadline → expired', extract(epoch FROM recorded_at - due)::float8 FROM moments
      UNION ALL SELECT 2, 'expired → event in Kafka', extract(epoch FROM published_at - recorded_at)::float8 FROM moments
      UNION ALL SELECT 3, 'expired → object free', extract(epoch FROM processed_at - recorded_at)::float8 FROM moments
      UNION ALL SELECT 4, 'deadline → free', extract(epoch FROM processed_at - due)::float8 FROM moments
    )
    SELECT name, count(seconds)::int AS count,
           percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY seconds) AS percentiles, max(seconds) AS most
      FROM spans GROUP BY number, name HAVING count(seconds) > 0 ORDER BY number"""


async def spans(admin: Admin) -> list[Span]:
    """The four ways, as far as bookings have gone them."""
    return [Span._make((row["name"], row["count"], *row["percentiles"], row["most"])) for row in await admin.fetch(_SPANS)]


# DurationMs begins with the workflow and ends before the last step; the two moments begin with AsOf and end with it.
_CYCLE: Final = """
    SELECT run_id, outcome, greatest(extract(epoch FROM last_finished_at - last_started_at)::float8,
                                     (counts ->> 'DurationMs')::float8 / 1000) AS seconds
      FROM crm.job_state WHERE job = 'booking-expiration' AND last_finished_at > last_started_at"""


@dataclass(slots=True)
class Cycles:
    """The cycles that ended while somebody looked: how many seconds each took, and how it ended."""

    seconds: dict[str, float] = field(default_factory=dict)
    outcomes: dict[str, str] = field(default_factory=dict)

    @property
    def longest(self) -> float:
        """Seconds of the longest one."""
        return max(self.seconds.values(), default=0.0)

    async def look(self, admin: Admin) -> None:
        """Note the last cycle; to be called more often than cycles end."""
        row = await admin.fetchrow(_CYCLE)
        if row and row["run_id"] not in self.seconds:
            self.seconds[row["run_id"]], self.outcomes[row["run_id"]] = row["seconds"], row["outcome"]


def goals(measured: Sequence[Span], longest_cycle: float) -> Iterator[Goal]:
    """X8 as far as it can be promised: D27's bound on what becomes due must have been kept."""
    by_name: Mapping[str, Span] = {span.name: span for span in measured}
    if not by_name.keys() >= {EXPIRED, FREE}:
        yield Goal(kept=False, text="nothing expired and became free: there is nothing to measure")
        return
    expired, free = by_name[EXPIRED], by_name[FREE]
    bound = MINUTE + longest_cycle
    yield Goal(expired.most <= bound, f"{EXPIRED}: {expired.most:.2f} s at most, goal {bound:.2f} s (60 s + the longest cycle)")
    yield Goal(free.p99 < P99_FREE, f"{FREE}: p99 {free.p99:.2f} s, goal below {P99_FREE:.0f} s")
    yield Goal(free.most <= MINUTE, f"{FREE}: {free.most:.2f} s at most, goal {MINUTE:.0f} s")


def table(measured: Sequence[Span]) -> Table:
    """The figures, in seconds."""
    shown = Table("seconds", "bookings", "p50", "p95", "p99", "max", box=box.ASCII2)
    for span in measured:
        figures = (f"{seconds:.2f}" for seconds in (span.p50, span.p95, span.p99, span.most))
        shown.add_row(span.name, f"{span.bookings:,}", *figures)
    return shown
