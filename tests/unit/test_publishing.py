"""What publishing decides without a broker: bytes, partitions, options (D10, D12, traps 30 and 32)."""

import json
from typing import NamedTuple

import pytest
from aiokafka.partitioner import DefaultPartitioner
from hypothesis import given
from hypothesis import strategies as st

import kafka_producer
from publishing import KafkaOptions, Publisher, Rejected, Unavailable, _encode


class Record(NamedTuple):
    """One record to send."""

    headers: str = '{"ce_id": "1"}'
    payload: bytes = b"{}"
    key: str = "b0000000-0000-0000-0000-000000000001"
    topic: str = "pin.crm.booking-expired.v1"


@given(key=st.binary(max_size=80), partitions=st.integers(1, 60))
def test_keys_go_where_kafkas_own_default_puts_them(key: bytes, partitions: int) -> None:
    """D12: a booking's partition is the one every Kafka client computes from its key."""
    assert kafka_producer.partition_of(key, partitions) == DefaultPartitioner()(key, list(range(partitions)), [])


def test_headers_are_bytes_in_the_order_of_the_record() -> None:
    """D11, D12: a duplicate has its headers in the same order, because the order is the stored one."""
    wire = _encode(Record(headers='{"ce_id": "7", "b": "é", "a": ""}'), 1000)
    assert not isinstance(wire, Rejected)
    assert wire.headers == [("ce_id", b"7"), ("b", "é".encode()), ("a", b"")]


@pytest.mark.parametrize("headers", ['{"a": 1}', '{"a": null}', "[]", '"text"', "{", '{"a": "\\ud800"}'])
def test_headers_that_are_not_text_are_rejected(headers: str) -> None:
    """D10: a record with bad encoding can never be taken, and says so before it reaches the producer."""
    assert isinstance(_encode(Record(headers=headers), 1000), Rejected)


@pytest.mark.parametrize("part", ["headers", "payload", "key"])
def test_size_counts_key_value_and_headers(part: str) -> None:
    """Trap 32: the size is checked before sending, whichever part makes the record too large."""
    big = {"headers": json.dumps({"h": "x" * 1000}), "payload": b"x" * 1000, "key": "x" * 1000}
    assert not isinstance(_encode(Record(), 1000), Rejected)
    record = Record(**{part: big[part]})  # type: ignore[arg-type] # each of its own kind
    wire = _encode(record, 1000)
    assert isinstance(wire, Rejected)
    assert "more than the 1000" in wire.reason


@pytest.mark.parametrize("topic", ["", "a b", "x" * 250, "tö"])
def test_a_topic_that_cannot_exist_is_rejected(topic: str) -> None:
    """D10: no broker can have a topic of such a name, so it is the record's fault and not an outage."""
    assert isinstance(_encode(Record(topic=topic), 1000), Rejected)


async def test_no_time_left_sends_nothing() -> None:
    """D9: a claim that was held up until its send deadline is not sent any more, and costs no connection."""
    publisher = Publisher(KafkaOptions(bootstrap_servers="127.0.0.1:1"))
    [outcome] = await publisher.send([Record()], timeout=0)
    assert isinstance(outcome, Unavailable)
    assert publisher.last_error is None


def test_options_never_show_the_password() -> None:
    """Issue 3, section 8: secrets never appear in repr."""
    word = "open sesame"
    options = KafkaOptions(bootstrap_servers="k:9092", security_protocol="SASL_PLAINTEXT", sasl_username="u", sasl_password=word)
    assert word not in repr(options)
    assert options.arguments()["sasl_plain_password"] == word


def test_tls_verifies_the_broker_and_needs_its_files() -> None:
    """Trap 30: TLS checks certificate and host name; a missing file is said at start."""
    context = KafkaOptions(bootstrap_servers="k:9092", security_protocol="SSL").arguments()["ssl_context"]
    assert context.check_hostname
    assert context.verify_mode.name == "CERT_REQUIRED"
    with pytest.raises(OSError, match=r"ca\.pem|No such file"):
        KafkaOptions(bootstrap_servers="k:9092", security_protocol="SSL", ssl_cafile="/nowhere/ca.pem").arguments()
