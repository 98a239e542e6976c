"""`python -m devstack.dashboard PROMETHEUS [MINUTES]`: the dashboard `pin-crm` drawn from a Prometheus' data, without Grafana.

The same queries, places and limits as in ops/grafana; how Grafana itself would draw them is not promised.
"""

import json
import math
import sys
import time
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode
from urllib.request import urlopen

ROOT: Final = Path(__file__).resolve().parent.parent
DASHBOARD: Final = ROOT / "ops/grafana/dashboards/pin-crm.json"
PICTURE: Final = ROOT / "docs/images/dashboard.svg"
CELL: Final = (50, 30)
"""Pixels of one unit of Grafana's grid."""
COLORS: Final = ("#5794f2", "#ff9830", "#73bf69", "#b877d9", "#f2cc0c")
SHADES: Final = {"green": "#37872d", "yellow": "#b58900", "orange": "#d9730d", "red": "#c4162a"}

Series = tuple[str, list[tuple[float, float]]]


class Range:
    """What a Prometheus knows of the last minutes."""

    def __init__(self, address: str, minutes: float) -> None:
        """`address` as http://host:port."""
        self.address, self.end = address.rstrip("/"), time.time()
        self.start = self.end - 60 * minutes

    def ask(self, query: str) -> list[dict[str, Any]]:
        """The series of a query, a point every 5 seconds."""
        query = query.replace("$__range", f"{self.end - self.start:.0f}s")
        parameters = {"query": query, "start": self.start, "end": self.end, "step": 5}
        with urlopen(f"{self.address}/api/v1/query_range?{urlencode(parameters)}") as answer:  # noqa: S310 # what the user named
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found

    def series(self, target: dict[str, Any]) -> list[Series]:
        """The same with the legend's names, without points that are no number."""
        named = []
        for one in self.ask(target["expr"]):
            legend = target["legendFormat"]
            for label, value in one["metric"].items():
                legend = legend.replace("{{" + label + "}}", value)
            points = [(at, number) for at, value in one["values"] if math.isfinite(number := float(value))]
            named += [(legend, points)] if points else []
        return named


def shown(value: float, unit: str) -> str:
    """A number as a person reads it."""
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit == "s":
        return f"{value:.0f} s" if value >= 10 else f"{value:.2g} s"  # noqa: PLR2004 # two digits are enough
    return f"{value:.3g}" if value % 1 else f"{value:.0f}"


def draw(period: Range) -> str:
    """The whole dashboard as one SVG."""
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    alerts = {one["metric"]["alertname"]: one["values"] for one in period.ask('ALERTS{alertstate="firing"}')}
    height = CELL[1] * max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in dashboard["panels"]) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {24 * CELL[0]} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="100%" height="{height}" fill="#111217"/>',
    ]
    for panel in dashboard["panels"]:
        grid = panel["gridPos"]
        x, y, width, tall = grid["x"] * CELL[0], grid["y"] * CELL[1], grid["w"] * CELL[0], grid["h"] * CELL[1]
        if panel["type"] == "row":
            parts.append(text(x + 8, y + 20, f"{dashboard['title']} — {panel['title']}", size=16))
            continue
        parts.append(
            f'<g transform="translate({x + 3},{y + 3})"><rect width="{width - 6}" height="{tall - 6}" fill="#181b1f" rx="3"/>'
        )
        series = [one for target in panel["targets"] for one in period.series(target)]
        body = stat if panel["type"] == "stat" else chart
        parts += [*body(panel, series, width - 6, tall - 6, period), text(8, 17, panel["title"], fill="#ffffff"), "</g>"]
    fired = ", ".join(sorted(alerts)) or "none"
    minutes = (period.end - period.start) / 60
    note = f"Drawn by devstack.dashboard from {minutes:.0f} min of a Prometheus' data. Alerts that fired: {fired}"
    return "\n".join([*parts, text(8, height - 8, note, size=11), "</svg>", ""])


def text(x: float, y: float, words: str, *, size: int = 12, fill: str = "#ccccdc", anchor: str = "start") -> str:
    """One line of text."""
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}">{escape(words)}</text>'


def limits(panel: dict[str, Any]) -> list[tuple[float, str]]:
    """Values and colours of a panel's thresholds, ascending."""
    steps = panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", [])
    return [(step["value"], SHADES[step["color"]]) for step in steps if step["value"] is not None]


def stat(panel: dict[str, Any], series: Sequence[Series], width: int, tall: int, _: Range) -> list[str]:
    """The last value, large, on the colour of its limit."""
    value = series[0][1][-1][1] if series else math.nan
    defaults = panel["fieldConfig"]["defaults"]
    names = {key: option["text"] for mapping in defaults.get("mappings", []) for key, option in mapping["options"].items()}
    words = names.get(f"{value:.0f}") or (shown(value, defaults["unit"]) if series else "no data")
    reached = [color for limit, color in limits(panel) if value >= limit]
    color = [SHADES["green"], *reached][-1]
    return [
        f'<rect width="{width}" height="{tall}" fill="{color}" rx="3"/>',
        text(width / 2, tall / 2 + 18, words, size=30, fill="#ffffff", anchor="middle"),
    ]


def chart(panel: dict[str, Any], series: Sequence[Series], width: int, tall: int, period: Range) -> list[str]:
    """Lines over time with the highest value, the limits within sight, and a legend."""
    left, top, right, bottom = 52, 28, width - 10, tall - 40
    unit = panel["fieldConfig"]["defaults"]["unit"]
    highest = max([value for _, points in series for _, value in points], default=0) or 1
    highest *= 1.1

    def place(at: float, value: float) -> tuple[float, float]:
        share = (at - period.start) / (period.end - period.start)
        return left + share * (right - left), bottom - value / highest * (bottom - top)

    parts = []
    for fraction in (0, 0.5, 1):
        _, y = place(period.start, fraction * highest)
        parts.append(f'<path d="M{left} {y:.0f}H{right}" stroke="#2c3235"/>')
        parts.append(text(left - 4, y + 4, shown(fraction * highest, unit), size=10, anchor="end"))
    for limit, color in limits(panel):
        if limit < highest:
            parts.append(f'<path d="M{left} {place(0, limit)[1]:.1f}H{right}" stroke="{color}" stroke-dasharray="5 3"/>')
    for minute in range(math.ceil(period.start / 120) * 120, int(period.end), 120):
        x, _ = place(minute, 0)
        parts.append(text(x, bottom + 13, time.strftime("%H:%M", time.gmtime(minute)), size=10, anchor="middle"))
    across = left
    for number, (name, points) in enumerate(series):
        color = COLORS[number % len(COLORS)]
        line = " ".join("{:.1f},{:.1f}".format(*place(at, max(value, 0))) for at, value in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="1.5"/>')
        parts.append(f'<rect x="{across}" y="{tall - 17}" width="10" height="3" fill="{color}"/>')
        parts.append(text(across + 14, tall - 11, name, size=10))
        across += 24 + 6 * len(name)
    return parts if series else [text(width / 2, tall / 2, "no data", anchor="middle")]


if __name__ == "__main__":
    PICTURE.write_text(draw(Range(sys.argv[1], float([*sys.argv, "10"][2]))), encoding="utf-8")
