"""Apache Kafka: one KRaft node; where there is no Maven, an emulator with a loud notice (D20)."""

import asyncio
import contextlib
import logging
import os
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError

from contracts import topic
from devstack import kafka_jars, ports
from devstack.errors import StackError
from devstack.launcher import Launcher
from devstack.schema import program

PREFERRED_PORTS: Final = (9092,)
TOPIC: Final = "pin.crm.booking-expired.v1"
_JVM: Final = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
_PROPERTIES: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
num.partitions=1
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""
NOTICE: Final = """\
  ************************************************************************************
  ** NOT REAL KAFKA: there is no Maven on the PATH, so an emulator stands in for it.  **
  ** Good enough to look around; install Maven for Apache Kafka, or name a broker     **
  ** in KAFKA_BOOTSTRAP_SERVERS.                                                      **
  ************************************************************************************"""


def start(
    launcher: Launcher, folder: Path, logs: Path, *, cache: Path, preferred: bool, durable: bool, say: Callable[[str], None]
) -> str:
    """Start a broker, make the topic, and return the bootstrap address."""
    port = ports.choose(*(PREFERRED_PORTS if preferred else ()))
    if libs := kafka_jars.jars(launcher, cache, logs, say):
        _start_apache(launcher, libs, folder, logs, port=port, durable=durable)
    elif os.environ.get("CI") == "true":
        raise StackError("CI tests against real Apache Kafka only: install Maven (mvn), or set KAFKA_BOOTSTRAP_SERVERS")
    else:
        say(NOTICE)
        _start_emulator(launcher, folder, logs, port=port)
    return f"{ports.HOST}:{port}"


def _start_apache(launcher: Launcher, libs: Path, folder: Path, logs: Path, *, port: int, durable: bool) -> None:
    log, data, properties = logs / "kafka.log", folder / "kafka", folder / "kafka.properties"
    properties.write_text(_PROPERTIES.format(host=ports.HOST, port=port, controller=ports.choose(), data=data))
    java = [kafka_jars.java(), *_JVM, "-cp", f"{libs}/*"]
    if not (data / "meta.properties").exists():
        # The first byte keeps the id from starting with "-", which the tool would take for an option.
        cluster = urlsafe_b64encode(b"k" + secrets.token_bytes(15)).decode().rstrip("=")
        form = [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)]
        launcher.run("Formatting Kafka's storage", form, log, seconds=60)
    process = launcher.start(
        [*java, "kafka.Kafka", str(properties)], log, stop="SIGTERM=10,SIGKILL=5" if durable else "SIGKILL=5"
    )
    launcher.wait_until(lambda: _has_topic(port), "Apache Kafka", log, seconds=60, process=process)


def _start_emulator(launcher: Launcher, folder: Path, logs: Path, *, port: int) -> None:
    log = logs / "kafka-emulator.log"
    command = [program("noida-db"), "start", "--only", "kafka", "--kafka-port", str(port), "--data-dir", str(folder / "noida")]
    process = launcher.start(command, log, stop="SIGTERM=5,SIGKILL=5")
    launcher.wait_until(lambda: _has_topic(port), "The Kafka emulator", log, seconds=30, process=process)


def _has_topic(port: int) -> bool:
    """Make the topic unless it is there; False while the broker cannot yet."""
    if not ports.answers(port):
        return False
    with _quiet():
        return asyncio.run(_make_topic(f"{ports.HOST}:{port}"))


async def _make_topic(address: str) -> bool:
    admin = AIOKafkaAdminClient(bootstrap_servers=address, request_timeout_ms=5_000)
    try:
        await admin.start()
        configuration = {**topic.CONFIGURATION, "min.insync.replicas": "1"}  # there is one broker
        answer = await admin.create_topics([NewTopic(TOPIC, topic.PARTITIONS, 1, topic_configs=configuration)])
    except (KafkaError, OSError):
        return False
    finally:
        await admin.close()
    return all(error[1] in (0, TopicAlreadyExistsError.errno) for error in answer.topic_errors)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """A broker that is not up yet is what we wait for, not something to log."""
    logger = logging.getLogger("aiokafka")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
