"""A world of its own for every test of the real worker process."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from tests.acceptance.process import World, a_world
from tests.conftest import Database


@pytest.fixture
async def world(addresses: Mapping[str, str], database: Database, topic: str, tmp_path: Path) -> AsyncIterator[World]:
    """Real servers, and everything that two tests could share for this one alone."""
    client = await Client.connect(addresses["TEMPORAL_ADDRESS"], data_converter=pydantic_data_converter)
    async with a_world(client, database, topic, addresses, tmp_path) as made:
        yield made
