"""Issue 5, section 3: every alert in every scenario has a case (the cases themselves: `ops/check.sh`)."""

import re
from pathlib import Path

import pytest

from tests.alerts.__main__ import main
from tests.alerts.matrix import HAPPENS, IN_ITSELF, NEVER, cases, fires, table
from tests.alerts.world import World
from tests.unit.test_architecture import ROOT
from tests.unit.test_ops import CASES, NAMES

SCENARIOS = {
    "all workers gone (series absent)": "gone",
    "one of three workers dead": "one dead",
    "rolling restart": "rolling",
    "fresh deploy before the first tick": "fresh",
    "every other scrape lost": "scrapes",
    "counter reset": "reset",
    "Temporal silently not firing": "Temporal",
    "the database unreadable": "database",
    "a backlog of 101 for 4 min 59 s": "backlog 4:59",
    "a backlog of 101 for 5 min": "backlog 5:00",
    "an error once": "one error",
    "errors sustained": "errors",
}
"""The issue's list, and where each is."""

SHORT = [name.removeprefix("BookingExpiration") for name in NAMES]


def test_every_scenario_of_the_issue_is_there() -> None:
    """Issue 5, section 3: its list, no more and no less."""
    assert set(SCENARIOS.values()) == {*HAPPENS, *IN_ITSELF}


@pytest.mark.parametrize("scenario", HAPPENS)
@pytest.mark.parametrize("alert", SHORT)
def test_every_cell_has_a_case(alert: str, scenario: str) -> None:
    """Issue 5, section 3: each alert in each scenario, with a reason where its own condition does not make it fire."""
    well, ill = table()[alert][scenario]
    assert well
    assert (ill == ".") is ((alert, scenario) in NEVER)


def test_no_cell_is_left_from_an_alert_that_is_gone() -> None:
    """Issue 5, section 3: the table has the alerts of the rules; what fires by itself is one of them."""
    assert sorted(table()) == SHORT
    assert {name for _, firing in IN_ITSELF.values() for name in firing} <= set(SHORT)


def test_a_world_that_is_well_sets_off_only_what_the_scenario_breaks() -> None:
    """O5: restarts, deploys, lost scrapes and resets alone are no alarm."""
    for scenario in ("one dead", "rolling", "fresh", "scrapes", "reset"):
        assert {row[scenario][0] for row in table().values()} == {"."}


def test_it_is_looked_where_a_scrape_is_lost() -> None:
    """Issue 5, section 3: half of the moments of *every other scrape lost* have no scrape, or the column could not fail."""
    world = World(HAPPENS["scrapes"])
    assert {world.scenario.lost(moment) for moment in world.looks()} == {True, False}


def test_each_case_is_a_file_with_its_name(tmp_path: Path) -> None:
    """The output of promtool names files only: three worlds for each scenario, one for each that is itself the illness."""
    main(tmp_path)
    assert len(list(tmp_path.iterdir())) == len(list(cases())) == 3 * len(HAPPENS) + len(IN_ITSELF)


def test_the_shown_output_names_every_case(tmp_path: Path) -> None:
    """Issue 5, show: docs/observability/alert-cases.txt is promtool's output for these cases and no others, all well."""
    main(tmp_path)
    page = (ROOT / "docs/observability/alert-cases.txt").read_text(encoding="utf-8")
    said = dict(re.findall(r"^Unit Testing:  (\S+)\n  (\w+)", page, re.MULTILINE))
    made = {f"./{path.name}" for path in tmp_path.iterdir()}
    assert said.keys() == made | {str(path.relative_to(ROOT / "ops")) for path in CASES}
    assert set(said.values()) == {"SUCCESS"}


def test_minutes_of_a_cell() -> None:
    """A cell's minutes: never, from then on, from and until, one alone, and 15 s later."""
    seen = {cell: [minute for minute in range(1, 9) if fires(cell, minute * 60)] for cell in (".", "7-", "2-3,8", "4", "7:15-")}
    assert seen == {".": [], "7-": [7, 8], "2-3,8": [2, 3, 8], "4": [4], "7:15-": [8]}
    assert (fires("7:15-", 434), fires("7:15-", 435)) == (False, True)
