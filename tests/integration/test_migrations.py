"""Migrations that what is there already can stop: why, and what repairs that (docs/deploy.md)."""

import asyncio
import re
from pathlib import Path

import asyncpg
import pytest

from devstack import schema
from devstack.errors import StackError
from tests import floor
from tests.conftest import Administrator, Database

DEPLOY = Path(schema.__file__).resolve().parent.parent / "docs" / "deploy.md"


async def test_an_index_that_was_cut_off(database: Database, admin: Administrator) -> None:
    """0003: somebody reads for longer than the migration waits; what the document says repairs it."""
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


async def test_a_deadline_that_is_no_moment(database: Database, admin: Administrator) -> None:
    """0002, 0004: a row from before that nobody can read stops the migration; the document's query names it."""
    name = "bookings_reserve_deadline_is_a_moment"
    rule = await admin.fetchval("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = $1", name)
    await admin.execute(
        f"ALTER TABLE crm.bookings DROP CONSTRAINT {name}; DELETE FROM crm.schema_migrations WHERE version = '0004'"
    )
    [booking] = await floor.add(admin, 1, await floor.clock(admin))
    await admin.execute("UPDATE crm.bookings SET reserve_expires_at = '-infinity'")
    await admin.execute(f"ALTER TABLE crm.bookings ADD CONSTRAINT {name} {rule} NOT VALID")
    with pytest.raises(StackError, match=f'"{name}" of relation "bookings" is violated'):
        await asyncio.to_thread(schema.migrate, database.owner)
    [query] = re.findall(r'-c "(SELECT id, status, [^"]+)"', DEPLOY.read_text())
    assert [row["id"] for row in await admin.fetch(query.replace("reserve_expires_at,", "'',", 1))] == [booking]
    await admin.execute("UPDATE crm.bookings SET reserve_expires_at = now()")
    await asyncio.to_thread(schema.migrate, database.owner)
    assert await admin.fetchval("SELECT bool_and(convalidated) FROM pg_constraint WHERE conname ~ '_is_a_moment$'")
