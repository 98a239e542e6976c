"""Temporal's Web UI as a browser uses it: the requests that its forms send, through its own server."""

import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import aiohttp

_JSON: Final = base64.b64encode(b"json/plain").decode()
_COMPLETED: Final = "UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_COMPLETED"


@dataclass(frozen=True)
class WebUi:
    """Somebody's browser; `base` is the namespace's part of the Web UI's API."""

    session: aiohttp.ClientSession
    base: str

    async def start(self, workflow_type: str, workflow_id: str, task_queue: str, order: Mapping[str, Any]) -> None:
        """The form *Start Workflow*."""
        kind, queue = {"name": workflow_type}, {"name": task_queue}
        await self._post(workflow_id, workflowType=kind, taskQueue=queue, input=_input(order), requestId=str(uuid4()))

    async def signal(self, workflow_id: str, name: str, *typed: Mapping[str, Any]) -> None:
        """The form *Send a Signal*; without `typed` its input is left empty."""
        await self._post(f"{workflow_id}/signal/{name}", input=_input(*typed))

    async def update(self, workflow_id: str, name: str, typed: Mapping[str, Any]) -> dict[str, Any]:
        """The form *Send an Update*, and how the update ended."""
        request = {"meta": {"updateId": str(uuid4())}, "input": {"name": name, "args": _input(typed)}}
        answer = await self._post(f"{workflow_id}/update/{name}", request=request, waitPolicy={"lifecycleStage": _COMPLETED})
        outcome: dict[str, Any] = answer["outcome"]
        return outcome

    async def cancel(self, workflow_id: str, **reason: str) -> None:
        """The button *Request Cancellation*."""
        await self._post(f"{workflow_id}/cancel", **reason)

    async def _post(self, path: str, **body: Any) -> dict[str, Any]:
        async with self.session.post(f"{self.base}/workflows/{path}", json=body) as answer:
            said: dict[str, Any] = await answer.json()
            assert answer.status == 200, said
            return said


@asynccontextmanager
async def a_browser(address: str, namespace: str) -> AsyncIterator[WebUi]:
    """A browser that has opened the Web UI at this address, and so has the token that every form sends along."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:  # an address without a name
        async with session.get(f"{address}/api/v1/settings") as opened:
            session.headers["X-CSRF-TOKEN"] = opened.cookies["_csrf"].value
        yield WebUi(session, f"{address}/api/v1/namespaces/{namespace}")


def _input(*typed: Mapping[str, Any]) -> dict[str, Any]:
    encoded = [base64.b64encode(json.dumps(each).encode()).decode() for each in typed]
    return {"payloads": [{"metadata": {"encoding": _JSON}, "data": data} for data in encoded]}
