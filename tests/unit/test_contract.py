"""One contract: the files in contracts/, the producer's bytes, the checker and the consumer's reader agree (A6, D12, issue 6)."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import cli
import publishing
from chessboard.record import Record, Refusal, parse
from contracts import checking, topic, wire
from contracts.samples import APPLY, IGNORE, SET_ASIDE, samples
from contracts.wire import Wire
from domain.events import BookingExpired, Phase, headers, payload, wire_time
from tests.unit.test_architecture import ROOT
from tests.unit.test_events import GOLDEN_HEADERS, GOLDEN_PAYLOAD

FOLDER = ROOT / "contracts"
DOCUMENT: dict[str, Any] = yaml.safe_load((FOLDER / "asyncapi.yaml").read_text(encoding="utf-8"))
MESSAGE: dict[str, Any] = DOCUMENT["components"]["messages"]["bookingExpired"]
CHANNEL: dict[str, Any] = DOCUMENT["channels"]["bookingExpired"]
FORMATS = jsonschema.FormatChecker(formats=())
SAMPLES = [pytest.param(sample, id=sample.name) for sample in samples()]
GOOD = next(samples()).record
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda some: st.lists(some, max_size=2), max_leaves=3
)


@FORMATS.checks("date-time", raises=ValueError)  # the library's own needs a package more
def exists(value: object) -> bool:
    """Whether there is such a moment; the pattern has judged the spelling."""
    return not isinstance(value, str) or bool(datetime.fromisoformat(value))


def schema(part: str) -> Any:
    """A validator of the payload or the headers."""
    text = (FOLDER / f"booking-expired.v1.{part}.schema.json").read_text(encoding="utf-8")
    return jsonschema.Draft202012Validator(json.loads(text), format_checker=FORMATS)


PAYLOAD, HEADERS = schema("payload"), schema("headers")


def read(record: Wire) -> Any:
    """The record as the chessboard reads it."""
    return parse(Record(checking.TYPE, 0, 0, 0, record.key, record.value, record.headers), checking.TYPE)


def with_fields(fields: dict[str, Any]) -> Wire:
    """A record with these fields, and a key and headers that suit them."""
    kept = [pair for pair in GOOD.headers if pair[0] not in ("ce_subject", "ce_time")]
    again = {"ce_subject": fields.get("BookingId"), "ce_time": fields.get("ExpiredAt")}
    suiting = [(name, str(value).encode()) for name, value in again.items()]
    return Wire(str(fields.get("BookingId")).encode(), json.dumps(fields).encode(), (*kept, *suiting))


@st.composite
def changed(draw: st.DrawFn) -> dict[str, Any]:
    """The fields of a good record with one of them left out, replaced, or altered in a character or two."""
    fields: dict[str, Any] = json.loads(GOOD.value or b"")
    name = draw(st.sampled_from([*fields, "More"]))
    text = str(fields.get(name, ""))
    start = draw(st.integers(0, len(text)))
    cut = text[:start] + draw(st.text("0123456789abcfABCF-:.TZ+\n é٣", max_size=2)) + text[start + draw(st.integers(0, 2)) :]
    fields[name] = draw(st.just(cut) | ANYTHING)
    if draw(st.booleans()):
        return fields
    return {key: value for key, value in fields.items() if key != name}


def test_the_document_and_its_schemas_fit_together() -> None:
    """Issue 6 section 1: each reference of the AsyncAPI document names a schema, and all examples are valid."""
    for part, validator in (("headers", HEADERS), ("payload", PAYLOAD)):
        assert MESSAGE[part]["schema"]["$ref"] == f"./booking-expired.v1.{part}.schema.json"
        assert MESSAGE[part]["schemaFormat"].endswith("draft-2020-12")
        validator.check_schema(validator.schema)
        for example in [*validator.schema["examples"], *(each[part] for each in MESSAGE["examples"])]:
            validator.validate(example)


def test_the_document_is_about_this_topic() -> None:
    """D12: address, type and topic are one name, and the figures are those that the topic is made with."""
    bindings = CHANNEL["bindings"]["kafka"]
    assert {CHANNEL["address"], bindings["topic"], HEADERS.schema["properties"]["ce_type"]["const"]} == {checking.TYPE}
    assert (bindings["partitions"], bindings["replicas"]) == (topic.PARTITIONS, topic.REPLICAS)
    configuration = {
        key: ",".join(each) if isinstance(each, list) else str(each) for key, each in bindings["topicConfiguration"].items()
    }
    assert configuration == topic.CONFIGURATION


def test_the_producers_golden_record_is_valid() -> None:
    """D12: the bytes that the producer's tests pin are what the contract says, and the schema has exactly these fields."""
    HEADERS.validate(GOLDEN_HEADERS)
    PAYLOAD.validate(json.loads(GOLDEN_PAYLOAD))
    assert list(json.loads(GOLDEN_PAYLOAD)) == PAYLOAD.schema["required"] == list(PAYLOAD.schema["properties"])
    assert set(GOLDEN_HEADERS) == set(HEADERS.schema["required"])


def test_the_published_golden_record_is_valid() -> None:
    """D12: so is the record that the publishing test reads back from a real broker."""
    [(_, record)] = wire.load((ROOT / "tests" / "golden" / "wire_record_v1.json").read_text(encoding="utf-8"))
    assert checking.problems(record) == []
    assert not isinstance(read(record), Refusal)


