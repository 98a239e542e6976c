"""`make demo`: a sales floor whose bookings run out, the real worker, and everything it does, before your eyes.

Without addresses in the environment it brings its own servers and leaves nothing behind. On servers of yours it works in a
database, a topic and a schedule of its own (`demo_place`). It ends by itself unless standard input is a terminal: then the
servers stay up until Enter, so that one can look around. Exit codes: 0 the sums are right, 1 they are not or a piece failed.
"""

import argparse
import asyncio
import re
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import asyncpg
from rich.console import Console
from temporalio.service import RPCError

from db.errors import DatabaseError
from devstack import demo_place, demo_view, stack
from devstack.demo_ending import read_on
from devstack.demo_play import Play
from devstack.errors import StackError, StackStopped
from devstack.watch import Watch


def main(arguments: Sequence[str] | None = None, afterwards: Callable[[Play], None] | None = None) -> int:
    """Play once; the exit code. `afterwards` is called when all is checked and the servers still run."""
    parser = argparse.ArgumentParser(prog="python -m devstack.demo", description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--svg", type=Path, metavar="FILE", help="also write the final picture to this file")
    options = parser.parse_args(arguments)
    watch, began = Watch(), time.monotonic()
    try:
        right = _run(watch, options.svg, afterwards)
    except StackStopped:
        print("demo: stopped; nothing is left behind", file=sys.stderr)
        return 128 + (watch.signal or signal.SIGTERM)
    except (StackError, DatabaseError, asyncpg.PostgresError, RPCError, RuntimeError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    print(f"The demo took {time.monotonic() - began:.0f} seconds; nothing of it is left.\n{read_on()}")
    return 0 if right else 1


def _run(watch: Watch, svg: Path | None, afterwards: Callable[[Play], None] | None) -> bool:
    console, brought = demo_view.console(), demo_place.parts()
    console.print(f"Starting {', '.join(brought) or 'on the given servers'} …", highlight=False)
    with (
        stack.running(
            parts=brought, preferred_ports=sys.stdout.isatty() or svg is not None, watch=watch, say=console.print
        ) as running,
        demo_place.prepared(running.addresses, brought) as place,
    ):
        play = Play(place, running, console)
        stay = sys.stdin is not None and sys.stdin.isatty() and not afterwards
        try:
            asyncio.run(_until_over(play.run(stay=stay, afterwards=afterwards), watch, play.check))
        except StackStopped:
            if play.right is None:  # after the sums, Ctrl-C ends it as Enter does
                raise
        except ExceptionGroup as group:
            raise _first(group) from None
        finally:
            play.stop()
        if svg:
            _draw(play, svg)
    return bool(play.right)


async def _until_over(work: Coroutine[Any, Any, None], *checks: Callable[[], None]) -> None:
    """Run it to its end, or stop it when a check raises: at a signal, or when a server is gone."""
    task = asyncio.create_task(work)
    try:
        while not task.done():
            for check in checks:
                check()
            await asyncio.wait({task}, timeout=0.1)
        task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error behind the tasks that it ended."""
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def _draw(play: Play, svg: Path) -> None:
    paper = Console(record=True, width=104, height=62, file=StringIO(), force_terminal=True, legacy_windows=False)
    play.screen.console = paper
    paper.print(play.screen.picture())
    paper.print(play.ending.panel())
    picture = paper.export_svg(title="make demo")
    svg.write_text(re.sub(r"@font-face {.*?}", "", picture, flags=re.DOTALL), encoding="utf-8")  # loaded from elsewhere


if __name__ == "__main__":
    sys.exit(main())
