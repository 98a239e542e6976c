"""A sales grid, a producer of records and members of a consumer group, for each test its own."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from db.unit_of_work import Pool, open_pool
from devstack import addresses as names
from tests.chessboard.grid import Grid, Market
from tests.chessboard.member import Members, members
from tests.conftest import Administrator, Database


@pytest.fixture
async def chess_pool(database: Database) -> AsyncIterator[Pool]:
    """The consumer's own kind of pool, with the consumer's role."""
    opened = await open_pool(database.chessboard, command_timeout=4, application="chessboard")
    yield opened
    opened.terminate()


@pytest.fixture
def grid(chess_pool: Pool, admin: Administrator, addresses: Mapping[str, str]) -> Grid:
    """Objects to take, and what to look at."""
    return Grid(chess_pool, admin, addresses[names.ADMIN])


@pytest.fixture
async def market(addresses: Mapping[str, str], topic: str, grid: Grid, database: Database) -> AsyncIterator[Market]:
    """A real topic with a producer, and consumers that read it in a group of their own."""
    async with Market.opened(addresses[names.KAFKA], topic, grid, database) as opened:
        yield opened


@pytest.fixture
async def processes(market: Market, tmp_path: Path) -> AsyncIterator[Members]:
    """Members of the group that are processes."""
    async with members(market, tmp_path) as opened:
        yield opened
