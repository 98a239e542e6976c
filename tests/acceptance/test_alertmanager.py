"""A real Alertmanager with the configuration of ops/: who hears of our alerts, and which are muted (issue 5 section 3)."""

import asyncio
import os
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.acceptance.alertmanager import an_alertmanager, told
from tests.acceptance.prometheus import RULES
from tests.acceptance.runbook import BOOKINGS, Section, blocks

LABELS: Final[dict[tuple[str, str], dict[str, str]]] = {
    (rule["alert"].removeprefix("BookingExpiration"), rule["labels"]["severity"]): rule["labels"]
    for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
    if "alert" in rule
}
"""What the rules put on each alert, by its short name and severity."""

NO_CYCLE: Final = "critical NoSuccessfulCycle"
BACKLOG: Final = "critical BacklogOver100"
OLDEST: Final = "warning OldestOverdueOver5Min phase=Reserve"
LATE: Final = "critical BookingsExpireLate"

MUTED: Final = {
    "a hold": (["critical Held what=held", NO_CYCLE], [BACKLOG, OLDEST, LATE]),
    "poison": (
        ["warning PoisonBookingDoesNotExpire", OLDEST, "warning ErrorsSustained kind=batch"],
        ["warning ErrorsSustained kind=item"],
    ),
    "late": ([LATE, "critical EventsPublishedLate"], ["warning BookingsExpireLate", "warning EventsPublishedLate"]),
    "no successful cycle": ([NO_CYCLE, BACKLOG, OLDEST, LATE], []),
    "a parked record": (["warning ParkedRecord", "warning ErrorsSustained kind=publish"], []),
    "an old outbox": (
        ["critical OutboxOldestOver5Min", "critical OutboxBacklogOver1000", "critical EventsPublishedLate"],
        [],
    ),
}
"""Alerts that fire together: those that are heard, and those that are muted."""

SILENCES: Final = {"the schedule": {NO_CYCLE, BACKLOG}, "one phase": {NO_CYCLE}}
"""What the runbook's two silences are for, in its order, and what they silence."""


def labels(alert: str) -> dict[str, str]:
    """Those that Prometheus sends, of `severity name label=value …`."""
    severity, name, *others = alert.split()
    return {"alertname": f"BookingExpiration{name}", **LABELS[name, severity], **dict(each.split("=") for each in others)}


@pytest.mark.parametrize("together", MUTED)
async def test_what_follows_from_another_alert_is_muted_and_nothing_else(together: str, tmp_path: Path) -> None:
    """Issue 5 section 3: of alerts with one cause some are muted; none that may have a cause of its own."""
    heard, muted = MUTED[together]
    async with an_alertmanager(tmp_path) as url:
        states = await told(url, [labels(alert) for alert in (*heard, *muted)])
    inhibited = [alert for alert, state in zip((*heard, *muted), states, strict=True) if state["status"]["inhibitedBy"]]
    assert inhibited == muted


@pytest.mark.parametrize("paused", SILENCES)
async def test_the_runbooks_silences_hide_nothing_else(paused: str, tmp_path: Path) -> None:
    """Issue 4 section 6: with a phase paused and silenced as the runbook says, the other one that hangs still wakes somebody."""
    found = [block for block in blocks()[Section(BOOKINGS, "Pause and resume")] if block.startswith("amtool")]
    typed = dict(zip(SILENCES, found, strict=True))[paused]
    fires = [NO_CYCLE, BACKLOG, OLDEST, LATE, "critical OutboxBacklogOver1000"]
    async with an_alertmanager(tmp_path) as url:
        typing = await asyncio.create_subprocess_exec("sh", "-euc", typed, env={**os.environ, "ALERTMANAGER_URL": url})
        assert await typing.wait() == 0
        states = dict(zip(fires, await told(url, [labels(alert) for alert in fires]), strict=True))
    silent = {alert for alert, state in states.items() if state["status"]["state"] == "suppressed"}
    assert silent == SILENCES[paused]
    pages = {alert for alert, state in states.items() if state["receivers"] == [{"name": "pager"}]}
    assert pages == {alert for alert in fires if alert.startswith("critical")}
