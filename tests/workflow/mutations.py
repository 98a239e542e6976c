"""Mistakes that somebody could make in a workflow, each as a change of its source, and what finds them.

`python -m tests.workflow.mutations` writes the table of docs/versioning.md anew; `test_mutations.py` holds it to the truth.
"""

import asyncio
import importlib
import itertools
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from operators.replaying.replay import ours
from tests.acceptance.process import ROOT
from tests.workflow.gate import ACCEPTED, history, replayed

DOCUMENT: Final = ROOT / "docs" / "versioning.md"
_NUMBERS: Final = itertools.count()
_BEGIN: Final = "<!-- mutations -->\n"
_END: Final = "<!-- end of mutations -->\n"
CYCLE, DRAIN, RESUME, STEPS = "expiration_cycle", "drain", "resume_later", "steps"


@dataclass(frozen=True, slots=True)
class Mutation:
    """What is changed, in which module of `workflows`: these words become those; and a history in which it is seen."""

    name: str
    module: str
    old: str
    new: str
    seen_in: str = "0.2.0-cycle-both-phases"


MUTATIONS: Final = (
    Mutation("an argument of an activity", CYCLE, "batch_size=size, spends", "batch_size=size - 1, spends"),
    Mutation("a time-out", STEPS, "EXPIRE_LIMIT: Final = timedelta(seconds=45)", "EXPIRE_LIMIT: Final = timedelta(seconds=60)"),
    Mutation("schedule-to-close turned start-to-close", STEPS, "schedule_to_close_timeout=limit", "start_to_close_timeout=limit"),
    Mutation("no heartbeat time-out", STEPS, "                heartbeat_timeout=HEARTBEAT_TIMEOUT,\n", ""),
    Mutation("the pause between retries", STEPS, "backoff_coefficient=2.0", "backoff_coefficient=3.0"),
    Mutation("a last attempt", STEPS, "backoff_coefficient=2.0", "backoff_coefficient=2.0, maximum_attempts=3"),
    Mutation(
        "another task queue",
        STEPS,
        "                summary=summary,\n",
        '                summary=summary,\n                task_queue="other",\n',
    ),
    Mutation("another activity", STEPS, '"publish_outbox", budget', '"close_cycle", budget'),
    Mutation(
        "an activity added",
        CYCLE,
        "        result = self._result(",
        '        await self._steps.run("read_backlog", None, None, OPEN_LIMIT, "Look again")\n        result = self._result(',
    ),
    Mutation("an activity removed", CYCLE, "self._published = await self._steps.publish()", "pass"),
    Mutation("another order", CYCLE, "for phase in self._expired:", "for phase in reversed(self._expired):"),
    Mutation(
        "one after the other turned at the same time",
        CYCLE,
        "self._published = await self._steps.publish()",
        "asyncio.create_task(self._steps.publish())\n            await asyncio.sleep(0)",
    ),
    Mutation(
        "at the same time turned one after the other",
        DRAIN,
        "await asyncio.gather(*(self._batch(phase, size) for size in sizes))",
        "[await self._batch(phase, size) for size in sizes]",
        "0.2.0-drain-drained",
    ),
    Mutation(
        "a timer added", CYCLE, "        result = self._result(", "        await asyncio.sleep(1)\n        result = self._result("
    ),
    Mutation(
        "a timer's duration", RESUME, "workflow.sleep(order.seconds,", "workflow.sleep(order.seconds + 1,", "0.2.0-resume-resumed"
    ),
    Mutation("a timer's summary", RESUME, 'f"Until {', 'f"Up to {', "0.2.0-resume-resumed"),
    Mutation("an activity's summary", STEPS, '"Send committed events to Kafka"', '"Send events"'),
    Mutation("a field of the result", CYCLE, "            published_count=self._published.published_count,\n", ""),
    Mutation(
        "the words of a failure", CYCLE, "The cycle could not do everything.", "The cycle failed.", "0.2.0-cycle-failed-step"
    ),
    Mutation("the type of a failure", DRAIN, 'type="DrainRefused"', 'type="DrainFailed"', "0.2.0-drain-refused"),
    Mutation(
        "a failure turned success", CYCLE, "if failures := self._steps.failures:", "if failures := []:", "0.2.0-cycle-failed-step"
    ),
    Mutation(
        "a cancel that is swallowed",
        CYCLE,
        "            raise asyncio.CancelledError\n",
        "            pass\n",
        "0.2.0-cycle-canceled-in-reserve",
    ),
    Mutation("no search attributes", CYCLE, "        mark(registered,", "        dict(registered=registered,"),
    Mutation("a search attribute's value", STEPS, "EXPIRED.value_set(expired)", "EXPIRED.value_set(expired + 1)"),
    Mutation("the input of the next run", DRAIN, '"so_far": self._so_far, ', "", "0.2.0-drain-limits-changed-run-1"),
    Mutation(
        "no next run", DRAIN, "if self._ended() is None and self._is_long():", "if False:", "0.2.0-drain-limits-changed-run-1"
    ),
    Mutation(
        "the answer to an update",
        DRAIN,
        "self._limits = self._limits.model_copy(update=given)",
        "pass",
        "0.2.0-drain-limits-changed-run-1",
    ),
    Mutation("a signal that is ignored", CYCLE, "            self._stop = request\n", "", "0.2.0-cycle-stopped-at-once"),
    Mutation("a patch taken away", CYCLE, " and workflow.patched(RECORD_ACTS)", "", "0.1.0-canceled"),
)


