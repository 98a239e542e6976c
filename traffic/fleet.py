"""The programs under test as real processes: workers and the chessboard's consumers."""

import asyncio
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from devstack.demo_place import Place
from devstack.errors import StackError
from devstack.launcher import tail
from devstack.stack import Stack

ROOT: Final = Path(__file__).resolve().parent.parent
_START: Final = 60.0
_STOP: Final = 20.0
_COMMANDS: Final = {
    "worker": [sys.executable, str(ROOT / "worker.py")],
    "chessboard": [sys.executable, "-m", "chessboard", "run"],
}
_READY: Final = {"worker": '"worker started"', "chessboard": '"partitions assigned"'}


@dataclass(slots=True)
class Fleet:
    """Processes by their names, such as `worker-1`; each writes a log of its own."""

    place: Place
    stack: Stack
    running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    async def start(self, workers: int, consumers: int) -> None:
        """Start so many of each and wait until they work. Raises `StackError`."""
        names = [f"worker-{n}" for n in range(1, workers + 1)] + [f"chessboard-{n}" for n in range(1, consumers + 1)]
        for name in names:
            self._start(name)
        deadline = asyncio.get_running_loop().time() + _START
        for name in names:
            while not self._ready(name):
                self.check()
                if asyncio.get_running_loop().time() > deadline:
                    raise StackError(f"{name} was not ready after {_START:.0f} seconds.\n{tail(self.log(name))}")
                await asyncio.sleep(0.1)

    def log(self, name: str) -> Path:
        """Where this process writes."""
        return self.stack.logs / f"{name}.log"

    def names(self, kind: str) -> list[str]:
        """All processes of a kind."""
        return sorted(name for name in self.running if name.startswith(kind))

    def replace(self, name: str) -> None:
        """Kill it as the kernel would, and start its successor at once, as a supervisor would."""
        process = self.running[name]
        self.stack.launcher.let_go(process)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self._start(name)

    def check(self) -> None:
        """Raise `StackError` when one of them, or a server, ended by itself."""
        for name, process in self.running.items():
            if process.poll() is not None:
                raise StackError(f"{name} ended by itself (exit code {process.returncode}).\n{tail(self.log(name))}")
        self.stack.launcher.check()

    def stop(self) -> None:
        """SIGTERM to all; every one must end with exit code 0. Raises `StackError`."""
        for process in self.running.values():
            self.stack.launcher.let_go(process)
            process.terminate()
        for name, process in self.running.items():
            if process.wait(timeout=_STOP):
                raise StackError(f"{name} ended with exit code {process.returncode}.\n{tail(self.log(name))}")
        self.running.clear()

    def _start(self, name: str) -> None:
        command = _COMMANDS[name.partition("-")[0]]
        self.running[name] = self.stack.launcher.start(
            command, self.log(name), stop="SIGTERM=18,SIGKILL=5", env=self.place.addresses
        )

    def _ready(self, name: str) -> bool:
        sign = _READY[name.partition("-")[0]]
        return sign in self.log(name).read_text(encoding="utf-8", errors="replace")
