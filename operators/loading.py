"""Commands that are imported when somebody types them: none waits for the libraries of all the others."""

import gc
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group


class Place(NamedTuple):
    """Where a command is, `module:name` of a function or of a group's app, and its line of the help."""

    where: str
    line: str


PLACES: Final = {
    "status": Place(
        "operators.status:status",
        "Show schedule, last cycle, backlog, pauses, outbox, workers and schema. Exit code 1 only when a source cannot be read.",
    ),
    "doctor": Place(
        "operators.doctor:doctor",
        "Check settings, connections, rights, migrations, schedule, topic and clocks; exit code 1 when something fails.",
    ),
    "preview": Place(
        "operators.preview:preview",
        "Show who would expire, without locks or writes: totals, the largest groups, the oldest 20, how many cycles it takes.",
    ),
    "explain": Place(
        "operators.explain:explain",
        "Say why a booking did or did not expire, all that is kept about it, and what to do now. Reads only.",
    ),
    "history": Place(
        "operators.history:history",
        "Show the audit trail of a booking, or with --operator every operator's act, newest first.",
    ),
    "schedule": Place("operators.schedule:app", "The schedule that fires the cycle every minute."),
    "cycle": Place("operators.cycle:app", "Cycles: what they did, and how to stop the one that runs."),
    "drain": Place(
        "operators.drain:app", "Catch up a backlog on purpose; without a sub-command it starts a drain and watches it."
    ),
    "phase": Place("operators.phase:app", "Stop one phase while the other one goes on."),
    "release-hold": Place(
        "operators.phase:release_hold",
        "Let up to N bookings expire although more are due than the safety catch allows (BOOKING_EXPIRATION_HOLD_ABOVE).",
    ),
    "outbox": Place("operators.outbox:app", "The events that wait for Kafka, and those that were set aside."),
    "replay": Place(
        "operators.replay:command",
        "Replay recent runs of the server, closed or not, against this code: the check before a deploy.",
    ),
    "contract": Place("contracts.commands:app", "The event's contract: samples, a checker, and the topic."),
}
"""The commands in the order of the help. A test holds each line against the command's own first one."""


class Commands(Mapping[str, Any]):
    """The commands by name; only asking for one imports it."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = _load(name, PLACES[name].where)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(PLACES)

    def __len__(self) -> int:
        return len(PLACES)


class LazyGroup(TyperGroup):
    """The command line: a group that knows the names of its commands before it has them."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = Commands()  # type: ignore[assignment] # read only: nobody adds a command later

    def list_commands(self, _context: Any) -> list[str]:
        """The names, without the commands."""
        return list(PLACES)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The help, from the lines above; after it the process ends."""
        self.commands = {name: TyperCommand(name, help=place.line) for name, place in PLACES.items()}
        super().format_help(ctx, formatter)


def _load(name: str, place: str) -> Any:
    module, _, attribute = place.partition(":")
    gc.disable()  # nothing that an import leaves behind is garbage, and looking for some is an eighth of the time it takes
    try:
        found = getattr(import_module(module), attribute)
    finally:
        gc.freeze()
        gc.enable()
    if isinstance(found, typer.Typer):
        command: Any = get_group(found)
    else:
        single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        single.command(name)(found)
        command = get_command(single)
    command.name = name
    return command
