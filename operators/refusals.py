"""What the servers' refusals mean to whoever typed the command: which address, which role, which grant."""

import re
from collections.abc import Callable
from typing import Final

from temporalio.exceptions import TemporalError
from temporalio.service import RPCError

import settings as configuration
from activities import schedule_state
from connections import TemporalUnreachableError
from db.errors import DatabaseError, DatabaseUnavailableError
from db.privileges import NEEDS
from db.server import OPERATOR
from exits import CannotStartError
from settings import OperatorSettings, address_of

VARIABLE: Final = "BOOKING_EXPIRATION_OPERATOR_DATABASE_URL"
_DENIED: Final = re.compile(r"permission denied for (?P<kind>\w+) (?P<name>\w+)")


EXPECTED: Final = (DatabaseError, CannotStartError, TemporalUnreachableError, TemporalError)
"""What a server, or the way to it, can answer."""


def line(error: Exception, settings: Callable[[], OperatorSettings]) -> str:
    """One line for an error of `EXPECTED`: which server, what it said, and what to do about it.

    `settings` is asked only about the database: a command that needs Temporal alone may have none.
    """
    match error:
        case DatabaseError():
            return said(error, settings())
        case CannotStartError():
            return str(error)
    where, what = f"Temporal at {configuration.temporal()['target_host']}", str(error)
    if isinstance(error, RPCError) and schedule_state.no_namespace(error):
        what = f"{what.rstrip('.')}: is TEMPORAL_NAMESPACE right?"
    return f"{where}: {what}"


def said(error: DatabaseError, settings: OperatorSettings) -> str:
    """One line: what the database said, and what to do about it."""
    text = re.sub(r"(?<!_)DATABASE_URL", VARIABLE, str(error))
    if denied := _DENIED.search(text):
        return f"{text.partition(';')[0]}; {_needs(denied['kind'], denied['name'])}"
    if isinstance(error, DatabaseUnavailableError) and "SQLSTATE" not in text:
        address, why = (
            address_of(settings.operator_database_url),
            text.removeprefix("database: ").replace("TimeoutError", "no answer"),
        )
        return f"the database at {address} cannot be reached ({why}): is it up, and is {VARIABLE} right?"
    return f"{text} (connect as {OPERATOR}, by {VARIABLE})"


def _needs(kind: str, name: str) -> str:
    if kind != "table":
        return f"connect as {OPERATOR}, by {VARIABLE}; its grants stand in migrations/"
    wanted = " and ".join(NEEDS[OPERATOR].get(name, ("SELECT",)))
    return f"the command needs {wanted} on crm.{name}, which {OPERATOR} has by migrations/: connect as that role, by {VARIABLE}"
