"""What `schedule show` shows: the server's own answer, and who paused it, why, and what will end it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from google.protobuf.json_format import MessageToDict
from rich.table import Column, Table
from rich.text import Text
from temporalio.api.schedule.v1 import ScheduleState
from temporalio.api.workflowservice.v1 import DescribeScheduleResponse
from temporalio.client import Client

import settings as configuration
from activities import schedule_note, schedule_state
from activities.schedule_note import Pause, moment
from db import controls, server
from db.controls import Pause as PhasePause
from db.reading import reading
from operators import frame, sources, timer, words
from settings import OperatorSettings

UNKNOWN: Final = "somebody, in the Web UI or by another program"


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
    """The schedule, its pause, and whether the timer that shall end the pause is there.

    `phases`: the paused ones; None where the database was not read, and then `unread` says why.
    """

    schedule_id: str
    described: DescribeScheduleResponse
    pause: Pause | None
    timer_runs: bool
    phases: Sequence[PhasePause] | None = None
    unread: str = ""

    def as_json(self) -> dict[str, Any]:
        """The server's answer, with the pauses beside it."""
        mark = self.pause.mark if self.pause else None
        ending = {"workflow_id": timer.workflow_id(mark), "running": self.timer_runs} if mark else None
        ours = {"pause": as_dict(self.pause), "timer": ending, "paused_phases": words.plain(self.phases)}
        return {**MessageToDict(self.described), **ours}

    def table(self) -> Table:
        """For people."""
        schedule, info = self.described.schedule, self.described.info
        action, overlap = schedule.action.start_workflow, MessageToDict(schedule.policies).get("overlapPolicy", "")
        table = Table("schedule", Column(Text(self.schedule_id)), show_header=True)
        table.add_row("state", self._state())
        for name, text in self._pause():
            table.add_row(name, Text(text))
        table.add_row("phases", Text(self._phases()))
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

    def _state(self) -> str:
        state = self.described.schedule.state
        if state.paused:
            return "paused"
        return f"{sources.USED_UP}: {sources.renew(self.schedule_id)}" if sources.used_up(state) else "running"

    def _pause(self) -> list[tuple[str, str]]:
        if self.pause is None:
            return []
        if self.pause.by == UNKNOWN:
            return [("paused by", f"{UNKNOWN}; the reason is the note"), ("until", "somebody resumes it")]
        rows = [("paused by", f"{self.pause.by}, at {moment(self.pause.at)}"), ("reason", self.pause.reason)]
        if self.pause.until is None or self.pause.mark is None:
            return [*rows, ("until", "somebody resumes it")]
        workflow = f"workflow {timer.workflow_id(self.pause.mark)}"
        gone = f"NOT by itself: {workflow} is gone; resume it by hand"
        return [*rows, ("until", f"{moment(self.pause.until)}, by {workflow}" if self.timer_runs else gone)]

    def _phases(self) -> str:
        if self.phases is None:
            return f"not read: {self.unread}"
        told = [f"{each.phase} {words.paused(each.actor, each.until, each.reason)}" for each in self.phases]
        return "\n".join(told) or "both run"


async def read(client: Client, schedule_id: str) -> Shown:
    """The schedule as the server has it now, and what the database tells of its phases. Raises `NoScheduleError`, `RPCError`."""
    shown, unreadable = await of_server(client, schedule_id), dict[str, str]()
    given = sources.loaded(lambda: configuration.load_model(OperatorSettings))
    if given.value is None:
        return replace(shown, unread="; ".join(given.mistakes))
    phases = await sources.attempt("database", _paused(given.value), given.value, unreadable)
    return replace(shown, phases=phases, unread=unreadable.get("database", ""))


async def _paused(given: OperatorSettings) -> list[PhasePause]:
    async with frame.database(given) as pool, reading(pool) as connection:
        return await controls.paused(connection, await server.clock(connection))


async def of_server(client: Client, schedule_id: str) -> Shown:
    """The same by Temporal alone. Raises `NoScheduleError`, `RPCError`."""
    described = await schedule_state.existing(client, schedule_id)
    pause = who_paused(described.schedule.state)
    return Shown(schedule_id, described, pause, bool(await timer.runs(client, pause)))
