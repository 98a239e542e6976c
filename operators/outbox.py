"""`booking-expiration outbox …`: events that are still to go out, or that Kafka refused, and what to do with those."""

import json
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
from rich.table import Table
from rich.text import Text

from db import outbox, outbox_reading, server
from db.outbox_reading import Filter, State, Unfinished, Whole
from db.reading import reading
from db.unit_of_work import UnitOfWork
from operators import arguments, frame, spreading, words
from operators.frame import Json, Reason
from settings import OperatorSettings

MOST: Final = 10_000
"""Records that one command lists or requeues at most."""

app = typer.Typer(no_args_is_help=True, help="The events that wait for Kafka, and those that were set aside.")

Topic = Annotated[str | None, typer.Option("--topic", help="Only of this topic.")]
Tenant = Annotated[str | None, typer.Option("--tenant", metavar="ID", help="Only of this tenant.")]
OlderThan = Annotated[str | None, typer.Option("--older-than", metavar="TIME", help="Only those that wait for longer: 10m, 2h.")]
Error = Annotated[str | None, typer.Option("--error", metavar="TEXT", help="Only parked ones whose reason contains this text.")]
Which = Annotated[
    bool | None, typer.Option("--parked/--unpublished", help="Only those set aside, or only those that go out by themselves.")
]
Limit = Annotated[int | None, typer.Option("--limit", help="At most so many records.")]
Ids = Annotated[list[str] | None, typer.Argument(metavar="ID…", help="Ids of parked records.")]
AllParked = Annotated[bool, typer.Option("--parked", help="Instead of ids: parked ones, up to --limit.")]
Over = Annotated[str | None, typer.Option("--over", metavar="TIME", help="Spread over this time: 10m.")]


@app.command("list")
def list_(
    *, topic: Topic = None, tenant: Tenant = None, older_than: OlderThan = None, error: Error = None, parked: Which = None,
    limit: Limit = None, as_json: Json = False,
) -> None:  # fmt: skip
    """List records that are neither published nor given up: parked ones first, each kind oldest first."""
    wanted = _filter(None if parked is None else "parked" if parked else "waiting", topic, tenant, older_than, error)
    most = arguments.between(50 if limit is None else limit, 1, MOST, "--limit")
    found, at = frame.run(_find(frame.settings(), wanted, most))
    if as_json:
        frame.print_json({"at": words.plain(at), "records": words.plain(found), "limit": most})
    else:
        frame.console.print(_list(found, at) if found else Text("No such record waits, and none is set aside."))
        if len(found) == most:
            frame.console.print(Text(f"There may be more than these {most:,}: --limit, or a filter.", style="dim"))


def _filter(state: State | None, topic: str | None, tenant: str | None, older_than: str | None, error: str | None) -> Filter:
    return Filter(
        state=state,
        topic=topic,
        tenant=None if tenant is None else arguments.identifier(tenant, "--tenant"),
        older_than=None if older_than is None else arguments.span(older_than, "--older-than"),
        error=error,
    )


async def _find(given: OperatorSettings, wanted: Filter, limit: int) -> tuple[list[Unfinished], Any]:
    async with frame.database(given) as pool, reading(pool) as connection:
        return await outbox_reading.find(connection, wanted, limit), await server.clock(connection)


def _list(found: Sequence[Unfinished], at: Any) -> Table:
    table = frame.table("id", "waits for", "attempts", "booking", "topic", "state", whole=("id", "booking"))
    for each in found:
        state = f"parked: {each.park_reason}" if each.parked_at else "waits"
        if each.claimed_until and each.claimed_until > at:
            state = f"being sent, until {words.moment(each.claimed_until)}"
        table.add_row(
            str(each.id),
            words.age(at - each.recorded_at),
            str(each.attempts),
            Text(str(each.booking_id)),
            Text(each.topic),
            Text(state),
        )
    return table


@app.command()
def show(record: Annotated[str, typer.Argument(metavar="ID", help="The record's id.")], *, as_json: Json = False) -> None:
    """Show everything about one record: headers, payload, attempts, lease, and what waits behind it."""
    found = frame.run(_show(frame.settings(), arguments.record_id(record)))
    if as_json:
        frame.print_json(words.plain(found))
    else:
        frame.console.print(_whole(found))


