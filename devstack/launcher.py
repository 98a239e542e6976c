"""Starting processes so that none outlives this one."""

import contextlib
import fcntl
import os
import pwd
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from devstack.errors import StackError, StackStopped
from devstack.guardian import Orders

# The shell tells the guardian its own pid, which exec keeps, before the program exists: no kill -9 can come in between.
_TELL_THEN_BECOME: Final = 'echo "server $$ $1" >&0 || exit 1; shift; exec "$@" </dev/null'
_AT_ONCE: Final = "SIGKILL=5"
_LOG_LINES: Final = 12


class Launcher:
    """Holds the pipe to the guardian. Closing it stops everything that was started here."""

    def __init__(self, *, keep_open: Sequence[int] = ()) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._orders = Orders()
        self._started: list[subprocess.Popen[bytes]] = []
        self._servers: list[tuple[subprocess.Popen[bytes], Path]] = []
        self.guardian = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("guardian.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            pass_fds=keep_open,
        )
        self._pipe = _pipe(self.guardian.stdin)
        with _pipe(self.guardian.stdout) as answer:
            if answer.readline() != b"ready\n":
                raise StackError("the guardian process did not start, so no server was started either")

    def remove_at_end(self, path: Path) -> None:
        """Have this file or folder deleted when everything has stopped."""
        self._orders.take(f"remove {path}")
        self._pipe.write(f"remove {path}\n".encode())
        self._pipe.flush()

    def start(
        self,
        command: Sequence[str],
        log: Path,
        *,
        stop: str = _AT_ONCE,
        user: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> "subprocess.Popen[bytes]":
        """Start a server in a session of its own; its output goes to `log`. `stop` is the guardian's list of signals."""
        process = self._launch(command, log, stop, user, env or {})
        self._servers.append((process, log))
        return process

    def server(self, log: Path) -> "subprocess.Popen[bytes]":
        """The server that writes to this log, the last one started. Raises `StackError` when there is none."""
        for process, its_log in reversed(self._servers):
            if its_log == log:
                return process
        raise StackError(f"no server that was started here writes to {log}")

    def let_go(self, process: "subprocess.Popen[bytes]") -> None:
        """From now on its end is no trouble: somebody is about to end it on purpose. It is still stopped at the end."""
        self._servers = [server for server in self._servers if server[0] is not process]

    def _launch(
        self, command: Sequence[str], log: Path, stop: str, user: int | None, env: Mapping[str, str]
    ) -> "subprocess.Popen[bytes]":
        with self._lock, log.open("ab") as output:
            if self._closed:
                raise StackStopped
            process = subprocess.Popen(
                ["/bin/sh", "-c", _TELL_THEN_BECOME, "sh", stop, *command],
                stdin=self._pipe,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd="/",
                env={**os.environ, **env},
                user=user,
                group=None if user is None else pwd.getpwuid(user).pw_gid,
                extra_groups=None if user is None else [],
                start_new_session=True,
            )
            self._started.append(process)
            self._orders.take(f"server {process.pid} {stop}")
            return process

    def run(self, what: str, command: Sequence[str], log: Path, *, seconds: float, user: int | None = None) -> None:
        """Run a short tool to its end. Raises `StackError` with the end of its log."""
        process = self._launch(command, log, _AT_ONCE, user, {})
        self.wait_until(lambda: process.poll() is not None, what, log, seconds=seconds)
        if process.returncode:
            raise StackError(f"{what} failed.\n{tail(log)}")

    def command(self, command: Sequence[str], env: Mapping[str, str], *, stop: str) -> "subprocess.Popen[bytes]":
        """Start the user's command on the user's own terminal."""

        def tell() -> None:
            os.write(self._pipe.fileno(), f"command {os.getpid()} {stop}\n".encode())

        # The child itself must say its pid before it becomes the command, and the shell's way above needs standard input.
        process = subprocess.Popen(command, env={**os.environ, **env}, preexec_fn=tell)  # noqa: PLW1509 # one write to a pipe, no lock
        self._started.append(process)
        self._orders.take(f"command {process.pid} {stop}")
        return process

    def wait_until(
        self,
        ready: Callable[[], bool],
        what: str,
        log: Path,
        *,
        seconds: float,
        process: "subprocess.Popen[bytes] | None" = None,
    ) -> None:
        """Wait for `ready`, a tenth of a second at a time. Raises `StackError` when `process` ended or time is up."""
        deadline = time.monotonic() + seconds
        while not ready():
            if self._closed:
                raise StackStopped
            if process is not None and process.poll() is not None:
                raise StackError(f"{what} ended while it was starting (exit code {process.returncode}).\n{tail(log)}")
            if time.monotonic() > deadline:
                raise StackError(f"{what} was not ready after {seconds:.0f} seconds.\n{tail(log)}")
            time.sleep(0.05)

    def check(self) -> None:
        """Raise `StackError` when the guardian or a server that had started is gone."""
        if self.guardian.poll() is not None:
            raise StackError("the guardian process was killed, so the stack stops as well")
        for process, log in self._servers:
            if process.poll() is not None:
                raise StackError(f"a server ended by itself (exit code {process.returncode}).\n{tail(log)}")

    def close(self) -> None:
        """Stop everything and wait until it has stopped."""
        with self._lock:
            self._closed = True
            with contextlib.suppress(BrokenPipeError):
                self._pipe.close()
        if self.guardian.wait() != 0:
            self._orders.carry_out()
        for process in self._started:
            process.wait()


def tail(log: Path) -> str:
    """The end of a log, and where to find the rest."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        lines = []
    shown = "\n".join(f"  {line}" for line in lines[-_LOG_LINES:])
    return f"The end of its log {log}:\n{shown or '  (empty)'}"


def try_lock(descriptor: int) -> bool:
    """Take the lock of an open file, if nobody has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise TypeError("asked for a pipe")
    return stream
