"""Connections as the settings describe them, for the worker and the command line alike."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from temporalio.service import ConnectConfig, ServiceClient, WorkflowService

from db import migrations
from db.errors import MIGRATE, DatabaseError
from db.unit_of_work import Pool, UnitOfWork, close_pool, open_pool
from exits import CannotStartError
from settings import KafkaSettings, Settings

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from temporalio.client import Client
    from temporalio.worker import WorkerDeploymentConfig

    from publishing import KafkaOptions

T = TypeVar("T")


class TemporalUnreachableError(RuntimeError):
    """There is no connection to Temporal; a `RuntimeError`, as the SDK's own is."""


CONNECT_TIMEOUT: Final = 10.0
CLOSE_TIMEOUT: Final = 2.0
"""Seconds that a server has to take a connection, or to let it go."""


async def database(settings: Settings) -> Pool:
    """A pool for the worker's role on a database that has all migrations (D18).

    Raises `DatabaseError`, or `CannotStartError` with the command that applies what is missing.
    """
    pool = await open_pool(
        settings.database_url.get_secret_value(),
        size=settings.database_pool_size,
        command_timeout=settings.database_command_timeout,
        statement_cache_size=settings.database_statement_cache_size,
    )
    try:
        await _require_migrations(pool, settings.database_address)
    except BaseException:
        pool.terminate()
        raise
    return pool


async def _require_migrations(pool: Pool, address: str) -> None:
    async with UnitOfWork(pool) as connection:
        missing = await migrations.missing(connection, migrations.known())
    if missing:
        raise CannotStartError(
            f"the database at {address} lacks migrations {', '.join(missing)}, or the role in DATABASE_URL may not see them "
            f"(it must be booking_expiration_worker); apply them: {MIGRATE}"
        )


async def ping(pool: Pool) -> None:
    """Whether the database answers. Raises `DatabaseError`."""
    async with UnitOfWork(pool) as connection:
        await connection.execute("SELECT 1")


async def close(pool: Pool) -> None:
    """Close a pool politely; a server that does not say goodbye within the time limit is left without one."""
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT):
            await close_pool(pool)
    except (TimeoutError, DatabaseError):
        pool.terminate()


async def temporal(arguments: dict[str, Any]) -> "Client":
    """A client by the given arguments of `settings.temporal()` (D21).

    Raises `TemporalUnreachableError` when the server cannot be reached, `CannotStartError` when its address is none.
    """
    from temporalio.client import Client  # noqa: PLC0415 # see `frontend`
    from temporalio.contrib.pydantic import pydantic_data_converter  # noqa: PLC0415 # see `frontend`

    return await _connected(Client.connect(**arguments, data_converter=pydantic_data_converter), arguments)


@dataclass(frozen=True, slots=True)
class Frontend:
    """Temporal for those that only look: its calls, without the half of the SDK that starts and signals workflows."""

    workflow_service: WorkflowService
    namespace: str


async def frontend(arguments: dict[str, Any]) -> Frontend:
    """The same server as `temporal` reaches, in half the time that it takes to import a client. Raises what that does."""
    given = {"namespace": "default", **arguments}
    namespace = given.pop("namespace")
    service = await _connected(ServiceClient.connect(ConnectConfig(**given)), arguments)
    return Frontend(service.workflow_service, namespace)


async def _connected(work: "Awaitable[T]", arguments: dict[str, Any]) -> T:
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):  # the SDK's own limit is 30 s
            return await work
    except TimeoutError:
        raise TemporalUnreachableError(f"no answer within {CONNECT_TIMEOUT:.0f} s") from None
    except RuntimeError as error:
        raise TemporalUnreachableError(str(error)) from error
    except ValueError as error:
        raise CannotStartError(f"TEMPORAL_ADDRESS={arguments['target_host']}: {error}; for example localhost:7233") from error


async def ask(client: "Client") -> str | None:
    """What keeps Temporal from serving us, or None."""
    return None if await client.service_client.check_health() else "the frontend says it is not serving"


def deployment(settings: Settings) -> "WorkerDeploymentConfig | None":
    """The worker's version, or None for a worker without one (trap 16).

    Pinned: a cycle ends on the code that it began with. What lives longer is started with an override (`schedule pause --for`):
    said at `workflow.defn`, a worker without a version could not run it.
    """
    from temporalio.common import VersioningBehavior, WorkerDeploymentVersion  # noqa: PLC0415 # as the next line
    from temporalio.worker import WorkerDeploymentConfig  # noqa: PLC0415 # commands do not wait for the worker's library

    if settings.deployment_name is None or settings.build_id is None:
        return None
    return WorkerDeploymentConfig(
        WorkerDeploymentVersion(settings.deployment_name, settings.build_id),
        use_worker_versioning=True,
        default_versioning_behavior=VersioningBehavior.PINNED,
    )


def kafka(settings: KafkaSettings, client_id: str = "booking-expiration") -> "KafkaOptions":
    """How to reach the brokers; nothing is connected yet."""
    from publishing import KafkaOptions  # noqa: PLC0415 # commands that ask no broker do not wait for its library

    password = settings.kafka_sasl_password
    return KafkaOptions(
        bootstrap_servers=settings.kafka_bootstrap_servers,
        security_protocol=settings.kafka_security_protocol,
        sasl_mechanism=settings.kafka_sasl_mechanism,
        sasl_username=settings.kafka_sasl_username,
        sasl_password=password.get_secret_value() if password else None,
        ssl_cafile=settings.kafka_ssl_cafile,
        ssl_certfile=settings.kafka_ssl_certfile,
        ssl_keyfile=settings.kafka_ssl_keyfile,
        client_id=client_id,
    )
