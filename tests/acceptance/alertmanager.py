"""A real Alertmanager, which nobody sends an alert to."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import DEVNULL

import pytest

from devstack import ports
from tests.acceptance.process import soon

_CONFIGURATION = "route: {receiver: none}\nreceivers: [{name: none}]\n"


def binary() -> str:
    """Where it is installed, with amtool. In CI it must be; elsewhere the test is skipped and says so."""
    found = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
    if found and shutil.which("amtool"):
        return found
    message = "Alertmanager is not installed (Debian and Ubuntu: apt-get install prometheus-alertmanager)"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


@asynccontextmanager
async def an_alertmanager(folder: Path) -> AsyncIterator[str]:
    """Its address, once it listens; gone at the end."""
    (folder / "alertmanager.yml").write_text(_CONFIGURATION)
    port = ports.choose()
    process = await asyncio.create_subprocess_exec(
        binary(), "--config.file=alertmanager.yml", "--storage.path=data", f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=", cwd=folder, stdout=DEVNULL, stderr=DEVNULL,
    )  # fmt: skip

    async def listens() -> bool:
        return ports.answers(port)

    try:
        await soon(listens, "Alertmanager")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        await process.wait()
