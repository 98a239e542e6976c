"""Who may do what in the chessboard's schema, and that the worker neither may nor imports anything of it (S4, D17)."""
# every statement is put together from constants of this file

import ast

import asyncpg
import pytest

from tests.conftest import Database
from tests.unit.test_architecture import FILES, imported, is_in, module_of

TABLES = ("objects", "processed_events", "set_aside", "schema_migrations")
REFUSED = [
    *(("chessboard", f"DELETE FROM chessboard.{table}") for table in TABLES),
    *(("chessboard", f"TRUNCATE chessboard.{table}") for table in TABLES),
    ("chessboard", "UPDATE chessboard.processed_events SET outcome = 'Late'"),
    ("chessboard", "UPDATE chessboard.set_aside SET value = NULL"),
    ("chessboard", "UPDATE chessboard.objects SET id = gen_random_uuid()"),
    ("chessboard", "CREATE TABLE chessboard.mine (id int)"),
    *((role, f"SELECT * FROM chessboard.{table}") for role in ("worker", "crm_app", "operator") for table in TABLES),
    *((role, "UPDATE chessboard.objects SET status = 'Free'") for role in ("worker", "crm_app", "operator")),
]


@pytest.mark.parametrize(("role", "statement"), REFUSED)
async def test_what_is_refused(database: Database, role: str, statement: str) -> None:
    """S4: nobody but the chessboard writes or reads its tables, and it deletes and rewrites nothing."""
    connection = await asyncpg.connect(getattr(database, role))
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.execute(statement)
    await connection.close()


def test_the_worker_can_do_without_it() -> None:
    """D17: only itself, the traffic that plays the CRM's calls to it, and tests import it: the worker does not."""
    others = [path for path in FILES if not is_in(module_of(path), ("chessboard", "traffic", "tests"))]
    importing = [path for path in others if any(is_in(name, ("chessboard",)) for name in imported(ast.parse(path.read_text())))]
    assert importing == []
