"""Dashboard and rules on real data: a real Prometheus that scrapes a real worker (O2, O4, O5; issue 5 section 4)."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from devstack import dashboard
from tests import floor
from tests.acceptance.command import call
from tests.acceptance.process import ROOT, World, soon
from tests.acceptance.prometheus import Prometheus, a_prometheus
from tests.floor import MINUTE, Admin

DASHBOARD: dict[str, Any] = json.loads((ROOT / "ops/grafana/dashboards/pin-crm.json").read_text(encoding="utf-8"))

ANNOTATIONS: dict[str, str] = {each["name"]: each["expr"] for each in DASHBOARD["annotations"]["list"]}


def queries() -> dict[str, str]:
    """Every query of every panel by the panel's title, with Grafana's own variable filled in."""
    return {
        f"{panel['title']} {target['refId']} ({panel['type']})": target["expr"].replace("$__range", "10m")
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", [])
    }


def bare(query: str) -> str:
    """A query without the `or …` that shows a 0 where there is nothing: with it, it could never be empty."""
    return query.partition(" or ")[0]


async def _cycles(world: World, admin: Admin, prometheus: Prometheus, count: int) -> None:
    """So many cycles with something to expire, each seen by a scrape of its own."""
    bookings = 5
    for _ in range(count):
        before = await prometheus.values("sum(crm_booking_expiration_items_total)")
        await floor.add(admin, bookings, await floor.clock(admin) - MINUTE)
        await world.result()

        async def seen(before: list[float] = before) -> bool:
            return await prometheus.values("sum(crm_booking_expiration_items_total)") == [before[0] + bookings]

        await soon(seen, "a cycle in Prometheus")


async def _drained_and_parked(world: World, admin: Admin) -> None:
    """What the annotations are about: a drain, an alert, and a pause, which the tests' schedule always is."""
    await floor.add(admin, 300, await floor.clock(admin) - MINUTE)
    done = await call(world, "drain", "--cap", "300", "--reason", "INC-7: for the test")
    assert done.code == 0, done
    await admin.execute("""
        UPDATE crm.outbox
        SET published_at = NULL, kafka_partition = NULL, kafka_offset = NULL, parked_at = now(), park_reason = 'test'
        WHERE id = (SELECT max(id) FROM crm.outbox)""")


@pytest.mark.slow
async def test_o4_every_panel_shows_something(world: World, admin: Admin, tmp_path: Path) -> None:
    """O4: no query of the dashboard is empty, not even without its `or …`, nor any annotation's; its picture can be drawn."""
    worker = await world.start(BOOKING_EXPIRATION_GAUGES_INTERVAL="1")
    address = (await worker.said("worker started"))["web"].removeprefix("http://")
    async with a_prometheus(tmp_path, address) as prometheus:
        await prometheus.scraped(1)
        await _cycles(world, admin, prometheus, 2)
        assert await prometheus.values(ANNOTATIONS["Draining"]) == []
        await _drained_and_parked(world, admin)
        for title, query in queries().items():
            await soon(lambda query=query: prometheus.values(bare(query)), f"something to show in: {title}", seconds=60)
        picture = await asyncio.to_thread(dashboard.draw, dashboard.Range(prometheus.address, minutes=2))
        assert "no data" not in picture
        for name, expr in ANNOTATIONS.items():
            await soon(lambda expr=expr: prometheus.values(expr), f"an annotation: {name}")


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
