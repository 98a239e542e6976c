"""A runbook as the person on call uses it: a section is found, and its commands are typed block after block."""

import asyncio
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from activities import schedule_state
from activities.schedule_note import NOTE
from tests.acceptance.process import ROOT, World, soon

BOOKINGS: Final = "booking-expiration.md"
OUTBOX: Final = "outbox-backlog.md"
_HEADINGS: Final = re.compile(r"^##+ ", re.MULTILINE)
_BLOCK: Final = re.compile(r"^( *)```sh\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_FRAMES: Final = str.maketrans(dict.fromkeys("│┃─━┏┓┗┛┡┩┌┐└┘├┤┬┴┼╇╈╭╮╰╯", " "))


LIMIT: Final = 120.0
"""Seconds that a block may take; only a failure takes that long."""


class Section(NamedTuple):
    """A heading of a runbook, of the second or third level."""

    runbook: str
    heading: str


NOT_TYPED: Final = {"kubectl rollout": "no cluster; that its names are those of deploy/kubernetes is checked instead"}
"""Blocks that no test runs, by their first words, with the reason."""

COVERED: Final[set[Section]] = set()
"""The sections that some test reads, filled as the tests' modules are imported."""


def blocks() -> dict[Section, list[str]]:
    """Every block of commands of every runbook, by the section that it stands in."""
    found: dict[Section, list[str]] = {}
    for path in sorted((ROOT / "runbooks").glob("*.md")):
        for part in _HEADINGS.split(path.read_text(encoding="utf-8"))[1:]:
            if typed := [text for _, text in _BLOCK.findall(part)]:
                found[Section(path.name, part.partition("\n")[0])] = typed
    return found


def reads(runbook: str, heading: str) -> Callable[[Any], Any]:
    """The test gets a `reader` of this section, and must type every block of it, in order."""
    section = Section(runbook, heading)
    COVERED.add(section)
    given = pytest.mark.parametrize("reader", [section], indirect=True, ids=[heading.replace(" ", "-")])
    long = pytest.mark.timeout(300)  # a dozen commands, each a process that starts
    return lambda test: pytest.mark.slow(long(given(test)))


def defaults(world: World) -> dict[str, str]:
    """What stands in the runbooks as the default that people have, and is another here: the only words that are changed."""
    started = [worker.events("worker started") for worker in world.workers]
    webs = [events[0]["web"] for events in started if events]
    return {
        "--task-queue booking-expiration ": f"--task-queue {world.name} ",
        '"booking-expiration-by-hand-': f'"{world.name}-by-hand-',
        "--schedule-id booking-expiration\n": f"--schedule-id {world.name}\n",
        "http://127.0.0.1:8000": webs[-1] if webs else "http://127.0.0.1:8000",
        "--replicas 3": "--replicas 1",  # the test's cluster has one broker
    }


@dataclass
class Reader:
    """Somebody with one section before them.

    `settings` are variables of their environment beside the world's, `places` addresses in the text and where they are here.
    """

    world: World
    left: list[str]
    settings: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)

    async def types(self, *promised: str, code: int = 0, **variables: object) -> str:
        """Type the next block; it must end with `code` and say all that is promised. What it says, without lines and frames."""
        block = self.left.pop(0)
        typed = block
        for default, here in {**defaults(self.world), **self.places}.items():
            typed = typed.replace(default, here)
        process = await asyncio.create_subprocess_exec(
            "sh", "-euc", typed, cwd=ROOT, env=self._environment(variables), stdin=-1, stdout=-1, stderr=asyncio.subprocess.STDOUT
        )
        out, _ = await asyncio.wait_for(process.communicate(b"y\n"), LIMIT)
        said = " ".join(out.decode().translate(_FRAMES).split())
        assert "Traceback" not in said, said
        missing = [words for words in promised if words not in said]
        assert (process.returncode, missing) == (code, []), f"{block}\n{out.decode()}"
        return said

    def _environment(self, variables: Mapping[str, object]) -> dict[str, str]:
        database = self.world.database
        ours = {
            "BOOKING_EXPIRATION_OPERATOR_DATABASE_URL": database.operator,
            "BOOKING_EXPIRATION_MIGRATION_DATABASE_URL": database.owner,
            "BOOKING_EXPIRATION_ADMIN_DATABASE_URL": database.admin,
            "COLUMNS": "160",  # a terminal in which no table is cut
            "TEMPORAL_NAMESPACE": self.world.client.namespace,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            **self.settings,
            **{name: str(value) for name, value in variables.items()},
        }
        return self.world.environment(ours)


def reader_of(world: World, section: Section) -> Reader:
    """A reader of all its blocks but those that no test types."""
    typed = [block for block in blocks()[section] if not block.startswith(tuple(NOT_TYPED))]
    return Reader(world, typed)


async def unpause(world: World) -> None:
    """Let the schedule tick, with the note that it was made with."""
    await schedule_state.change(world.client, world.name, lambda state: schedule_state.altered(state, paused=False, note=NOTE))


async def listed(world: World, status: str) -> None:
    """Return once Temporal lists a cycle of this world as Running, Completed, …: it does so a moment after it is true."""

    async def known() -> bool:
        ours = f"WorkflowId STARTS_WITH '{world.name}-' AND ExecutionStatus = '{status}'"
        return (await world.client.count_workflows(ours)).count > 0

    await soon(known, f"a cycle listed as {status}")


async def nothing_runs(world: World) -> None:
    """Return once the schedule knows of no running cycle."""

    async def idle() -> bool:
        return not (await world.client.get_schedule_handle(world.name).describe()).info.running_actions

    await soon(idle, "the end of the running cycle")
