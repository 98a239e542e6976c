"""A drain on played steps, for the tests of what it decides."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from temporalio.client import Client, WorkflowHandle

from activities.drain_messages import DrainOrder, DrainResult
from activities.messages import BatchOrder
from domain.events import Phase
from tests.workflow.steps import Steps, running, start_drain
from workflows.drain import BookingExpirationDrain

ORDER = DrainOrder(cap=100, batch_size=10, reason="after the outage", actor="anna")
Handle = WorkflowHandle[BookingExpirationDrain, DrainResult]


def floor(reserve: int, booking: int = 0) -> Steps:
    """So many due bookings of each phase, which the batches take."""
    steps = Steps()
    steps.due = {Phase.RESERVE: reserve, Phase.BOOKING: booking}
    steps.behave = {"Reserve": steps.take, "Booking": steps.take}
    return steps


@asynccontextmanager
async def drain(client: Client, steps: Steps, **changes: Any) -> AsyncIterator[Handle]:
    """A drain of at most 100 bookings in batches of 10, with these changes."""
    async with running(client, steps) as queue:
        yield await start_drain(client, queue, ORDER.model_copy(update=changes))


async def result_of(client: Client, steps: Steps, **changes: Any) -> DrainResult:
    """How such a drain ended."""
    async with drain(client, steps, **changes) as handle:
        return await handle.result()


async def pausing(handle: Handle) -> None:
    """Return when it pauses between two rounds."""
    async with asyncio.timeout(20):
        while (await handle.query(BookingExpirationDrain.progress)).step != "pausing for 600 s":  # noqa: ASYNC110 # no event for it
            await asyncio.sleep(0.05)


def batches_of(steps: Steps) -> list[tuple[str, int, int]]:
    """Phase, number and size of each batch that was asked for."""
    return [(str(order.phase), order.batch_no, order.batch_size) for order in steps.orders if isinstance(order, BatchOrder)]
