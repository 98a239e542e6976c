"""What the worker says about itself: one JSON object a line, whatever the data holds, with the fields of the table (O1)."""

import asyncio
import inspect
import io
import json
import logging
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import structlog

import logs
import telemetry

ID = UUID("0190a0b0-0000-7000-8000-000000000001")
NASTY = 'a "quoted" \x1b[31mred\x1b[0m\r\nsecond line\u2028\x00\udc80{"event": "forged"}'
Lines = Callable[[], list[dict[str, Any]]]

SAMPLES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "cycle_started": ([datetime(2026, 3, 1, tzinfo=UTC), 1, 2], {}),
    "cycle_held": ([5001, 5000, 0], {}),
    "batch_selected": (["Reserve", 3], {}),
    "booking_expired": (["Reserve", [(ID, ID, ID)]], {}),
    "item_failed": ([ID, "Reserve", NASTY], {}),
    "batch_committed": (["Reserve", 3, 1, 1], {"seconds": 0.1, "items": [telemetry.Item(ID, ID, 1.0)]}),
    "batch_repeated": (["Reserve", 3], {}),
    "records_published": ([3, [1.0]], {}),
    "records_released": ([3], {}),
    "record_parked": ([ID, ID, NASTY], {}),
    "broker_unavailable": ([NASTY], {}),
    "step_failed": (["open_cycle", NASTY], {"retryable": True}),
    "gauges_unreadable": (["database", NASTY], {}),
    "collector_unavailable": (["traces"], {}),
    "collector_back": (["traces"], {}),
    "core_not_pushed": ([["OTEL_EXPORTER_OTLP_CERTIFICATE"]], {}),
    "cycle_completed": (["completed", 12, 0, {"PoisonCount": 0}, [NASTY]], {}),
    "worker_started": (["queue", "temporal:7233", "http://127.0.0.1:8000"], {}),
    "worker_waiting": (["database", NASTY], {}),
    "worker_stopping": (["SIGTERM"], {}),
    "worker_stopped": ([], {}),
    "worker_hung": ([12.0], {}),
    "schedule_ensured": (["booking-expiration", "created"], {}),
    "search_attributes_missing": ([["BookingPhase"]], {}),
}


class Terminal(io.StringIO):
    """An output that says it is a terminal."""

    def isatty(self) -> bool:
        """Yes."""
        return True


@pytest.fixture
def logging_restored() -> Iterator[None]:
    """Logging is after the test as it was before it."""
    root, quiet = logging.getLogger(), ("booking-expiration", "aiokafka", "opentelemetry", "temporalio.activity")
    before, levels = (root.level, root.handlers[:]), {name: logging.getLogger(name).level for name in quiet}
    yield
    logging.captureWarnings(False)
    structlog.reset_defaults()
    root.setLevel(before[0])
    root.handlers[:] = before[1]
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture
def lines(logging_restored: None, monkeypatch: pytest.MonkeyPatch) -> Lines:
    """The log so far, each line as an object."""
    del logging_restored
    monkeypatch.setattr(sys, "stdout", output := io.StringIO())
    telemetry.configure("DEBUG")
    return lambda: [json.loads(line) for line in output.getvalue().splitlines()]


def _documented() -> dict[str, tuple[str, str, set[str]]]:
    """The table in the module's docstring: moment → event, level, fields."""
    rows = re.findall(
        r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \|([^|]*)\|$", (telemetry.__doc__ or "").split("| metric |")[0], re.MULTILINE
    )
    return {
        name: (event.strip(), level.split(",")[0].strip(), set(re.findall(r"\w+", fields))) for name, event, level, fields in rows
    }


@pytest.mark.parametrize("moment", SAMPLES)
def test_o1_each_moment_is_one_line_with_its_fields(lines: Lines, moment: str) -> None:
    """O1: event, level and fields are those of the table, also with a line break or an escape sequence in the data."""
    arguments, keywords = SAMPLES[moment]
    getattr(telemetry, moment)(*arguments, **keywords)
    [line] = lines()
    event, level, fields = _documented()[moment]
    assert (line["event"], line["level"]) == (event, level)
    assert line.keys() - {"timestamp", "event", "level"} == fields
    assert datetime.fromisoformat(line["timestamp"]).utcoffset() is not None


def test_the_table_names_every_moment() -> None:
    """Layout: the table of names is complete: what is not in it is never logged."""
    others = ("_", "bind_run", "database_read", "schedule_read", "pool_used", "worker_built")
    ours = [name for name, each in inspect.getmembers(telemetry, inspect.isfunction) if each.__module__ == "telemetry"]
    moments = [name for name in ours if not name.startswith(others)]
    assert set(moments) == _documented().keys() == SAMPLES.keys()


