"""A migrated database of the benchmark's own, on the server that the environment names."""

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import asyncpg

from devstack import addresses, schema


@asynccontextmanager
async def fresh_database() -> AsyncIterator[tuple[str, str]]:
    """The worker's and the administrator's URL of a new database, which is dropped afterwards."""
    name, admin = f"bench_{secrets.token_hex(4)}", os.environ[addresses.ADMIN]
    await _administer(admin, f"CREATE DATABASE {name}")
    try:
        await schema.bootstrap(_in(admin, name))
        schema.migrate(_in(os.environ[addresses.MIGRATION], name))
        yield _in(os.environ[addresses.DATABASE], name), _in(admin, name)
    finally:
        await _administer(admin, f"DROP DATABASE {name} WITH (FORCE)")


async def _administer(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def _in(url: str, database: str) -> str:
    return urlsplit(url)._replace(path=f"/{database}").geturl()
