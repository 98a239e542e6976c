"""The worker: `python worker.py`. Composition only: settings → telemetry → pool → publisher → Temporal worker."""

import asyncio
import sys
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from typing import Final

from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Worker

import connections
import health
import settings as configuration
import telemetry
from activities.cycle_frame import CycleFrame
from activities.expire_batch import ExpireBatch
from activities.publish_outbox import PublishOutbox
from activities.resume_schedule import ResumeSchedule
from db.errors import DatabaseError, DatabaseUnavailableError
from db.unit_of_work import Pool
from exits import CannotStartError, leave
from exporting import WorkerExporting
from gauges import Gauges
from process import EXIT_CANNOT_START, Patience, PollLoops, StoppedEarlyError, stop_on_signals
from publishing import Publisher
from settings import Settings
from workflows import schedule, search_attributes
from workflows.drain import BookingExpirationDrain
from workflows.expiration_cycle import BookingExpirationCycle
from workflows.resume_later import BookingExpirationResume
from workflows.sandbox import guarded_runner

GRACE: Final = timedelta(seconds=5)
"""What an activity in hand gets after SIGTERM before it is cancelled; a batch needs milliseconds (L5)."""


async def run(settings: Settings) -> None:
    """Work until SIGTERM or SIGINT, then finish what is in hand. Raises `CannotStartError`, `DatabaseError`."""
    stop = stop_on_signals(settings.shutdown_timeout)
    patience = Patience(settings.startup_timeout, stop)
    exporting = WorkerExporting(configuration.opentelemetry())
    temporal = {**configuration.temporal(), "runtime": exporting.runtime(), "plugins": exporting.plugins}
    address = str(temporal["target_host"])
    async with AsyncExitStack() as opened:
        opened.push_async_callback(exporting.stop)
        database = partial(connections.database, settings)
        pool = await patience.until("database", settings.database_address, database, heals=DatabaseUnavailableError)
        opened.push_async_callback(connections.close, pool)
        client = await patience.until("Temporal", address, partial(connections.temporal, temporal), heals=RuntimeError)
        publisher = Publisher(connections.kafka(settings), topic=settings.topic)
        opened.push_async_callback(publisher.close)
        worker = await _worker(settings, client, pool, publisher)
        gauges = Gauges(pool, client, settings.schedule_id, settings.gauges_interval)
        await gauges.read()
        pinged = partial(connections.ping, pool)
        web, web_address = await health.serve(
            settings.http_host,
            settings.http_port,
            ready={"database": pinged, "temporal": partial(connections.ask, client), "kafka": publisher.check},
            metrics=partial(gauges.scraped, exporting.exposition),
            alive=PollLoops(stop).check,
        )
        opened.push_async_callback(web.cleanup)
        opened.callback(asyncio.create_task(gauges.run()).cancel)
        telemetry.worker_started(settings.task_queue, address, web_address)
        await _until_stopped(worker, stop)
    telemetry.worker_stopped()


async def _until_stopped(worker: Worker, stop: asyncio.Event) -> None:
    running, stopping = asyncio.create_task(worker.run()), asyncio.create_task(stop.wait())
    await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not running.done():
        await worker.shutdown()
    await running  # raises what ended it, when no signal did


async def _worker(settings: Settings, client: Client, pool: Pool, publisher: Publisher) -> Worker:
    names = await search_attributes.registered(client)
    if missing := [key.name for key in search_attributes.ALL if key.name not in names]:
        telemetry.search_attributes_missing(missing)
    wanted = schedule.ScheduleSettings(settings.schedule_id, settings.task_queue, settings.batch_size)
    telemetry.schedule_ensured(settings.schedule_id, await schedule.ensure(client, wanted))
    limits = {"hold_above": settings.hold_above, "drain_limit": settings.drain_limit}
    frame = CycleFrame(pool, names, **limits, runbook_url=settings.runbook_url or "")
    expiry, outbox, resuming = ExpireBatch(pool, settings.topic), PublishOutbox(pool, publisher), ResumeSchedule(client, pool)
    return Worker(
        client,
        task_queue=settings.task_queue,
        workflows=[BookingExpirationCycle, BookingExpirationDrain, BookingExpirationResume],
        activities=[*frame.activities, expiry.expire_batch, outbox.publish_outbox, resuming.resume_schedule],
        workflow_runner=guarded_runner(),
        deployment_config=connections.deployment(settings),
        graceful_shutdown_timeout=GRACE,
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=2),  # how long a killed worker holds its cycle up
        max_heartbeat_throttle_interval=timedelta(seconds=1),  # how soon a cancel arrives (trap 9)
    )


def main() -> None:
    """Exit code 0 after a stop, 1 with one line on standard error when the worker cannot run, 2 for bad settings."""
    settings = configuration.load()
    telemetry.configure(settings.log_level)
    try:
        asyncio.run(run(settings))
    except StoppedEarlyError:
        telemetry.worker_stopped()
    except (CannotStartError, DatabaseError, RPCError, schedule.ScheduleConflictError, OSError) as error:
        where = f"Temporal at {configuration.temporal()['target_host']}: " if isinstance(error, RPCError) else ""
        print(f"worker: {where}{error}", file=sys.stderr)
        leave(EXIT_CANNOT_START)
    leave(0)


if __name__ == "__main__":
    main()
