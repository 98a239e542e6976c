"""Prometheus with the alerts of ops/, where it is installed: it is a luxury, and nothing waits for it."""

import json
import shutil
from pathlib import Path
from typing import Final

from devstack import ports
from devstack.launcher import Launcher

PREFERRED_PORTS: Final = (9090,)
RULES: Final = Path(__file__).resolve().parent.parent / "ops/prometheus/rules.yml"
WORKER: Final = f"{ports.HOST}:8000"
"""Where `make worker` listens by default."""


def start(launcher: Launcher, folder: Path, logs: Path) -> str | None:
    """Start it and return the address of its page of alerts; None where it is not installed."""
    program = shutil.which("prometheus")
    if program is None:
        return None
    config, port = folder / "prometheus.yml", ports.choose(*PREFERRED_PORTS)
    scrape = {"job_name": "booking-expiration", "static_configs": [{"targets": [WORKER]}]}
    every = {"scrape_interval": "15s", "evaluation_interval": "15s"}
    config.write_text(json.dumps({"global": every, "rule_files": [str(RULES)], "scrape_configs": [scrape]}))  # JSON is YAML
    command = [program, f"--config.file={config}", f"--storage.tsdb.path={folder / 'prometheus'}"]
    command += [f"--web.listen-address={ports.HOST}:{port}", "--storage.tsdb.retention.time=7d"]
    launcher.start(command, logs / "prometheus.log", stop="SIGTERM=8,SIGKILL=5")
    return f"http://{ports.HOST}:{port}/alerts"
