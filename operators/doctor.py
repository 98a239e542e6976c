"""`booking-expiration doctor`: is everything that the job needs there, and as it should be?"""

import asyncio
import dataclasses
import logging
from collections import Counter
from collections.abc import Coroutine, Iterator
from typing import Any, Final

import typer
from rich.text import Text

from activities.schedule_note import one_line
from db import server
from operators import frame
from operators.checks import clocks, database, kafka, settings, temporal
from operators.checks.finding import Finding, State, within_limit
from operators.checks.places import Places
from operators.frame import Json

STYLES: Final = {State.OK: "green", State.WARN: "yellow", State.FAIL: "bold red"}


def doctor(*, as_json: Json = False) -> None:
    """Check settings, connections, rights, migrations, schedule, topic and clocks; exit code 1 when something fails."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it repeats an unreachable broker; the finding says it once
    findings = frame.run(examined())
    failed = any(finding.state is State.FAIL for finding in findings)
    if as_json:
        frame.print_json({"ok": not failed, "findings": [dataclasses.asdict(finding) for finding in findings]})
    else:
        _print(findings)
    if failed:
        raise typer.Exit(1)


async def examined() -> list[Finding]:
    """All findings, in the order in which a person would look; every check runs at once and within its limit."""
    places = Places()
    try:
        return await asyncio.gather(*(within_limit(check, work) for check, work in _checks(places)))
    finally:
        await places.close()


def _checks(places: Places) -> Iterator[tuple[str, Coroutine[Any, Any, Finding]]]:
    operator, worker = "BOOKING_EXPIRATION_OPERATOR_DATABASE_URL", "DATABASE_URL"
    yield "settings", settings.operators(places)
    yield "worker's settings", settings.workers(places)
    yield "Temporal's settings", settings.temporals(places)
    yield "database", database.connection(places.database, "database", server.OPERATOR, operator)
    yield "database's TLS", settings.database_tls(places.database, "database's TLS")
    if places.worker.value:
        yield "worker's database", database.connection(places.workers_database, "worker's database", server.WORKER, worker)
        yield "worker's database's TLS", settings.database_tls(places.workers_database, "worker's database's TLS")
    yield "roles", database.roles(places)
    yield "grants", database.grants(places)
    yield "migrations", database.applied_migrations(places)
    yield "Temporal", temporal.connection(places)
    yield "Temporal's TLS", settings.temporal_tls(places)
    yield "search attributes", temporal.attributes(places)
    yield "schedule", temporal.schedule_code(places)
    yield "schedule fires", temporal.schedule_fires(places)
    yield "phases", database.phases(places)
    yield "workers", temporal.workers(places)
    yield "Kafka", kafka.connection(places)
    yield "Kafka's TLS", settings.kafka_tls(places)
    yield "topic", kafka.the_topic(places)
    yield "clocks", clocks.clocks(places)


def _print(findings: list[Finding]) -> None:
    for finding in findings:
        line = Text.assemble(
            (f"{finding.state:<5} ", STYLES[finding.state]), (f"{finding.check}: ", "bold"), one_line(finding.what)
        )
        frame.console.print(line, soft_wrap=True)
        if finding.todo:
            frame.console.print(Text(f"      → {one_line(finding.todo)}"), soft_wrap=True)
    counts = Counter(finding.state for finding in findings)
    frame.console.print(", ".join(f"{counts[state]} {state}" for state in State), highlight=False)
