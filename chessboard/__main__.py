"""`python -m chessboard run`, `… aside list|replay|drop`. Exit codes: 0 done, 1 could not be done, 2 wrong use or settings."""

import asyncio
import getpass
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

import connections
from chessboard import moments, operating, service
from chessboard import settings as configuration
from chessboard.aside import AsideError
from chessboard.settings import Settings
from db.errors import DatabaseError
from db.unit_of_work import Pool
from exits import CannotStartError
from process import StoppedEarlyError

T = TypeVar("T")
Id = Annotated[int, typer.Argument(help="The id that `aside list` shows.", min=1)]
Why = Annotated[str, typer.Option("--reason", help="Why; it is kept with the record.")]
By = Annotated[str, typer.Option("--by", help="Who decides.")]

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help="The chessboard: the grid of property objects.")
aside_app = typer.Typer(no_args_is_help=True, help="Records that were set aside.")
app.add_typer(aside_app, name="aside")


@app.command()
def run() -> None:
    """Free property objects as expired bookings are published, until SIGTERM."""
    settings = configuration.load()
    moments.configure(settings.log_level)
    try:
        asyncio.run(service.run(settings))
    except StoppedEarlyError:
        moments.stopped()
    except (CannotStartError, DatabaseError, OSError) as error:
        _fail(str(error))


@aside_app.command("list")
def list_(
    *,
    resolved: Annotated[bool, typer.Option("--all", help="Replayed and dropped ones too.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000)] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with keys, values and headers.")] = False,
) -> None:
    """Show what was set aside, newest first."""
    rows = _with_pool(lambda pool, _: operating.listed(pool, limit, resolved=resolved))
    if as_json:
        typer.echo(json.dumps([_plain(row) for row in rows], indent=2))
        return
    table = Table("id", "reason", "detail", "partition/offset", "set aside at", "resolution")
    for row in rows:
        place, state = f"{row['kafka_partition']}/{row['kafka_offset']}", row["resolution"] or "open"
        table.add_row(str(row["id"]), row["reason"], Text(row["detail"]), place, f"{row['set_aside_at']:%F %T}", state)
    Console(width=None if sys.stdout.isatty() else 160).print(table)  # what is piped is not squeezed into 80 columns


@aside_app.command()
def replay(aside_id: Id, *, reason: Why, by: By = "") -> None:
    """Apply one record again, after its cause is gone."""
    effect = _with_pool(
        lambda pool, settings: operating.replay(pool, aside_id, event_type=settings.topic, by=by or getpass.getuser(), why=reason)
    )
    typer.echo(f"{aside_id}: {effect.lower()}")


@aside_app.command()
def drop(aside_id: Id, *, reason: Why, by: By = "") -> None:
    """Give one record up for good."""
    _with_pool(lambda pool, _: operating.drop(pool, aside_id, by=by or getpass.getuser(), why=reason))
    typer.echo(f"{aside_id}: dropped")


def _with_pool(work: Callable[[Pool, Settings], Awaitable[T]]) -> T:
    settings = configuration.load()

    async def working() -> T:
        pool = await service.database(settings)
        try:
            return await work(pool, settings)
        finally:
            await connections.close(pool)

    try:
        return asyncio.run(working())
    except (AsideError, CannotStartError, DatabaseError) as error:
        _fail(str(error))


def _plain(row: Any) -> dict[str, Any]:
    """A row as JSON can hold it: bytes as text where they are text, else with a backslash for each other byte."""
    plain = {name: value.decode(errors="backslashreplace") if isinstance(value, bytes) else value for name, value in row.items()}
    plain["headers"] = json.loads(row["headers"])
    return {name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in plain.items()}


def _fail(message: str) -> NoReturn:
    typer.echo(f"chessboard: {message}", err=True)
    raise typer.Exit(1)


if __name__ == "__main__":
    app(prog_name="python -m chessboard")
