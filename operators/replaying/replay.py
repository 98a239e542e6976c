"""Replaying histories against the code at hand, and comparing what it does with what they show (trap 15)."""

import dataclasses
import importlib
import inspect
import pkgutil
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from pydantic import BaseModel, TypeAdapter
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import DataConverter
from temporalio.runtime import Runtime, TelemetryConfig
from temporalio.worker import Replayer, WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner

import workflows
from operators.replaying.comparing import differences
from operators.replaying.kinds import NEEDED
from operators.replaying.steps import Activation, recorded, repeated
from workflows.sandbox import guarded_runner

_DEFINITION: Final = "__temporal_workflow_definition"
"""Where the SDK keeps what `workflow.defn` was told."""
_MESSAGE: Final = re.compile(r'message: "((?:[^"\\]|\\.)*)"')
_QUIET: Final = TelemetryConfig(logging=None)
"""The SDK's core would write its own words about a failing replay to standard output (trap 19)."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """One history and how the code at hand differs from it; `stopped` is why the Replayer itself gave up, or None."""

    history: WorkflowHistory
    differences: Sequence[str]
    stopped: str | None


def ours() -> list[type]:
    """Every workflow of the package `workflows`."""
    found = []
    for module in pkgutil.iter_modules(workflows.__path__, "workflows."):
        for _, each in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if each.__module__ == module.name and workflow._Definition.from_class(each):  # noqa: SLF001 # no public question
                found.append(each)
    return found


def type_of(workflow_class: type) -> str:
    """The name that the server knows a workflow by."""
    return _definition(workflow_class).name or ""


def _definition(workflow_class: type) -> Any:
    return workflow._Definition.must_from_class(workflow_class)  # noqa: SLF001 # no public question


def _strict(definition: Any) -> type:
    """The workflow as the Replayer may see it: with no errors that fail a run.

    Where they fail it (trap 3), the SDK's core fails it for nondeterminism too, and then the Replayer never ends (1.35). Only the
    core looks here: the code itself runs with its own definition.
    """
    seen: Any = type(definition.cls.__name__, (definition.cls,), {})
    setattr(seen, _DEFINITION, dataclasses.replace(definition, cls=seen, failure_exception_types=[]))
    return cast("type", seen)


def from_json(text: str) -> WorkflowHistory:
    """A history as `temporal workflow show --output json` and the Web UI write it; its own first event says whose it is."""
    history = WorkflowHistory.from_json("", text)
    return dataclasses.replace(history, workflow_id=history.events[0].workflow_execution_started_event_attributes.workflow_id)


async def replay(
    histories: AsyncIterator[WorkflowHistory], *, workflow_classes: Sequence[type] = (), namespace: str = "default"
) -> AsyncIterator[Replayed]:
    """Each history against these workflows (without any: against all of ours)."""
    definitions = [_definition(each) for each in workflow_classes or ours()]
    recorder = _Recorder(guarded_runner(), definitions)
    replayer = Replayer(
        workflows=[_strict(definition) for definition in definitions],
        workflow_runner=recorder,
        namespace=namespace,
        data_converter=DataConverter(payload_converter_class=_Marking),
        runtime=Runtime(telemetry=_QUIET),
    )
    async with replayer.workflow_replay_iterator(recorder.noting(histories)) as results:
        async for result in results:
            yield _judged(result.history, recorder.runs.pop(result.history.run_id, []), result.replay_failure)


def _judged(history: WorkflowHistory, activations: Sequence[Activation], failure: Exception | None) -> Replayed:
    old, new = recorded(history.events), repeated(activations, history.events)
    if failure is None:
        return Replayed(history, differences(old, new), None)
    reached = max((activation.task for activation in activations), default=0)  # what comes later was never asked for
    found = differences([step for step in old if step.task <= reached], new)
    said = _MESSAGE.search(str(failure))
    stopped = said[1] if said else str(failure).partition("\n")[0]
    return Replayed(history, [*found, f"the replay stops: {stopped}"], stopped)


class _Marking(PydanticPayloadConverter):
    """Beside each message, which of it is not merely a default: a field added with a default is no difference."""

    def to_payloads(self, values: Sequence[Any]) -> list[Payload]:
        """The usual payloads; a message's has one more piece of metadata."""
        payloads = super().to_payloads(values)
        for value, payload in zip(values, payloads, strict=True):
            if isinstance(value, BaseModel) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
                payload.metadata[NEEDED] = TypeAdapter(type(value)).dump_json(value, exclude_defaults=True, by_alias=True)
        return payloads


class _Recorder(WorkflowRunner):
    """Runs workflows as another runner does, and keeps what they decide."""

    def __init__(self, runner: WorkflowRunner, definitions: Sequence[Any]) -> None:
        self._runner = runner
        self._definitions = {definition.name: definition for definition in definitions}
        self._task_queues: dict[str, str] = {}
        self.runs: dict[str, list[Activation]] = defaultdict(list)

    async def noting(self, histories: AsyncIterator[WorkflowHistory]) -> AsyncIterator[WorkflowHistory]:
        """The same histories; each run's task queue is kept, which the Replayer would not tell the workflow."""
        async for history in histories:
            started = history.events[0].workflow_execution_started_event_attributes
            self._task_queues[history.run_id] = started.task_queue.name
            yield history

    def prepare_workflow(self, defn: Any) -> None:
        """As the other runner."""
        self._runner.prepare_workflow(self._definitions[defn.name])

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """As the other runner, in the task queue of the history."""
        info = dataclasses.replace(det.info, task_queue=self._task_queues[det.info.run_id])
        details = dataclasses.replace(det, info=info, defn=self._definitions[det.defn.name])
        return _Instance(self._runner.create_instance(details), self.runs[info.run_id])

    def set_worker_level_failure_exception_types(self, types: Sequence[type[BaseException]]) -> None:
        """As the other runner."""
        self._runner.set_worker_level_failure_exception_types(types)


class _Instance(WorkflowInstance):
    """One run as the instance inside runs it; what it decides is kept."""

    def __init__(self, inside: WorkflowInstance, kept: list[Activation]) -> None:
        self._inside = inside
        self._kept = kept

    def activate(self, act: Any) -> Any:
        """As inside, and keep the commands."""
        completion = self._inside.activate(act)
        if not any(job.HasField("remove_from_cache") for job in act.jobs):
            updates = {job.do_update.protocol_instance_id: job.do_update.name for job in act.jobs if job.HasField("do_update")}
            self._kept.append(Activation(act.history_length, list(completion.successful.commands), updates))
        return completion

    def get_serialization_context(self, command_info: Any) -> Any:
        """As inside."""
        return self._inside.get_serialization_context(command_info)

    def get_external_store_context(self, command_info: Any) -> Any:
        """As inside."""
        return self._inside.get_external_store_context(command_info)

    def get_info(self) -> Any:
        """As inside."""
        return self._inside.get_info()

    def get_thread_id(self) -> int | None:
        """As inside."""
        return self._inside.get_thread_id()
