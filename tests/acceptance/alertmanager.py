"""A real Alertmanager, and what it does with the alerts that it is sent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import aiohttp

from devstack import ports
from tests.acceptance.installed import installed
from tests.acceptance.process import ROOT, soon

OURS = ROOT / "ops/alertmanager/alertmanager.yml"
PACKAGE = "prometheus-alertmanager"
_MARK = [
    {"alertname": "BookingExpirationPoisonBookingDoesNotExpire", "service": "mark"},
    {"alertname": "BookingExpirationErrorsSustained", "kind": "item", "service": "mark"},
]
"""The first mutes the second. Alerts are taken in one after the other, so then it knows what came before them."""


@asynccontextmanager
async def an_alertmanager(folder: Path) -> AsyncIterator[str]:
    """With our configuration: its address, once it listens; gone at the end."""
    installed("amtool", package=PACKAGE)
    binary, port = installed("prometheus-alertmanager", "alertmanager", package=PACKAGE), ports.choose()
    process = await asyncio.create_subprocess_exec(
        binary, f"--config.file={OURS}", "--storage.path=data", f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=", cwd=folder, stdout=DEVNULL, stderr=DEVNULL,
    )  # fmt: skip

    async def listens() -> bool:
        return ports.answers(port)

    try:
        await soon(listens, "Alertmanager")
        yield f"http://127.0.0.1:{port}"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def told(url: str, fires: list[dict[str, str]]) -> list[dict[str, Any]]:
    """What its API says of these alerts once it has taken them all in, in their order: labels, receivers, and what mutes them."""
    alerts = f"{url}/api/v2/alerts"
    async with aiohttp.ClientSession() as session:
        async with session.post(alerts, json=[{"labels": labels} for labels in (*fires, *_MARK)]) as answer:
            assert answer.ok, await answer.text()

        async def known() -> list[dict[str, Any]]:
            async with session.get(alerts) as answer:
                found = {tuple(sorted(each["labels"].items())): each for each in await answer.json()}
            states = [found.get(tuple(sorted(labels.items()))) for labels in (*fires, *_MARK)]
            here = [state for state in states if state]
            return here[:-2] if len(here) == len(states) and here[-1]["status"]["inhibitedBy"] else []

        answers: list[dict[str, Any]] = await soon(known, "what Alertmanager does with the alerts")
        return answers
