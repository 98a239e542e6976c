"""`make session`: plays four stories of an operator's night on a real stack and records them in docs/operations.md.

The stack is its own and is gone afterwards; the worker and the command `booking-expiration` are the real ones. The words around
the recorded blocks stay as they are. Exit codes: 0 recorded, 1 a story did not end as it should, and the document is as it was.
"""

import argparse
import asyncio
import getpass
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import asyncpg
from rich.console import Console
from temporalio.service import RPCError

from db.errors import DatabaseError
from devstack import demo_place, session_stage, session_text, stack
from devstack.errors import StackError, StackStopped
from devstack.session_stories import Stories
from devstack.session_terminal import Terminal
from devstack.watch import Watch

DOCUMENT: Final = session_stage.ROOT / "docs" / "operations.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Play and record; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m devstack.session", description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("document", type=Path, nargs="?", default=DOCUMENT, help="default: docs/operations.md")
    document: Path = parser.parse_args(arguments).document
    try:
        shown = _play(Watch())
        session_text.require_neutral(shown, socket.gethostname(), getpass.getuser() + "@", str(session_stage.ROOT))
        document.write_text(session_text.replaced(document.read_text(encoding="utf-8"), shown), encoding="utf-8")
    except StackStopped:
        print("session: stopped; the document is as it was", file=sys.stderr)
        return 1
    except (StackError, DatabaseError, asyncpg.PostgresError, RPCError, RuntimeError, OSError) as error:
        print(f"session: {error}", file=sys.stderr)
        return 1
    print(f"{document.name}: {len(shown)} blocks recorded")
    return 0


def _play(watch: Watch) -> dict[str, str]:
    console = Console(stderr=True, highlight=False)
    with (
        stack.running(watch=watch, say=console.print) as running,
        demo_place.prepared(running.addresses, list(stack.ALL), "session") as place,
    ):
        return asyncio.run(_stories(place, running, watch))


async def _stories(place: demo_place.Place, running: stack.Stack, watch: Watch) -> dict[str, str]:
    terminal = Terminal(session_stage.neutral(place.addresses))
    async with session_stage.staged(place, running) as stage:
        stories = Stories(stage, terminal)
        playing = asyncio.create_task(stories.play())
        try:
            while not playing.done():
                watch()
                stage.check()
                await asyncio.wait({playing}, timeout=0.2)
            playing.result()
        finally:
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)
    return stories.shown


if __name__ == "__main__":
    sys.exit(main())
