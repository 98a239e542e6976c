"""Commands that are imported when somebody types them: none waits for the libraries of all the others."""

import gc
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

PLACES: Final = {
    "status": "operators.status:status",
    "doctor": "operators.doctor:doctor",
    "preview": "operators.preview:preview",
    "explain": "operators.explain:explain",
    "history": "operators.history:history",
    "schedule": "operators.schedule:app",
    "cycle": "operators.cycle:app",
    "drain": "operators.drain:app",
    "phase": "operators.phase:app",
    "release-hold": "operators.phase:release_hold",
    "outbox": "operators.outbox:app",
    "replay": "operators.replay:command",
    "contract": "contracts.commands:app",
}
"""Where each command is, `module:name`, in the order of the help: a function, or a group's app."""


class Commands(Mapping[str, Any]):
    """The commands by name; only asking for one imports it."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = _load(name, PLACES[name])
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
