"""What the tests of replay share: the recorded runs, which differences are accepted, and how a run is replayed."""

from collections.abc import AsyncIterator, Iterable
from typing import Final

from temporalio.client import WorkflowHistory

from operators.replaying.replay import Replayed, from_json, replay
from tests.acceptance.process import ROOT

FOLDER: Final = ROOT / "tests" / "histories"
PATHS: Final = sorted(FOLDER.glob("*.json"))
NAMES: Final = [path.stem for path in PATHS]
ACCEPTED: Final = {
    "0.1.0-failed": (
        'the end (failed): message is "the cycle could not do everything: expire_batch (Reserve: up to 7): no such table"'
        ' in the history, "The cycle could not do everything. Failed: expire_batch (Reserve: up to 7): no such table.'
        ' What to do: runbooks/booking-expiration.md, section Cycle failed." in the code'
    ),
}
"""Differences on purpose, word for word. 0.1.0: the message's words, which people read and no program does."""


def history(name: str) -> WorkflowHistory:
    """A recorded run."""
    return from_json((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


async def replayed(histories: Iterable[WorkflowHistory], *classes: type) -> list[Replayed]:
    """Each history against these workflows, or against all of ours."""

    async def each() -> AsyncIterator[WorkflowHistory]:
        for one in histories:
            yield one

    return [one async for one in replay(each(), workflow_classes=classes)]
