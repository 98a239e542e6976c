"""The chessboard as a process: started, told to stop, killed, frozen; its log is a file."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tests.acceptance.process import ROOT, soon
from tests.chessboard.grid import Market


@dataclass
class Member:
    """One `python -m chessboard run`."""

    process: asyncio.subprocess.Process
    out: Path
    err: Path

    def events(self, event: str) -> list[dict[str, Any]]:
        """The log lines of one event; every line must be a JSON object."""
        lines = self.out.read_text().rpartition("\n")[0]
        return [line for line in map(json.loads, lines.splitlines()) if line["event"] == event]

    async def said(self, event: str) -> dict[str, Any]:
        """The first such log line, as soon as it is there."""

        async def heard() -> list[dict[str, Any]]:
            if self.process.returncode is not None and not self.events(event):
                raise AssertionError(f"ended with {self.process.returncode}: {self.err.read_text()}")
            return self.events(event)

        first: dict[str, Any] = (await soon(heard, event))[0]
        return first

    def send(self, which: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(which)

    async def stop(self) -> tuple[int, float]:
        """SIGTERM; its exit code and how many seconds it took."""
        began = time.monotonic()
        self.send(signal.SIGTERM)
        async with asyncio.timeout(20):
            return await self.process.wait(), time.monotonic() - began

    async def ready(self) -> tuple[int, dict[str, Any]]:
        """What `/readyz` answers."""
        web = (await self.said("chessboard started"))["web"]
        async with aiohttp.ClientSession() as session, session.get(f"{web}/readyz") as answer:
            return answer.status, await answer.json()


@dataclass
class Members:
    """Where the members of one test live."""

    market: Market
    folder: Path
    all: list[Member] = field(default_factory=list)

    def environment(self, **settings: str) -> dict[str, str]:
        """What a member is told; warnings of Python are errors in it too."""
        ours = {
            "CHESSBOARD_DATABASE_URL": self.market.database.chessboard,
            "KAFKA_BOOTSTRAP_SERVERS": self.market.servers,
            "CHESSBOARD_TOPIC": self.market.topic,
            "CHESSBOARD_GROUP": self.market.group,
            "CHESSBOARD_SESSION_TIMEOUT": "6",
            "CHESSBOARD_HTTP_PORT": "0",
            "PYTHONWARNINGS": "error",
        }
        return {**os.environ, **ours, **settings}

    async def start(self, **settings: str) -> Member:
        """Start a member and wait until it has partitions."""
        number = len(self.all)
        out, err = self.folder / f"{number}.out", self.folder / f"{number}.err"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "chessboard", "run"),
                cwd=ROOT,
                env=self.environment(**settings),
                stdout=stdout,
                stderr=stderr,
            )
        self.all.append(Member(process, out, err))
        await self.all[-1].said("partitions assigned")
        return self.all[-1]

    async def command(self, *words: str) -> tuple[int, str]:
        """Run a command to its end; exit code and what it printed."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "chessboard", *words),
            cwd=ROOT,
            env=self.environment(),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed, _ = await process.communicate()
        return process.returncode or 0, printed.decode()


@asynccontextmanager
async def members(market: Market, folder: Path) -> AsyncIterator[Members]:
    """None of them is left at the end."""
    those = Members(market, folder)
    try:
        yield those
    finally:
        for member in those.all:
            if member.process.returncode is None:
                member.send(signal.SIGCONT)
                member.process.kill()
            await member.process.wait()
