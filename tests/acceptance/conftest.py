"""A world of its own for every test of the real worker process."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from tests.acceptance.process import World, a_namespace, a_world
from tests.acceptance.runbook import Reader, Section, reader_of
from tests.conftest import Database


@pytest.fixture
async def world(addresses: Mapping[str, str], database: Database, topic: str, tmp_path: Path) -> AsyncIterator[World]:
    """Real servers, and everything that two tests could share for this one alone."""
    client = await Client.connect(addresses["TEMPORAL_ADDRESS"], data_converter=pydantic_data_converter)
    async with a_world(client, database, topic, addresses, tmp_path) as made:
        yield made


@pytest.fixture
async def reader(world: World, request: pytest.FixtureRequest) -> AsyncIterator[Reader]:
    """Somebody who reads one section of a runbook, and has typed every block of it in the end."""
    section: Section = request.param
    made = reader_of(world, section)
    yield made
    assert made.left == [], f"not typed in {section}"


@pytest.fixture
async def fresh_reader(world: World, reader: Reader) -> AsyncIterator[Reader]:
    """The same person in a namespace of Temporal that has nothing in it yet."""
    async with a_namespace(world) as elsewhere:
        reader.world = elsewhere
        yield reader
