"""The commands' connections behind pgbouncer in transaction mode (trap 29)."""

import contextlib

import pytest

from db.reading import reading
from operators import frame
from operators.checks.places import Places
from tests.acceptance.process import World

KEPT = "SELECT count(*) FROM pg_prepared_statements"
"""A connection that keeps its statements has at least this one, and the transaction's after it would look for it."""


@pytest.fixture
def typed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process has the settings of a command."""
    ours = {"BOOKING_EXPIRATION_OPERATOR_DATABASE_URL": world.database.operator}
    for name, value in world.environment(ours).items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("typed")
async def test_commands_keep_no_statement() -> None:
    """Trap 29: whatever the worker keeps, a command has nothing that another server connection would not know."""
    async with frame.database(frame.settings()) as pool, reading(pool) as connection:
        assert await connection.fetchval(KEPT) == 0


@pytest.mark.usefixtures("typed")
@pytest.mark.parametrize(("setting", "kept"), [("0", 0), ("100", 1)])
async def test_doctor_connects_as_the_worker_does(monkeypatch: pytest.MonkeyPatch, setting: str, kept: int) -> None:
    """Trap 29: by the worker's own setting, so that a wrong one fails here before it does there; the command's own keeps none."""
    monkeypatch.setenv("BOOKING_EXPIRATION_DATABASE_STATEMENT_CACHE_SIZE", setting)
    places, found = Places(), list[int]()
    async with contextlib.AsyncExitStack() as opened:
        opened.push_async_callback(places.close)
        for place in (places.workers_database, places.database):
            async with reading(await place.there()) as connection:
                found += [min(await connection.fetchval(KEPT), 1)]
    assert found == [kept, 0]
