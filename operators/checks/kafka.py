"""`doctor`: Kafka. Whether a broker answers, and whether the topic keeps what the worker sends (docs/contract.md)."""

from typing import Final

from contracts import topic
from contracts.topic import Found, TopicError
from operators.checks.finding import Finding, NotLookedAtError, State
from operators.checks.places import Places

CREATE: Final = "booking-expiration contract topic create"
CONTRACT: Final = (
    "let the cluster's owner change it; the topic as it should be: docs/contract.md, booking-expiration contract topic check"
)


async def connection(places: Places) -> Finding:
    """Whether a broker answers."""
    try:
        await places.topic.there()
    except (TopicError, OSError, TimeoutError) as error:
        todo = "see whether the brokers are up, and KAFKA_BOOTSTRAP_SERVERS; expiry goes on meanwhile, events wait in the outbox"
        return Finding("Kafka", State.FAIL, str(error) or "no answer", todo)
    return Finding("Kafka", State.OK, "connected")


async def the_topic(places: Places) -> Finding:
    """Whether the topic is there and is as the contract has it."""
    found = await places.topic.needed()
    if places.kafka.value is None:
        raise NotLookedAtError("how to reach Kafka is not set here")
    return judged(places.kafka.value.topic, found)


def judged(name: str, found: Found | str) -> Finding:
    """What is wrong with the topic: FAIL where events cannot go out or would be lost in the topic, else a warning.

    The worker sends with acks=all: an event is acknowledged when `min.insync.replicas` brokers have it.
    """
    if isinstance(found, str):
        return Finding("topic", State.FAIL, found, CREATE)
    least = int(found.configuration.get("min.insync.replicas", "1"))
    if found.in_sync < least:
        what = f"{name}: min.insync.replicas is {least}, and a partition has {found.in_sync} of {found.replicas} replicas in sync"
        return Finding("topic", State.FAIL, f"{what}: with acks=all nothing can be sent there", CONTRACT)
    if "compact" in (policy := found.configuration.get("cleanup.policy", "")):
        what = f"{name}: cleanup.policy is {policy}, so that a later event of a booking deletes the one before"
        return Finding("topic", State.FAIL, what, CONTRACT)
    wrong = topic.compared(found)
    if found.replicas == least > 1:
        wrong.append(
            f"min.insync.replicas: {least} of {found.replicas} replicas, so that one broker that is away stops publishing"
        )
    if least == 1:
        wrong.append("an acknowledged event is on one broker alone, and lost with it")
    if wrong:
        return Finding("topic", State.WARN, f"{name}: {'; '.join(wrong)}", CONTRACT)
    return Finding("topic", State.OK, f"{name}: {found.partitions} partitions, {found.replicas} replicas, {least} acknowledge")
