"""The topic as code: made once, compared with the real one (issue 6 section 1)."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from contracts import topic as code
from contracts.topic import TopicError

COMMAND = Path(sys.executable).parent / "booking-expiration"


@pytest.fixture
def arguments(addresses: Mapping[str, str]) -> dict[str, str]:
    """How to reach the broker."""
    return {"bootstrap_servers": addresses["KAFKA_BOOTSTRAP_SERVERS"]}


async def test_a_topicis_made_once_and_as_written(arguments: dict[str, str]) -> None:
    """Issue 6 section 1: created, then left alone; on one broker only the copies are fewer than they should be."""
    name = f"test.{uuid4()}"
    assert [await code.create(arguments, name, replicas=1) for _ in range(2)] == ["created", "exists"]
    assert await code.differences(arguments, name) == ["replicas: 1, not 3", "min.insync.replicas: 1, not 2"]
    admin = AIOKafkaAdminClient(**arguments)
    await admin.start()
    await admin.delete_topics([name])
    await admin.close()


async def test_another_topicis_told_apart(arguments: dict[str, str], topic: str) -> None:
    """Issue 6 section 1: each figure that differs is named with both values."""
    found = await code.differences(arguments, topic)
    assert found[0] == "partitions: 3, not 6"
    assert "retention.ms: 604800000, not 1209600000" in found


async def test_no_topicand_no_broker(arguments: dict[str, str]) -> None:
    """Trap 33: a missing topic is said, and so is a broker that refuses or does not answer; nothing waits for ever."""
    [missing] = await code.differences(arguments, "test.nowhere")
    assert missing.startswith("there is no topic test.nowhere")
    with pytest.raises(TopicError):
        await code.create(arguments, f"test.{uuid4()}", replicas=5)
    with pytest.raises(TopicError):
        await code.differences({"bootstrap_servers": "127.0.0.1:1"}, "test.nowhere")


async def test_the_command(addresses: Mapping[str, str], topic: str) -> None:
    """Issue 6 section 1: `contract topic check` ends with 1 where the topic differs, and prints one line for each figure."""
    ours = {"KAFKA_BOOTSTRAP_SERVERS": addresses["KAFKA_BOOTSTRAP_SERVERS"], "BOOKING_EXPIRATION_TOPIC": topic}
    process = await asyncio.create_subprocess_exec(COMMAND, "contract", "topic", "check", env={**os.environ, **ours}, stdout=-1)
    printed, _ = await process.communicate()
    assert process.returncode == 1
    assert printed.decode().startswith(f"topic {topic}: partitions: 3, not 6\n")


async def test_the_command_as_json(addresses: Mapping[str, str], topic: str) -> None:
    """Issue 4 section 4, `--json` everywhere: what `create` did, and how the topic differs, as data."""
    ours = {"KAFKA_BOOTSTRAP_SERVERS": addresses["KAFKA_BOOTSTRAP_SERVERS"], "BOOKING_EXPIRATION_TOPIC": topic}
    answers = []
    for command in ("create", "check"):
        process = await asyncio.create_subprocess_exec(
            COMMAND, "contract", "topic", command, "--json", env={**os.environ, **ours}, stdout=-1
        )
        answers.append((json.loads((await process.communicate())[0]), process.returncode))
    (created, code_of_create), (checked, code_of_check) = answers
    assert (created, code_of_create, code_of_check) == ({"topic": topic, "change": "exists"}, 0, 1)
    assert (checked["topic"], checked["ok"], checked["differences"][0]) == (topic, False, "partitions: 3, not 6")
