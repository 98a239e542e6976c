"""Where `doctor` looks: each server is connected to once, for all checks; one that is away stops only those that need it."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, Final, Generic, TypeVar

from temporalio.client import Client

import connections
import settings as configuration
from contracts import topic
from contracts.topic import Found
from db.unit_of_work import Pool, open_pool
from operators.checks.finding import NotLookedAtError
from operators.frame import APPLICATION
from operators.sources import loaded
from settings import KafkaSettings, OperatorSettings, ScheduleSettings, Settings

T = TypeVar("T")

CONNECT_LIMIT: Final = 5.0
"""Seconds that a server may take to answer at first; what depends on it still has time then."""

STATEMENT_LIMIT: Final = 3.0
"""Seconds that one statement may take."""


class Place(Generic[T]):
    """One server: connected to once, for whoever asks."""

    def __init__(self, name: str, connect: Callable[[], Awaitable[T]] | None) -> None:
        """`connect` is None where the settings do not say how."""
        self._name = name
        self._task = asyncio.ensure_future(_in_time(connect)) if connect else None

    async def there(self) -> T:
        """What the server gave. Raises what went wrong, or `NotLookedAtError` without settings."""
        if self._task is None:
            raise NotLookedAtError(f"how to reach {self._name} is not set here")
        return await asyncio.shield(self._task)

    async def needed(self) -> T:
        """The same for who merely depends on it: what went wrong is another check's line."""
        try:
            return await self.there()
        except Exception as error:
            raise error if isinstance(error, NotLookedAtError) else NotLookedAtError(f"{self._name} cannot be reached") from error

    async def close(self, end: Callable[[T], Awaitable[None]]) -> None:
        """Let the server go, if it was ever there."""
        if self._task is not None and self._task.done() and not self._task.cancelled() and self._task.exception() is None:
            await end(self._task.result())


async def _in_time(connect: Callable[[], Awaitable[T]]) -> T:
    async with asyncio.timeout(CONNECT_LIMIT):
        return await connect()


class Places:
    """All settings and all servers. `now` is this machine's clock."""

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """Begins to connect at once, so that no check waits for another one's server; needs a running event loop."""
        self.now = now
        self.operator = loaded(lambda: configuration.load_model(OperatorSettings))
        self.worker = loaded(configuration.load)
        self.kafka = loaded(lambda: configuration.load_model(KafkaSettings))
        self.schedule = loaded(lambda: configuration.load_model(ScheduleSettings))
        self.temporal = loaded(configuration.temporal)
        self.push = loaded(configuration.opentelemetry)
        operator, worker, kafka, temporal = self.operator.value, self.worker.value, self.kafka.value, self.temporal.value
        self.database = Place("the database", _pool(operator.operator_database_url.get_secret_value(), 0) if operator else None)
        self.workers_database = Place("the worker's database", _workers_pool(worker) if worker else None)
        self.client: Place[Client] = Place("Temporal", (lambda: connections.temporal(temporal)) if temporal else None)
        self.topic: Place[Found | str] = Place("Kafka", (lambda: _topic(kafka)) if kafka else None)

    async def close(self) -> None:
        """Let all go."""
        await asyncio.gather(self.database.close(connections.close), self.workers_database.close(connections.close))


def _workers_pool(worker: Settings) -> Callable[[], Coroutine[Any, Any, Pool]]:
    """As the worker will: what is wrong with its setting behind pgbouncer is to be seen here first (trap 29)."""
    return _pool(worker.database_url.get_secret_value(), worker.database_statement_cache_size)


def _pool(url: str, statements: int) -> Callable[[], Coroutine[Any, Any, Pool]]:
    return lambda: open_pool(
        url, size=3, command_timeout=STATEMENT_LIMIT, statement_cache_size=statements, application=APPLICATION
    )


async def _topic(kafka: KafkaSettings) -> Found | str:
    return await topic.read(connections.kafka(kafka).arguments(), kafka.topic)
