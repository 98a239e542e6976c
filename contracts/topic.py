"""The topic as code: how it is made, and whether the real one is as it should be (docs/contract.md)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code

PARTITIONS: Final = 6
"""At most as many consumers of one group as this work at once. More partitions later would move keys and break their order."""

REPLICAS: Final = 3
CONFIGURATION: Final = {
    "cleanup.policy": "delete",  # every event counts, so a later one of the same booking must not replace it
    "retention.ms": "1209600000",  # 14 days: how long a consumer may be away
    "max.message.bytes": "1048588",  # the worker sends 1,000,000 at most
    "min.insync.replicas": "2",  # with acks=all an acknowledged record outlives one broker
}


class TopicError(Exception):
    """The broker refused; the message says what."""


async def create(arguments: dict[str, Any], name: str, replicas: int = REPLICAS) -> str:
    """Make the topic, or leave the one that is there; `created` or `exists`. Fewer replicas need fewer in sync.

    Raises `TopicError`, `KafkaError`, `OSError`.
    """
    configuration = {**CONFIGURATION, "min.insync.replicas": str(min(2, max(1, replicas - 1)))}
    async with _admin(arguments) as admin:
        answer = await admin.create_topics([NewTopic(name, PARTITIONS, replicas, topic_configs=configuration)])
    _, code, *text = answer.topic_errors[0]
    if code == TopicAlreadyExistsError.errno:
        return "exists"
    if code:
        raise TopicError(f"{for_code(code).__name__}: {text[0] if text and text[0] else for_code(code).description}")
    return "created"


@dataclass(frozen=True, slots=True)
class Found:
    """The topic as it is; `replicas` and `in_sync` of the partition that has the fewest."""

    partitions: int
    replicas: int
    in_sync: int
    configuration: dict[str, str]


async def read(arguments: dict[str, Any], name: str) -> Found | str:
    """The topic, or why it cannot be seen. Raises `TopicError`, `OSError` where no broker answers."""
    async with _admin(arguments) as admin:
        [topic] = await admin.describe_topics([name])
        if topic["error_code"]:
            return f"there is no topic {name}, or it may not be seen ({for_code(topic['error_code']).__name__})"
        [answer] = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
    partitions = topic["partitions"]
    return Found(
        partitions=len(partitions),
        replicas=min(len(partition["replicas"]) for partition in partitions),
        in_sync=min(len(partition["isr"]) for partition in partitions),
        configuration={entry[0]: entry[1] for entry in answer.resources[0][4]},
    )


async def differences(arguments: dict[str, Any], name: str) -> list[str]:
    """How the real topic differs from this file, one sentence each. Raises `TopicError`, `OSError`."""
    found = await read(arguments, name)
    return [f"{found}: create it"] if isinstance(found, str) else compared(found)


def compared(found: Found) -> list[str]:
    """The same for a topic that was read: each figure that differs, with both values."""
    wrong = [] if found.partitions == PARTITIONS else [f"partitions: {found.partitions}, not {PARTITIONS}"]
    wrong += [] if found.replicas >= REPLICAS else [f"replicas: {found.replicas}, not {REPLICAS}"]
    real = {key: found.configuration.get(key) for key in CONFIGURATION}
    return [*wrong, *(f"{key}: {value}, not {CONFIGURATION[key]}" for key, value in real.items() if value != CONFIGURATION[key])]


@asynccontextmanager
async def _admin(arguments: dict[str, Any]) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(**arguments, request_timeout_ms=10_000)
    try:
        await admin.start()
        yield admin
    except KafkaError as error:
        raise TopicError(str(error)) from error
    finally:
        await admin.close()
