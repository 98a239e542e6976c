"""Where the demo plays: on its own stack, or on servers of yours without touching anything that is yours.

Each piece whose address is given in the environment is used, and there the demo works in things of its own, which it makes and
removes: a database, a topic, a schedule with its task queue. What has run stays in Temporal's history, and the offsets of its
consumer group in Kafka, until their retention ends.
"""

import asyncio
import os
import secrets
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import asyncpg
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from temporalio.client import Client
from temporalio.service import RPCError

import connections
import settings as configuration
from contracts import topic as contract
from devstack import addresses, kafka, schema
from devstack.errors import StackError
from devstack.stack import ALL
from settings import Settings

BATCH_SIZE: Final = 200
_NEEDED: Final = (addresses.CRM, addresses.OPERATOR, addresses.CHESSBOARD, addresses.MIGRATION, addresses.ADMIN)


@dataclass(frozen=True, slots=True)
class Place:
    """The addresses of everything, and the settings that make the worker work there."""

    addresses: Mapping[str, str]
    settings: Settings

    @property
    def web_ui(self) -> str | None:
        """The Web UI's page of the namespace, if the Web UI's address is known."""
        ui = self.addresses.get(addresses.TEMPORAL_UI)
        return ui and f"{ui}/namespaces/{self.addresses[addresses.NAMESPACE]}"

    def url(self, name: str) -> str:
        """A role's database URL, by the name of its variable."""
        return self.addresses[name]

    async def temporal(self) -> Client:
        """A client as the worker has one."""
        return await connections.temporal(configuration.temporal())

    def kafka(self) -> dict[str, Any]:
        """Arguments for any aiokafka client."""
        return {**connections.kafka(self.settings).arguments(), "client_id": "demo"}


def parts() -> list[str]:
    """Which pieces the stack has to bring: those whose address is not given."""
    given = addresses.given()
    if addresses.DATABASE in given and (missing := [name for name in _NEEDED if name not in given]):
        raise StackError(
            f"DATABASE_URL is set: the demo then makes a database of its own on that server, and needs {', '.join(missing)} "
            "too. Or unset DATABASE_URL: the demo brings its own PostgreSQL"
        )
    return [part for part in ALL if addresses.PARTS[part] not in given]


@contextmanager
def prepared(found: Mapping[str, str], brought: list[str], who: str = "demo") -> Iterator[Place]:
    """The place, made ready; what was made on given servers is removed at the end. Raises `StackError`."""
    own = f"{who}-{secrets.token_hex(3)}"
    topic = kafka.TOPIC if "kafka" in brought else f"{kafka.TOPIC}.{own}"
    environment = dict(found) | {
        "BOOKING_EXPIRATION_BATCH_SIZE": str(BATCH_SIZE),
        "BOOKING_EXPIRATION_HTTP_PORT": "0",
        "BOOKING_EXPIRATION_LOG_LEVEL": "INFO",
        "BOOKING_EXPIRATION_TOPIC": topic,
        "CHESSBOARD_TOPIC": topic,
        "CHESSBOARD_GROUP": "chessboard" if "kafka" in brought else f"chessboard-{own}",
        "CHESSBOARD_HTTP_PORT": "0",
    }
    schedule_id = "booking-expiration" if "temporal" in brought else f"booking-expiration-{own}"
    environment |= dict.fromkeys(("BOOKING_EXPIRATION_SCHEDULE_ID", "BOOKING_EXPIRATION_TASK_QUEUE"), schedule_id)
    with ExitStack() as undo:
        if "postgres" not in brought:
            environment |= _database(found, f"booking_expiration_{own.replace('-', '_')}", undo)
        os.environ.update(environment)  # for the settings here and the worker's alike
        place = Place(environment, configuration.load())
        if "kafka" not in brought:
            _run("Kafka", _make_topic(place))
            undo.callback(_run, "Kafka", _delete_topic, place)
        if "temporal" not in brought:
            undo.callback(_run, "Temporal", _delete_schedule, place)
        yield place


def _database(found: Mapping[str, str], name: str, undo: ExitStack) -> dict[str, str]:
    """A database of its own with all roles' URLs."""
    admin = found[addresses.ADMIN]
    _run("PostgreSQL", _administer(admin, f"CREATE DATABASE {name}"))
    undo.callback(_run, "PostgreSQL", _administer, admin, f"DROP DATABASE {name} WITH (FORCE)")
    moved = {role: urlsplit(found[role])._replace(path=f"/{name}").geturl() for role in addresses.ROLES if role in found}
    schema.prepare(moved[addresses.ADMIN], moved[addresses.MIGRATION])
    return moved


def _run(what: str, work: Any, *arguments: Any) -> None:
    coroutine: Coroutine[Any, Any, None] = work(*arguments) if arguments else work
    try:
        asyncio.run(coroutine)
    except (OSError, TimeoutError, RuntimeError, RPCError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise StackError(f"the demo could not make or remove what it needs on your {what}: {error}") from error


async def _administer(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url, timeout=10)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def _make_topic(place: Place) -> None:
    admin = AIOKafkaAdminClient(**place.kafka())
    await admin.start()
    try:
        brokers = len((await admin.describe_cluster())["brokers"])
        answer = await admin.create_topics([NewTopic(place.settings.topic, contract.PARTITIONS, min(3, brokers))])
        if refused := [error for error in answer.topic_errors if error[1]]:
            raise OSError(f"topic {place.settings.topic} was refused: {refused[0]}")
    finally:
        await admin.close()


async def _delete_topic(place: Place) -> None:
    admin = AIOKafkaAdminClient(**place.kafka())
    await admin.start()
    try:
        await admin.delete_topics([place.settings.topic])
    finally:
        await admin.close()


async def _delete_schedule(place: Place) -> None:
    client = await place.temporal()
    with suppress(RPCError):  # the worker may not have come as far as making it
        await client.get_schedule_handle(place.settings.schedule_id).delete()
