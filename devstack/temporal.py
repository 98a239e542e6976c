"""Temporal's development server with its Web UI."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from devstack import ports
from devstack.launcher import Launcher
from devstack.schema import program

PREFERRED_PORTS: Final = (7233,)
PREFERRED_UI_PORTS: Final = (8233,)
SEARCH_ATTRIBUTES: Final = ("ExpirationOutcome=Keyword", "BookingsExpired=Int", "PoisonBookings=Int", "RecordsParked=Int")
"""What the worker writes about a cycle (D28)."""


@dataclass(frozen=True)
class Temporal:
    """Where the server and its Web UI are."""

    address: str
    ui: str


def start(launcher: Launcher, folder: Path, logs: Path, *, preferred: bool, durable: bool) -> Temporal:
    """Start the server; with `durable` its history is kept in the folder."""
    log, temporal = logs / "temporal.log", program("temporal")
    port = ports.choose(*(PREFERRED_PORTS if preferred else ()))
    ui = ports.choose(*(PREFERRED_UI_PORTS if preferred else ()))
    command = [temporal, "server", "start-dev", "--ip", ports.HOST, "--port", str(port), "--ui-port", str(ui)]
    command += [part for attribute in SEARCH_ATTRIBUTES for part in ("--search-attribute", attribute)]
    if durable:
        command += ["--db-filename", str(folder / "temporal.db")]
    process = launcher.start(command, log, stop="SIGTERM=8,SIGKILL=5" if durable else "SIGKILL=5")
    address = f"{ports.HOST}:{port}"
    launcher.wait_until(
        lambda: ports.answers(port) and _is_ready(temporal, address), "Temporal", log, seconds=60, process=process
    )
    return Temporal(address, f"http://{ports.HOST}:{ui}")


def _is_ready(temporal: str, address: str) -> bool:
    """The namespace and our last search attribute are there; the port opens earlier than that."""
    question = [temporal, "operator", "search-attribute", "list", "--address", address, "--command-timeout", "5s"]
    answer = subprocess.run(question, capture_output=True, text=True, check=False)
    return answer.returncode == 0 and all(name.split("=")[0] in answer.stdout for name in SEARCH_ATTRIBUTES)