class Caught(NamedTuple):
    """What became of a mutation: whether the Replayer alone would have stopped, and what the gate says first."""

    by_replayer: bool
    sentence: str


@contextmanager
def mutated(mutation: Mutation) -> Iterator[list[type]]:
    """The workflows of a copy of `workflows` in which this was changed. Raises `ValueError` if nothing is."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / f"mutant_{next(_NUMBERS)}"
        shutil.copytree(ROOT / "workflows", package, ignore=shutil.ignore_patterns("__pycache__"))
        for path in package.glob("*.py"):
            source = path.read_text(encoding="utf-8")
            if path.stem == mutation.module:
                if mutation.old not in source:
                    raise ValueError(f"{mutation.name}: {mutation.module}.py does not say {mutation.old!r} any more")
                source = source.replace(mutation.old, mutation.new)
            path.write_text(re.sub(r"\b(from|import) workflows\b", rf"\1 {package.name}", source), encoding="utf-8")
        sys.path.insert(0, folder)
        try:
            yield [
                getattr(importlib.import_module(each.__module__.replace("workflows", package.name)), each.__name__)
                for each in ours()
            ]
        finally:
            sys.path.remove(folder)
            for name in [name for name in sys.modules if name.partition(".")[0] == package.name]:
                del sys.modules[name]


async def catch(mutation: Mutation, names: Sequence[str]) -> Caught:
    """Replay recorded runs against a mutant."""
    with mutated(mutation) as classes:
        found = await replayed((history(name) for name in names), *classes)
    pairs = zip(names, found, strict=True)
    sentences = [sentence for name, one in pairs for sentence in one.differences if sentence != ACCEPTED.get(name)]
    return Caught(any(one.stopped for one in found), sentences[0] if sentences else "")


def row(mutation: Mutation, caught: Caught) -> str:
    """A line of the table in docs/versioning.md."""
    return f"| {mutation.name} | {'stops' if caught.by_replayer else '**nothing**'} | {caught.sentence} |"


def table() -> str:
    """The whole table, each mutation in the history in which it is seen."""
    lines = [row(mutation, asyncio.run(catch(mutation, [mutation.seen_in]))) for mutation in MUTATIONS]
    return "\n".join(["| Changed | The Replayer alone | What the gate says first |", "|---|---|---|", *lines, ""])


def written(document: str, new: str) -> str:
    """The document with another table between its marks."""
    before, _, rest = document.partition(_BEGIN)
    return f"{before}{_BEGIN}{new}{_END}{rest.partition(_END)[2]}"


if __name__ == "__main__":
    DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8"), table()), encoding="utf-8")
