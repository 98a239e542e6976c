"""Migration 0003, which builds an index while the outbox is in use: what cuts it off, and what repairs that (docs/deploy.md)."""

import asyncio
import re
from pathlib import Path

import asyncpg
import pytest

from devstack import schema
from devstack.errors import StackError
from tests.conftest import Administrator, Database

DEPLOY = Path(schema.__file__).resolve().parent.parent / "docs" / "deploy.md"


async def test_an_index_that_was_cut_off(database: Database, admin: Administrator) -> None:
    """Somebody reads for longer than the migration waits; what the document says repairs it."""
    await admin.execute("DROP INDEX crm.ix_outbox_parked; DELETE FROM crm.schema_migrations WHERE version = '0003'")
    reader = await asyncpg.connect(database.admin)
    async with reader.transaction(isolation="repeatable_read"):
        await reader.fetch("SELECT count(*) FROM crm.outbox")
        with pytest.raises(StackError, match="lock timeout"):
            await asyncio.to_thread(schema.migrate, f"{database.owner}&lock_timeout=300ms")
    with pytest.raises(StackError, match="already exists"):
        await asyncio.to_thread(schema.migrate, database.owner)
    [repair] = re.findall(r'-c "(DROP INDEX [^"]+)"', DEPLOY.read_text())
    await reader.close()
    owner = await asyncpg.connect(database.owner)
    await owner.execute(repair)
    await owner.close()
    await asyncio.to_thread(schema.migrate, database.owner)
    assert await admin.fetchval("SELECT indisvalid FROM pg_index WHERE indexrelid = 'crm.ix_outbox_parked'::regclass")
