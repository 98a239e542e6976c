"""The gate: every recorded run does on this code what it did when it was recorded, in every particular (issue 4 section 5)."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError, WorkflowHistory

from operators.replaying.replay import ours, type_of
from tests.workflow.gate import ACCEPTED, NAMES, PATHS, history, released, replayed, require_unreleased
from tests.workflow.steps import Steps, refuse, running, start
from workflows.expiration_cycle import BookingExpirationCycle


@pytest.mark.parametrize("name", NAMES)
async def test_the_gate(name: str) -> None:
    """Issue 4 section 5, trap 15: a recorded run has no difference but those that were accepted by name."""
    [one] = await replayed([history(name)])
    assert list(one.differences) == ([ACCEPTED[name]] if name in ACCEPTED else [])


def _has(*fields: str) -> Callable[[WorkflowHistory], bool]:
    return lambda recorded: set(fields) <= {event.WhichOneof("attributes") for event in recorded.events}


def _says(words: str) -> Callable[[WorkflowHistory], bool]:
    return lambda recorded: words in "".join(str(event) for event in recorded.events).replace("\\", "")


CANCELED = _has("workflow_execution_cancel_requested_event_attributes", "workflow_execution_canceled_event_attributes")
FAILED = _has("workflow_execution_failed_event_attributes")
KINDS: dict[str, tuple[Callable[[WorkflowHistory], bool], ...]] = {
    "cycle-empty": (_says('"ReserveExpiredCount":0,"BookingExpiredCount":0,'),),
    "cycle-both-phases": (_says('"ReserveExpiredCount":12,"BookingExpiredCount":7,'),),
    "cycle-poison": (_says('"PoisonCount":1,"PublishedCount":4'),),
    "cycle-retried-batch": (_says("attempt: 2"), _says('"Outcome":"completed"')),
    "cycle-failed-step": (FAILED, _has("activity_task_failed_event_attributes")),
    "cycle-timed-out-step": (FAILED, _has("activity_task_timed_out_event_attributes")),
    "cycle-kafka-down": (_says('"outcome":"broker_unavailable"'), _says('"Outcome":"completed"')),
    **{
        f"cycle-canceled-in-{step}": (CANCELED, _has("activity_task_canceled_event_attributes"))
        for step in ("open-cycle", "reserve", "booking", "publish-outbox", "close-cycle", "record-acts")
    },
    "cycle-canceled-in-commit": (CANCELED, _says('"expired_count":3')),
    "cycle-stopped": (_has("workflow_execution_signaled_event_attributes"), _says('"Outcome":"stopped"')),
    "cycle-stopped-at-once": (_has("workflow_execution_signaled_event_attributes"), _says('"Outcome":"stopped"')),
    "cycle-held": (_says('"Outcome":"held"'),),
    "cycle-hold-released": (_says('"spends_allowance":true'),),
    "cycle-phase-paused": (_says('"Outcome":"paused"'),),
    "drain-drained": (_says('"Outcome":"drained"'),),
    "drain-limits-changed-run-1": (
        _has("workflow_execution_update_completed_event_attributes", "workflow_execution_continued_as_new_event_attributes"),
    ),
    "drain-limits-changed-run-2": (_has("workflow_execution_continued_as_new_event_attributes"), _says('"cap":25')),
    "drain-limits-changed-run-3": (_says('"Outcome":"cap_reached"'),),
    "drain-stopped": (_has("workflow_execution_signaled_event_attributes"), _says('"Outcome":"stopped"')),
    "drain-canceled": (CANCELED,),
    "drain-out-of-time": (_says('"Outcome":"out_of_time"'),),
    "drain-failed": (FAILED,),
    "drain-refused": (FAILED, _says("cap is missing")),
    "drain-phase-paused": (_says('"Outcome":"paused"'),),
    "resume-resumed": (_has("timer_fired_event_attributes"), _says('"resumed":true')),
    "resume-left-alone": (_has("timer_fired_event_attributes"), _says('"resumed":false')),
    "resume-canceled": (CANCELED,),
}
"""What is recorded (issue 4 section 5), and how it can be told that it is."""

KEPT = {"0.1.0": {"canceled", "completed", "failed"}, "0.2.0": set(KINDS)}
"""The histories of each version. One goes when no run of that version can be open or is looked at any more."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_history_shows_what_its_name_says(kind: str) -> None:
    """Issue 4 section 5: a run of every path is there, and went that path."""
    names = [name for name in NAMES if re.sub(r"^[\d.]+-", "", name) == kind]
    assert names
    assert [name for name in names if not all(check(history(name)) for check in KINDS[kind])] == []


def test_no_history_of_an_earlier_version_is_lost() -> None:
    """Issue 4 section 5: each version, the released ones at least, has the histories that are named for it."""
    found: dict[str, set[str]] = {}
    for version, kind in (name.split("-", 1) for name in NAMES):
        found.setdefault(version, set()).add(kind)
    assert found == KEPT
    assert released() - KEPT.keys() == set()


def test_a_released_versions_histories_are_not_recorded_again() -> None:
    """Issue 4 section 5: `make histories` refuses to write over them; 0.1.0 is released."""
    assert "0.1.0" in released()
    with pytest.raises(RuntimeError, match=r"0\.1\.0 is released"):
        require_unreleased("0.1.0")
    require_unreleased("999.0.0")


def test_every_workflow_has_histories() -> None:
    """Issue 4 section 5: a workflow without a recorded run would be one that the gate says nothing about."""
    recorded = {history(name).events[0].workflow_execution_started_event_attributes.workflow_type.name for name in NAMES}
    assert recorded == {type_of(each) for each in ours()}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_history_names_no_machine(path: Path) -> None:
    """Issue 4 section 5: no folder and no host of whoever recorded it."""
    assert re.findall(r"/(?:home|root|work|tmp|Users|usr)/\S*|\d+@[\w-]+", path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("failing", [[], ["Reserve"]])
async def test_a_run_of_now_replays(client: Client, failing: list[str]) -> None:
    """Design card: what this version has just run replays, completed or failed."""
    steps = Steps()
    steps.behave = dict.fromkeys(failing, refuse)
    async with running(client, steps) as queue:
        handle: Any = await start(client, queue)
        try:
            await handle.result()
        except WorkflowFailureError:
            assert failing
    [one] = await replayed([await handle.fetch_history()], BookingExpirationCycle)
    assert one.differences == []
