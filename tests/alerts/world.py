"""What three workers show while something happens to them: series for `promtool test rules`, second by second.

A world is well, or ill: from `ONSET` on every alert's own condition holds. On top of it comes what a scenario is about.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

ONSET: Final = 300
"""From then on (seconds) an ill world is ill."""

MINUTE: Final = 60
EVER: Final = 10**9
JOB: Final = "crm_booking_expiration_"
HISTORY: Final = 90
"""What a counter had counted before its process was looked at."""


class Worker(NamedTuple):
    """One process: its address, when it starts and when it is gone; `resets` is a restart that no scrape saw."""

    instance: str
    starts: int = 0
    gone: int = EVER
    resets: int = EVER


THREE: Final = (Worker("w1:8000"), Worker("w2:8000"), Worker("w3:8000"))


@dataclass(frozen=True)
class Scenario:
    """What happens, whether or not the world is ill; times in seconds."""

    title: str
    workers: tuple[Worker, ...] = THREE
    step: int = 15
    """Between two scrapes."""
    lost: Callable[[int], bool] = lambda _: False
    """Whether the scrape at this moment is lost."""
    looks: tuple[int, ...] = (0,)
    """So long after each full minute it is looked which alerts fire."""
    unreadable: int = EVER
    """From then on nobody can read the database."""
    no_ticks: int = EVER
    """From then on Temporal starts no cycle, and does not say so."""
    onset: int = ONSET
    backlog: tuple[int, int] = (0, 0)
    """From and until when 101 bookings are overdue, in a world that is well."""
    errors: tuple[int, ...] = ()
    """When the first worker counts an error, in a world that is well."""


@dataclass(frozen=True)
class World:
    """A scenario, and how the rest of the world is: well, `ill`, or `blind`: nothing can be read from `onset` on."""

    scenario: Scenario
    ill: bool = False
    blind: bool = False
    minutes: int = 40

    @property
    def title(self) -> str:
        """The case's name."""
        state = "all is ill" if self.ill else "nothing is read" if self.blind else "all is well"
        return f"{self.scenario.title}, {state}"

    def series(self) -> Iterator[tuple[str, list[str]]]:
        """Each series with its values, one for every step."""
        for worker in self.scenario.workers:
            for name, labels, value in (*self._gauges(worker), *self._counters(worker)):
                pairs = {"job": "booking-expiration", "instance": worker.instance, **labels}
                text = ",".join(f'{key}="{each}"' for key, each in pairs.items())
                yield f"{name}{{{text}}}", [self._shown(worker, t, value) for t in self.steps()]

    def steps(self) -> range:
        """The moments of the scrapes, in seconds."""
        return range(0, self.minutes * MINUTE + 1, self.scenario.step)

    def looks(self) -> list[int]:
        """The moments at which it is looked which alerts fire, in seconds."""
        return [minute * MINUTE + after for minute in range(1, self.minutes + 1) for after in self.scenario.looks]

    def _shown(self, worker: Worker, t: int, value: Callable[[int], float]) -> str:
        if t < worker.starts or t > worker.gone:
            return "_"
        if t == worker.gone or self.scenario.lost(t):
            return "stale"
        return f"{value(t):g}"

    def _sick(self, t: int) -> bool:
        return self.ill and t >= self.scenario.onset

    def _gauges(self, worker: Worker) -> Iterator[tuple[str, dict[str, str], Callable[[int], float]]]:
        def read(value: Callable[[int], float]) -> Callable[[int], float]:
            """As it was when the worker could last read it; 0 before its first reading, one scrape after its start."""
            last = min(self.scenario.unreadable, self.scenario.onset if self.blind else EVER)
            first = worker.starts + self.scenario.step if worker.starts else 0
            return lambda t: 0 if t < first or first > last else value(min(t, last))

        def when_ill(value: float) -> Callable[[int], float]:
            return read(lambda t: value if self._sick(t) else 0)

        yield f"{JOB}last_read_timestamp_seconds", {"source": "database"}, read(lambda t: t)
        schedule = self.scenario.onset if self.blind else EVER
        yield f"{JOB}last_read_timestamp_seconds", {"source": "schedule"}, lambda t: min(t, schedule)
        yield f"{JOB}last_success_timestamp_seconds", {}, read(self._last_success)
        yield f"{JOB}backlog", {}, read(self._backlog)
        for phase in ("Reserve", "Booking"):
            yield f"{JOB}oldest_due_age_seconds", {"phase": phase}, read(self._oldest)
        yield f"{JOB}poison_bookings", {}, when_ill(2)
        for what in ("Reserve", "Booking", "held"):
            yield f"{JOB}paused", {"what": what}, when_ill(1)
        yield f"{JOB}paused", {"what": "schedule"}, self._sick
        yield "crm_outbox_backlog", {}, when_ill(1500)
        yield "crm_outbox_oldest_unpublished_age_seconds", {}, when_ill(400)
        yield "crm_outbox_parked", {}, when_ill(1)

    def _last_success(self, t: int) -> float:
        last = min(t, self.scenario.no_ticks, self.scenario.onset if self.ill else EVER)
        return last - last % MINUTE if last >= MINUTE + self.scenario.workers[0].starts else 0

    def _backlog(self, t: int) -> float:
        first, after = self.scenario.backlog
        if self._sick(t):
            return 150
        return 101 if first <= t < after else max(0, t - self.scenario.no_ticks) // 2

    def _oldest(self, t: int) -> float:
        return 400 if self._sick(t) else t % MINUTE if t < self.scenario.no_ticks else t - self.scenario.no_ticks

    def _counters(self, worker: Worker) -> Iterator[tuple[str, dict[str, str], Callable[[int], float]]]:
        def since_start(count: Callable[[int], float]) -> Callable[[int], float]:
            """Of all that happened, what this process saw."""
            before = HISTORY if worker.starts == 0 else -count(worker.starts)
            return lambda t: count(t) + before if t < worker.resets else count(t) - count(worker.resets)

        yield f"{JOB}missed_ticks_total", {}, since_start(self._missed)
        for kind in ("item", "batch", "cycle", "publish"):
            first = worker == self.scenario.workers[0] and kind == "batch"
            yield f"{JOB}errors_total", {"kind": kind}, since_start(self._errors(kind, first=first))
        for name, bound in ((f"{JOB}deadline_to_expired_seconds", "90.0"), ("crm_outbox_commit_to_published_seconds", "60.0")):
            yield f"{name}_count", {}, since_start(self._done)
            yield f"{name}_bucket", {"le": "+Inf"}, since_start(self._done)
            yield f"{name}_bucket", {"le": bound}, since_start(self._in_time)

    def _missed(self, t: int) -> float:
        """Every second tick of an ill world, every tick while Temporal fires none."""
        t = min(t, self.scenario.onset if self.blind else EVER)
        sick = (t - self.scenario.onset) // 120 if self._sick(t) else 0
        return max(sick, (t - self.scenario.no_ticks) // MINUTE, 0)

    def _errors(self, kind: str, *, first: bool) -> Callable[[int], float]:
        def count(t: int) -> float:
            unread = (t - self.scenario.unreadable) // MINUTE if kind == "cycle" else 0
            own = sum(moment <= t for moment in self.scenario.errors) if first else 0
            return max(0, unread) + own + ((t - self.scenario.onset) // MINUTE if self._sick(t) else 0)

        return count

    def _done(self, t: int) -> float:
        """20 bookings a minute, as long as there are cycles that can read them."""
        return min(t, self.scenario.no_ticks, self.scenario.unreadable) // 3

    def _in_time(self, t: int) -> float:
        """Of an ill world half are late."""
        late = self._done(t) - self._done(self.scenario.onset)
        return self._done(t) - (late // 2 if self._sick(t) else 0)
