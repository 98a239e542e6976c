"""How a drain is watched: a bar with rate and time left on a terminal, a line now and then elsewhere."""

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.text import Text
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle

from activities.drain_messages import DrainProgress
from operators import frame, runs, words
from operators.drain_runs import MISSING
from operators.runs import Story

EVERY: Final = 0.5
LINE_EVERY: Final = 10
"""Seconds between two looks, and looks between two lines where there is no terminal."""


async def watch(workflow_id: str) -> Story | None:
    """Look until the drain has ended, and return its story; None when the operator pressed Ctrl-C."""
    handle = (await frame.temporal()).get_workflow_handle(workflow_id)
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, asked.set)
    try:
        return await (_bar(handle, asked) if frame.console.is_terminal else _lines(handle, asked))
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def wants_to_stop() -> bool:
    """After Ctrl-C: stop the drain, or only stop watching? Without a terminal nobody can answer, and the drain goes on."""
    if not frame.console.is_terminal:
        return False
    try:
        return typer.confirm("\nStop the drain, too? (no: it goes on without being watched)", default=False)
    except typer.Abort:  # Ctrl-C again: whoever is in a hurry wants the terminal back
        typer.echo()
        return False


async def _bar(handle: "WorkflowHandle[Any, Any]", asked: asyncio.Event) -> Story | None:
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[said]}"))
    with Progress(*columns, console=frame.console, transient=True) as shown:
        task = shown.add_task("drain", total=None, said="starting")
        while (ended := await _ended(handle)) is None and not asked.is_set():
            if (now := await _progress(handle)) is not None:
                _show(shown, task, now)
            await _wait(asked)
    return ended


def _show(shown: Progress, task: TaskID, now: DrainProgress) -> None:
    shown.update(task, total=_aim(now), completed=now.so_far.expired, said=Text(_said(now)).plain)


async def _lines(handle: "WorkflowHandle[Any, Any]", asked: asyncio.Event) -> Story | None:
    looks = 0
    while (ended := await _ended(handle)) is None and not asked.is_set():
        if looks % LINE_EVERY == 0 and (now := await _progress(handle)) is not None:
            frame.say(f"{now.so_far.expired:,} of {_aim(now):,} expired, {_said(now)}")
        looks += 1
        await _wait(asked)
    return ended


def _aim(now: DrainProgress) -> int:
    """What the drain can reach: its cap, or what is due where that is less."""
    return min(now.limits.cap or 0, now.so_far.expired + now.reserve_backlog + now.booking_backlog)


def _said(now: DrainProgress) -> str:
    left = "" if now.seconds_left is None else f", about {words.age(now.seconds_left)} left"
    return f"{now.pace()}{left}; {now.step}"


async def _wait(asked: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(EVERY):
            await asked.wait()


async def _progress(handle: "WorkflowHandle[Any, Any]") -> DrainProgress | None:
    """None while no worker answers; the next look may find one."""
    try:
        now: DrainProgress = await handle.query("progress", result_type=DrainProgress, rpc_timeout=timedelta(seconds=2))
    except runs.NO_ANSWER:
        return None
    return now


async def _ended(handle: "WorkflowHandle[Any, Any]") -> Story | None:
    described = await runs.describe(handle, MISSING)
    return None if described.status is WorkflowExecutionStatus.RUNNING else await runs.story(handle, described)


def print_story(told: Story, *, as_json: bool) -> None:
    """The drain as it stands, or how it ended."""
    frame.print_json(words.plain(told)) if as_json else frame.console.print(runs.table("drain", told, _rows(told)))


def _rows(told: Story) -> Iterator[tuple[str, str | Text]]:
    if told.progress and not told.run.closed_at:
        now = DrainProgress.model_validate(told.progress)
        yield "expired", f"{now.so_far.expired:,} of {_aim(now):,}, {_said(now)}"
        yield "limits", ", ".join(f"{name} {value:g}" for name, value in now.limits.given().items())
        yield "published", f"{now.so_far.published:,}, parked {now.so_far.parked:,}"
        yield "attention", Text(now.reason, style="yellow")
