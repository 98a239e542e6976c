"""What travels between workflow and activities, and out of the cycle. Field names are a wire contract (layout rule 8).

Add a field only with a default; never forbid extra fields: old and new workers run side by side (trap 21).
"""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_pascal

from domain.events import Phase


class Outcome(StrEnum):
    """How a cycle ended (D24); only `completed` counts as a success."""

    COMPLETED = "completed"
    STOPPED = "stopped"
    HELD = "held"
    PAUSED = "paused"
    FAILED = "failed"
    CANCELED = "canceled"


class PublishOutcome(StrEnum):
    """Why publishing ended: nothing left, time used up, or the broker cannot be reached (D10)."""

    DRAINED = "drained"
    OUT_OF_TIME = "out_of_time"
    BROKER_UNAVAILABLE = "broker_unavailable"


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True)


class CycleInput(_Message):
    """The schedule's argument: rows per phase and cycle (I2)."""

    batch_size: int = 200


class OpenedCycle(_Message):
    """The moment a cycle compares deadlines with (I1, D2), the backlog at it, and the search attributes that exist (D28)."""

    as_of: datetime
    reserve_backlog: int = 0
    booking_backlog: int = 0
    search_attributes: list[str] = []


class BatchOrder(_Message):
    """One batch of one phase (T1); with the run id, its identity in the ledger (D7)."""

    phase: Phase
    as_of: datetime
    batch_no: int = 1
    batch_size: int = 200


class BatchResult(_Message):
    """What one batch did, in bookings. `poison_ids` holds the first 20 at most."""

    expired_count: int = 0
    skipped_locked_count: int = 0
    poison_count: int = 0
    poison_ids: list[UUID] = []


class PublishOrder(_Message):
    """How long publishing may go on, in seconds."""

    time_budget: float = 20.0


class PublishResult(_Message):
    """What publishing did, in outbox records."""

    published_count: int = 0
    parked_count: int = 0
    outcome: PublishOutcome = PublishOutcome.DRAINED
    reason: str = ""


class CycleResult(BaseModel):
    """The result of a cycle (A8) in the specification's own spelling, as the Web UI shows it."""

    model_config = ConfigDict(frozen=True, alias_generator=to_pascal, populate_by_name=True)

    reserve_expired_count: int = 0
    booking_expired_count: int = 0
    skipped_locked_count: int = 0
    duration_ms: int = 0
    poison_count: int = 0
    published_count: int = 0
    parked_count: int = 0
    outcome: Outcome = Outcome.COMPLETED


class ClosingCycle(_Message):
    """What `close_cycle` writes to `job_state` and the log (D24)."""

    result: CycleResult
    failures: list[str] = []
