"""The worked example of docs/versioning.md: a step is added to the cycle, in the three changes that it takes."""

from collections.abc import Callable, Sequence
from textwrap import dedent
from typing import Any, Final
from uuid import uuid4

import pytest
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Worker

from activities.messages import CycleInput
from tests.workflow.gate import ACCEPTED, NAMES, history, replayed
from tests.workflow.mutations import CYCLE, DOCUMENT, Mutation, mutated
from tests.workflow.steps import Steps
from workflows.sandbox import guarded_runner

BEFORE: Final = "        result = self._result("
STEP: Final = 'await self._steps.run("read_backlog", None, None, OPEN_LIMIT, "Look again")'
PATCHED: Final = f"""\
        if workflow.patched("look-again"):
            {STEP}
"""
DEPRECATED: Final = f"""\
        workflow.deprecate_patch("look-again")
        {STEP}
"""
ALONE: Final = f"        {STEP}\n"
OLD_CYCLES: Final = [name for name in NAMES if "cycle" in name]


def _version(lines: str) -> Mutation:
    return Mutation("a step", CYCLE, BEFORE, f"{lines}{BEFORE}")


async def _differ(lines: str, histories: Sequence[WorkflowHistory]) -> list[bool]:
    """Which of these runs the cycle with such lines would do otherwise."""
    with mutated(_version(lines)) as classes:
        return [bool(each.differences) for each in await replayed(histories, *classes)]


async def _run(client: Client, lines: str) -> WorkflowHistory:
    """A run of the cycle with such lines."""
    steps, queue = Steps(), f"versioning-{uuid4()}"
    activities: list[Callable[..., Any]] = [
        steps.open_cycle,
        steps.read_backlog,
        steps.expire_batch,
        steps.publish_outbox,
        steps.close_cycle,
    ]
    with mutated(_version(lines)) as classes:
        worker = Worker(client, task_queue=queue, workflows=classes, activities=activities, workflow_runner=guarded_runner())
        async with worker:
            handle = await client.start_workflow("BookingExpirationCycle", CycleInput(), id=queue, task_queue=queue)
            await handle.result()
    assert "read_backlog" in steps.calls
    return await handle.fetch_history()


async def test_the_step_alone_breaks_open_runs() -> None:
    """docs/versioning.md: every recorded cycle that came so far differs."""
    names = [name for name in OLD_CYCLES if name not in ACCEPTED]
    assert await _differ(ALONE, [history(name) for name in names]) == [True] * len(names)


async def test_first_change_patched(client: Client) -> None:
    """docs/versioning.md: runs from before go their old way, a new run has the step, and both replay."""
    old = [history(name) for name in OLD_CYCLES]
    assert await _differ(PATCHED, old) == [name in ACCEPTED for name in OLD_CYCLES]
    assert await _differ(PATCHED, [await _run(client, PATCHED)]) == [False]


async def test_second_change_deprecated(client: Client) -> None:
    """docs/versioning.md: once no run from before the first change is open: those would break, later ones replay."""
    assert await _differ(DEPRECATED, [history("0.2.0-cycle-both-phases")]) == [True]
    patched, deprecated = await _run(client, PATCHED), await _run(client, DEPRECATED)
    assert await _differ(DEPRECATED, [patched, deprecated]) == [False, False]


async def test_third_change_the_step_alone(client: Client) -> None:
    """docs/versioning.md: once no run from before the second change is open, the patch can go."""
    patched, deprecated, alone = [await _run(client, lines) for lines in (PATCHED, DEPRECATED, ALONE)]
    assert await _differ(ALONE, [patched, deprecated, alone]) == [True, False, False]


@pytest.mark.parametrize("lines", [PATCHED, DEPRECATED, ALONE])
def test_the_document_shows_these_changes(lines: str) -> None:
    """docs/versioning.md: the example is what was tested, word for word."""
    assert f"```python\n{dedent(lines)}```\n" in DOCUMENT.read_text(encoding="utf-8")
