"""The metrics by their exact Prometheus names, and what each moment counts (O2, trap 18)."""

import re
import tomllib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import exporting
import metrics
import telemetry
from activities import expire_batch
from activities.expire_batch import Batch
from db.ledger import Counts
from domain.events import Phase
from workflows.missed_ticks import MissedTicks

GOLDEN = Path(__file__).parent.parent / "golden" / "metrics.txt"
ID = UUID("0190a0b0-0000-7000-8000-000000000001")
NOON = datetime(2026, 3, 1, 12, 0, 5, tzinfo=UTC)
Series = Callable[[], dict[str, float]]


@pytest.fixture
def series(monkeypatch: pytest.MonkeyPatch) -> Iterator[Series]:
    """All series of a fresh process by name and labels; afterwards nothing is counted any more, as before."""
    monkeypatch.setattr(metrics, "_instruments", metrics._instruments)
    monkeypatch.setattr(metrics, "_registry", metrics._registry)
    provider = metrics.start()

    def scraped() -> dict[str, float]:
        lines = [line for line in metrics.exposition().decode().splitlines() if not line.startswith("#")]
        found = [(name, float(value)) for name, _, value in (line.rpartition(" ") for line in lines)]
        assert len(found) == len(dict(found)), "duplicate series"
        return dict(found)

    yield scraped
    provider.shutdown()


def _read(**changed: Any) -> None:
    values: dict[str, Any] = {
        "at": NOON,
        "backlog": 7,
        "oldest_due": {"Reserve": 61.5, "Booking": 0.0},
        "last_success": NOON,
        "poison": 1,
        "outbox": (5, 2.5, 3),
        "schema": "0001",
        "paused": {"held": False},
    }
    telemetry.database_read(**{**values, **changed})


def test_o2_the_exposition_is_pinned(series: Series) -> None:
    """O2, trap 18: names, types, labels, help and buckets of the first scrape are those of the golden file; all of it is 0."""
    assert set(series().values()) == {0.0}
    assert metrics.exposition().decode() == GOLDEN.read_text(encoding="utf-8")


def test_recording_adds_no_series(series: Series) -> None:
    """Issue 5, 1: every series is there from the first scrape, so that using them all makes none and doubles none."""
    before = series().keys()
    for phase in Phase:
        telemetry.batch_committed(phase, 2, 1, 1, seconds=0.2, items=[telemetry.Item(ID, ID, 1.0)])
    telemetry.records_published(2, [0.5, 1.0])
    telemetry.records_released(1)
    telemetry.record_parked(ID, ID, "too large")
    telemetry.item_failed(ID, "Reserve", "refused")
    telemetry.cycle_completed("failed", 31_000, 0, {}, ["no"])
    for step in ("open_cycle", "expire_batch Reserve", "publish_outbox", "close_cycle"):
        telemetry.step_failed(step, "down", retryable=True)
    telemetry.schedule_read(at=NOON, paused=True, missed_ticks=4)
    _read(schema="")
    telemetry.pool_used(1, 2, 4)
    assert series().keys() == before
    assert [name for name in before if "_total_total" in name or "_seconds_seconds" in name] == []


def test_delays_are_there_for_everyone_who_looks() -> None:
    """Issue 5, speed: delays wait until somebody looks; each reader sees all of them once, and not too many ever wait."""
    readers = [InMemoryMetricReader(), InMemoryMetricReader()]
    deadline = metrics.Instruments(MeterProvider(readers, shutdown_on_exit=False).get_meter("test")).deadline
    deadline.record([1.0] * 3)
    for reader in (*readers, readers[0]):
        data: Any = reader.get_metrics_data()
        found = {each.name: each.data for each in data.resource_metrics[0].scope_metrics[0].metrics}
        assert found["crm_booking_expiration_deadline_to_expired"].data_points[0].count == 3
    deadline.record([1.0] * (metrics.Later.MOST + 1))
    assert len(deadline._waiting) == 0


def test_o2_the_table_names_every_metric(series: Series) -> None:
    """Issue 5, 1: the table in telemetry.py has each metric of the exposition, with its type and its label."""
    rows = re.findall(r"^\| `(crm_\w+)` \| (\w+) \| (\w*) ?\|", telemetry.__doc__ or "", re.MULTILINE)
    types = re.findall(r"^# TYPE (\w+) (\w+)$", metrics.exposition().decode(), re.MULTILINE)
    labels = {
        name: "".join(sorted({label for each in series() for label in re.findall(rf"^{name}\w*{{.*?(\w+)=", each)} - {"le"}))
        for name, _ in types
    }
    phased = dict.fromkeys((name for name in labels if f'{name}_count{{phase="Reserve"}}' in series()), "phase")
    assert {(name, kind, label) for name, kind, label in rows} == {
        (name, kind, {**labels, **phased}[name]) for name, kind in types
    }


