"""A terminal for the recorded session: a command runs in it as a person would see it, and what it shows is kept as plain text."""

import asyncio
import codecs
import fcntl
import os
import pty
import re
import shlex
import struct
import sys
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from devstack.errors import StackError

WIDTH: Final = 110
_HEIGHT: Final = 60
_PATIENCE: Final = 90.0
"""Seconds that one command may take, a drain that is watched included."""

_PROGRAM: Final = Path(sys.executable).with_name("booking-expiration")
_PIECE: Final = re.compile(r"\x1b\[(?P<number>\d*)(?P<code>[A-K])|\x1b\[[0-9;?]*[a-zA-Z]|\x1b\][^\x07]*\x07|\r|\n|[^\x1b\r\n]+")


class Screen:
    """The little of a terminal that a table and a progress bar need: lines, a cursor that goes up, and erasing to the right."""

    def __init__(self) -> None:
        self._lines = [""]
        self._row = self._column = 0

    def feed(self, text: str) -> None:
        """Take what the command wrote."""
        for found in _PIECE.finditer(text):
            self._take(found[0], found["code"], int(found["number"] or 1))

    def text(self) -> str:
        """What stands on the screen."""
        return "\n".join(line.rstrip() for line in self._lines).rstrip()

    def _take(self, piece: str, code: str | None, number: int) -> None:
        if piece == "\n":
            self._row, self._column = self._row + 1, 0
            self._lines += [""] * (self._row + 1 - len(self._lines))
        elif piece == "\r":
            self._column = 0
        elif code == "A":
            self._row = max(self._row - number, 0)
        elif code == "K":
            kept = "" if number == 2 else self._lines[self._row][: self._column]  # noqa: PLR2004 # 2: the whole line
            self._lines[self._row] = kept
        elif not piece.startswith("\x1b"):
            before = self._lines[self._row].ljust(self._column)
            self._lines[self._row] = before[: self._column] + piece + before[self._column + len(piece) :]
            self._column += len(piece)


@dataclass(frozen=True, slots=True)
class Key:
    """What the person types as soon as the screen shows this pattern."""

    seen: str
    typed: str


@dataclass(slots=True)
class Terminal:
    """Types commands; `environment` is what they are told beside this process's own."""

    environment: Mapping[str, str]
    width: int = WIDTH

    async def run(self, command: str, *, keys: Sequence[Key] = (), code: int = 0) -> str:
        """The command line as typed and what it showed, also as it stood whenever a key was pressed. Raises `StackError`."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", _HEIGHT, self.width, 0, 0))
        words = [str(_PROGRAM), *shlex.split(command)[1:]]
        try:
            process = await asyncio.create_subprocess_exec(
                *words, stdin=slave, stdout=slave, stderr=slave, env=self._all(), start_new_session=True, preexec_fn=_own_terminal
            )
        finally:
            os.close(slave)
        try:
            async with asyncio.timeout(_PATIENCE):
                shown = await _watch(master, keys)
                ended = await process.wait()
        except TimeoutError:
            process.kill()
            raise StackError(f"{command} was not over after {_PATIENCE:.0f} seconds") from None
        finally:
            os.close(master)
        if ended != code:
            raise StackError(f"{command} ended with exit code {ended}, not {code}:\n{shown}")
        return f"$ {command}\n{shown}"

    def _all(self) -> dict[str, str]:
        """No colours; the width is the terminal's."""
        plain = {"TERM": "xterm", "NO_COLOR": "1", "PYTHONWARNINGS": "ignore"}
        return {**{name: value for name, value in os.environ.items() if name != "COLUMNS"}, **self.environment, **plain}


def _own_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C in it reaches the command


async def _watch(master: int, keys: Sequence[Key]) -> str:
    """Read until the command has closed the terminal; type each key when its pattern shows."""
    screen, waiting, earlier = Screen(), list(keys), list[str]()
    decoder = codecs.getincrementaldecoder("utf-8")()  # a piece may end within a character
    while piece := await _read(master):
        screen.feed(decoder.decode(piece))
        if waiting and re.search(waiting[0].seen, screen.text()):
            earlier.append(screen.text())
            os.write(master, waiting.pop(0).typed.encode())
    return _with_what_is_gone(screen.text(), earlier)


def _with_what_is_gone(shown: str, earlier: Sequence[str]) -> str:
    """The screen at the end, and in their places the last lines of earlier moments that are gone: a bar as it stood then."""
    lines = shown.splitlines()
    for moment in reversed(earlier):
        *_, last = before = moment.splitlines()
        place = len(before) - 1
        if not any(line.startswith(last) for line in lines[place : place + 1]):
            lines.insert(place, last)
    return "\n".join(lines)


async def _read(master: int) -> bytes:
    """The next piece, or nothing at the end."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(master, ready.set)
    try:
        await ready.wait()
        return os.read(master, 65_536)
    except OSError:  # Linux says so when the other end is closed
        return b""
    finally:
        loop.remove_reader(master)
