"""Dashboard and rules on real data: a real Prometheus that scrapes a real worker (O2, O4, O5; issue 5 section 4)."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from devstack import dashboard
from tests import floor
from tests.acceptance.process import ROOT, World, soon
from tests.acceptance.prometheus import Prometheus, a_prometheus
from tests.floor import MINUTE, Admin

DASHBOARD: dict[str, Any] = json.loads((ROOT / "ops/grafana/dashboards/pin-crm.json").read_text(encoding="utf-8"))


def queries() -> dict[str, str]:
    """Every query of every panel by the panel's title, with Grafana's own variable filled in."""
    return {
        f"{panel['title']} {target['refId']} ({panel['type']})": target["expr"].replace("$__range", "10m")
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", [])
    }


async def _cycles(world: World, admin: Admin, prometheus: Prometheus, count: int) -> None:
    """So many cycles with something to expire, each seen by a scrape of its own."""
    for number in range(1, count + 1):
        await floor.add(admin, 5, await floor.clock(admin) - MINUTE)
        await world.result()

        async def seen(number: int = number) -> bool:
            return await prometheus.values("sum(crm_booking_expiration_items_total)") == [5 * number]

        await soon(seen, f"{number} cycles in Prometheus")


@pytest.mark.slow
async def test_o4_every_panel_shows_something(world: World, admin: Admin, tmp_path: Path) -> None:
    """O4: after two cycles no query of the dashboard is empty, its picture can be drawn, annotations asked for."""
    worker = await world.start(BOOKING_EXPIRATION_GAUGES_INTERVAL="1")
    address = (await worker.said("worker started"))["web"].removeprefix("http://")
    async with a_prometheus(tmp_path, address) as prometheus:
        await prometheus.scraped(1)
        await _cycles(world, admin, prometheus, 2)
        for title, query in queries().items():
            await soon(lambda query=query: prometheus.values(query), f"something to show in: {title}")
        picture = await asyncio.to_thread(dashboard.draw, dashboard.Range(prometheus.address, minutes=2))
        assert "no data" not in picture
        for annotation in DASHBOARD["annotations"]["list"]:
            await prometheus.values(annotation["expr"])


@pytest.mark.slow
async def test_o5_rules_work_on_what_a_worker_says(world: World, admin: Admin, tmp_path: Path) -> None:
    """O5: every rule is evaluated without an error, what is recorded is there, and after good cycles no alert fires."""
    worker = await world.start(BOOKING_EXPIRATION_GAUGES_INTERVAL="1")
    address = (await worker.said("worker started"))["web"].removeprefix("http://")
    async with a_prometheus(tmp_path, address) as prometheus:
        await prometheus.scraped(1)
        await _cycles(world, admin, prometheus, 2)

        async def rules() -> list[dict[str, Any]]:
            found = [rule for group in (await prometheus.api("rules"))["groups"] for rule in group["rules"]]
            return found if all(rule["health"] != "unknown" for rule in found) else []

        found = await soon(rules, "evaluated rules", seconds=40)
        assert [(rule["name"], rule.get("lastError")) for rule in found if rule["health"] != "ok"] == []
        for name in (rule["name"] for rule in found if rule["type"] == "recording"):
            await soon(lambda name=name: prometheus.values(name), f"values of {name}", seconds=40)
        assert [rule["name"] for rule in found if rule.get("state") == "firing"] == []
