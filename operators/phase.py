"""`booking-expiration phase pause|resume` and `release-hold`: stop one phase, let bookings through the safety catch."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from activities.schedule_note import moment
from db import controls, server
from db.unit_of_work import UnitOfWork
from domain import events
from operators import arguments, frame
from operators.frame import CommandError, Json, Reason
from settings import OperatorSettings

LONGEST: Final = timedelta(days=7)
MOST: Final = 1_000_000

app = typer.Typer(no_args_is_help=True, help="Stop one phase while the other one goes on.")


class Phase(StrEnum):
    """As people type it; upper or lower case does not matter."""

    RESERVE = "Reserve"
    BOOKING = "Booking"


Which = Annotated[Phase, typer.Argument(metavar="Reserve|Booking", case_sensitive=False, help="The phase.")]
For = Annotated[str | None, typer.Option("--for", metavar="TIME", help="It goes on by itself after: 30m, 2h, 1d, up to 7d.")]
UpTo = Annotated[int, typer.Option("--up-to", metavar="N", help="Bookings to let through in all; 0 takes a release back.")]


@app.command()
def pause(phase: Which, *, reason: Reason, limit: For = None, as_json: Json = False) -> None:
    """Expire no more bookings of this phase, from the next cycle on (within a minute); a drain leaves it out, too."""
    why, length = arguments.reason(reason), arguments.span(limit, "--for") if limit else None
    if length and length > LONGEST:
        arguments.refuse(f"--for: {limit!r} is more than 7d; a pause that long needs somebody who ends it: leave --for out")
    done = frame.run(_pause(frame.settings(), events.Phase(phase), why, length))
    end = (
        f"until {done['until']}"
        if done["until"]
        else f"until somebody ends it: booking-expiration phase resume {phase} --reason …"
    )
    _say(done, f"phase {phase}: paused from the next cycle on, {end}. The other phase goes on.", as_json=as_json)


@app.command()
def resume(phase: Which, *, reason: Reason, as_json: Json = False) -> None:
    """Let the phase go on with the next cycle."""
    done = frame.run(_resume(frame.settings(), events.Phase(phase), arguments.reason(reason)))
    _say(done, f"phase {phase}: goes on with the next cycle", as_json=as_json)


def release_hold(*, up_to: UpTo, reason: Reason, as_json: Json = False) -> None:
    """Let up to N bookings expire although more are due than the safety catch allows (BOOKING_EXPIRATION_HOLD_ABOVE)."""
    arguments.between(up_to, 0, MOST, "--up-to")
    done = frame.run(_release(frame.settings(), up_to, arguments.reason(reason)))
    words = (
        f"up to {up_to:,} bookings may expire, a batch per phase and cycle; then cycles are held again" if up_to else "taken back"
    )
    _say(done, f"release: {words}", as_json=as_json)


async def _pause(given: OperatorSettings, phase: events.Phase, reason: str, length: timedelta | None) -> dict[str, Any]:
    async with frame.database(given) as pool, UnitOfWork(pool) as connection:
        now = await server.clock(connection)
        until = now + length if length else None
        await controls.pause(connection, phase, now, until, actor=frame.actor(), reason=reason)
    return {"phase": phase, "paused": True, "until": moment(until) if until else None}


async def _resume(given: OperatorSettings, phase: events.Phase, reason: str) -> dict[str, Any]:
    async with frame.database(given) as pool, UnitOfWork(pool) as connection:
        try:
            await controls.resume(connection, phase, await server.clock(connection), actor=frame.actor(), reason=reason)
        except controls.PhaseNotPausedError as error:
            raise CommandError(str(error)) from None
    return {"phase": phase, "paused": False, "until": None}


async def _release(given: OperatorSettings, up_to: int, reason: str) -> dict[str, Any]:
    async with frame.database(given) as pool, UnitOfWork(pool) as connection:
        await controls.release(connection, up_to, actor=frame.actor(), reason=reason)
    return {"allowance": up_to}


def _say(done: dict[str, Any], line: str, *, as_json: bool) -> None:
    frame.print_json(done) if as_json else typer.echo(line)
