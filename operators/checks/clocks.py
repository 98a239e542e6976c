"""`doctor`: how far the clocks of this machine, the worker, the database and Temporal are apart."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import Final

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, PollWorkflowTaskQueueRequest
from temporalio.client import Client

from db import job_state, server
from db.errors import DatabaseError
from db.unit_of_work import Pool, UnitOfWork
from operators import words
from operators.checks.finding import Finding, NotLookedAtError, State
from operators.checks.places import Places

WARN_ABOVE: Final = 1.0
FAIL_ABOVE: Final = 5.0
"""Seconds. A booking expires by the database's clock (D2), a tick comes by Temporal's; a few seconds are lost in the minute."""

QUEUE: Final = "booking-expiration-doctor"
"""A task queue that nobody fills."""

_ASKED: Final = 3
"""The answer that came fastest is the most exact."""

THIS_MACHINE: Final = "this machine"
WORKER: Final = "the worker"
DATABASE: Final = "the database"
TEMPORAL: Final = "Temporal"
Clock = Callable[[], Awaitable[datetime]]


@dataclass(frozen=True, slots=True)
class Offset:
    """A clock against this machine's: `ahead` by so many seconds, give or take `error`."""

    clock: str
    ahead: float
    error: float


async def clocks(places: Places) -> Finding:
    """The differences, as far as the servers answer."""
    answers = await asyncio.gather(_database(places), _temporal(places), return_exceptions=True)
    found = [Offset(THIS_MACHINE, 0.0, 0.0), *(answer for answer in answers if isinstance(answer, Offset))]
    away = [str(answer) for answer in answers if isinstance(answer, BaseException)]
    if len(found) == 1:
        raise NotLookedAtError("; ".join(away))
    worker = await _worker(places, answers[0]) if isinstance(answers[0], Offset) else None
    return judged([*found, worker] if worker else found, away, unknown="" if worker else f"{WORKER}'s clock is not known")


def judged(found: list[Offset], away: list[str], unknown: str = "") -> Finding:
    """Each pair against the limits; what is within the error of measuring is no difference. `unknown`: what is merely said."""
    apart = max(max(abs(one.ahead - other.ahead) - one.error - other.error, 0.0) for one, other in combinations(found, 2))
    what = ", ".join(
        f"{each.clock} {abs(each.ahead):.2f} s {'ahead of' if each.ahead >= 0 else 'behind'} {THIS_MACHINE}" for each in found[1:]
    )
    what = "; ".join(filter(None, [what, *away, unknown]))
    state = State.FAIL if apart > FAIL_ABOVE else State.WARN if apart > WARN_ABOVE or away else State.OK
    right = "set right whichever is off (timedatectl, chronyc): deadlines go by the database's clock, ticks by Temporal's"
    return Finding("clocks", state, what, right if apart > WARN_ABOVE else "")


async def _database(places: Places) -> Offset:
    pool: Pool = await places.database.needed()
    async with UnitOfWork(pool) as connection:
        return await _measured(DATABASE, lambda: server.clock(connection), places.now)


async def _worker(places: Places, database: Offset) -> Offset | None:
    """By both clocks as the newest cycle left them: the worker's machine is elsewhere. None before the first cycle."""
    with suppress(DatabaseError):  # a schema that is behind is another check's line
        async with UnitOfWork(await places.database.needed()) as connection:
            if told := await job_state.worker_clock(connection):
                began, on_worker = told
                ago = places.now() + timedelta(seconds=database.ahead) - began
                ahead = database.ahead + (on_worker - began).total_seconds()
                return Offset(f"{WORKER} (at the cycle {words.age(ago)} ago)", ahead, database.error)
    return None


async def _temporal(places: Places) -> Offset:
    client = await places.client.needed()

    async def ask() -> datetime:
        async with _polling(client) as identity:
            return await _last_access(client, identity)

    return await _measured(TEMPORAL, ask, places.now)


async def _measured(name: str, clock: Clock, now: Callable[[], datetime]) -> Offset:
    """The moment that the server tells lies between our asking and its answer."""
    offsets = []
    for _ in range(_ASKED):
        asked, told, answered = now(), await clock(), now()
        half = (answered - asked) / 2
        offsets.append(Offset(name, (told - asked - half).total_seconds(), half.total_seconds()))
    return min(offsets, key=lambda offset: offset.error)


@asynccontextmanager
async def _polling(client: Client) -> AsyncIterator[str]:
    """Ask for work that there is none of: Temporal tells its time to nobody, but remembers when a poller came."""
    identity = f"doctor-{secrets.token_hex(6)}"
    request = PollWorkflowTaskQueueRequest(namespace=client.namespace, task_queue=TaskQueue(name=QUEUE), identity=identity)
    poll = asyncio.ensure_future(client.workflow_service.poll_workflow_task_queue(request, timeout=timedelta(seconds=10)))
    try:
        yield identity
    finally:
        poll.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await poll


async def _last_access(client: Client, identity: str) -> datetime:
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=QUEUE),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    while True:
        for poller in (await client.workflow_service.describe_task_queue(request)).pollers:
            if poller.identity == identity:
                return poller.last_access_time.ToDatetime(UTC)
        await asyncio.sleep(0.01)
