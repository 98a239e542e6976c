"""What all operators' commands share: where the servers are, who acts, and how an answer or a mistake is shown."""

import asyncio
import getpass
import json
import socket
import sys
from collections.abc import AsyncIterator, Collection, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, TypeVar

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Column, Table

import connections
import settings as configuration
from activities.schedule_note import one_line
from activities.schedule_state import NoScheduleError, ScheduleConflictError
from db import operator_actions
from db.outbox import OutboxError
from db.unit_of_work import Pool, UnitOfWork, open_pool
from operators import arguments, refusals
from settings import OperatorSettings

if TYPE_CHECKING:
    from temporalio.client import Client

T = TypeVar("T")
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text for people.")]
Reason = Annotated[str, typer.Option("--reason", "-r", help="Why; it is kept with the act.")]
APPLICATION: Final = "booking-expiration command"
"""How the command's connections are called in pg_stat_activity."""


class Screen(Console):
    """What is shown is data of others as well: nothing of it may command the terminal, or make a text read backwards."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As the console does, without the characters that cannot be seen; its own colours and cursor moves stay."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment("".join(filter(_seen, segment.text)), segment.style)


def _seen(character: str) -> bool:
    return character.isprintable() or character in "\n\N{NO-BREAK SPACE}"


console: Final = Screen(width=None if sys.stdout.isatty() else 160)
"""What is piped or kept in a file is not squeezed into 80 columns."""


class CommandError(Exception):
    """The command cannot do what was asked; the message is one clear line that says what to do next."""


def actor() -> str:
    """Who types, as it stands in `operator_actions`: BOOKING_EXPIRATION_ACTOR, or the login name at this machine."""
    if given := settings().actor:
        return given
    try:
        return arguments.actor(f"{getpass.getuser()}@{socket.gethostname()}")
    except (KeyError, OSError):  # a user id without a name, as in a container
        return f"unknown@{socket.gethostname()}"


def settings() -> OperatorSettings:
    """The settings of the commands. Ends the process with exit code 2 and one line per mistake."""
    return configuration.load_model(OperatorSettings)


@asynccontextmanager
async def database(given: OperatorSettings) -> AsyncIterator[Pool]:
    """A pool for the operators' role. Raises `DatabaseError`."""
    # No prepared statement outlives its transaction: behind pgbouncer the next one has another connection (trap 29), and a
    # command asks everything once, so that it gains nothing from keeping them.
    url = given.operator_database_url.get_secret_value()
    pool = await open_pool(url, size=2, statement_cache_size=0, application=APPLICATION)
    try:
        yield pool
    finally:
        await connections.close(pool)


async def write_down(given: OperatorSettings, action: str, target: str, reason: str, details: dict[str, Any]) -> int:
    """The row of `operator_actions`, before a call to Temporal. Its id may travel with the call: nobody writes it twice."""
    async with database(given) as pool, UnitOfWork(pool) as connection:
        return await operator_actions.record(
            connection, actor=actor(), action=action, target=target, reason=reason, details=details
        )


async def temporal() -> "Client":
    """A client of the Temporal server that `TEMPORAL_*` names."""
    return await connections.temporal(configuration.temporal())


async def frontend() -> connections.Frontend:
    """The same server, for commands that only look."""
    return await connections.frontend(configuration.temporal())


def run(work: Coroutine[Any, Any, T]) -> T:
    """The command's work; a mistake of the user's or a server's no becomes one line and exit code 1."""
    try:
        return asyncio.run(work)
    except (CommandError, NoScheduleError, ScheduleConflictError, OutboxError) as error:
        fail(str(error))
    except refusals.EXPECTED as error:
        fail(refusals.line(error, settings))


def fail(message: str) -> NoReturn:
    """One line on standard error, exit code 1."""
    say(message, err=True)
    raise typer.Exit(1)


def say(*lines: str, err: bool = False) -> None:
    """Each on a line of its own, whatever stands in it."""
    typer.echo("\n".join(map(one_line, lines)), err=err)


def table(*names: str, whole: Collection[str] = ()) -> Table:
    """A table that loses nothing on a narrow terminal: text is folded, and the columns in `whole`, ids, stay on one line."""
    return Table(*(Column(name, overflow="fold", no_wrap=name in whole) for name in names))


def print_json(answer: Any) -> None:
    """The answer for programs: indented JSON on standard output, times in UTC, ids as text; what cannot be seen is escaped."""
    lines = json.dumps(answer, indent=2, default=str, ensure_ascii=False).split("\n")
    typer.echo("\n".join(line if line.isprintable() else "".join(map(_escaped, line)) for line in lines))


def _escaped(character: str) -> str:
    return character if character.isprintable() else json.dumps(character)[1:-1]
