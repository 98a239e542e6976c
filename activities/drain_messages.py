"""What travels to, from and within a drain (D14). The rules of `messages.py` hold here too."""

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from pydantic import BaseModel, Field

from activities.messages import PASCAL, Message, PhasePause
from domain.events import Phase


class DrainOutcome(StrEnum):
    """Why a drain ended."""

    DRAINED = "drained"
    CAP_REACHED = "cap_reached"
    OUT_OF_TIME = "out_of_time"
    STOPPED = "stopped"
    PAUSED = "paused"
    FAILED = "failed"
    CANCELED = "canceled"


class Backlog(Message):
    """What is due now, by the database's clock, and how many bookings one drain may expire at most (`drain_limit`).

    `runbook_url`: as in `OpenedCycle`.
    """

    as_of: datetime
    reserve_backlog: int = 0
    booking_backlog: int = 0
    paused: list[PhasePause] = Field(default_factory=list)
    drain_limit: int = 0
    search_attributes: list[str] = Field(default_factory=list)
    runbook_url: str = ""


class DrainSoFar(Message):
    """What a drain has done in all its runs: bookings, records, batches; `started_at` is the first run's start (UTC).

    `poison`: per phase the most that one batch met, since every batch meets the same ones again.
    """

    started_at: datetime | None = None
    reserve_expired: int = 0
    booking_expired: int = 0
    poison: dict[Phase, int] = Field(default_factory=dict)
    poison_ids: list[UUID] = Field(default_factory=list)
    published: int = 0
    parked: int = 0
    batches: int = 0

    @property
    def expired(self) -> int:
        """Bookings of both phases."""
        return self.reserve_expired + self.booking_expired


class DrainLimits(Message):
    """New limits for a running drain; what is left out stays. Seconds for `time_budget` and `pause`."""

    cap: int | None = None
    lanes: int | None = None
    time_budget: float | None = None
    pause: float | None = None
    reason: str = ""
    actor: str = ""
    recorded: int | None = None

    def given(self) -> dict[str, Any]:
        """The limits that are set, without who and why."""
        return self.model_dump(exclude_none=True, include={"cap", "lanes", "time_budget", "pause"})


class DrainOrder(Message):
    """What a drain may do. Required: `cap`, the bookings it may expire at most (D14).

    `phase`: only this one; `lanes`: batches at once, 1 to 8; `time_budget`: seconds from the first start; `pause`: seconds
    between rounds of batches; `batch_size`: rows per batch. `rounds_per_run`: rounds before it goes on as a new run, so that no
    history grows large. `so_far` and `exhausted` are what it hands to that new run; leave them out.
    """

    cap: int | None = None
    phase: Phase | None = None
    lanes: int = 1
    time_budget: float = 1800.0
    pause: float = 0.0
    batch_size: int = 200
    reason: str = ""
    actor: str = ""
    recorded: int | None = None
    rounds_per_run: int = 100
    so_far: DrainSoFar | None = None
    exhausted: list[Phase] = Field(default_factory=list)


class DrainProgress(Message):
    """What a drain is doing and has done so far.

    `rate` in bookings per second, pauses included; `seconds_left` by it (None: not known yet).
    """

    step: str = "starting"
    limits: DrainLimits = DrainLimits()
    drain_limit: int = 0
    reserve_backlog: int = 0
    booking_backlog: int = 0
    so_far: DrainSoFar = DrainSoFar()
    rate: float = 0.0
    seconds_left: float | None = None
    reason: str = ""
    failures: list[str] = Field(default_factory=list)

    def pace(self, noun: str = "") -> str:
        """The rate for people: per minute where it is below 1/s, which with pauses it often is."""
        below = 0 < self.rate < 1
        return f"{self.rate * 60:.2g}{noun}/min" if below else f"{self.rate:,.0f}{noun}/s"


class DrainResult(BaseModel):
    """The result of a drain: counts, never lists of ids. `left_overdue`: bookings of the drained phases still due at its end."""

    model_config = PASCAL

    reserve_expired_count: int = 0
    booking_expired_count: int = 0
    poison_count: int = 0
    published_count: int = 0
    parked_count: int = 0
    batches: int = 0
    left_overdue: int = 0
    duration_ms: int = 0
    outcome: DrainOutcome = DrainOutcome.DRAINED
    reason: str = ""