@pytest.mark.parametrize("seconds", ["30.0", "60.0"])
def test_l4_buckets_answer_the_two_questions(series: Series, seconds: str) -> None:
    """L4, X8: cycles under 30 s and under 60 s can be counted exactly."""
    for milliseconds in (29_999, 30_001, 59_999, 60_001):
        telemetry.cycle_completed("completed", milliseconds, 0, {}, [])
    under = series()[f'crm_booking_expiration_cycle_duration_seconds_bucket{{le="{seconds}"}}']
    assert under == {"30.0": 1, "60.0": 3}[seconds]


def test_d7_a_repeated_batch_counts_nothing(series: Series) -> None:
    """Issue 5, 1, D7: what the ledger answers for an earlier attempt is not counted again."""
    expire_batch._say(Phase.RESERVE, Batch(Counts(expired=200, skipped_locked=3, poison=2), repeated=True), 0.1)
    assert series()['crm_booking_expiration_items_total{phase="Reserve"}'] == 0
    assert series()['crm_booking_expiration_batch_duration_seconds_count{phase="Reserve"}'] == 0


def test_o2_errors_by_what_failed(series: Series) -> None:
    """O2: an item, a batch, the cycle or publishing; a broker outage is none of them (D10)."""
    telemetry.item_failed(ID, "Reserve", "refused")
    telemetry.step_failed("expire_batch Reserve", "down", retryable=True)
    telemetry.step_failed("publish_outbox", "down", retryable=True)
    telemetry.cycle_completed("failed", 1, 0, {}, ["no"])
    telemetry.broker_unavailable("down")
    errors = {name: value for name, value in series().items() if "errors_total" in name}
    assert errors == {f'crm_booking_expiration_errors_total{{kind="{kind}"}}': 1 for kind in metrics.ERRORS}


def test_a_label_that_says_what_is_leaves_no_old_series(series: Series) -> None:
    """Issue 5, 1: after a migration only the new schema version is shown."""
    _read(schema="0001")
    _read(schema="0002")
    assert [name for name in series() if "schema_info" in name] == ['crm_booking_expiration_schema_info{version="0002"}']


def _fired(*minutes: int) -> set[datetime]:
    return {NOON.replace(second=0) + timedelta(minutes=minute) for minute in minutes}


def test_trap_6_ticks_that_never_fired_count() -> None:
    """Trap 6: the server counts nothing and says it is well, yet no cycle starts: each minute's tick counts once."""
    ticks = MissedTicks()
    looks = [ticks.look(NOON + timedelta(seconds=10 * step), counted=3, fired=_fired(1, 2), paused=False) for step in range(36)]
    assert (looks[0], looks[17], looks[-1]) == (0, 0, 3)
    assert looks == sorted(looks)


def test_l4_skipped_ticks_count_once() -> None:
    """L4: a tick that the server itself counts, as skipped or too late, is not counted again as one that never fired."""
    ticks = MissedTicks()
    ticks.look(NOON, counted=0, fired=(), paused=False)
    assert ticks.look(NOON + timedelta(minutes=3), counted=2, fired=_fired(1), paused=False) == 2
    assert ticks.look(NOON + timedelta(minutes=4), counted=2, fired=_fired(1, 4), paused=False) == 2


def test_a_paused_schedule_misses_nothing() -> None:
    """Issue 5, 1: ticks during a pause are nobody's fault, also when it ends before they count as late."""
    ticks = MissedTicks()
    ticks.look(NOON, counted=5, fired=(), paused=True)
    assert ticks.look(NOON + timedelta(minutes=9, seconds=5), counted=5, fired=(), paused=True) == 0
    assert ticks.look(NOON + timedelta(minutes=9, seconds=40), counted=5, fired=(), paused=False) == 0


def test_a_counter_starts_at_zero_and_never_goes_back() -> None:
    """Issue 5, 1: a restarted worker does not export the server's lifetime figure; a schedule made anew takes nothing away."""
    ticks = MissedTicks()
    assert ticks.look(NOON, counted=500, fired=(), paused=False) == 0
    assert ticks.look(NOON + timedelta(seconds=20), counted=502, fired=(), paused=False) == 2
    assert ticks.look(NOON + timedelta(seconds=29), counted=0, fired=(), paused=False) == 2


def test_ticks_that_the_server_forgot_are_not_missed() -> None:
    """Issue 5, 1: a worker that was cut off for longer than ten starts reach back says nothing about what it cannot know."""
    ticks = MissedTicks()
    ticks.look(NOON, counted=0, fired=_fired(0), paused=False)
    assert ticks.look(NOON + timedelta(minutes=16, seconds=40), counted=0, fired=_fired(*range(7, 17)), paused=False) == 0


def test_the_version_shown_is_the_projects() -> None:
    """Issue 5, 1: `…_build_info` names the version of pyproject.toml, also where no package is installed."""
    project = tomllib.loads((GOLDEN.parent.parent.parent / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["version"] == exporting.VERSION
