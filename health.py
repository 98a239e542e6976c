"""`/livez` and `/readyz`: is the process alive, and can it do its work? `/metrics`: how is it doing?"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final

from aiohttp import web

CHECK_TIMEOUT: Final = 3.0
"""Seconds a server may take to answer a check."""

CLOSE_TIMEOUT: Final = 1.0
"""Seconds that a client in the middle of a request may hold up a stop."""

Check = Callable[[], Coroutine[Any, Any, str | None]]
"""None when all is well, else what is wrong."""


async def serve(
    host: str,
    port: int,
    *,
    ready: Mapping[str, Check],
    variable: str = "BOOKING_EXPIRATION_HTTP_PORT",
    metrics: Callable[[], Awaitable[bytes]] | None = None,
    alive: Check | None = None,
) -> tuple[web.AppRunner, str]:
    """Serve the paths, `/metrics` if there are any; returns the runner, whose `cleanup()` ends it, and the address it took.

    `/readyz` answers 503 and says why when a check of `ready` fails (docs/decisions/0003). `alive` looks at this process
    alone: no restart heals a server. Raises `OSError` when the port is taken; `variable` names another one.
    """

    async def livez(_request: web.Request) -> web.Response:
        if (problem := await alive() if alive else None) is not None:
            return web.json_response({"status": "dead", "reason": problem}, status=503)
        return web.json_response({"status": "alive"})

    async def readyz(_request: web.Request) -> web.Response:
        checks = dict(zip(ready, await asyncio.gather(*(_ask(check) for check in ready.values())), strict=True))
        well = set(checks.values()) <= {"ok"}
        return web.json_response({"status": "ready" if well else "unready", "checks": checks}, status=200 if well else 503)

    app = web.Application()
    app.add_routes([web.get("/livez", livez), web.get("/readyz", readyz)])
    if metrics is not None:
        app.add_routes([web.get("/metrics", partial(_exposition, metrics))])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=CLOSE_TIMEOUT)
    await runner.setup()
    site = web.TCPSite(runner, host, port)
    try:
        await site.start()
    except OSError as error:
        await runner.cleanup()
        advice = f"choose another one: {variable}"
        raise OSError(f"port {port} of {host}, for /livez and /readyz: {error.strerror}; {advice}") from error
    taken = runner.addresses[0][1]
    return runner, f"http://{host}:{taken}"


async def _exposition(metrics: Callable[[], Awaitable[bytes]], _request: web.Request) -> web.Response:
    return web.Response(body=await metrics(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


async def _ask(check: Check) -> str:
    asking = asyncio.ensure_future(check())
    done, _ = await asyncio.wait({asking}, timeout=CHECK_TIMEOUT)
    if not done:
        # Cancelled and left alone: what cannot be interrupted, such as a BEGIN, must not hold the answer up.
        asking.add_done_callback(lambda asked: asked.cancelled() or asked.exception())
        asking.cancel()
        return f"no answer within {CHECK_TIMEOUT:.0f} s"
    try:
        return asking.result() or "ok"
    except Exception as error:  # noqa: BLE001 # a probe answers, whatever is broken
        return f"{type(error).__name__}: {error}"
