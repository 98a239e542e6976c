"""The instruments behind telemetry.py, on one meter, and their Prometheus text (O2). The table of names is telemetry.py's.

Every series is there from the first scrape: counters and gauges begin at 0, and a histogram that nobody has recorded to yet,
which OpenTelemetry would leave out, is shown with empty buckets (trap 18).
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Histogram, Meter, NoOpMeter, Observation
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import HistogramMetricFamily, Metric

METER: Final = "booking-expiration"
PHASES: Final = ("Reserve", "Booking")
ERRORS: Final = ("item", "batch", "cycle", "publish")
RESULTS: Final = ("published", "parked", "unavailable")
PAUSES: Final = ("schedule", "Reserve", "Booking", "held")
SOURCES: Final = ("database", "schedule")
CONNECTIONS: Final = ("in_use", "idle", "max")

# Under 30 s (L4) and under 60 s (X8) are questions that a bucket's bound answers exactly. Floats, for le="30.0" (trap 18).
_CYCLE: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 150.0)
_BATCH: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 45.0, 60.0)
_DEADLINE: Final = (5.0, 10.0, 20.0, 30.0, 45.0, 60.0, 75.0, 90.0, 120.0, 180.0, 300.0, 600.0, 1800.0, 3600.0)
_COMMIT: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)

Labels = tuple[tuple[str, str], ...]
_Empty = tuple[Sequence[float], str, str, Sequence[str]]
_JOB: Final = "crm_booking_expiration_"


class Board:
    """Values that somebody looks up from time to time; each scrape shows the latest."""

    def __init__(self) -> None:
        self._values: dict[str, dict[Labels, float]] = {}

    def set(self, name: str, value: float, **labels: str) -> None:
        """Show this value from now on."""
        self._values[name][tuple(labels.items())] = float(value)  # OTLP refuses a bool

    def replace(self, name: str, value: float, **labels: str) -> None:
        """The same, and forget the gauge's other series: a label that says what is, such as a version, may change."""
        self._values[name] = {tuple(labels.items()): value}

    def shown(self, name: str, label: str = "", values: Iterable[str] = ()) -> Callable[[CallbackOptions], Iterable[Observation]]:
        """A callback for an instrument, with 0 for each label value to begin with."""
        self._values[name] = {((label, value),): 0 for value in values} if label else {(): 0}
        return lambda _: [Observation(value, dict(labels)) for labels, value in list(self._values[name].items())]


class Later:
    """A histogram whose values are put down when somebody looks, by a scrape or a push: a batch does not wait for 200 of them."""

    MOST: Final = 2_000
    """Values that may wait where nobody ever looks."""

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram
        self._waiting: deque[float] = deque()

    def record(self, values: Iterable[float]) -> None:
        """Remember these."""
        self._waiting.extend(values)
        if len(self._waiting) > self.MOST:
            self.put_down()

    def put_down(self) -> None:
        """Record what waits; two who look at the same time share it."""
        with suppress(IndexError):
            while True:
                self._histogram.record(self._waiting.popleft())