def test_the_documents_tables_are_the_codes() -> None:
    """Issue 5, 2: docs/observability.md has the same moments, metrics and spans as the tables in telemetry.py."""
    table = re.compile(r"^\| `.*\|$", re.MULTILINE)
    page = (Path(telemetry.__file__).parent / "docs" / "observability.md").read_text(encoding="utf-8")
    metrics, spans, moments = (
        table.findall(page.split(f"| {head} |")[1].split("\n\n")[0]) for head in ("Metric", "Span", "Moment")
    )
    code = [
        part.split("\n\n")[0] for part in re.split(r"^\| (?:moment|metric|span) \|", telemetry.__doc__ or "", flags=re.MULTILINE)
    ]
    assert (moments, spans) == (table.findall(code[1]), table.findall(code[3]))
    assert [row.split("|")[1:4] for row in metrics] == [row.split("|")[1:4] for row in table.findall(code[2])]


def test_data_comes_back_as_it_was(lines: Lines) -> None:
    """O1: what escaping changes on the line, reading it changes back."""
    telemetry.item_failed(ID, "Reserve", NASTY)
    assert lines()[0]["exception"] == NASTY


@pytest.mark.usefixtures("logging_restored")
def test_data_makes_no_line_of_its_own_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """O1: on a terminal, too, an event is one line whatever its data holds; a stack trace alone has more."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    logs.configure()
    telemetry.item_failed(ID, "Reserve", NASTY)
    assert len(capsys.readouterr().out.splitlines()) == 1
    logging.getLogger("library").error("it went wrong", exc_info=RuntimeError(NASTY))
    assert len(capsys.readouterr().out.split("\n")) > 2


def test_libraries_speak_in_the_same_shape(lines: Lines) -> None:
    """O1: a library's warning, its stack trace and a warning of Python are one JSON object each, with the logger's name."""
    error = RuntimeError(NASTY)
    logging.getLogger("library").error("it went wrong with %s", NASTY, exc_info=error)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    logging.getLogger("library").info("chatter")
    failed, warned = lines()
    assert (failed["logger"], failed["level"], "RuntimeError" in failed["exception"]) == ("library", "error", True)
    assert (warned["logger"], warned["level"], "DeprecationWarning: old" in warned["event"]) == ("py.warnings", "warning", True)


def test_o1_lines_of_a_batch_are_like_lines_made_one_by_one(lines: Lines) -> None:
    """O1: made in one go they have the fields, run id and escaping of every other line; below the level there are none."""
    log, rows = structlog.get_logger("booking-expiration"), [(NASTY, "Reserve"), ("100 %s", "Booking")]
    with structlog.contextvars.bound_contextvars(run_id="run-%s"):
        for booking, phase in rows:
            log.info("booking expired", booking_id=booking, phase=phase)
        logs.each(log, "booking expired", ("booking_id", "phase"), rows)
    *one_by_one, first, last = [{name: value for name, value in line.items() if name != "timestamp"} for line in lines()]
    telemetry.configure("WARNING")
    logs.each(log, "booking expired", ("booking_id", "phase"), rows)
    assert [first, last] == one_by_one
    assert len(lines()) == 4


async def test_o3_the_run_id_stays_with_its_task(lines: Lines) -> None:
    """O3: every line of a task carries its own job run id, and no line of another."""

    async def step(run_id: str) -> None:
        telemetry.bind_run(run_id)
        await asyncio.sleep(0)
        telemetry.batch_selected(run_id, 1)

    await asyncio.gather(asyncio.create_task(step("run-1")), asyncio.create_task(step("run-2")))
    telemetry.worker_stopped()
    *both, last = lines()
    assert [(line["run_id"], line["phase"]) for line in both] == [("run-1", "run-1"), ("run-2", "run-2")]
    assert "run_id" not in last


@pytest.mark.usefixtures("logging_restored")
def test_the_level_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings: with WARNING only what needs attention is said."""
    monkeypatch.setattr(sys, "stdout", output := io.StringIO())
    telemetry.configure("WARNING")
    telemetry.worker_stopped()
    telemetry.broker_unavailable("down")
    assert [json.loads(line)["event"] for line in output.getvalue().splitlines()] == ["broker unavailable"]


@pytest.mark.usefixtures("logging_restored")
def test_a_terminal_gets_readable_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 3, 8: readable lines on a terminal, and no escape sequence or line break that comes from data."""
    monkeypatch.setattr(sys, "stdout", output := Terminal())
    telemetry.configure()
    telemetry.broker_unavailable(NASTY)
    telemetry.item_failed(ID, "Reserve", "\x1b[2Jgone")
    said = output.getvalue()
    assert ("broker unavailable" in said, said.startswith("{")) == (True, False)
    assert [word for word in ("\x1b[31m" + "red", "\x1b[2J", "\r", "\u2028", "\x00") if word in said] == []
    assert "forged" in said.splitlines()[0]