@given(
    st.lists(st.uuids(), min_size=5, max_size=5),
    st.sampled_from(Phase),
    st.integers(0, 4 * 10**15).map(lambda since: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=since)),
)
def test_whatever_the_producer_makes_is_valid(ids: list[UUID], phase: Phase, at: datetime) -> None:
    """A6, D12: for every event, schemas, checker and the consumer's reader accept what the producer writes."""
    event = BookingExpired(ids[0], ids[1], ids[2], ids[3], phase, at, "", "", 2)
    written = headers(ids[4], event.booking_id, at, topic=checking.TYPE, correlation_id="run")
    record = Wire(str(ids[0]).encode(), payload(event), tuple((name, value.encode()) for name, value in written.items()))
    HEADERS.validate(written)
    PAYLOAD.validate(json.loads(payload(event)))
    assert checking.problems(record) == []
    understood = read(record)
    assert (understood.event_id, understood.object_id, wire_time(understood.expired_at)) == (ids[4], ids[3], wire_time(at))


@pytest.mark.parametrize("sample", SAMPLES)
def test_samples(sample: Any) -> None:
    """Issue 6 section 1: the consumer sets aside exactly the samples it should, and a record that is applied has no problem."""
    assert isinstance(read(sample.record), Refusal) == (sample.expect == SET_ASIDE)
    assert (checking.problems(sample.record) == []) == (sample.expect in (APPLY, IGNORE))


@given(changed())
def test_reader_checker_and_schema_agree_on_the_payload(fields: dict[str, Any]) -> None:
    """D12, D17: neither the consumer nor the checker is stricter or more lenient than the schema."""
    record = with_fields(fields)
    valid = PAYLOAD.is_valid(fields)
    assert (not isinstance(read(record), Refusal)) == valid
    assert (checking.problems(record) == []) == valid


@given(st.sampled_from([*GOLDEN_HEADERS, "traceparent", "other"]), st.none() | st.text("01-aZ:é.", max_size=56))
def test_checker_and_schema_agree_on_the_headers(name: str, value: str | None) -> None:
    """D12: one header left out or replaced: the checker says what the schema says."""
    kept = {key: (each or b"").decode() for key, each in GOOD.headers if key != name}
    given_headers = kept if value is None else {**kept, name: value}
    record = GOOD._replace(headers=tuple((key, each.encode()) for key, each in given_headers.items()))
    assert (checking.problems(record) == []) == HEADERS.is_valid(given_headers)


def test_the_checker_compares_what_is_said_twice() -> None:
    """D12: subject and time repeat the payload; no header is there twice."""
    other = Wire(GOOD.key, GOOD.value, (*GOOD.headers, ("ce_subject", b"b0000000-0000-4000-8000-000000000099")))
    assert checking.problems(other) == ["header ce_subject is there twice", "header ce_subject must be the BookingId"]


def test_samples_can_be_checked(tmp_path: Path) -> None:
    """Issue 6 section 1: what `contract samples` prints `contract check` reads back, line by line, and says what is wrong."""
    printed = CliRunner().invoke(cli.app, ["contract", "samples"])
    (tmp_path / "records").write_text(printed.output)
    checked = CliRunner().invoke(cli.app, ["contract", "check", str(tmp_path / "records")])
    assert (printed.exit_code, checked.exit_code) == (0, 1)
    said = dict(line.split(": ", 1) for line in checked.output.splitlines())
    assert {name for name, line in said.items() if line == "ok"} == {s.name for s in samples() if s.expect != SET_ASIDE}
    assert said["future version"] == "header ContractVersion is '2', and must be 1"


def test_the_check_as_json(tmp_path: Path) -> None:
    """Issue 4 section 4, `--json` everywhere: the same as data: whether all is well, and each record's problems."""
    printed = CliRunner().invoke(cli.app, ["contract", "samples"])
    (tmp_path / "records").write_text(printed.output)
    checked = CliRunner().invoke(cli.app, ["contract", "check", str(tmp_path / "records"), "--json"])
    answer = json.loads(checked.output)
    problems = {record["name"]: record["problems"] for record in answer["records"]}
    assert (checked.exit_code, answer["ok"]) == (1, False)
    assert {name for name, found in problems.items() if not found} == {s.name for s in samples() if s.expect != SET_ASIDE}


@pytest.mark.parametrize(
    "text", ["", "nonsense", "[1]", '{"value": "x"}', '{"value": 1, "headers": []}', '{"value":"x","headers":1}']
)
def test_a_file_that_holds_no_record(tmp_path: Path, text: str) -> None:
    """Issue 6 section 1: exit code 1 and a sentence, never a traceback and never "ok"."""
    (tmp_path / "records").write_text(text)
    checked = CliRunner().invoke(cli.app, ["contract", "check", str(tmp_path / "records")])
    assert (checked.exit_code, "ok" in checked.output) == (1, False)
    assert isinstance(checked.exception, SystemExit)


def test_every_record_fits_into_the_topic() -> None:
    """Trap 32: the broker's limit is above what the worker sends at most."""
    assert int(topic.CONFIGURATION["max.message.bytes"]) > publishing.MAX_RECORD_BYTES
