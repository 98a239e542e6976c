"""What other versions of the program rely on: names, payload fields, the sandbox. Replay: `test_replay.py`."""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pydantic import TypeAdapter
from temporalio import activity, workflow
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer
from temporalio.worker.workflow_sandbox import UnintentionalPassthroughError

from activities import drain_messages, messages
from activities.cycle_frame import CycleFrame
from activities.expire_batch import ExpireBatch
from activities.publish_outbox import PublishOutbox
from workflows.drain import BookingExpirationDrain
from workflows.expiration_cycle import BookingExpirationCycle
from workflows.sandbox import guarded_runner

GOLDEN = Path(__file__).parent.parent / "golden" / "temporal_contract.json"
WORKFLOWS: list[type] = [BookingExpirationCycle, BookingExpirationDrain]
ACTIVITIES: list[Any] = [
    CycleFrame.open_cycle,
    CycleFrame.read_backlog,
    CycleFrame.record_acts,
    CycleFrame.close_cycle,
    ExpireBatch.expire_batch,
    PublishOutbox.publish_outbox,
]


def _replayer(workflows: list[type]) -> Replayer:
    return Replayer(workflows=workflows, data_converter=pydantic_data_converter, workflow_runner=guarded_runner())


def _contract() -> dict[str, Any]:
    travelling = [
        model
        for module in (messages, drain_messages)
        for model in vars(module).values()
        if isinstance(model, type) and model.__module__ == module.__name__ and model is not messages.Message
    ]
    return {
        "workflows": dict(map(_handlers, WORKFLOWS)),
        "activities": [activity._Definition.must_from_callable(each).name for each in ACTIVITIES],
        "payloads": {model.__name__: _shape(model) for model in travelling},
    }


def _handlers(workflow_class: type) -> tuple[str | None, dict[str, list[Any]]]:
    its = workflow._Definition.must_from_class(workflow_class)
    return its.name, {"signals": list(its.signals), "queries": list(its.queries), "updates": list(its.updates)}


def _shape(model: type) -> Any:
    schema = TypeAdapter(model).json_schema(mode="serialization")
    return schema.get("enum") or {name: field.get("$ref", field.get("type")) for name, field in schema["properties"].items()}


def test_names_on_the_wire_are_pinned() -> None:
    """Layout rule 8: names of workflow, activities and payload fields change only on purpose, in the golden file too."""
    assert _contract() == json.loads(GOLDEN.read_text())


async def _nothing() -> AsyncIterator[WorkflowHistory]:
    for _ in ():
        yield WorkflowHistory("", [])


async def test_trap_1_the_sandbox_accepts_our_workflows() -> None:
    """Trap 1: without any server, the guard finds every import of the workflows passed through on purpose."""
    await _replayer(WORKFLOWS).replay_workflows(_nothing())


async def test_trap_1_the_guard_refuses_a_careless_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap 1: the guard works: a workflow module that imports asyncpg unguarded fails the start, not the first query."""
    (tmp_path / "careless.py").write_text(
        "import asyncpg\nfrom temporalio import workflow\n@workflow.defn\nclass Careless:\n"
        "    @workflow.run\n    async def run(self) -> None: ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    careless: ModuleType = __import__("careless")
    monkeypatch.delitem(sys.modules, "careless")
    with pytest.raises((UnintentionalPassthroughError, RuntimeError), match=r"asyncpg|[Cc]areless"):
        await _replayer([careless.Careless]).replay_workflows(_nothing())
