"""Heartbeats: the only way a cancel reaches a running activity (trap 9)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from temporalio import activity

INTERVAL: Final = 1.0
"""Seconds between heartbeats; the workflow's heartbeat time-out is five times that."""


@asynccontextmanager
async def heartbeating() -> AsyncIterator[None]:
    """Send heartbeats from the running activity for as long as the block lasts."""
    beating = asyncio.create_task(_beat())
    try:
        yield
    finally:
        beating.cancel()
        with suppress(asyncio.CancelledError):
            await beating


async def _beat() -> None:
    while True:
        activity.heartbeat()
        await asyncio.sleep(INTERVAL)
