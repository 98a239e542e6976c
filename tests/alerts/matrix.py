"""Which alert speaks in which scenario: every cell of issue 5, section 3, and what is checked for it.

A cell has the minutes in which the alert fires while all else is well, then those while its own condition holds from minute 5 on
(of a fresh deploy: from minute 2 on); `.` is never, `10-` from then to the end, `10:15-` from 15 s later. `GaugesNotRead` is ill
when nobody reads, and is looked at in a world of its own. Each minute of each world is checked for all alerts at once; where
every other scrape is lost also 15 s after it, at the moment of one that is.
"""

from collections.abc import Iterator
from typing import Final

from tests.alerts.world import EVER, MINUTE, THREE, Scenario, Worker, World

REPLACED: Final = tuple(Worker(f"w{n}:8000", 0, 420 + MINUTE * n) for n in (1, 2, 3))
NEW: Final = tuple(Worker(f"w{n + 3}:8000", 450 + MINUTE * n) for n in (1, 2, 3))

HAPPENS: Final = {
    "gone": Scenario("All workers gone at 20 min", tuple(Worker(each.instance, 0, 20 * MINUTE) for each in THREE)),
    "one dead": Scenario("One of three workers dead at 8 min", (Worker("w1:8000", 0, 8 * MINUTE), *THREE[1:])),
    "rolling": Scenario("Rolling restart from 8 to 11 min", REPLACED + NEW),
    "fresh": Scenario("Fresh deploy at 2 min", tuple(Worker(each.instance, 120) for each in THREE), onset=120),
    "scrapes": Scenario("Every other scrape lost", lost=lambda t: t % 30 != 0, looks=(0, 15)),
    "reset": Scenario("Counters reset at 8 min", tuple(Worker(each.instance, resets=8 * MINUTE) for each in THREE)),
    "Temporal": Scenario("Temporal silently fires no more from 5 min on", no_ticks=300),
    "database": Scenario("Database unreadable from 20 min on", unreadable=20 * MINUTE),
}

TABLE: Final = """
                            | gone     | one dead | rolling  | fresh    | scrapes  | reset    | Temporal | database
NoSuccessfulCycle           | 25- 11-  | . 11-    | . 11-    | . 5-     | . 10:15- | . 11-    | 11- 11-  | 26- 11-
BacklogOver100              | . 10-20  | . 10-    | . 10-    | . 8-     | . 10-    | . 10-    | 14- 10-  | . 10-20
ErrorsSustained             | . 16-23  | . 16-    | . 16-    | . 13-    | . 16-    | . 16-    | . 16-    | 31- 16-
OldestOverdueOver5Min       | . 7-20   | . 7-     | . 7-     | . 5-     | . 7-     | . 7-     | 13- 7-   | . 7-20
PoisonBookingDoesNotExpire  | . 15-20  | . 15-    | . 15-    | . 13-    | . 15-    | . 15-    | . 15-    | . 15-20
MissedTicks                 | . 11-24  | . 11-    | . 13-    | . 8-     | . 11-    | . 11-    | 8- 8-    | . 11-
SchedulePaused              | . .      | . 35-    | . 35-    | . 32-    | . 35-    | . 35-    | . 35-    | . 35-
Held                        | . 5-21   | . 5-     | . 5-     | . 3-     | . 5-     | . 5-     | . 5-     | . 5-
GaugesNotRead               | . 8-20   | . 8-     | . 8-     | . 3-     | . 7:15-  | . 8-     | . 8-     | 23- 8-
OutboxBacklogOver1000       | . 5-20   | . 5-     | . 5-     | . 3-     | . 5-     | . 5-     | . 5-     | . 5-20
OutboxOldestOver5Min        | . 7-20   | . 7-     | . 7-     | . 5-     | . 7-     | . 7-     | . 7-     | . 7-20
ParkedRecord                | . 5-20   | . 5-     | . 5-     | . 3-     | . 5-     | . 5-     | . 5-     | . 5-20
BookingsExpireLate          | . 6-     | . 6-     | . 6-     | . 3-     | . 6-     | . 6-     | . .      | . 6-
EventsPublishedLate         | . 6-     | . 6-     | . 6-     | . 3-     | . 6-     | . 6-     | . .      | . 6-
"""

NEVER: Final = {
    ("SchedulePaused", "gone"): "it speaks after 30 min, and after 15 nobody was left to tell of the pause",
    ("BookingsExpireLate", "Temporal"): "nothing expires, so nothing expires late: liveness and backlog speak",
    ("EventsPublishedLate", "Temporal"): "nothing is published: liveness speaks, and the outbox's own alerts",
}
"""Why an alert is silent though its condition holds."""

IN_ITSELF: Final = {
    "backlog 4:59": (Scenario("A backlog of 101 for 4 min 59 s", step=1, backlog=(60, 359)), {}),
    "backlog 5:00": (Scenario("A backlog of 101 for 5 min", step=1, backlog=(60, 361)), {"BacklogOver100": "6"}),
    "one error": (Scenario("One error at 5 min", errors=(300,)), {}),
    "errors": (Scenario("An error a minute from 5 min on", errors=tuple(range(300, 2401, 60))), {"ErrorsSustained": "15-"}),
}
"""Scenarios that are themselves what an alert is about: which fire; every other one is silent."""


def table() -> dict[str, dict[str, tuple[str, str]]]:
    """Of each alert and each scenario the cell: when all else is well, and when it is ill."""
    header, *rows = [line.split("|") for line in TABLE.strip("\n").splitlines()]
    columns = [cell.strip() for cell in header[1:]]
    return {
        name.strip(): {column: (well, ill) for column, cell in zip(columns, cells, strict=True) for well, ill in [cell.split()]}
        for name, *cells in rows
    }


def cases() -> Iterator[tuple[World, dict[str, str]]]:
    """Every world with the alerts that fire in it, and when; all others are silent."""
    cells = table()
    for key, scenario in HAPPENS.items():
        column = {name: row[key] for name, row in cells.items()}
        unread, errors = column["GaugesNotRead"], column["ErrorsSustained"][0]
        yield World(scenario), {name: well for name, (well, _) in column.items()}
        yield World(scenario, ill=True), {name: ill for name, (_, ill) in column.items()} | {"GaugesNotRead": unread[0]}
        # Where nothing is read no success is known either.
        success = column["NoSuccessfulCycle"][1]
        yield World(scenario, blind=True), {"GaugesNotRead": unread[1], "NoSuccessfulCycle": success, "ErrorsSustained": errors}
    for scenario, firing in IN_ITSELF.values():
        yield World(scenario, minutes=8 if scenario.step == 1 else 40), firing


def fires(cell: str, moment: int) -> bool:
    """Whether a cell says that the alert fires at this moment, in seconds."""
    spans = [span.partition("-") for span in cell.split(",") if span != "."]
    return any(_seconds(first) <= moment <= _seconds(last or ("" if dash else first)) for first, dash, last in spans)


def _seconds(written: str) -> int:
    """Of `10`, `10:15`, or nothing: the end."""
    minute, _, second = written.partition(":")
    return int(minute) * MINUTE + int(second or 0) if written else EVER
