"""Makes the pictures of the README and of docs/operations.md from real runs: `.venv/bin/python -m devstack.images`.

It plays the demo, draws its final picture (docs/images/demo.svg), and photographs pages of the Temporal Web UI with headless
Chromium: there the running schedule and a finished cycle; then, on a stack of its own, what operators see: the schedule, a cycle
at its second batch, a drain (docs/images/ui-*.png; the form is filled in by hand). All in four minutes. Needs `chromium` on the
PATH, which no lock file brings (Debian and Ubuntu: `apt-get install chromium`).
"""

import asyncio
import base64
import os
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from shutil import which
from typing import Final

import aiohttp
from temporalio.client import ScheduleActionExecutionStartWorkflow

from devstack import demo, demo_place, session_stage, stack
from devstack.demo_play import ROOT, Play
from devstack.errors import StackError
from devstack.session_stage import Stage
from devstack.session_terminal import Terminal

IMAGES: Final = ROOT / "docs" / "images"
_CHROMIUM: Final = (
    "chromium", "--headless", "--remote-debugging-port=0", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip
_RENDERING: Final = 8.0
"""Seconds: the Web UI is a program that asks the server several times before all is there, and goes on while a run goes on."""

_FRAME: Final = 143
"""Pixels of the window's height that are not the page's."""

_TO_THE_SECOND: Final = 3.0
_SOME_ROUNDS: Final = 15.0
"""Seconds."""


def photograph(play: Play) -> None:
    """Both pages, while the servers are up."""
    ui, first = play.place.web_ui, play.cycles.done[0]
    asyncio.run(_shoot(f"{ui}/schedules/{play.place.settings.schedule_id}", IMAGES / "schedule.png", 1500, 1240))
    asyncio.run(_shoot(f"{ui}/workflows/{first.workflow_id}/{first.run_id}/timeline", IMAGES / "cycle.png", 1700, 980))


def operators() -> None:
    """What an operator sees, on a stack of its own. Raises `StackError`."""
    parts = list(stack.ALL)
    with stack.running(preferred_ports=True, say=print) as running, demo_place.prepared(running.addresses, parts, "ui") as place:
        asyncio.run(_operators(place, running))


async def _operators(place: demo_place.Place, running: stack.Stack) -> None:
    ui, schedule_id = place.web_ui, place.settings.schedule_id
    terminal = Terminal(session_stage.neutral(place.addresses))

    async def shoot(page: str, name: str) -> None:
        await _shoot(f"{ui}/{page}", IMAGES / f"{name}.png", 1400, 1100)

    async with session_stage.staged(place, running) as stage:
        await stage.start_worker()
        await _overdue(stage)
        await stage.slow_down("Booked")
        run = await _started(stage, schedule_id)
        await shoot(f"workflows/{run}/user-metadata", "ui-cycle")
        await stage.speed_up()
        await stage.cycle_over()
        await terminal.run('booking-expiration drain --cap 2000 --lanes 2 --pause 8s --detach --reason "INC-2041: worker down"')
        await asyncio.sleep(_SOME_ROUNDS)
        drain = await stage.client.get_workflow_handle(f"{schedule_id}-drain").describe()
        await shoot(f"workflows/{drain.id}/{drain.run_id}/user-metadata", "ui-drain")
        await shoot(f"schedules/{schedule_id}", "ui-schedule")


async def _overdue(stage: Stage) -> None:
    """A backlog, and a booking in it that refuses to expire."""
    late = timedelta(minutes=40)
    reserves = await stage.book(2_000, over=late)
    await stage.book(57, "Booked", over=late)
    await stage.freeze_deal(reserves[0])


async def _started(stage: Stage, schedule_id: str) -> str:
    """The workflow and run id of a cycle that is at its second batch."""
    handle = stage.client.get_schedule_handle(schedule_id)
    await stage.quiet()
    await handle.trigger()
    await asyncio.sleep(_TO_THE_SECOND)
    for action in (await handle.describe()).info.running_actions:
        if isinstance(action, ScheduleActionExecutionStartWorkflow):
            return f"{action.workflow_id}/{action.first_execution_run_id}"
    raise StackError("the cycle was over too soon")


async def _shoot(page: str, target: Path, width: int, height: int) -> None:
    """Chromium's own `--screenshot` waits for a page that is quiet, which one of a running workflow never is."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:  # it may still write there
        command = [*_CHROMIUM, f"--user-data-dir={profile}", f"--window-size={width},{height + _FRAME}", page]
        chromium = await asyncio.create_subprocess_exec(*command, stderr=subprocess.DEVNULL, env={**os.environ, "TZ": "UTC"})
        try:
            await asyncio.sleep(_RENDERING)
            port = int((Path(profile) / "DevToolsActivePort").read_text().split()[0])
            picture = await _picture(f"http://127.0.0.1:{port}/json/list")
        finally:
            chromium.terminate()
            await chromium.wait()
    await asyncio.to_thread(target.write_bytes, picture)
    print(f"{target.relative_to(ROOT)}: {len(picture) // 1024} KB")


async def _picture(pages: str) -> bytes:
    """What the one page shows now, by the browser's own protocol."""
    async with aiohttp.ClientSession() as session:
        listed = await (await session.get(pages)).json()
        [address] = [each["webSocketDebuggerUrl"] for each in listed if each["type"] == "page"]
        async with session.ws_connect(address, max_msg_size=0) as browser:
            await browser.send_json({"id": 1, "method": "Page.captureScreenshot", "params": {"format": "png"}})
            return base64.b64decode((await browser.receive_json())["result"]["data"])


def main() -> int:
    """Play and photograph; the demo's exit code."""
    if which("chromium") is None:
        raise SystemExit("images: the program chromium is missing; on Debian and Ubuntu: apt-get install chromium")
    given = dict(os.environ)
    try:
        operators()
        os.environ.clear()  # of the addresses of that stack
        os.environ.update(given)
        return demo.main(["--svg", str(IMAGES / "demo.svg")], photograph)
    except (OSError, aiohttp.ClientError, StackError) as error:
        raise SystemExit(f"images: {error}") from None


if __name__ == "__main__":
    sys.exit(main())
