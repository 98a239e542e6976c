"""Who changed what, when and why: one row of `operator_actions` per operator's act."""

import json
from typing import Any, Final

from db.unit_of_work import Connection

_RECORD: Final = """
    INSERT INTO crm.operator_actions (actor, action, target, reason, details) VALUES ($1, $2, $3, $4, $5::jsonb) RETURNING id"""


async def record(
    connection: Connection, *, actor: str, action: str, target: str, reason: str, details: dict[str, Any] | None = None
) -> int:
    """Write one act down and return its id. For an act on the database: in the transaction of the act itself."""
    written = await connection.fetchval(_RECORD, actor, action, target, reason, json.dumps(details or {}, default=str))
    return int(written)


# Under a lock on the run, so that an attempt beside its retry writes nothing twice; a later statement sees what the other left.
_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('operator-actions/' || $1, 0))"

# Both conditions as ix_operator_actions_run has them.
_KNOWN: Final = "SELECT count(*) FROM crm.operator_actions WHERE details ->> 'run_id' = $1 AND details ->> 'act' = $2"


async def record_once(
    connection: Connection,
    run_id: str,
    number: int,
    *,
    actor: str,
    action: str,
    target: str,
    reason: str,
    details: dict[str, Any],
) -> None:
    """The same for act `number` of a workflow run, however often it is called."""
    await connection.execute(_LOCK, run_id)
    if not await connection.fetchval(_KNOWN, run_id, str(number)):
        known = {**details, "run_id": run_id, "act": str(number)}
        await record(connection, actor=actor, action=action, target=target, reason=reason, details=known)
