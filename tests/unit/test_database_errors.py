"""Which database errors heal by themselves and which need a person, who is told what to do (issue 3 section 5, D6)."""

import errno

import asyncpg
import pytest

from db.errors import DatabaseError, DatabaseRefusedError, DatabaseUnavailableError, RowRefusedError, is_row_refusal, translate


def server_says(state: str, message: str = "the server's words") -> asyncpg.PostgresError:
    """The driver's error for an answer of the server with this SQLSTATE, made as the driver makes it."""
    return asyncpg.PostgresError.new({"S": "ERROR", "C": state, "M": message})


HEALS = {
    "connection failure": server_says("08006"),
    "serialization": server_says("40001"),
    "deadlock": server_says("40P01"),
    "read-only server": server_says("25006"),
    "idle in transaction": server_says("25P03"),
    "transaction time-out": server_says("25P04"),
    "too many connections": server_says("53300"),
    "disk full": server_says("53100"),
    "lock not available": server_says("55P03"),
    "statement time-out": server_says("57014"),
    "restart": server_says("57P01"),
    "crash": server_says("57P02"),
    "starting up": server_says("57P03"),
    "file system": server_says("58030"),
    "lost connection": asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation"),
    "closed connection": asyncpg.InterfaceError("connection is closed"),
    "refused connection": ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"),
    "reset connection": ConnectionResetError(),
    "time-out": TimeoutError(),
    "migrated meanwhile": asyncpg.OutdatedSchemaCacheError("cached type"),
}
NEEDS_A_PERSON = {
    "undefined table": (server_says("42P01"), "dbmate"),
    "undefined column": (server_says("42703"), "dbmate"),
    "no schema": (server_says("3F000"), "bootstrap.sql"),
    "no permission": (server_says("42501"), "lacks a grant"),
    "wrong password": (server_says("28P01"), "check user, password"),
    "no such role": (server_says("28000"), "pg_hba.conf"),
    "no such database": (server_says("3D000"), "database name in DATABASE_URL"),
    "syntax error": (server_says("42601"), "server's log"),
    "corrupted": (server_says("XX001"), "server's log"),
    "wrong argument": (asyncpg.DataError("invalid input for query argument $1"), "a bug in this program"),
    "protocol": (asyncpg.ProtocolError("unexpected message"), "a bug in this program"),
}
ROWS_OWN_FAULT = ["22003", "22P02", "23502", "23505", "23514", "23P01", "P0001"]


@pytest.mark.parametrize("error", HEALS.values(), ids=HEALS)
def test_heals(error: Exception) -> None:
    """Issue 3 section 5: what time heals is retried: lost connections, restarts, failovers, deadlocks, time-outs."""
    assert type(translate(error)) is DatabaseUnavailableError
    assert not is_row_refusal(error)


@pytest.mark.parametrize(("error", "advice"), NEEDS_A_PERSON.values(), ids=NEEDS_A_PERSON)
def test_needs_a_person(error: Exception, advice: str) -> None:
    """Issue 3 section 5: what no retry heals is not retried, and the message says what to do."""
    ours = translate(error)
    assert type(ours) is DatabaseRefusedError
    assert advice in str(ours)
    assert not is_row_refusal(error)


@pytest.mark.parametrize("state", ROWS_OWN_FAULT)
def test_row_refusal(state: str) -> None:
    """D6: SQLSTATE class 22 or 23 and P0001 are the row's own fault, which makes it poison."""
    error = server_says(state)
    assert is_row_refusal(error)
    assert type(translate(error)) is RowRefusedError


@pytest.mark.parametrize("state", ["P0002", "P0004", "2F005", "21000", "24000", "42P01", "57014"])
def test_no_row_refusal(state: str) -> None:
    """D6: any other SQLSTATE rolls the whole batch back; only P0001 of PL/pgSQL's class counts as a refusal."""
    assert not is_row_refusal(server_says(state))


@pytest.mark.parametrize("error", [ValueError("no"), KeyError("no"), DatabaseUnavailableError("already ours"), AssertionError()])
def test_other_errors_stay_as_they_are(error: Exception) -> None:
    """Layout rule 7: an error that is not the database's is not dressed up as one."""
    assert translate(error) is error
    assert not is_row_refusal(error)


@pytest.mark.parametrize("error", [*HEALS.values(), *(error for error, _ in NEEDS_A_PERSON.values())])
def test_every_message_says_something(error: Exception) -> None:
    """Layout rule 7: even an error without words is named, and the SQLSTATE is shown where there is one."""
    ours = translate(error)
    assert isinstance(ours, DatabaseError)
    assert str(ours).removeprefix("database:").strip()
    assert f"SQLSTATE {getattr(error, 'sqlstate', None)}" in str(ours) or not hasattr(error, "sqlstate")