async def _show(given: OperatorSettings, record_id: int) -> Whole:
    async with frame.database(given) as pool, reading(pool) as connection:
        return await outbox_reading.show(connection, record_id)


def _whole(found: Whole) -> Table:
    table = frame.table("outbox record", str(found.id))
    for name, value in words.plain(found).items():
        text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else "" if value is None else str(value)
        if name != "id":
            table.add_row(name.replace("_", " "), Text(text))
    return table


@app.command()
def requeue(
    ids: Ids = None, *, reason: Reason, parked: AllParked = False, topic: Topic = None, tenant: Tenant = None,
    older_than: OlderThan = None, error: Error = None, limit: Limit = None, over: Over = None, as_json: Json = False,
) -> None:  # fmt: skip
    """Let publishers try parked records again: these ids, or --parked with a --limit. Their bookings' later events follow."""
    why, seconds = arguments.reason(reason), 0.0 if over is None else arguments.span(over, "--over").total_seconds()
    if bool(ids) == parked:
        arguments.refuse(
            "requeue: give ids, or --parked --limit N; for example booking-expiration outbox requeue 42 --reason WHY"
        )
    wanted = _filter("parked", topic, tenant, older_than, error)
    if ids and (wanted != Filter(state="parked") or limit is not None):
        arguments.refuse("filters and --limit go with --parked; ids are requeued as they are given")
    if parked and limit is None:
        arguments.refuse(
            "--parked needs --limit N, the most that may go out; `booking-expiration outbox list --parked` shows them"
        )
    given = frame.settings()
    if ids:
        done = frame.run(spreading.ids(given, _record_ids(ids), why, seconds))
    else:
        most = arguments.between(limit or 0, 1, MOST, "--limit")
        done = frame.run(spreading.parked(given, wanted, most, why, seconds))
    _say_requeued(done, as_json=as_json)


def _record_ids(ids: Sequence[str]) -> list[int]:
    wanted = sorted({arguments.record_id(each) for each in ids})
    if len(wanted) > MOST:
        arguments.refuse(f"requeue: {len(wanted):,} ids are more than {MOST:,}; give them in parts, or --parked --limit N")
    return wanted


def _say_requeued(done: spreading.Requeued, *, as_json: bool) -> None:
    if as_json:
        frame.print_json(words.plain(done))
    else:
        gone = f"; {done.gone:,} were parked no more" if done.gone else ""
        left = f"; stopped: {done.left:,} stay parked" if done.left else ""
        typer.echo(f"requeued {words.number(done.requeued, 'record')}{gone}{left}")
    if done.stopped:
        raise typer.Exit(130)


@app.command()
def skip(
    record: Annotated[str, typer.Argument(metavar="ID", help="The record's id.")], *, reason: Reason,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Give a record up for good: it is never published, and nobody downstream hears of it."""
    given, record_id, why = frame.settings(), arguments.record_id(record), arguments.reason(reason)
    found = frame.run(_show(given, record_id))
    lost = _lost(found)
    if not yes and found.published_at is None and found.skipped_at is None:
        frame.say(lost, "This cannot be taken back.", err=True)
        typer.confirm("Give it up?", abort=True, err=True)
    frame.run(_skip(given, record_id, why))
    if as_json:
        frame.print_json(
            {"skipped": record_id, "event_id": str(found.event_id), "booking_id": str(found.booking_id), "lost": lost}
        )
    else:
        frame.say(f"skipped outbox record {record_id}. {lost}")


async def _skip(given: OperatorSettings, record_id: int, reason: str) -> None:
    async with frame.database(given) as pool, UnitOfWork(pool) as connection:
        await outbox.skip(connection, record_id, frame.actor(), reason)


def _lost(found: Whole) -> str:
    """What downstream will never hear, in one sentence."""
    try:
        payload = json.loads(found.payload)
        object_id, phase = payload["PropertyObjectId"], payload["Phase"]
    except (ValueError, KeyError, TypeError):  # a foreign row
        object_id, phase = "unknown", "unknown"
    behind = (
        f" {words.number(found.waiting_behind, 'later record')} of this booking go on without it." if found.waiting_behind else ""
    )
    return (
        f"Consumers of {found.topic} never hear of event {found.event_id}: that booking {found.booking_id} ({phase}) expired at "
        f"{words.moment(found.occurred_at)}; object {object_id} stays taken until somebody frees it by hand.{behind}"
    )
