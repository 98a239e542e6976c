"""What `schedule show` shows: the server's own answer, and who paused it, why, and what will end it."""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

from google.protobuf.json_format import MessageToDict
from rich.table import Column, Table
from rich.text import Text
from temporalio.api.schedule.v1 import ScheduleState
from temporalio.api.workflowservice.v1 import DescribeScheduleResponse
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from activities import schedule_note, schedule_state
from activities.schedule_note import Pause, moment

UNKNOWN: Final = "somebody, in the Web UI or by another program"


def timer_id(mark: str) -> str:
    """The workflow that will end the pause of this mark."""
    return f"booking-expiration-resume-{mark}"


def who_paused(state: ScheduleState) -> Pause | None:
    """Who paused the schedule; a pause that was not made by this command has its reason in place of the note. None: it runs."""
    if not state.paused:
        return None
    return schedule_note.read(state.notes) or Pause(UNKNOWN, None, schedule_note.one_line(state.notes))


def as_dict(pause: Pause | None) -> dict[str, Any] | None:
    """The pause as data; a moment that is not known is null."""
    if pause is None:
        return None
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in asdict(pause).items()}


@dataclass(frozen=True, slots=True)
class Shown:
    """The schedule, its pause, and whether the timer that shall end the pause is there."""

    schedule_id: str
    described: DescribeScheduleResponse
    pause: Pause | None
    timer_runs: bool

    def as_json(self) -> dict[str, Any]:
        """The server's answer, with the pause beside it."""
        timer = {"workflow_id": timer_id(self.pause.mark), "running": self.timer_runs} if self.pause and self.pause.mark else None
        return {**MessageToDict(self.described), "pause": as_dict(self.pause), "timer": timer}

    def table(self) -> Table:
        """For people."""
        schedule, info = self.described.schedule, self.described.info
        action, overlap = schedule.action.start_workflow, MessageToDict(schedule.policies).get("overlapPolicy", "")
        table = Table("schedule", Column(Text(self.schedule_id)), show_header=True)
        table.add_row("state", "paused" if schedule.state.paused else "running")
        for name, text in self._pause():
            table.add_row(name, Text(text))
        table.add_row("note", Text(schedule.state.notes))  # an operator's words are no markup
        table.add_row("starts", Text(f"{action.workflow_type.name} on task queue {action.task_queue.name}, every minute (UTC)"))
        table.add_row("overlap", overlap.rpartition("_")[2].lower())
        table.add_row("runs now", Text("\n".join(run.workflow_id for run in info.running_workflows) or "nothing"))
        nexts = [] if schedule.state.paused else [moment(at.ToDatetime(UTC)) for at in info.future_action_times[:3]]
        table.add_row("next runs", "\n".join(nexts) or "none")
        for ran in info.recent_actions[-5:]:
            table.add_row("ran", Text(f"{moment(ran.actual_time.ToDatetime(UTC))}  {ran.start_workflow_result.workflow_id}"))
        table.add_row("skipped by overlap", str(info.overlap_skipped))
        table.add_row("missed", f"{info.missed_catchup_window} (Temporal was away for longer than a minute)")
        return table

    def _pause(self) -> list[tuple[str, str]]:
        if self.pause is None:
            return []
        if self.pause.by == UNKNOWN:
            return [("paused by", f"{UNKNOWN}; the reason is the note"), ("until", "somebody resumes it")]
        rows = [("paused by", f"{self.pause.by}, at {moment(self.pause.at)}"), ("reason", self.pause.reason)]
        if self.pause.until is None or self.pause.mark is None:
            return [*rows, ("until", "somebody resumes it")]
        timer = f"workflow {timer_id(self.pause.mark)}"
        gone = f"NOT by itself: {timer} is gone; resume it by hand"
        return [*rows, ("until", f"{moment(self.pause.until)}, by {timer}" if self.timer_runs else gone)]


async def read(client: Client, schedule_id: str) -> Shown:
    """The schedule as the server has it now. Raises `NoScheduleError`, `RPCError`."""
    described = await schedule_state.existing(client, schedule_id)
    pause = who_paused(described.schedule.state)
    return Shown(schedule_id, described, pause, bool(pause and pause.mark and await _runs(client, timer_id(pause.mark))))


async def _runs(client: Client, workflow_id: str) -> bool:
    try:
        described = await client.get_workflow_handle(workflow_id).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return described.status is WorkflowExecutionStatus.RUNNING
