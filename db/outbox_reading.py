"""The outbox as an operator looks at it: what is still to go out or was set aside, and everything about one record."""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

from db.outbox import UnknownRecordError
from db.unit_of_work import Connection

SEARCHED: Final = 200_000
"""Unfinished records, oldest first, of each state that a filter looks through."""

State: TypeAlias = Literal["parked", "waiting"]


@dataclass(frozen=True, slots=True)
class Filter:
    """Which of the unfinished records; None means any. `older_than` by the database's clock since the record was written."""

    state: State | None = None
    topic: str | None = None
    tenant: UUID | None = None
    older_than: timedelta | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A record that is neither published nor given up; moments in UTC."""

    id: int
    event_id: UUID
    booking_id: UUID
    tenant_id: UUID
    topic: str
    recorded_at: datetime
    attempts: int
    claimed_until: datetime | None
    parked_at: datetime | None
    park_reason: str | None


# Walked first, in the order of a partial index, and filtered then: so the work is bounded whatever the filter, and no plan can
# turn to the ten million published records. Parked and waiting records have an index each, so that however many wait, the few
# that are set aside are found.
_PARKED: Final = """
    WITH unfinished AS MATERIALIZED (
      SELECT id, event_id, aggregate_id, tenant_id, topic, recorded_at, attempts, claimed_until, parked_at, park_reason
        FROM crm.outbox
       WHERE published_at IS NULL AND skipped_at IS NULL AND parked_at IS NOT NULL
       ORDER BY id LIMIT $1)
    SELECT * FROM unfinished
     WHERE ($2::text IS NULL OR topic = $2)
       AND ($3::uuid IS NULL OR tenant_id = $3)
       AND ($4::interval IS NULL OR recorded_at < clock_timestamp() - $4)
       AND ($5::text IS NULL OR strpos(lower(park_reason), lower($5)) > 0)
     ORDER BY id LIMIT $6"""

_WAITING: Final = """
    WITH unfinished AS MATERIALIZED (
      SELECT id, event_id, aggregate_id, tenant_id, topic, recorded_at, attempts, claimed_until, parked_at, park_reason
        FROM crm.outbox
       WHERE published_at IS NULL AND skipped_at IS NULL AND parked_at IS NULL
       ORDER BY id LIMIT $1)
    SELECT * FROM unfinished
     WHERE ($2::text IS NULL OR topic = $2)
       AND ($3::uuid IS NULL OR tenant_id = $3)
       AND ($4::interval IS NULL OR recorded_at < clock_timestamp() - $4)
       AND $5::text IS NULL
     ORDER BY id LIMIT $6"""


async def find(connection: Connection, wanted: Filter, limit: int) -> list[Unfinished]:
    """Up to `limit` unfinished records, parked ones first, each kind in order of id; looks through `SEARCHED` of each."""
    found: list[Unfinished] = []
    for state, statement in (("parked", _PARKED), ("waiting", _WAITING)):
        if wanted.state in (None, state):
            arguments = (wanted.topic, wanted.tenant, wanted.older_than, wanted.error, limit - len(found))
            found += [Unfinished(*row) for row in await connection.fetch(statement, SEARCHED, *arguments)]
    return found


@dataclass(frozen=True, slots=True)
class Whole:
    """Everything about one record; moments in UTC. `payload` as text, what is no UTF-8 escaped.

    `held_back_by`: the older unfinished record of the same booking that must go first. `waiting_behind`: younger ones behind it.
    """

    id: int
    event_id: UUID
    booking_id: UUID
    aggregate_version: int
    tenant_id: UUID
    topic: str
    contract_version: int
    payload: str
    headers: dict[str, Any]
    correlation_id: str
    occurred_at: datetime
    recorded_at: datetime
    attempts: int
    claimed_until: datetime | None
    in_flight: bool
    published_at: datetime | None
    kafka_partition: int | None
    kafka_offset: int | None
    parked_at: datetime | None
    park_reason: str | None
    skipped_at: datetime | None
    held_back_by: int | None
    waiting_behind: int


_SHOW: Final = """
    SELECT id, event_id, aggregate_id, aggregate_version, tenant_id, topic, contract_version, payload, headers::text,
           correlation_id, occurred_at, recorded_at, attempts, claimed_until,
           coalesce(claimed_until >= clock_timestamp(), false), published_at, kafka_partition, kafka_offset, parked_at,
           park_reason, skipped_at,
           (SELECT min(o.id) FROM crm.outbox o
             WHERE o.aggregate_id = record.aggregate_id AND o.id < record.id AND o.published_at IS NULL AND o.skipped_at IS NULL),
           (SELECT count(*) FROM crm.outbox o
             WHERE o.aggregate_id = record.aggregate_id AND o.id > record.id AND o.published_at IS NULL AND o.skipped_at IS NULL)
      FROM crm.outbox AS record WHERE id = $1"""


async def show(connection: Connection, record_id: int) -> Whole:
    """One record. Raises `UnknownRecordError`."""
    if (row := await connection.fetchrow(_SHOW, record_id)) is None:
        raise UnknownRecordError(f"outbox record {record_id} does not exist: check the id")
    columns: list[Any] = list(row)
    columns[7:9] = row["payload"].decode("utf-8", "backslashreplace"), json.loads(row["headers"])
    return Whole(*columns)
