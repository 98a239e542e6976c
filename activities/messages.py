"""What travels between workflow and activities, and out of the cycle. Field names are a wire contract (layout rule 8).

Add a field only with a default; never forbid extra fields: old and new workers run side by side (trap 21).
"""

from datetime import datetime
from enum import StrEnum
from typing import Any, Final
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


class Message(BaseModel):
    """Frozen, and open to fields of a newer version."""

    model_config = ConfigDict(frozen=True)


PASCAL: Final = ConfigDict(frozen=True, alias_generator=to_pascal, populate_by_name=True)


class CycleInput(Message):
    """The schedule's argument: rows per phase and cycle (I2)."""

    batch_size: int = 200


class PhasePause(Message):
    """A phase that an operator stopped; `until` (UTC) when it goes on by itself."""

    phase: Phase
    reason: str
    actor: str
    until: datetime | None = None


class OpenedCycle(Message):
    """The moment a cycle compares deadlines with (I1, D2), the backlog at it, and the search attributes that exist (D28).

    `allowed`: bookings that may expire although more are due than `hold_above`; None where the safety catch does not speak.
    `parked_records`: of the whole outbox. `runbook_url`: below it the folder `runbooks` can be read; empty where nobody said.
    """

    as_of: datetime
    reserve_backlog: int = 0
    booking_backlog: int = 0
    search_attributes: list[str] = []
    paused: list[PhasePause] = []
    allowed: int | None = None
    hold_above: int = 0
    parked_records: int = 0
    runbook_url: str = ""


class StopRequest(Message):
    """An operator's wish to stop. `recorded`: the row of `operator_actions`, where the command line has written it already."""

    reason: str = ""
    actor: str = ""
    recorded: int | None = None


class OperatorAct(Message):
    """What an operator did by signal, update or cancel, to be written to `operator_actions`."""

    action: str
    actor: str
    target: str
    reason: str
    details: dict[str, Any] = {}


class ActsToRecord(Message):
    """The acts of one run, all of them in order: each is written once, however often this is asked."""

    acts: list[OperatorAct]


class BatchOrder(Message):
    """One batch of one phase (T1); with the run id, its identity in the ledger (D7).

    `spends_allowance`: what expires is taken off what an operator let through a hold.
    """

    phase: Phase
    as_of: datetime
    batch_no: int = 1
    batch_size: int = 200
    spends_allowance: bool = False


class BatchResult(Message):
    """What one batch did, in bookings. `poison_ids` holds the first 20 at most."""

    expired_count: int = 0
    skipped_locked_count: int = 0
    poison_count: int = 0
    poison_ids: list[UUID] = []


class PublishOrder(Message):
    """How long publishing may go on, in seconds."""

    time_budget: float = 20.0


class PublishResult(Message):
    """What publishing did, in outbox records."""

    published_count: int = 0
    parked_count: int = 0
    outcome: PublishOutcome = PublishOutcome.DRAINED
    reason: str = ""


class CycleResult(BaseModel):
    """The result of a cycle (A8) in the specification's own spelling, as the Web UI shows it.

    `reason`: why it was stopped, held or kept from a phase.
    """

    model_config = PASCAL

    reserve_expired_count: int = 0
    booking_expired_count: int = 0
    skipped_locked_count: int = 0
    duration_ms: int = 0
    poison_count: int = 0
    published_count: int = 0
    parked_count: int = 0
    outcome: Outcome = Outcome.COMPLETED
    reason: str = ""


class ClosingCycle(Message):
    """What `close_cycle` writes to `job_state` and the log (D24)."""

    result: CycleResult
    failures: list[str] = []


class CycleProgress(Message):
    """What a cycle is doing and has done so far, as data; the Web UI's current details say the same in words."""

    step: str = "starting"
    next_step: str = ""
    as_of: datetime | None = None
    reserve_backlog: int = 0
    booking_backlog: int = 0
    reserve_expired: int = 0
    booking_expired: int = 0
    skipped_locked: int = 0
    poison_count: int = 0
    poison_ids: list[UUID] = []
    published: int = 0
    parked: int = 0
    parked_records: int = 0
    paused: list[PhasePause] = []
    held: bool = False
    reason: str = ""
    failures: list[str] = []
