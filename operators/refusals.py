"""What the database's refusals mean to whoever typed the command: which address, which role, which grant."""

import re
from typing import Final

from db.errors import DatabaseError, DatabaseUnavailableError
from settings import OperatorSettings, address_of

ROLE: Final = "booking_expiration_operator"
VARIABLE: Final = "BOOKING_EXPIRATION_OPERATOR_DATABASE_URL"
_DENIED: Final = re.compile(r"permission denied for (?P<kind>\w+) (?P<name>\w+)")
_READ: Final = "SELECT"
CHANGES: Final = {
    "outbox": "UPDATE (claim_token, claimed_until, attempts, parked_at, park_reason, skipped_at)",
    "operator_actions": "INSERT",
    "phase_pauses": "UPDATE (paused_at, paused_until, actor, reason)",
    "safety_catch": "UPDATE (allowance, released_at)",
}
"""What the operators' role may do beside reading, table by table, as the migrations grant it."""


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
    return f"{text} (connect as {ROLE}, by {VARIABLE})"


def _needs(kind: str, name: str) -> str:
    if kind != "table":
        return f"connect as {ROLE}, by {VARIABLE}; its grants stand in migrations/"
    wanted = " and ".join(filter(None, (_READ, CHANGES.get(name))))
    return f"the command needs {wanted} on crm.{name}, which {ROLE} has by migrations/: connect as that role, by {VARIABLE}"
