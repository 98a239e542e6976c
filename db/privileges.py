"""Which right each role needs, as the migrations grant it, and which it lacks."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from db.server import MANAGERS, OPERATOR, WORKER
from db.unit_of_work import Connection

_RECORD: Final = (
    "INSERT (event_id, aggregate_type, aggregate_id, aggregate_version, tenant_id, topic, contract_version, payload, "
    "headers, correlation_id, occurred_at)"
)
_PUBLISHING: Final = (
    "UPDATE (claim_token, claimed_until, attempts, published_at, kafka_partition, kafka_offset, parked_at, park_reason)"
)

NEEDS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    WORKER: {
        "bookings": ("SELECT", "UPDATE (status, expired_at, updated_at, version)"),
        "booking_audit": ("INSERT",),
        "deal_timeline_cards": ("INSERT",),
        "outbox": ("SELECT", _RECORD, _PUBLISHING),
        "expiration_batches": ("SELECT", "INSERT"),
        "expiration_refusals": ("SELECT", "INSERT", "UPDATE"),
        "job_state": ("SELECT", "INSERT", "UPDATE"),
        "operator_actions": ("SELECT", "INSERT"),
        "phase_pauses": ("SELECT",),
        "safety_catch": ("SELECT", "UPDATE (allowance, hold_above)"),
        "schema_migrations": ("SELECT",),
    },
    OPERATOR: {
        "bookings": ("SELECT",),
        "booking_audit": ("SELECT",),
        "deal_timeline_cards": ("SELECT",),
        "outbox": ("SELECT", "UPDATE (claim_token, claimed_until, attempts, parked_at, park_reason, skipped_at)"),
        "expiration_batches": ("SELECT",),
        "expiration_refusals": ("SELECT",),
        "job_state": ("SELECT",),
        "operator_actions": ("SELECT", "INSERT"),
        "phase_pauses": ("SELECT", "UPDATE (paused_at, paused_until, actor, reason)"),
        "safety_catch": ("SELECT", "UPDATE (allowance, released_at)"),
        "schema_migrations": ("SELECT",),
    },
    MANAGERS: {
        "bookings": ("SELECT", "INSERT", "UPDATE (status, reserve_expires_at, booking_expires_at, updated_at, version)"),
        "booking_audit": ("SELECT", "INSERT"),
        "deal_timeline_cards": ("SELECT",),
        "outbox": ("SELECT", _RECORD),
    },
}
"""By role and table, as a GRANT says it. A test holds it against a migrated database."""


@dataclass(frozen=True, slots=True)
class Lack:
    """A right that a role lacks; the columns, or none for the whole table."""

    role: str
    table: str
    right: str
    columns: tuple[str, ...] = ()

    @property
    def grant(self) -> str:
        """What the owner of the tables types."""
        if not self.table:
            return f"GRANT USAGE ON SCHEMA crm TO {self.role}"
        columns = f" ({', '.join(self.columns)})" if self.columns else ""
        return f"GRANT {self.right}{columns} ON crm.{self.table} TO {self.role}"


def needs() -> Iterator[Lack]:
    """The table above, one right at a time."""
    for role, tables in NEEDS.items():
        for table, rights in tables.items():
            for text in rights:
                right, _, columns = text.rstrip(")").partition(" (")
                yield Lack(role, table, right, tuple(columns.split(", ")) if columns else ())


# By the catalog's rows, not by names: a role, table or column that does not exist is another check's business, and a name of it
# would be an error here. A right on the whole table counts for each of its columns.
_LACKING: Final = """
    SELECT need.role, need.relation, need.privilege, need.name
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
              WITH ORDINALITY AS need (role, relation, privilege, name, position)
         JOIN pg_roles role ON role.rolname = need.role
         JOIN pg_class relation ON relation.relname = need.relation
         JOIN pg_namespace space ON space.oid = relation.relnamespace AND space.nspname = 'crm'
         LEFT JOIN pg_attribute part ON part.attrelid = relation.oid AND part.attname = need.name AND NOT part.attisdropped
    WHERE CASE WHEN need.name = '' THEN NOT has_table_privilege(role.oid, relation.oid, need.privilege)
               WHEN part.attnum IS NOT NULL THEN NOT has_column_privilege(role.oid, relation.oid, part.attnum, need.privilege)
               ELSE false END
    ORDER BY need.position"""

_OUTSIDE: Final = """
    SELECT role.rolname::text FROM pg_roles role, pg_namespace space
    WHERE role.rolname = ANY ($1) AND space.nspname = 'crm' AND NOT has_schema_privilege(role.oid, space.oid, 'USAGE')
    ORDER BY 1"""


async def lacking(connection: Connection) -> list[Lack]:
    """What the roles lack of it, in the table's order; the schema's own right first."""
    single = [(each, name) for each in needs() for name in each.columns or ("",)]
    rows = await connection.fetch(
        _LACKING,
        [each.role for each, _ in single],
        [each.table for each, _ in single],
        [each.right for each, _ in single],
        [name for _, name in single],
    )
    found: dict[tuple[str, str, str], list[str]] = {}
    for role, table, right, name in rows:
        found.setdefault((role, table, right), []).extend([name] if name else [])
    outside = [Lack(row["rolname"], "", "USAGE") for row in await connection.fetch(_OUTSIDE, list(NEEDS))]
    return [*outside, *(Lack(*key, tuple(columns)) for key, columns in found.items())]
