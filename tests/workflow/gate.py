"""What the tests of replay share: the recorded runs, which differences are accepted, and how a run is replayed."""

import re
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


def released() -> set[str]:
    """The versions that CHANGELOG.md lists and does not call "not yet released"."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    return set(re.findall(r"^## ([\d.]+)(?!.*not yet released)", text, re.MULTILINE))


def require_unreleased(version: str) -> None:
    """Raises `RuntimeError` for a released version: its recorded runs are how the gate knows what its open runs look like."""
    if version in released():
        raise RuntimeError(f"{version} is released (CHANGELOG.md) and its histories stay: set the next version in pyproject.toml")


def history(name: str) -> WorkflowHistory:
    """A recorded run."""
    return from_json((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


async def replayed(histories: Iterable[WorkflowHistory], *classes: type) -> list[Replayed]:
    """Each history against these workflows, or against all of ours."""

    async def each() -> AsyncIterator[WorkflowHistory]:
        for one in histories:
            yield one

    return [one async for one in replay(each(), workflow_classes=classes)]
