"""`booking-expiration history`: a booking's audit trail, or what operators did."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

import typer
from rich.table import Table
from rich.text import Text

from activities import schedule_note
from db import story
from db.commands import UnknownBookingError
from db.reading import reading
from db.story import Act, AuditEntry
from operators import arguments, frame, words
from operators.frame import CommandError, Json
from settings import OperatorSettings, address_of

LONG: Final = 30
"""Characters of one value that the table shows."""

MOST: Final = 10_000
"""Acts that one answer holds at most."""

ELSEWHERE: Final = (
    "Not in this list: a pause, a resume, a trigger or a deletion of the schedule, and a terminate, done in the Web UI. They are "
    "Temporal's own record: the note on the schedule's page, the last event of the workflow's history, the server's audit log."
)

Booking = Annotated[str | None, typer.Argument(metavar="BOOKING", help="A booking's id.")]
Operator = Annotated[bool, typer.Option("--operator", help="What operators did, newest first, instead of a booking.")]
Since = Annotated[
    str | None, typer.Option("--since", metavar="MOMENT", help="With --operator: since then; 2026-07-01T12:00:00Z.")
]
Limit = Annotated[int | None, typer.Option("--limit", help="With --operator: at most so many; 50 unless told.")]


def history(
    booking: Booking = None, *, operator: Operator = False, since: Since = None, limit: Limit = None, as_json: Json = False
) -> None:
    """Show the audit trail of a booking, or with --operator every operator's act, newest first."""
    if operator == (booking is not None):
        arguments.refuse(
            "history: give a booking's id, or --operator; for example booking-expiration history --operator --limit 20"
        )
    if not operator and (since is not None or limit is not None):
        arguments.refuse("--since and --limit go with --operator; a booking's audit trail is shown whole")
    if booking is not None:
        _of_booking(booking, as_json=as_json)
    else:
        _of_operators(since, arguments.between(50 if limit is None else limit, 1, MOST, "--limit"), as_json=as_json)


def _of_booking(text: str, *, as_json: bool) -> None:
    booking_id, given = arguments.identifier(text, "BOOKING"), frame.settings()

    async def read() -> list[AuditEntry]:
        async with frame.database(given) as pool, reading(pool) as connection:
            if not (entries := await story.audit(connection, booking_id)):
                await story.require(connection, booking_id)
        return entries

    entries = frame.run(found_in(given, read()))
    if as_json:
        frame.print_json({"booking_id": str(booking_id), "audit": words.plain(entries)})
    else:
        frame.console.print(audit_table(entries) if entries else Text("Nothing has happened to it yet: it is as it was made."))


async def found_in(given: OperatorSettings, work: Any) -> Any:
    """What `work` returns; an `UnknownBookingError` names the database that was asked."""
    try:
        return await work
    except UnknownBookingError as error:
        raise CommandError(f"{error} in {address_of(given.operator_database_url)}: check the id") from None


def _of_operators(since: str | None, limit: int, *, as_json: bool) -> None:
    moment = None if since is None else arguments.moment(since, "--since")
    given = frame.settings()

    async def read() -> list[Act]:
        async with frame.database(given) as pool, reading(pool) as connection:
            return await story.acts(connection, moment, limit)

    acts = frame.run(read())
    if as_json:
        frame.print_json({"acts": words.plain(acts), "elsewhere": ELSEWHERE})
        return
    frame.console.print(_acts(acts) if acts else Text("No act is written down."))
    frame.console.print(Text(ELSEWHERE, style="dim"))


def audit_table(entries: Sequence[AuditEntry]) -> Table:
    """A booking's audit trail, oldest first."""
    table = frame.table("version", "at", "who", "what", "from", "to", "correlation id")
    for each in entries:
        table.add_row(
            str(each.version), words.moment(each.at), Text(each.actor), Text(each.action), each.from_status, each.to_status,
            Text(each.correlation_id),
        )  # fmt: skip
    return table


def _acts(acts: Sequence[Act]) -> Table:
    table = frame.table("at", "who", "what", "on", "why", "details")
    for act in acts:
        details = "; ".join(_details(act.details))
        table.add_row(words.moment(act.at), Text(act.actor), Text(act.action), Text(act.target), Text(act.reason), Text(details))
    return table


def _details(details: Mapping[str, Any]) -> Iterator[str]:
    """For people: of before and after what differs; long texts, such as a note, are in the JSON alone."""
    before, after = details.get("before"), details.get("after")
    if isinstance(before, dict) and isinstance(after, dict):
        details = {name: value for name, value in details.items() if name not in ("before", "after")}
        for name in sorted(before.keys() | after.keys()):
            if (was := before.get(name)) != (now := after.get(name)):
                long = max(len(str(was)), len(str(now))) > LONG
                yield f"{name}: changed" if long else f"{name}: {_short(was)} → {_short(now)}"
    for name, value in details.items():
        if value is not None:
            yield f"{name}: {_short(value)}"


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_short(each)}" for name, each in value.items() if each is not None) or "nothing"
    text = "none" if value is None else f"{value:g}" if isinstance(value, float) else schedule_note.one_line(str(value))
    return text if len(text) <= LONG else f"{text[:LONG]}…"
