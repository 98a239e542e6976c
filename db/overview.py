"""What `status` shows of the database: the gauges' own reading, the last cycle, what is paused or held, the migrations."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from db import controls, gauges, migrations
from db.controls import Hold, Pause
from db.gauges import Reading
from db.job_state import JOB
from db.unit_of_work import Connection


@dataclass(frozen=True, slots=True)
class LastCycle:
    """What the cycles left behind (D24); moments in UTC. Run id, outcome and counts are the last finished one's."""

    started_at: datetime | None = None
    finished_at: datetime | None = None
    success_at: datetime | None = None
    run_id: str | None = None
    outcome: str | None = None
    counts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything of one moment, `reading.at`."""

    reading: Reading
    cycle: LastCycle
    pauses: Sequence[Pause]
    hold: Hold
    missing_migrations: Sequence[str]


async def read(connection: Connection) -> Overview:
    """Read all of it. Raises `DatabaseError`, where the schema or a grant is missing too.

    The migrations come last: their reader takes a missing table for an answer, and all is one transaction, which that error ends.
    """
    reading = await gauges.read(connection)
    return Overview(
        reading=reading,
        cycle=await last_cycle(connection),
        pauses=await controls.paused(connection, reading.at),
        hold=await controls.hold(connection, reading.at),
        missing_migrations=await migrations.missing(connection, migrations.known()),
    )


_CYCLE: Final = """
    SELECT last_started_at, last_finished_at, last_success_at, run_id, outcome, counts::text FROM crm.job_state WHERE job = $1"""


async def last_cycle(connection: Connection) -> LastCycle:
    """The job's row; all of it None where no cycle ever ran."""
    if (row := await connection.fetchrow(_CYCLE, JOB)) is None:
        return LastCycle()
    started, finished, success, run_id, outcome, counts = row
    return LastCycle(started, finished, success, run_id, outcome, json.loads(counts))
