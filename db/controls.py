"""What an operator stopped or let through: paused phases and the safety catch. Each change is written down with its act."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from db import operator_actions
from db.job_state import JOB
from db.unit_of_work import Connection
from domain.events import Phase


@dataclass(frozen=True, slots=True)
class Pause:
    """A paused phase; `until` (UTC) when it goes on by itself, None when somebody must resume it."""

    phase: Phase
    paused_at: datetime
    until: datetime | None
    actor: str
    reason: str


class PhaseNotPausedError(Exception):
    """There is nothing to resume."""


_PAUSED: Final = """
    SELECT phase, paused_at, paused_until, actor, reason FROM crm.phase_pauses
    WHERE paused_at IS NOT NULL AND (paused_until IS NULL OR paused_until > $1) ORDER BY phase DESC"""


async def paused(connection: Connection, moment: datetime) -> list[Pause]:
    """The phases that are paused at `moment` (UTC)."""
    return [Pause(Phase(phase), *rest) for phase, *rest in await connection.fetch(_PAUSED, moment)]


# The row stays locked until the act is committed, so that what is written down as "before" is what the change replaced.
_LOOK: Final = "SELECT paused_at, paused_until, actor, reason FROM crm.phase_pauses WHERE phase = $1 FOR NO KEY UPDATE"

_SET: Final = "UPDATE crm.phase_pauses SET paused_at = $2, paused_until = $3, actor = $4, reason = $5 WHERE phase = $1"


async def pause(
    connection: Connection, phase: Phase, moment: datetime, until: datetime | None, *, actor: str, reason: str
) -> None:
    """Stop one phase from `moment` on; the other goes on. A pause that stands is replaced."""
    await _change(connection, "pause_phase", phase, (moment, until, actor, reason), actor=actor, reason=reason)


async def resume(connection: Connection, phase: Phase, moment: datetime, *, actor: str, reason: str) -> None:
    """Let a phase go on. Raises `PhaseNotPausedError`."""
    if phase not in [standing.phase for standing in await paused(connection, moment)]:
        raise PhaseNotPausedError(f"phase {phase} is not paused; nothing changed")
    await _change(connection, "resume_phase", phase, (None, None, None, None), actor=actor, reason=reason)


async def _change(connection: Connection, action: str, phase: Phase, after: Sequence[Any], *, actor: str, reason: str) -> None:
    before = await connection.fetchrow(_LOOK, phase)
    await connection.execute(_SET, phase, *after)
    names = ("paused_at", "paused_until", "actor", "reason")
    details = {"before": dict(before or {}), "after": dict(zip(names, after, strict=True))}
    await operator_actions.record(connection, actor=actor, action=action, target=f"phase/{phase}", reason=reason, details=details)


async def allowance(connection: Connection) -> int:
    """Bookings that an operator still lets through a hold."""
    return int(await connection.fetchval("SELECT allowance FROM crm.safety_catch WHERE job = $1", JOB) or 0)


_SPEND: Final = "UPDATE crm.safety_catch SET allowance = greatest(allowance - $2, 0) WHERE job = $1"


async def spend(connection: Connection, expired: int) -> None:
    """Take what a batch expired off the allowance, in the batch's own transaction: a repeated attempt takes nothing twice."""
    await connection.execute(_SPEND, JOB, expired)


_RELEASE: Final = "UPDATE crm.safety_catch SET allowance = $2, released_at = clock_timestamp() WHERE job = $1"


async def release(connection: Connection, up_to: int, *, actor: str, reason: str) -> None:
    """Let up to `up_to` bookings through the hold, from now on and in all; 0 takes an allowance back."""
    before = await connection.fetchval("SELECT allowance FROM crm.safety_catch WHERE job = $1 FOR NO KEY UPDATE", JOB)
    await connection.execute(_RELEASE, JOB, up_to)
    details = {"before": {"allowance": before}, "after": {"allowance": up_to}}
    await operator_actions.record(
        connection, actor=actor, action="release_hold", target=f"job/{JOB}", reason=reason, details=details
    )