class Instruments:
    """Everything that is counted and measured; one instance on a meter that goes nowhere until `start`."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.board = Board()
        self.empty: dict[str, _Empty] = {}
        self.items = self._counter(f"{_JOB}items", "bookings expired and committed", "phase", PHASES)
        self.skipped = self._counter(f"{_JOB}skip_locked", "due bookings skipped because somebody else held them")
        self.errors = self._counter(f"{_JOB}errors", "failures by what failed", "kind", ERRORS)
        self.published = self._counter("crm_outbox_published", "outbox records by what Kafka made of them", "result", RESULTS)
        self.cycle = self._histogram(f"{_JOB}cycle_duration", "a cycle from open to close", _CYCLE)
        self.batch = self._histogram(f"{_JOB}batch_duration", "a committed batch, lock to commit", _BATCH, "phase", PHASES)
        deadline = self._histogram(f"{_JOB}deadline_to_expired", "from a booking's deadline to its expiry", _DEADLINE)
        commit = self._histogram("crm_outbox_commit_to_published", "from a record's commit to Kafka's yes", _COMMIT)
        self.deadline, self.commit = Later(deadline), Later(commit)
        self._database()
        self._surroundings()

    def _database(self) -> None:
        self._gauge(f"{_JOB}backlog", "active bookings past their deadline")
        self._gauge(f"{_JOB}oldest_due_age", "how long the oldest of them is due", "s", "phase", PHASES)
        self._gauge(f"{_JOB}last_success_timestamp", "end of the last completed cycle; 0: there was none", "s")
        self._gauge(f"{_JOB}poison_bookings", "active bookings that were refused and are still due")
        self._gauge("crm_outbox_backlog", "outbox records on their way to Kafka")
        self._gauge("crm_outbox_oldest_unpublished_age", "age of the oldest of them", "s")
        self._gauge("crm_outbox_parked", "outbox records that wait for an operator")
        self._gauge(f"{_JOB}schema_info", "newest migration that the database has", "", "version", ("",))

    def _surroundings(self) -> None:
        self._gauge(f"{_JOB}paused", "1 while it does not run: paused, or held by the safety catch", "", "what", PAUSES)
        self._gauge(f"{_JOB}last_read_timestamp", "when the gauges were last read; 0: never", "s", "source", SOURCES)
        self._gauge(f"{_JOB}pool_connections", "this worker's connections to the database", "", "state", CONNECTIONS)
        self._gauge(f"{_JOB}build_info", "what runs here", "", "version", ("",))
        name = f"{_JOB}missed_ticks"
        text = "ticks of the schedule without a cycle: skipped, too late, or never fired"
        self._meter.create_observable_counter(name, [self.board.shown(name), self._looked_at], description=text)

    def _looked_at(self, _: CallbackOptions) -> Iterable[Observation]:
        """Somebody looks: observed instruments are asked before the histograms are."""
        self.deadline.put_down()
        self.commit.put_down()
        return ()

    def _counter(self, name: str, text: str, label: str = "", values: Iterable[str] = ()) -> Any:
        counter = self._meter.create_counter(name, description=text)
        for labels in [{label: value} for value in values] or [{}]:
            counter.add(0, labels)
        return counter

    def _histogram(self, name: str, text: str, bounds: Sequence[float], label: str = "", values: Sequence[str] = ()) -> Histogram:
        self.empty[f"{name}_seconds"] = (bounds, text, label, values)
        return self._meter.create_histogram(name, "s", text, explicit_bucket_boundaries_advisory=list(bounds))

    def _gauge(self, name: str, text: str, unit: str = "", label: str = "", values: Iterable[str] = ()) -> None:
        self._meter.create_observable_gauge(name, [self.board.shown(name, label, values)], unit, text)


class _Whole:
    """The reader's metrics, with empty histograms where nothing was recorded yet."""

    def __init__(self, inner: CollectorRegistry, empty: Mapping[str, _Empty]) -> None:
        self._inner, self._empty = inner, empty

    def collect(self) -> Iterable[Metric]:
        families = {family.name: family for family in self._inner.collect()}
        for name, (bounds, text, label, values) in self._empty.items():
            family = families.setdefault(name, HistogramMetricFamily(name, text))
            present = {sample.labels.get(label, "") for sample in family.samples}
            for value in (value for value in values or [""] if value not in present):
                _add_empty(family, bounds, {label: value} if label else {})
        return [families[name] for name in sorted(families)]


def _add_empty(family: Metric, bounds: Sequence[float], labels: dict[str, str]) -> None:
    for bound in [*map(str, bounds), "+Inf"]:
        family.add_sample(f"{family.name}_bucket", {**labels, "le": bound}, 0)
    family.add_sample(f"{family.name}_count", labels, 0)
    family.add_sample(f"{family.name}_sum", labels, 0)


_instruments = Instruments(NoOpMeter(METER))
_registry = CollectorRegistry()


def now() -> Instruments:
    """The instruments of this process; before `start` nothing they are told is kept."""
    return _instruments


def start(readers: Iterable[MetricReader] = (), resource: Resource | None = None) -> MeterProvider:
    """Count from here on, for `exposition` and for `readers` beside it. `shutdown()` of what comes back sends the last values."""
    global _instruments, _registry  # noqa: PLW0603 # one set of instruments per process, as the one log
    provider, inner = collecting(readers, resource)
    _instruments = Instruments(provider.get_meter(METER))
    _registry = CollectorRegistry()
    _registry.register(_Whole(inner, _instruments.empty))
    return provider


def collecting(readers: Iterable[MetricReader], resource: Resource | None) -> tuple[MeterProvider, CollectorRegistry]:
    """A provider of meters, and the registry that collects them under their exact names."""
    registry = CollectorRegistry()
    prometheus = PrometheusMetricReader(scope_info_enabled=False, disable_target_info=True, registry=registry)
    return MeterProvider([prometheus, *readers], resource, AlwaysOffExemplarFilter(), shutdown_on_exit=False), registry


def exposition(registry: CollectorRegistry | None = None) -> bytes:
    """All of it, or what another registry collects, in Prometheus' text format 0.0.4."""
    return generate_latest(registry or _registry)
