"""What a database error means to us: it heals by itself, or somebody must act.

DatabaseError
├── DatabaseUnavailableError   retry: connection lost, restart, failover, deadlock, time-out
├── DatabaseRefusedError       do not retry: missing table, permission, wrong password, a bug
├── RowRefusedError            a row's own content was refused: the batch is tried again row by row (D6)
├── StaleClaimError            retry with a fresh read: a claimed row changed under our lock (D26)
├── VersionConflictError       a manager's command lost a race; reread and decide again (D16, R3)
└── TooManyRefusalsError       do not retry: more poison rows than can be an accident (D6)
"""

from typing import Final

import asyncpg


class DatabaseError(Exception):
    """The transaction did not commit, or nobody knows whether it did (trap 26); asking again tells."""


class DatabaseUnavailableError(DatabaseError):
    """The database cannot answer now; the same call works later."""


class DatabaseRefusedError(DatabaseError):
    """The database answered no, and will say so again until somebody acts; the message says how."""


class RowRefusedError(DatabaseError):
    """A constraint or trigger refused the content of some row of the batch (SQLSTATE class 22 or 23, or P0001; D6)."""


class StaleClaimError(DatabaseError):
    """The write touched fewer rows than were claimed, so the batch was rolled back (D26)."""


class VersionConflictError(DatabaseError):
    """Somebody else changed the booking first; reread it and decide again (R3, D16)."""


class TooManyRefusalsError(DatabaseError):
    """A phase met more than the allowed number of poison rows in one cycle (D6)."""


_HEALING_CLASSES = ("08", "40", "53", "57", "58")
"""Connection, transaction rollback, resources, operator intervention (restart, cancel), system error."""

_HEALING_STATES = ("25006", "25P03", "25P04", "55P03")
"""Read-only server (a failover under way), idle and transaction time-outs, lock not available."""

MIGRATE: Final = (
    'dbmate --url "$BOOKING_EXPIRATION_MIGRATION_DATABASE_URL" --migrations-dir migrations '
    "--migrations-table crm.schema_migrations --no-dump-schema --migration-lock migrate"
)
"""The command that applies the migrations, run in the checkout as the owner (D18)."""

_ADVICE = {
    "28": "check user, password and pg_hba.conf for the address in DATABASE_URL",
    "3D": "check the database name in DATABASE_URL",
    "42P01": f"apply the migrations: {MIGRATE}",
    "42703": f"apply the migrations: {MIGRATE}",
    "3F000": "let an administrator run migrations/bootstrap.sql, then apply the migrations",
    "26000": "behind pgbouncer set BOOKING_EXPIRATION_DATABASE_STATEMENT_CACHE_SIZE=0",
    "42P05": "behind pgbouncer set BOOKING_EXPIRATION_DATABASE_STATEMENT_CACHE_SIZE=0",
    "42501": "the role lacks a grant: connect as the program's own role, for a worker booking_expiration_worker; a grant "
    "that was revoked stands in migrations/",
}


def is_row_refusal(error: BaseException) -> bool:
    """Whether the server refused a row's own content, which makes it poison (D6)."""
    state = getattr(error, "sqlstate", None) or ""
    if _is_drivers_own(error):
        return False
    return isinstance(error, asyncpg.PostgresError) and (state[:2] in ("22", "23") or state == "P0001")


def translate(error: Exception) -> Exception:
    """Our error for a driver's or the network's; any other error is returned as it is."""
    state = getattr(error, "sqlstate", None) or ""
    match error:
        case asyncpg.OutdatedSchemaCacheError() | asyncpg.InvalidCachedStatementError():
            return DatabaseUnavailableError(f"{_text(error)}: a migration was applied meanwhile")
        case asyncpg.ProtocolError() | asyncpg.UnsupportedClientFeatureError():
            return DatabaseRefusedError(f"{_text(error)}: a bug in this program, please report it")
        case asyncpg.ClientConfigurationError():
            return DatabaseRefusedError(f"{_text(error)}; correct DATABASE_URL")
        case _ if _is_drivers_own(error):
            return DatabaseRefusedError(f"{_text(error)}: a value has the wrong type; a bug in this program, please report it")
        case _ if is_row_refusal(error):
            return RowRefusedError(_text(error))
        case asyncpg.PostgresError() if state[:2] in _HEALING_CLASSES or state in _HEALING_STATES:
            return DatabaseUnavailableError(_text(error))
        case asyncpg.PostgresError():
            advice = _ADVICE.get(state) or _ADVICE.get(state[:2]) or "see the server's log at this moment"
            return DatabaseRefusedError(f"{_text(error)}; {advice}")
        # An InternalClientError is how the driver sometimes meets a connection that the server is just closing.
        case asyncpg.InterfaceError() | asyncpg.InternalClientError() | OSError() | TimeoutError():
            return DatabaseUnavailableError(_text(error))
        case _:
            return error


def _is_drivers_own(error: BaseException) -> bool:
    """An argument that could not be encoded: raised before anything was sent, in the same class as the server's refusals."""
    return type(error) is asyncpg.DataError and error.severity is None


def _text(error: Exception) -> str:
    """The server's message alone: its DETAIL quotes whole rows, and what stands in them is nobody's business here (O1)."""
    state = getattr(error, "sqlstate", None)
    message = error.args[0] if isinstance(error, asyncpg.PostgresError) and error.args else str(error)
    return f"database: {message or type(error).__name__}" + (f" (SQLSTATE {state})" if state else "")
