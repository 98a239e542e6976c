"""Which migrations the database has (D18): the worker refuses to run on a schema older than itself."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import asyncpg

from db.unit_of_work import Connection

FOLDER: Final = Path(__file__).parent.parent / "migrations"


def known(folder: Path = FOLDER) -> list[str]:
    """The versions that this program was written for, in order: the numbers that the file names start with."""
    return sorted(path.name.split("_")[0] for path in folder.glob("[0-9]*.sql"))


async def applied(connection: Connection) -> list[str]:
    """The versions that the database has. Raises `asyncpg.PostgresError` where it has none of ours, or hides them."""
    return [row["version"] for row in await connection.fetch("SELECT version FROM crm.schema_migrations ORDER BY version")]


async def missing(connection: Connection, wanted: Iterable[str]) -> list[str]:
    """Which of these versions the database lacks. A database that is ahead is fine: migrations are additive."""
    try:
        there = await applied(connection)
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError, asyncpg.InsufficientPrivilegeError):
        return list(wanted)  # not even the first one: it grants the reading
    return sorted(set(wanted) - set(there))
