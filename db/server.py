"""What the database server says of itself: its clock, its version, who we are to it, and the roles' time-outs."""

import ipaddress
import ssl
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from db.unit_of_work import Connection


async def clock(connection: Connection) -> datetime:
    """The database's clock (UTC), as it is now (D2)."""
    moment: datetime = await connection.fetchval("SELECT clock_timestamp()")
    return moment


@dataclass(frozen=True, slots=True)
class Identity:
    """Who we are there. `member`: with all rights of the wanted role; `version` as in `server_version_num`."""

    user: str
    superuser: bool
    member: bool
    version: int
    writable: bool


# By the role's row, so that a role which does not exist is an answer and no error.
_WHO: Final = """
    SELECT current_user::text, (SELECT rolsuper FROM pg_roles WHERE rolname = current_user),
           coalesce((SELECT pg_has_role(oid, 'USAGE') FROM pg_roles WHERE rolname = $1), false),
           current_setting('server_version_num')::int, NOT pg_is_in_recovery()"""


async def identity(connection: Connection, role: str) -> Identity:
    """Who this connection is to the server, beside the role that it should be."""
    who: Any = await connection.fetchrow(_WHO, role)  # a SELECT without FROM: always one row
    return Identity(*who)


@dataclass(frozen=True, slots=True)
class Link:
    """How a connection is protected, by this side's own knowledge: behind a pooler the server would tell of another one."""

    encrypted: bool
    verified: bool
    name_checked: bool
    local: bool


def link(connection: Connection) -> Link:
    """Encryption, the server's certificate, and whether the connection leaves this machine at all."""
    transport: Any = connection._transport  # type: ignore[attr-defined]  # noqa: SLF001 # the driver has no public word for it
    secured, peer = transport.get_extra_info("ssl_object"), transport.get_extra_info("peername")
    context = secured.context if secured else None
    return Link(
        encrypted=secured is not None,
        verified=context is not None and context.verify_mode is ssl.CERT_REQUIRED,
        name_checked=context is not None and context.check_hostname,
        local=not isinstance(peer, tuple) or ipaddress.ip_address(peer[0]).is_loopback,
    )


_EVERY: Final = {
    "client_connection_check_interval": "500ms",
    "idle_in_transaction_session_timeout": "15s",
    "lock_timeout": "5s",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "3",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "15s",
}
_SHORT: Final = {"statement_timeout": "12s", "jit": "off"}
_SINCE_17: Final = {"transaction_timeout": "25s"}
_17: Final = 170_000
OWNER: Final = "booking_expiration_owner"
WORKER: Final = "booking_expiration_worker"
OPERATOR: Final = "booking_expiration_operator"
MANAGERS: Final = "crm_app"
ROLES: Final = (OWNER, WORKER, OPERATOR, MANAGERS, "chessboard")

# What holds for a role in this database: its own setting there, else its setting everywhere.
_SETTINGS: Final = """
    SELECT role.rolname::text AS role, coalesce(own.setconfig, '{}') AS own, coalesce(general.setconfig, '{}') AS general
    FROM pg_roles role
         LEFT JOIN pg_db_role_setting general ON general.setrole = role.oid AND general.setdatabase = 0
         LEFT JOIN pg_db_role_setting own ON own.setrole = role.oid
              AND own.setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
    WHERE role.rolname = ANY ($1)"""


def wanted_settings(role: str, version: int) -> dict[str, str]:
    """What migrations/bootstrap.sql sets for a role on a server of this version (trap 24)."""
    if role == OWNER:
        return _EVERY
    return {**_EVERY, **_SHORT, **(_SINCE_17 if version >= _17 else {})}


async def role_settings(connection: Connection) -> dict[str, dict[str, str]]:
    """The settings of each of our roles that exists."""
    rows = await connection.fetch(_SETTINGS, list(ROLES))
    return {row["role"]: dict(one.split("=", 1) for one in (*row["general"], *row["own"])) for row in rows}


async def reads_statistics(connection: Connection, role: str) -> bool:
    """Whether the role may see other roles' statements (D5)."""
    may = await connection.fetchval(
        "SELECT pg_has_role(oid, 'pg_read_all_stats', 'USAGE') FROM pg_roles WHERE rolname = $1", role
    )
    return bool(may)
