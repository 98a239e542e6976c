"""`booking-expiration phase pause|resume` and `release-hold`: stop one phase, let bookings through the safety catch."""

from datetime import datetime, timedelta
from typing import Annotated, Any, Final

import typer

from activities.schedule_note import moment
from db import controls, server
from db.controls import Pause
from db.unit_of_work import UnitOfWork
from domain.events import Phase
from operators import arguments, frame, words
from operators.frame import CommandError, Json, Reason
from settings import OperatorSettings

MOST: Final = 1_000_000

app = typer.Typer(no_args_is_help=True, help="Stop one phase while the other one goes on.")

Which = Annotated[str, typer.Argument(metavar="Reserve|Booking", help="The phase, in upper or lower case.")]
For = Annotated[str | None, typer.Option("--for", metavar="TIME", help="It goes on by itself after: 30m, 2h, 1d, up to 7d.")]
Replace = Annotated[bool, typer.Option("--replace", help="With --for: also end a pause that has no end of its own.")]
UpTo = Annotated[int, typer.Option("--up-to", metavar="N", help="Bookings to let through in all; 0 takes a release back.")]


@app.command()
def pause(phase: Which, *, reason: Reason, limit: For = None, replace: Replace = False, as_json: Json = False) -> None:
    """Expire no more bookings of this phase, from the next cycle on (within a minute); a drain leaves it out, too."""
    which, why, length = arguments.phase(phase, "PHASE"), arguments.reason(reason), arguments.pause_length(limit)
    until, replaced = frame.run(_pause(frame.settings(), which, why, length, replace=replace))
    end = moment(until) if until else f"somebody ends it: booking-expiration phase resume {which} --reason …"
    done = {"phase": which, "paused": True, "until": words.plain(until), "replaced": words.plain(replaced)}
    lines = [f"phase {which}: paused from the next cycle on, until {end}. The other phase goes on."]
    lines += [f"this replaces the pause by {replaced.actor}: {replaced.reason}"] if replaced else []
    _say(done, *lines, as_json=as_json)


@app.command()
def resume(phase: Which, *, reason: Reason, as_json: Json = False) -> None:
    """Let the phase go on with the next cycle."""
    which = arguments.phase(phase, "PHASE")
    frame.run(_resume(frame.settings(), which, arguments.reason(reason)))
    _say({"phase": which, "paused": False, "until": None}, f"phase {which}: goes on with the next cycle", as_json=as_json)


def release_hold(*, up_to: UpTo, reason: Reason, as_json: Json = False) -> None:
    """Let up to N bookings expire although more are due than the safety catch allows (BOOKING_EXPIRATION_HOLD_ABOVE)."""
    arguments.between(up_to, 0, MOST, "--up-to")
    done = frame.run(_release(frame.settings(), up_to, arguments.reason(reason)))
    line = (
        f"up to {up_to:,} bookings may expire, a batch per phase and cycle; then cycles are held again" if up_to else "taken back"
    )
    _say(done, f"release: {line}", as_json=as_json)


async def _pause(
    given: OperatorSettings, phase: Phase, reason: str, length: timedelta | None, *, replace: bool
) -> tuple[datetime | None, Pause | None]:
    async with frame.database(given) as pool, UnitOfWork(pool) as connection:
        now = await server.clock(connection)
        until, actor = now + length if length else None, frame.actor()
        try:
            replaced = await controls.pause(connection, phase, now, until, actor=actor, reason=reason, replace=replace)
        except controls.EndlessPauseError as error:
            raise CommandError(f"{error}; --for would end that too. Leave --for out, or end it with --replace") from None
    return until, replaced


async def _resume(given: OperatorSettings, phase: Phase, reason: str) -> None:
    async with frame.database(given) as pool, UnitOfWork(pool) as connection:
        try:
            await controls.resume(connection, phase, await server.clock(connection), actor=frame.actor(), reason=reason)
        except controls.PhaseNotPausedError as error:
            raise CommandError(str(error)) from None


async def _release(given: OperatorSettings, up_to: int, reason: str) -> dict[str, Any]:
    async with frame.database(given) as pool, UnitOfWork(pool) as connection:
        try:
            await controls.release(connection, up_to, actor=frame.actor(), reason=reason)
        except controls.NothingHeldError as error:
            raise CommandError(str(error)) from None
    return {"allowance": up_to}


def _say(done: dict[str, Any], *lines: str, as_json: bool) -> None:
    frame.print_json(done) if as_json else frame.say(*lines)
