"""What an operator stopped or let through: paused phases and the safety catch. Each change is written down with its act."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from db import due, operator_actions, server
from db.job_state import JOB
from db.outbox import SYSTEM
from db.unit_of_work import Connection
from domain import safety_catch
from domain.events import Phase


@dataclass(frozen=True, slots=True)
class Pause:
    """A paused phase; `until` (UTC) when it goes on by itself, None when somebody must resume it."""

    phase: Phase
    paused_at: datetime
    until: datetime | None
    actor: str
    reason: str


class EndlessPauseError(Exception):
    """Somebody paused the phase without an end, and would get one."""


class PhaseNotPausedError(Exception):
    """There is nothing to resume."""


class NothingHeldError(Exception):
    """There is no hold to let bookings through."""


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
    connection: Connection,
    phase: Phase,
    moment: datetime,
    until: datetime | None,
    *,
    actor: str,
    reason: str,
    replace: bool = False,
) -> Pause | None:
    """Stop one phase from `moment` on; the other goes on. Returns the pause that stood and is replaced.

    Raises `EndlessPauseError` where that one has no end and would get one, unless `replace`.
    """
    before = await connection.fetchrow(_LOOK, phase)
    standing = _standing(phase, before, moment)
    if until and standing and not standing.until and not replace:
        raise EndlessPauseError(f"phase {phase} is paused without an end by {standing.actor}: {standing.reason}")
    await _change(connection, "pause_phase", phase, before, (moment, until, actor, reason), actor=actor, reason=reason)
    return standing


def _standing(phase: Phase, row: Any, moment: datetime) -> Pause | None:
    if row is None or row["paused_at"] is None or (row["paused_until"] or datetime.max.replace(tzinfo=UTC)) <= moment:
        return None
    return Pause(phase, *row)


async def resume(connection: Connection, phase: Phase, moment: datetime, *, actor: str, reason: str) -> None:
    """Let a phase go on. Raises `PhaseNotPausedError`."""
    before = await connection.fetchrow(_LOOK, phase)
    if _standing(phase, before, moment) is None:
        raise PhaseNotPausedError(f"phase {phase} is not paused; nothing changed")
    await _change(connection, "resume_phase", phase, before, (None, None, None, None), actor=actor, reason=reason)


async def _change(
    connection: Connection, action: str, phase: Phase, before: Any, after: Sequence[Any], *, actor: str, reason: str
) -> None:
    await connection.execute(_SET, phase, *after)
    names = ("paused_at", "paused_until", "actor", "reason")
    details = {"before": dict(before or {}), "after": dict(zip(names, after, strict=True))}
    await operator_actions.record(connection, actor=actor, action=action, target=f"phase/{phase}", reason=reason, details=details)


@dataclass(frozen=True, slots=True)
class Hold:
    """The safety catch: `limit` as the newest cycle had it (0: off, or no cycle yet), bookings that may still pass, and `on`.

    `on`: more are due than the limit, so that a cycle expires `allowance` bookings at most.
    """

    limit: int = 0
    allowance: int = 0
    on: bool = False


_HOLD: Final = "SELECT hold_above, allowance FROM crm.safety_catch WHERE job = $1"


async def hold(connection: Connection, moment: datetime) -> Hold:
    """Whether a cycle at `moment` (UTC) would be held, whatever became of the cycles before it."""
    limit, allowance = await connection.fetchrow(_HOLD, JOB) or (0, 0)
    counted = await due.up_to(connection, moment, limit + 1) if limit else 0
    return Hold(limit, allowance, safety_catch.allowed(counted, limit, allowance) is not None)


# The row stays locked until the end, so that a release is written down either before this look or after it.
_CATCH: Final = "SELECT hold_above, allowance, released_at FROM crm.safety_catch WHERE job = $1 FOR NO KEY UPDATE"

_LEAVE: Final = "UPDATE crm.safety_catch SET hold_above = $2, allowance = $3 WHERE job = $1"


async def look(connection: Connection, counted: int, limit: int, moment: datetime) -> int | None:
    """What may expire of `counted` bookings due at `moment` (UTC): None where the safety catch does not speak.

    Leaves the limit where commands read it. A release ends with the hold that it was given for, and that is written down: what
    is left of it would let the next mistaken mass update through. One that was given since `moment` is for a later look.
    """
    before, allowance, released_at = await connection.fetchrow(_CATCH, JOB) or (0, 0, None)
    allowed = safety_catch.allowed(counted, limit, allowance)
    over = allowed is None and allowance > 0 and (released_at is None or released_at <= moment)
    if over or limit != before:
        await connection.execute(_LEAVE, JOB, limit, 0 if over else allowance)
    if over:
        reason = f"the hold is over: {counted} bookings are due, no more than {limit}" if limit else "the safety catch is off"
        await _release_act(connection, "end_release", (allowance, 0), actor=SYSTEM, reason=reason)
    return allowed


_LEFT: Final = "SELECT allowance FROM crm.safety_catch WHERE job = $1 FOR NO KEY UPDATE"


async def left(connection: Connection) -> int:
    """Bookings that an operator still lets through, until the transaction ends: what is taken back now waits for that."""
    return int(await connection.fetchval(_LEFT, JOB) or 0)


_SPEND: Final = "UPDATE crm.safety_catch SET allowance = greatest(allowance - $2, 0) WHERE job = $1"


async def spend(connection: Connection, expired: int) -> None:
    """Take what a batch expired off the allowance, in the batch's own transaction: a repeated attempt takes nothing twice."""
    await connection.execute(_SPEND, JOB, expired)


_RELEASE: Final = "UPDATE crm.safety_catch SET allowance = $2, released_at = clock_timestamp() WHERE job = $1"


async def release(connection: Connection, up_to: int, *, actor: str, reason: str) -> None:
    """Let up to `up_to` bookings through the hold, from now on and in all; 0 takes an allowance back.

    Raises `NothingHeldError`: what is let through before anything is held would meet a hold that nobody has looked at yet.
    """
    _, before, _ = await connection.fetchrow(_CATCH, JOB) or (0, 0, None)
    found = await hold(connection, await server.clock(connection))
    if up_to and not found.on:
        off = "the newest cycle had no safety catch, or none ran yet"
        why = f"no more than {found.limit:,} bookings are due" if found.limit else off
        raise NothingHeldError(f"nothing is held ({why}): there is nothing to release, and nothing changed")
    await connection.execute(_RELEASE, JOB, up_to)
    await _release_act(connection, "release_hold", (before, up_to), actor=actor, reason=reason)


async def _release_act(connection: Connection, action: str, change: tuple[int, int], *, actor: str, reason: str) -> None:
    before, after = change
    details = {"before": {"allowance": before}, "after": {"allowance": after}}
    await operator_actions.record(connection, actor=actor, action=action, target=f"job/{JOB}", reason=reason, details=details)
