"""Connections as the settings describe them, for the worker and the command line alike."""

from typing import Any

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from db import migrations
from db.unit_of_work import Pool, UnitOfWork, open_pool
from process import CannotStartError
from publishing import KafkaOptions
from settings import Settings


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
    async with UnitOfWork(pool) as connection:
        missing = await migrations.missing(connection, migrations.known())
    if missing:
        await pool.close()
        raise CannotStartError(f"the database lacks migrations {', '.join(missing)}; apply them: {migrations.COMMAND}")
    return pool


async def temporal(arguments: dict[str, Any]) -> Client:
    """A client by the given arguments of `settings.temporal()` (D21). Raises `RuntimeError` when the server cannot be reached."""
    return await Client.connect(**arguments, data_converter=pydantic_data_converter)


def kafka(settings: Settings) -> KafkaOptions:
    """How to reach the brokers; nothing is connected yet."""
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
    )
