"""`booking-expiration contract …`: the contract's test kit for consumers, and the topic as code."""

import asyncio
import json
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer

import connections
from contracts import checking, topic, wire
from contracts.samples import samples
from settings import KafkaSettings, load_model

T = TypeVar("T")
app = typer.Typer(no_args_is_help=True, help="The event's contract: samples, a checker, and the topic.")
topic_app = typer.Typer(no_args_is_help=True, help="The topic as code.")
app.add_typer(topic_app, name="topic")

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text for people.")]


@app.command("samples")
def samples_(*, only: Annotated[str, typer.Option("--only", help="Only the sample of this name.")] = "") -> None:
    """Print records that a consumer must be able to meet, one JSON object a line, with what it should do about each."""
    chosen = [sample for sample in samples() if only in ("", sample.name)]
    if not chosen:
        _fail(f"there is no sample {only!r}; there are: {', '.join(sample.name for sample in samples())}")
    for sample in chosen:
        typer.echo(wire.dump(sample.record, name=sample.name, about=sample.about, expect=sample.expect))


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="Records as `contract samples` prints them; - for standard input.")],
    *,
    as_json: Json = False,
) -> None:
    """Say what is wrong with a record, by the contract; exit code 1 if anything is."""
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
        records = wire.load(text)
    except (OSError, ValueError) as error:
        _fail(str(error))
    if not records:
        _fail(f"{file} holds no record: `contract samples` prints some")
    found = [(name, checking.problems(record)) for name, record in records]
    ok = not any(problems for _, problems in found)
    lines = [f"{name}: {line}" for name, problems in found for line in problems or ["ok"]]
    data = {"ok": ok, "records": [{"name": name, "problems": problems} for name, problems in found]}
    _say(data, lines, as_json=as_json)
    if not ok:
        raise typer.Exit(1)


@topic_app.command()
def create(
    *, replicas: Annotated[int, typer.Option(min=1, help="Replicas of each partition.")] = topic.REPLICAS, as_json: Json = False
) -> None:
    """Make the topic unless it is there."""
    settings = load_model(KafkaSettings)
    change = _run(topic.create(connections.kafka(settings).arguments(), settings.topic, replicas))
    _say({"topic": settings.topic, "change": change}, [f"topic {settings.topic}: {change}"], as_json=as_json)


@topic_app.command("check")
def check_topic(*, as_json: Json = False) -> None:
    """Say how the real topic differs from the code; exit code 1 if it does."""
    settings = load_model(KafkaSettings)
    found = _run(topic.differences(connections.kafka(settings).arguments(), settings.topic))
    lines = [f"topic {settings.topic}: {line}" for line in found or ["ok"]]
    _say({"topic": settings.topic, "ok": not found, "differences": found}, lines, as_json=as_json)
    if found:
        raise typer.Exit(1)


def _run(work: Coroutine[Any, Any, T]) -> T:
    try:
        return asyncio.run(work)
    except (topic.TopicError, OSError) as error:
        _fail(f"Kafka: {error}")


def _say(data: dict[str, Any], lines: list[str], *, as_json: bool) -> None:
    typer.echo(json.dumps(data, indent=2, ensure_ascii=False) if as_json else "\n".join(lines))


def _fail(message: str) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(1)
