"""The particulars of each thing that a run can do, read alike from an event of a history and from a command of a replay.

Not read: cancel requests, patch markers and local activities, which the Replayer compares itself; and an activity's cancellation
type, which no history has.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeAlias

from temporalio.api.common.v1 import Payload

NEEDED: Final = "needed"
"""Metadata of a replay's payload: the same value without the fields that have their default."""
SECOND: Final = timedelta(seconds=1)


class Given(NamedTuple):
    """A value, and that part of it which a history must have too: all but the fields that have their default."""

    value: Any
    needed: Any


class Run(NamedTuple):
    """What a run gives to its steps where they do not say it: its type, task queue and time-out (zero: none)."""

    workflow: str
    task_queue: str
    timeout: timedelta


Facts: TypeAlias = dict[str, Given]
Read: TypeAlias = Callable[[Any, Run], tuple[str, Facts]]
"""Name and particulars of a message."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of step: where an event has it, where a command has it, and how both are read."""

    what: str
    event: str
    command: str
    read: Read


def plain(value: Any) -> Given:
    """A value without defaults."""
    return Given(value, value)


def payload(given: Payload) -> Given:
    """A payload as JSON; what is no JSON as it stands."""
    encoding = given.metadata.get("encoding", b"")
    if encoding == b"binary/null":
        return plain(None)
    try:
        value = json.loads(given.data) if encoding.startswith(b"json/") else given.data.hex()
    except ValueError:  # it says JSON and is none: still something that can differ
        value = given.data.hex()
    return Given(value, json.loads(given.metadata[NEEDED]) if NEEDED in given.metadata else value)


def summary(metadata: Any) -> Facts:
    """The line that the Web UI shows for an activity or a timer."""
    return {"summary": payload(metadata.summary) if metadata.HasField("summary") else plain(None)}


def failure(given: Any) -> Facts:
    """Message, type and details, and the same of what it was caused by; stack traces change with every line of code."""
    facts = {"message": plain(given.message)}
    if given.HasField("application_failure_info"):
        info = given.application_failure_info
        facts |= {"type": plain(info.type), "details": _several(info.details.payloads)}
    if given.HasField("cause"):
        facts |= {f"cause's {label}": value for label, value in failure(given.cause).items()}
    return facts


def _several(payloads: Sequence[Payload]) -> Given:
    """One payload as it is; several, or none, as a list."""
    given = [payload(each) for each in payloads]
    return given[0] if len(given) == 1 else Given([each.value for each in given], [each.needed for each in given])


def _arguments(what: Any) -> Given:
    name = next(name for name in ("arguments", "input", "args") if name in what.DESCRIPTOR.fields_by_name)
    given = getattr(what, name)
    return _several(getattr(given, "payloads", given))  # an event has a message around them


def _name(given: Any) -> str:
    return str(getattr(given, "name", given))


def _least(*limits: timedelta) -> timedelta:
    return min((limit for limit in limits if limit), default=timedelta())


def _activity(what: Any, run: Run) -> tuple[str, Facts]:
    # The server completes and caps the limits when it takes an activity in; the same is done here to both sides.
    whole = _least(what.schedule_to_close_timeout.ToTimedelta(), run.timeout)
    execution = _least(what.start_to_close_timeout.ToTimedelta(), whole)
    heartbeat = what.heartbeat_timeout.ToTimedelta()
    return _name(what.activity_type), {
        "input": _arguments(what),
        "task queue": plain(_name(what.task_queue)),
        "schedule-to-close time-out": plain(whole),
        "schedule-to-start time-out": plain(_least(what.schedule_to_start_timeout.ToTimedelta(), whole)),
        "start-to-close time-out": plain(execution),
        "heartbeat time-out": plain(_least(heartbeat, execution) if heartbeat else heartbeat),
        **_retries(what.retry_policy),
    }


def _retries(policy: Any) -> Facts:
    first = policy.initial_interval.ToTimedelta() or SECOND  # what is not said is the server's default
    return {
        "first retry's pause": plain(first),
        "retry factor": plain(policy.backoff_coefficient or 2.0),
        "longest retry pause": plain(policy.maximum_interval.ToTimedelta() or 100 * first),
        "number of attempts": plain(policy.maximum_attempts or "unlimited"),
        "errors without retry": plain(list(policy.non_retryable_error_types)),
    }


def _timer(what: Any, _: Run) -> tuple[str, Facts]:
    return "", {"duration": plain(what.start_to_fire_timeout.ToTimedelta())}


def _child(what: Any, _: Run) -> tuple[str, Facts]:
    facts = {"id": plain(what.workflow_id), "task queue": plain(_name(what.task_queue)), "input": _arguments(what)}
    return _name(what.workflow_type), facts


def _signal(what: Any, _: Run) -> tuple[str, Facts]:
    workflow_id = getattr(what, "child_workflow_id", "") or what.workflow_execution.workflow_id
    return what.signal_name, {"workflow": plain(workflow_id), "input": _arguments(what)}


def _attributes(what: Any, _: Run) -> tuple[str, Facts]:
    return "", _fields(what.search_attributes.indexed_fields)


def _memo(what: Any, _: Run) -> tuple[str, Facts]:
    return "", _fields(what.upserted_memo.fields)


def _fields(given: Mapping[str, Payload]) -> Facts:
    return {name: payload(given[name]) for name in sorted(given)}


def _completed(what: Any, _: Run) -> tuple[str, Facts]:
    result = what.result
    return "completed", {"result": _several(getattr(result, "payloads", [result]))}


def _failed(what: Any, _: Run) -> tuple[str, Facts]:
    return "failed", failure(what.failure)


def _cancelled(_what: Any, _: Run) -> tuple[str, Facts]:
    return "cancelled", {}


def _continued(what: Any, run: Run) -> tuple[str, Facts]:
    return "continued as new", {
        "workflow": plain(_name(what.workflow_type) or run.workflow),
        "task queue": plain(_name(what.task_queue) or run.task_queue),
        "input": _arguments(what),
    }


END: Final = "end"
KINDS: Final = (
    Kind("activity", "activity_task_scheduled_event_attributes", "schedule_activity", _activity),
    Kind("timer", "timer_started_event_attributes", "start_timer", _timer),
    Kind(
        "child workflow",
        "start_child_workflow_execution_initiated_event_attributes",
        "start_child_workflow_execution",
        _child,
    ),
    Kind(
        "signal",
        "signal_external_workflow_execution_initiated_event_attributes",
        "signal_external_workflow_execution",
        _signal,
    ),
    Kind(
        "search attributes",
        "upsert_workflow_search_attributes_event_attributes",
        "upsert_workflow_search_attributes",
        _attributes,
    ),
    Kind("memo", "workflow_properties_modified_event_attributes", "modify_workflow_properties", _memo),
    Kind(END, "workflow_execution_completed_event_attributes", "complete_workflow_execution", _completed),
    Kind(END, "workflow_execution_failed_event_attributes", "fail_workflow_execution", _failed),
    Kind(END, "workflow_execution_canceled_event_attributes", "cancel_workflow_execution", _cancelled),
    Kind(END, "workflow_execution_continued_as_new_event_attributes", "continue_as_new_workflow_execution", _continued),
)
