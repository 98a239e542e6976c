"""`python -m devstack`: `up` in the foreground, `exec` around one command, `attach` to what is up."""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from devstack import addresses, prometheus, stack
from devstack.errors import StackError, StackStopped
from devstack.guardian import Ward, stop
from devstack.launcher import try_lock
from devstack.watch import SIGNALS, Watch

_COMMAND_SECONDS: Final = 18.0
"""A worker takes up to 15 s to finish its batch."""
_COMMAND_STOP: Final = f"SIGTERM={_COMMAND_SECONDS},SIGKILL=5"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is the command's, 0 after a wanted stop, 1 with one message on trouble."""
    options = _parser().parse_args(arguments)
    watch = Watch()
    try:
        if options.action == "up":
            return _up(options, watch)
        if options.action == "attach":
            return _attach(options)
        return _exec(options, watch)
    except StackStopped:
        return 0 if options.action == "up" else 128 + (watch.signal or signal.SIGTERM)
    except StackError as error:
        print(f"devstack: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m devstack", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    up = actions.add_parser("up", help="run the stack in the foreground and keep its data")
    attach = actions.add_parser("attach", help="run a command against the stack that is up")
    for action in (up, attach):
        action.add_argument("--data-dir", type=Path, default=stack.HOME / "up", help="default: %(default)s")
    once = actions.add_parser("exec", help="run a command on a stack of its own, which ends with it")
    once.add_argument("--durable", action="store_true", help="write to disk as a real server does (for benchmarks)")
    for action in (attach, once):
        action.add_argument("command", nargs=argparse.REMAINDER, help="-- COMMAND …")
    return parser


def _up(options: argparse.Namespace, watch: Watch) -> int:
    folder: Path = options.data_dir.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    known = folder / "addresses.json"
    with (folder / "lock").open("a") as lock:
        _take(lock.fileno(), folder, watch)
        known.unlink(missing_ok=True)
        _say("Starting PostgreSQL, Temporal and Kafka …")
        began = time.monotonic()
        with stack.running(
            folder, durable=True, preferred_ports=True, keep_open=[lock.fileno()], watch=watch, say=_say
        ) as running:
            running.launcher.remove_at_end(known)
            alerts = prometheus.start(running.launcher, folder, running.logs)
            known.write_text(json.dumps(running.addresses))
            _show(running.addresses, time.monotonic() - began, folder, alerts)
            while True:
                watch()
                running.launcher.check()
                time.sleep(0.2)


def _take(descriptor: int, folder: Path, watch: Callable[[], None]) -> None:
    """Hold the folder's lock; a guardian of a killed stack keeps it until its servers have stopped."""
    began = time.monotonic()
    while not try_lock(descriptor):
        watch()
        waited = time.monotonic() - began
        if waited > 20 or (waited > 1 and (folder / "addresses.json").exists()):  # noqa: PLR2004 # seconds
            raise StackError(f"a stack already runs on {folder}: stop it first, or use it with `make worker`")
        time.sleep(0.2)


def _attach(options: argparse.Namespace) -> int:
    folder: Path = options.data_dir.absolute()
    try:
        with (folder / "lock").open("a") as lock:
            running = not try_lock(lock.fileno())
        found: dict[str, str] = json.loads((folder / "addresses.json").read_text()) if running else {}
    except FileNotFoundError:
        found = {}
    found |= addresses.given()
    if not found.keys() >= set(addresses.PARTS.values()):
        raise StackError("no stack is running: start one in another terminal with `make stack`")
    command = _command(options)
    for which in SIGNALS:
        signal.signal(which, signal.SIG_DFL)
    os.execvpe(command[0], command, {**os.environ, **found})  # noqa: S606 # the user's own command, as typed


def _exec(options: argparse.Namespace, watch: Watch) -> int:
    command = _command(options)
    with stack.running(durable=options.durable, watch=watch, say=_say) as running:
        process = running.launcher.command(command, running.addresses, stop=_COMMAND_STOP)
        while (code := process.poll()) is None:
            try:
                watch()
                running.launcher.check()
            except StackStopped:
                return _end(process, watch.signal or signal.SIGTERM)
            time.sleep(0.05)
        return _code(code)


def _end(process: "subprocess.Popen[bytes]", which: int) -> int:
    """Pass the signal on, give the command its time, then end what it left behind."""
    ward = Ward.of(process.pid, _COMMAND_STOP)
    if which == signal.SIGINT and sys.stdin.isatty():
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_COMMAND_SECONDS)  # Ctrl-C on a terminal has reached it already
    else:
        ward.steps[0] = (signal.SIGTERM if which == signal.SIGHUP else signal.Signals(which), _COMMAND_SECONDS)
    stop([ward])
    return _code(process.wait())


def _code(returned: int) -> int:
    """An exit code as a shell gives it: 128 and the signal's number for a process that a signal ended."""
    return returned if returned >= 0 else 128 - returned


def _command(options: argparse.Namespace) -> list[str]:
    command: list[str] = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise StackError(f"say what to run: python -m devstack {options.action} -- COMMAND …")
    if shutil.which(command[0]) is None:
        raise StackError(f"no such command: {command[0]}")
    return command


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _show(found: Mapping[str, str], seconds: float, folder: Path, alerts: str | None) -> None:
    """The Web UI's link and every address, one a line and whole, so that they can be copied."""
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"Ready after {seconds:.1f} s. Data and logs: {folder}", markup=False)
    if ui := found.get(addresses.TEMPORAL_UI):
        console.print(f"Web UI: {ui}", markup=False, style="bold green")
    if alerts:
        console.print(f"Alerts: {alerts}", markup=False, style="bold green")
    for name, value in sorted(found.items()):
        console.print(f"{name}={value}", markup=False)
    if console.is_terminal:
        console.print("Next: `make worker` in another terminal. Ctrl-C stops everything.", markup=False, style="bold")


if __name__ == "__main__":
    sys.exit(main())
