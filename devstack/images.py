"""Makes the pictures of the README from a real run: `.venv/bin/python -m devstack.images`, which takes two minutes.

It plays the demo, draws its final picture (docs/images/demo.svg), and photographs two pages of the Temporal Web UI with
headless Chromium: the running schedule and a finished cycle. Needs `chromium` on the PATH, which no lock file brings
(Debian and Ubuntu: `apt-get install chromium`).
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from shutil import which
from typing import Final

from devstack import demo
from devstack.demo_play import ROOT, Play
from devstack.errors import StackError

IMAGES: Final = ROOT / "docs" / "images"
_QUIET: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip
_RENDERING: Final = 20_000
"""Milliseconds of the page's own time: the Web UI is a program that asks the server several times before all is there."""


def photograph(play: Play) -> None:
    """Both pages, while the servers are up."""
    ui, first = play.place.web_ui, play.cycles.done[0]
    _shoot(f"{ui}/schedules/{play.place.settings.schedule_id}", IMAGES / "schedule.png", 1500, 1240)
    _shoot(f"{ui}/workflows/{first.workflow_id}/{first.run_id}/timeline", IMAGES / "cycle.png", 1700, 980)


def _shoot(page: str, target: Path, width: int, height: int) -> None:
    with tempfile.TemporaryDirectory() as profile:
        options = [f"--user-data-dir={profile}", f"--window-size={width},{height}", f"--virtual-time-budget={_RENDERING}"]
        command = ["chromium", *_QUIET, *options, f"--screenshot={target}", page]
        subprocess.run(command, check=True, capture_output=True, timeout=90, env={**os.environ, "TZ": "UTC"})
    print(f"{target.relative_to(ROOT)}: {target.stat().st_size // 1024} KB")


def main() -> int:
    """Play and photograph; the demo's exit code."""
    if which("chromium") is None:
        raise SystemExit("images: the program chromium is missing; on Debian and Ubuntu: apt-get install chromium")
    try:
        return demo.main(["--svg", str(IMAGES / "demo.svg")], photograph)
    except (subprocess.SubprocessError, StackError) as error:
        raise SystemExit(f"images: {error}") from None


if __name__ == "__main__":
    sys.exit(main())
