"""The variables by which everything here finds its servers."""

import os
from typing import Final

from devstack import postgres

DATABASE: Final = "DATABASE_URL"
MIGRATION: Final = "BOOKING_EXPIRATION_MIGRATION_DATABASE_URL"
CRM: Final = "BOOKING_EXPIRATION_CRM_DATABASE_URL"
OPERATOR: Final = "BOOKING_EXPIRATION_OPERATOR_DATABASE_URL"
CHESSBOARD: Final = "CHESSBOARD_DATABASE_URL"
ADMIN: Final = "BOOKING_EXPIRATION_ADMIN_DATABASE_URL"
TEMPORAL: Final = "TEMPORAL_ADDRESS"
NAMESPACE: Final = "TEMPORAL_NAMESPACE"
TEMPORAL_UI: Final = "TEMPORAL_UI_URL"
KAFKA: Final = "KAFKA_BOOTSTRAP_SERVERS"

ROLES: Final = {
    DATABASE: "booking_expiration_worker",
    MIGRATION: "booking_expiration_owner",
    CRM: "crm_app",
    OPERATOR: "booking_expiration_operator",
    CHESSBOARD: "chessboard",
    ADMIN: "postgres",
}
NAMES: Final = (*ROLES, TEMPORAL, NAMESPACE, TEMPORAL_UI, KAFKA)
PARTS: Final = {"postgres": DATABASE, "temporal": TEMPORAL, "kafka": KAFKA}
"""Each piece, and the variable that says somebody else runs it."""


def given() -> dict[str, str]:
    """What the environment already says."""
    return {name: os.environ[name] for name in NAMES if os.environ.get(name)}


def of_database(port: int) -> dict[str, str]:
    """The URL of each role on a local server."""
    return {name: postgres.url(port, role) for name, role in ROLES.items()}
