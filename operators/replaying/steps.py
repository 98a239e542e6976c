"""What a run did, step by step: read from its history, and from the commands of a replay (trap 15)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from temporalio.api.history.v1 import HistoryEvent

from operators.replaying.kinds import END, KINDS, Facts, Kind, Run, failure, payload, summary

_BY_EVENT: Final = {kind.event: kind for kind in KINDS}
_BY_COMMAND: Final = {kind.command: kind for kind in KINDS}
_CANCELLED_BY: Final = {"start_timer": "cancel_timer", "schedule_activity": "request_cancel_activity"}
_PATCHES: Final = "TemporalChangeVersion"
"""A search attribute that the SDK's core sets by itself beside a patch marker."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a run did, with its particulars; `task` is the workflow task that decided it, as an event's id."""

    kind: str
    name: str
    task: int
    facts: Facts


@dataclass(frozen=True, slots=True)
class Activation:
    """What the code decided at one moment of a replay; `updates` are the names of those that arrived, by protocol id."""

    task: int
    commands: Sequence[Any]
    updates: dict[str, str] = field(default_factory=dict)


def recorded(events: Sequence[HistoryEvent]) -> list[Step]:
    """The steps of a history, in its order."""
    steps, task, updates = list[Step](), 0, dict[int, str]()
    for event in events:
        name = event.WhichOneof("attributes") or ""
        what: Any = getattr(event, name, None)
        if name == "workflow_task_completed_event_attributes":
            task = what.started_event_id
        elif name == "workflow_execution_update_accepted_event_attributes":
            updates[event.event_id] = what.accepted_request.input.name
        elif name == "workflow_execution_update_completed_event_attributes":
            steps.append(_answer(updates.get(what.accepted_event_id, ""), task, what.outcome.success, what.outcome.failure))
        elif name in _BY_EVENT:
            steps += _step(_BY_EVENT[name], what, event.user_metadata, task, _run(events))
    return steps


def repeated(activations: Iterable[Activation], events: Sequence[HistoryEvent]) -> list[Step]:
    """The steps of a replay, as far as the history shows what became of them."""
    completed = [
        event.workflow_task_completed_event_attributes.started_event_id
        for event in events
        if event.HasField("workflow_task_completed_event_attributes")
    ]
    steps, updates = list[Step](), dict[str, str]()
    for activation in activations:
        updates |= activation.updates
        task = next((started for started in completed if started >= activation.task), None)
        if task is None:
            break  # the history ends before this was decided
        for command in _lasting(activation.commands):
            name = command.WhichOneof("variant")
            what: Any = getattr(command, name)
            if name == "update_response" and not what.HasField("accepted"):
                steps.append(_answer(updates.get(what.protocol_instance_id, ""), task, what.completed, what.rejected))
            elif name in _BY_COMMAND:
                steps += _step(_BY_COMMAND[name], what, command.user_metadata, task, _run(events))
    return steps


def _run(events: Sequence[HistoryEvent]) -> Run:
    started = events[0].workflow_execution_started_event_attributes
    return Run(started.workflow_type.name, started.task_queue.name, started.workflow_run_timeout.ToTimedelta())


def _lasting(commands: Sequence[Any]) -> list[Any]:
    """What the SDK's core passes on: not what is started and cancelled in one go; and the run's end comes last."""
    named = [(command.WhichOneof("variant"), command) for command in commands]
    cancelled = {(name, getattr(command, name).seq) for name, command in named if name in _CANCELLED_BY.values()}
    lasting = [
        (name, command)
        for name, command in named
        if name not in _CANCELLED_BY or (_CANCELLED_BY[name], getattr(command, name).seq) not in cancelled
    ]
    ends = {kind.command for kind in KINDS if kind.what == END}
    return [command for _, command in sorted(lasting, key=lambda pair: pair[0] in ends)]


def _step(kind: Kind, what: Any, metadata: Any, task: int, run: Run) -> list[Step]:
    name, facts = kind.read(what, run)
    if list(facts) == [_PATCHES]:
        return []
    if kind.what in ("activity", "timer"):
        facts |= summary(metadata)
    return [Step(kind.what, name, task, facts)]


def _answer(update: str, task: int, success: Any, failed: Any) -> Step:
    """The answer to an update: an event has a message around it, and either side may have failed instead."""
    if failed.message:
        return Step("update", update, task, failure(failed))
    given = success.payloads[0] if getattr(success, "payloads", None) else success
    return Step("update", update, task, {"answer": payload(given)})
