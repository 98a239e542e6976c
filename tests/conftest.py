"""What every test may use: the local stack, a database of its own, a topic of its own.

The stack is started once, by pytest's main process, before any xdist worker; the workers inherit its addresses. A run of
`tests/unit` alone starts nothing.
"""

import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

import asyncpg
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from db.unit_of_work import Pool, open_pool
from devstack import addresses as names
from devstack import schema
from devstack.errors import StackError
from devstack.stack import running

_UNIT = Path(__file__).parent / "unit"
_LONG = (
    "test_session",
    "test_mutations",
    "test_recorder",
    "test_runbooks",
    "test_runbook_procedures",
    "test_runbook_outbox",
    "test_operator_mistakes",
    "test_schedule_commands",
)
_ASKS_ONLY = ("collectonly", "help", "version", "markers", "showfixtures", "show_fixtures_per_test")
_STACK = pytest.StashKey[contextlib.ExitStack]()
Administrator: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


def pytest_configure(config: pytest.Config) -> None:
    """Start what is missing, unless this process is an xdist worker or no test can need it."""
    asks_only = any(getattr(config.option, name, False) for name in _ASKS_ONLY)
    if hasattr(config, "workerinput") or asks_only or _only_unit_tests(config):
        return
    stack = contextlib.ExitStack()
    try:
        found = stack.enter_context(running(say=print)).addresses
    except StackError as error:
        pytest.exit(f"the local stack did not start: {error}", returncode=3)
    os.environ.update(found)
    config.stash[_STACK] = stack


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop what was started here."""
    if stack := config.stash.get(_STACK, None):
        stack.close()


def pytest_itemcollected(item: pytest.Item) -> None:
    """The slow tests of these files take a quarter of an hour together: they are run before a release, by `make test-all`."""
    if item.path.stem in _LONG and item.get_closest_marker("slow"):
        item.add_marker("long")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Captured logs may hold a lone surrogate (a hostile value that a test logs); xdist could not send it and would give up."""
    report = yield
    report.sections = [(title, text.encode("utf-8", "backslashreplace").decode()) for title, text in report.sections]
    return report


def _only_unit_tests(config: pytest.Config) -> bool:
    paths = [(config.invocation_params.dir / argument.split("::")[0]).resolve() for argument in config.args]
    return all(path.is_relative_to(_UNIT) for path in paths)


@dataclass(frozen=True)
class Database:
    """One database and its URL for each role."""

    name: str
    worker: str
    owner: str
    operator: str
    crm_app: str
    chessboard: str
    admin: str


@pytest.fixture(scope="session")
def addresses() -> Mapping[str, str]:
    """Where the servers are, by the names of the variables."""
    found = names.given()
    if missing := [name for name in (*names.ROLES, names.TEMPORAL, names.KAFKA) if name not in found]:
        pytest.fail(f"this test needs {', '.join(missing)}: give them all, or give none and do not run tests/unit alone")
    return found


@pytest.fixture(scope="session")
def template_database(addresses: Mapping[str, str]) -> Iterator[str]:
    """The name of a migrated database that nobody connects to, so that it can be copied."""
    name = f"template_{secrets.token_hex(4)}"
    admin = addresses[names.ADMIN]
    asyncio.run(_administer(admin, f"CREATE DATABASE {name}"))
    schema.prepare(_url(admin, name), _url(addresses[names.MIGRATION], name))
    yield name
    asyncio.run(_administer(admin, f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture
async def database(addresses: Mapping[str, str], template_database: str) -> AsyncIterator[Database]:
    """A fresh copy of the migrated database, gone after the test."""
    name, admin = f"test_{secrets.token_hex(6)}", addresses[names.ADMIN]
    await _administer(admin, f"CREATE DATABASE {name} TEMPLATE {template_database}")
    yield Database(
        name=name,
        worker=_url(addresses[names.DATABASE], name),
        owner=_url(addresses[names.MIGRATION], name),
        operator=_url(addresses[names.OPERATOR], name),
        crm_app=_url(addresses[names.CRM], name),
        chessboard=_url(addresses[names.CRM], name, user="chessboard"),
        admin=_url(admin, name),
    )
    await _administer(admin, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def pool(database: Database) -> AsyncIterator[Pool]:
    """The worker's own kind of pool, with the worker's role."""
    opened = await open_pool(database.worker)
    yield opened
    opened.terminate()


@pytest.fixture
async def admin(database: Database) -> AsyncIterator[Administrator]:
    """A superuser's connection to the test's database, to prepare and to look."""
    connection = await asyncpg.connect(database.admin)
    yield connection
    await connection.close()


@pytest.fixture
async def topic(addresses: Mapping[str, str]) -> AsyncIterator[str]:
    """A topic with three partitions on the real broker, gone after the test."""
    name = f"test.{secrets.token_hex(6)}"
    client = AIOKafkaAdminClient(bootstrap_servers=addresses[names.KAFKA])
    await client.start()
    try:
        await client.create_topics([NewTopic(name, 3, 1)])
        yield name
        await client.delete_topics([name])
    finally:
        await client.close()


async def _administer(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def _url(url: str, database: str, *, user: str | None = None) -> str:
    """The same server and role, or another role, in another database."""
    parts = urlsplit(url)
    netloc = f"{user}@{parts.netloc.rpartition('@')[2]}" if user else parts.netloc
    return parts._replace(netloc=netloc, path=f"/{database}").geturl()
