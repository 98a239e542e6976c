"""What a replay is compared by, without a server: which differences there are, and how each is said (trap 15)."""

import json
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio.api.common.v1 import Payload, Payloads, RetryPolicy
from temporalio.api.history.v1 import ActivityTaskScheduledEventAttributes
from temporalio.bridge.proto.workflow_commands import ScheduleActivity

from operators.replaying.comparing import differences
from operators.replaying.kinds import KINDS, Facts, Run, payload, plain
from operators.replaying.replay import _Marking
from operators.replaying.steps import Step

MINUTE = timedelta(minutes=1)
[ACTIVITY] = [kind for kind in KINDS if kind.what == "activity"]


def step(name: str, task: int, **facts: Any) -> Step:
    """An activity, or whatever stands before a colon."""
    kind, _, rest = name.rpartition(":")
    return Step(kind or "activity", rest, task, {label: plain(value) for label, value in facts.items()})


OPEN, RESERVE, BOOKING = step("open", 3), step("expire", 9, phase="Reserve"), step("expire", 15, phase="Booking")
DONE = step("end:completed", 21, result={"Count": 1})
CASES: dict[str, tuple[list[Step], list[Step], list[str]]] = {
    "nothing": ([OPEN, RESERVE, DONE], [OPEN, RESERVE, DONE], []),
    "value": ([step("a", 3, n=[1, {"b": 2}])], [step("a", 3, n=[1, {"b": 3}])], ["n 2 b is 2 in the history, 3 in the code"]),
    "order": (
        [OPEN, RESERVE, BOOKING],
        [OPEN, step("expire", 9, phase="Booking"), step("expire", 15, phase="Reserve")],
        ['phase is "Reserve" in the history, "Booking" in the code', 'phase is "Booking" in the history, "Reserve" in the code'],
    ),
    "other": ([OPEN], [step("close", 3)], ["activity 1 open in the history is activity 1 close in the code"]),
    "more": ([OPEN, DONE], [OPEN, RESERVE, DONE], ["activity 2 expire is in the code, not in the history"]),
    "fewer": ([OPEN, RESERVE, DONE], [OPEN, DONE], ["activity 2 expire is in the history, not in the code"]),
    "parallel": (
        [OPEN, RESERVE, BOOKING],
        [OPEN, RESERVE, step("expire", 9, phase="Booking")],
        ["activity 3 expire: comes after activity 2 expire in the history, at the same time in the code"],
    ),
    "serial": (
        [RESERVE, step("expire", 9, phase="Booking")],
        [RESERVE, BOOKING],
        ["activity 2 expire: comes at the same time as activity 1 expire in the history, later in the code"],
    ),
    "moment": ([OPEN, RESERVE], [OPEN, step("expire", 6, phase="Reserve")], ["decided at event 9 in the history, at event 6"]),
    "end": ([DONE], [step("end:failed", 21)], ["the end (completed) in the history is the end (failed) in the code"]),
    "time": ([step("a", 3, limit=MINUTE)], [step("a", 3, limit=timedelta())], ["limit is 60 s in the history, none in the code"]),
    "gone": ([step("a", 3, summary="x")], [step("a", 3)], ['summary is "x" in the history, absent in the code']),
}  # fmt: skip


@pytest.mark.parametrize(("history", "code", "sentences"), CASES.values(), ids=CASES)
def test_each_difference_is_a_sentence(history: list[Step], code: list[Step], sentences: list[str]) -> None:
    """Issue 4 section 5: a difference says which step, what, and both values."""
    found = differences(history, code)
    assert len(found) == len(sentences)
    assert [sentence for sentence, said in zip(sentences, found, strict=True) if sentence not in said] == []


class Old(BaseModel):
    """A message as it was."""

    size: int = 200


class New(Old):
    """The same with fields that came later, each with a default."""

    names: list[str] = []
    inner: Old | None = None


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (New(), []),
        (New(size=200, names=[], inner=None), []),
        (New(size=100), ["input size is 200 in the history, 100 in the code"]),
        (New(names=["x"]), ['input names is absent in the history, ["x"] in the code']),
        (New(inner=Old()), ['input inner is absent in the history, {"size": 200} in the code']),
        ({"size": 200, "names": []}, ["input names is absent in the history, [] in the code"]),
        ({}, ["input size is 200 in the history, absent in the code"]),
    ],
)
def test_a_new_field_at_its_default_is_no_difference(now: Any, said: list[str]) -> None:
    """Trap 21, docs/versioning.md: a field that the history lacks may stand at its default, and only there."""
    old, new = ({"input": payload(_Marking().to_payload(each))} for each in (Old(), now))
    assert list(differences([Step("activity", "a", 3, old)], [Step("activity", "a", 3, new)])) == [
        f"activity 1 a: {each}" for each in said
    ]


def _facts(message: Any, timeout: timedelta = timedelta()) -> Facts:
    return ACTIVITY.read(message, Run("W", "queue", timeout))[1]


LIMITS = ("schedule_to_close_timeout", "schedule_to_start_timeout", "start_to_close_timeout", "heartbeat_timeout")


@pytest.mark.parametrize(
    ("told", "run_timeout", "kept"),
    [
        ((10, 0, 0, 0), 0, (10, 10, 10, 0)),
        ((0, 0, 30, 0), 0, (0, 0, 30, 0)),
        ((0, 0, 30, 0), 20, (20, 20, 20, 0)),
        ((5, 0, 0, 9), 0, (5, 5, 5, 5)),
        ((10, 3, 7, 2), 150, (10, 3, 7, 2)),
    ],
)
def test_limits_are_compared_as_the_server_completes_them(told: tuple[int], run_timeout: int, kept: tuple[int]) -> None:
    """Trap 15: the server fills in and caps time-outs and retries, so a history is not word for word what the code said."""
    command, event = ScheduleActivity(activity_type="a", task_queue="q"), ActivityTaskScheduledEventAttributes()
    event.activity_type.name = "a"
    event.task_queue.name = "q"
    event.retry_policy.CopyFrom(RetryPolicy(backoff_coefficient=2))
    event.retry_policy.initial_interval.FromSeconds(1)
    event.retry_policy.maximum_interval.FromSeconds(100)
    for message, seconds in ((command, told), (event, kept)):
        for name, limit in zip(LIMITS, seconds, strict=True):
            getattr(message, name).FromSeconds(limit)
    timeout = timedelta(seconds=run_timeout)
    assert _facts(command, timeout) == _facts(event, timeout)


def test_payloads_of_every_kind_can_be_compared() -> None:
    """Issue 4 section 5: JSON as JSON, nothing as null, bytes as they are; several arguments one by one."""
    given = [_Marking().to_payload(value) for value in ({"a": 1}, None, b"\x01")]
    assert [payload(each).value for each in given] == [{"a": 1}, None, "01"]
    message = ActivityTaskScheduledEventAttributes(input=Payloads(payloads=given))
    assert _facts(message)["input"].value == [{"a": 1}, None, "01"]
    assert json.dumps(payload(Payload()).value) == '""'
