"""The guardian: a tiny process that stops everything the stack started, however the stack itself ended.

It reads lines from a pipe. When the last writer is gone (a clean end, an error, `kill -9`), it stops what it was told about
and removes the folders it was told about. It is told by each process itself, so there is no moment when it knows too little.

- `server PID SIGNAL=SECONDS,…`: these signals one after the other, each with its time to end
- `command PID SIGNAL=SECONDS,…`: the same, before any server, and with all its descendants
- `remove PATH`: a file or folder to delete at the very end
"""

import contextlib
import os
import shutil
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

_GONE = (psutil.NoSuchProcess, psutil.ZombieProcess)


@dataclass
class Ward:
    """One process, and the signals that end it in the order of their strength, each with its patience in seconds."""

    process: psutil.Process
    steps: list[tuple[signal.Signals, float]]
    family: list[psutil.Process] = field(default_factory=list)

    @classmethod
    def of(cls, pid: int, steps: str) -> "Ward":
        """A ward by its pid and `SIGNAL=SECONDS,…`."""
        return cls(psutil.Process(pid), [_step(text) for text in steps.split(",") if text])

    def is_alive(self) -> bool:
        """Whether the process itself still runs; a zombie does not."""
        return _is_alive(self.process)


@dataclass
class Orders:
    """What the lines said."""

    commands: list[Ward] = field(default_factory=list)
    servers: list[Ward] = field(default_factory=list)
    remove: list[Path] = field(default_factory=list)

    def take(self, line: str) -> None:
        """Note one line. A process that has already ended needs no guard."""
        kind, _, rest = line.partition(" ")
        if kind == "remove":
            self.remove.append(Path(rest))
            return
        pid, _, steps = rest.partition(" ")
        with contextlib.suppress(*_GONE):
            (self.commands if kind == "command" else self.servers).append(Ward.of(int(pid), steps))

    def carry_out(self) -> None:
        """Say first that there is nothing to use any more (files), stop commands, then their servers, then delete folders."""
        for path in self.remove:
            if not path.is_dir():
                path.unlink(missing_ok=True)
        stop(self.commands)
        stop(self.servers)
        for path in self.remove:
            shutil.rmtree(path, ignore_errors=True)


def stop(wards: list[Ward]) -> None:
    """End the processes together: one signal, time to end, the next signal; at last whatever descends from them."""
    alive = [ward for ward in wards if ward.is_alive()]
    for ward in alive:
        with contextlib.suppress(*_GONE):
            ward.family = ward.process.children(recursive=True)
    for number in range(max((len(ward.steps) for ward in alive), default=0)):
        round_ = [(ward, ward.steps[number]) for ward in alive if ward.is_alive() and number < len(ward.steps)]
        for ward, (which, _) in round_:
            _send(ward.process, which)
        _wait([ward.process for ward, _ in round_], max((patience for _, (_, patience) in round_), default=0.0))
    for which, patience in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 5.0)):
        left = [process for ward in alive for process in ward.family if _is_alive(process)]
        for process in left:
            _send(process, which)
        _wait(left, patience)


def _step(text: str) -> tuple[signal.Signals, float]:
    name, _, patience = text.partition("=")
    return signal.Signals[name], float(patience)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except _GONE:
        return False


def _send(process: psutil.Process, which: signal.Signals) -> None:
    with contextlib.suppress(*_GONE, psutil.AccessDenied):
        process.send_signal(which)


def _wait(processes: list[psutil.Process], patience: float) -> None:
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline and any(_is_alive(process) for process in processes):
        time.sleep(0.02)


def main() -> None:
    """Read until the last writer is gone, then act. Signals meant for the whole terminal do not reach this far."""
    for which in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(which, signal.SIG_IGN)
    os.write(1, b"ready\n")
    orders = Orders()
    for line in sys.stdin:
        orders.take(line.rstrip("\n"))
    orders.carry_out()


if __name__ == "__main__":
    main()
