"""Temporal for workflow tests: the stack's dev server, and a time-skipping one for what takes long (traps 8, 35)."""

import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment

TEST_SERVER = Path(sys.executable).parent / "temporal-test-server"


@pytest.fixture
async def client(addresses: Mapping[str, str]) -> Client:
    """A client of the real dev server."""
    return await Client.connect(addresses["TEMPORAL_ADDRESS"], data_converter=pydantic_data_converter)


@pytest.fixture
async def skipping() -> AsyncIterator[WorkflowEnvironment]:
    """A server on which time passes as soon as everybody waits. It knows no schedules (trap 8)."""
    async with await WorkflowEnvironment.start_time_skipping(
        test_server_existing_path=str(TEST_SERVER), data_converter=pydantic_data_converter
    ) as environment:
        yield environment
