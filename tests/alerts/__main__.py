"""`python -m tests.alerts FOLDER`: the matrix as cases for `promtool test rules`, a file each, named by its case."""

import json
import re
import sys
from pathlib import Path

from tests.alerts.matrix import cases, fires
from tests.alerts.world import World

RULES = Path(__file__).resolve().parent.parent.parent / "ops/prometheus/rules.yml"


def case(world: World, firing: dict[str, str]) -> dict[str, object]:
    """A case: what is scraped, and for each moment exactly which alerts fire."""
    step = f"{world.scenario.step}s"
    checks = [
        {
            "expr": 'group by (alertname) (ALERTS{alertstate="firing"})',
            "eval_time": f"{moment}s",
            "exp_samples": [
                {"labels": f'{{alertname="BookingExpiration{name}"}}', "value": 1}
                for name, cell in firing.items()
                if fires(cell, moment)
            ],
        }
        for moment in world.looks()
    ]
    series = [{"series": name, "values": " ".join(values)} for name, values in world.series()]
    test = {"name": world.title, "interval": step, "input_series": series, "promql_expr_test": checks}
    return {"rule_files": [str(RULES)], "evaluation_interval": step, "tests": [test]}


def main(folder: Path) -> None:
    """JSON is YAML too."""
    for world, firing in cases():
        name = re.sub(r"\W+", "-", world.title.lower()).strip("-")
        (folder / f"{name}.yml").write_text(json.dumps(case(world, firing)), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
