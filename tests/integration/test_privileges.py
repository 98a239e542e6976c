"""What `doctor` compares a database with is what the migrations and the bootstrap really make (issue 4, section 4)."""

import pytest

from db import privileges, server
from db.unit_of_work import Pool, UnitOfWork, open_pool
from tests.conftest import Administrator, Database

_GRANTED = """
    SELECT grantee::text, table_name::text, privilege_type::text, '' FROM information_schema.table_privileges
    WHERE table_schema = 'crm' AND grantee = ANY ($1)
    UNION
    SELECT grantee::text, table_name::text, privilege_type::text, column_name::text FROM information_schema.column_privileges c
    WHERE table_schema = 'crm' AND grantee = ANY ($1) AND NOT EXISTS (
      SELECT FROM information_schema.table_privileges t
      WHERE (t.table_schema, t.table_name, t.grantee, t.privilege_type) = ('crm', c.table_name, c.grantee, c.privilege_type))"""


async def test_the_table_of_needs_is_what_the_migrations_grant(admin: Administrator) -> None:
    """Issue 4, section 4: no right is missing from the table, and none stands there that no migration grants."""
    granted = {tuple(row) for row in await admin.fetch(_GRANTED, [*privileges.NEEDS])}
    needed = {(each.role, each.table, each.right, name) for each in privileges.needs() for name in each.columns or ("",)}
    assert needed == granted


async def test_nothing_is_lacking_on_a_migrated_database(pool: Pool) -> None:
    """Issue 4, section 4: any role may ask for all of them."""
    async with UnitOfWork(pool) as connection:
        assert await privileges.lacking(connection) == []


async def test_every_right_is_missed(admin: Administrator, database: Database) -> None:
    """Issue 4, section 4: with all rights revoked each line of the table is found, and its own GRANTs bring all back."""
    await admin.execute(f"REVOKE ALL ON ALL TABLES IN SCHEMA crm FROM {', '.join(privileges.NEEDS)}")
    pool = await open_pool(database.operator)
    async with UnitOfWork(pool) as connection:
        lacking = await privileges.lacking(connection)
        assert set(lacking) == set(privileges.needs())
    await admin.execute("; ".join(each.grant for each in lacking))
    async with UnitOfWork(pool) as connection:
        assert await privileges.lacking(connection) == []
    pool.terminate()


async def test_a_missing_table_is_another_checks_business(admin: Administrator, pool: Pool) -> None:
    """Issue 4, section 4: where a migration is missing, what it would have made is not called a lacking right."""
    await admin.execute("ALTER TABLE crm.safety_catch RENAME TO elsewhere")
    async with UnitOfWork(pool) as connection:
        assert await privileges.lacking(connection) == []


async def test_time_outs_are_the_bootstraps(pool: Pool) -> None:
    """Trap 24: what doctor wants of each role is what migrations/bootstrap.sql sets."""
    async with UnitOfWork(pool) as connection:
        version = (await server.identity(connection, "booking_expiration_worker")).version
        found = await server.role_settings(connection)
    assert found == {role: server.wanted_settings(role, version) for role in server.ROLES}


@pytest.mark.parametrize("role", ["booking_expiration_worker", "booking_expiration_operator", "no_such_role"])
async def test_who_we_are(pool: Pool, role: str) -> None:
    """Issue 4, section 4: a role that does not exist is one that we are not."""
    async with UnitOfWork(pool) as connection:
        who = await server.identity(connection, role)
    assert (who.user, who.superuser, who.writable) == ("booking_expiration_worker", False, True)
    assert who.member is (role == "booking_expiration_worker")


async def test_who_may_see_other_roles_statements(pool: Pool) -> None:
    """D5: the operators' role may, the worker's need not."""
    async with UnitOfWork(pool) as connection:
        may = [await server.reads_statistics(connection, f"booking_expiration_{role}") for role in ("operator", "worker")]
    assert may == [True, False]
