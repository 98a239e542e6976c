"""A real Prometheus that scrapes real workers once a second, with the rules of ops/."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from devstack import ports
from tests.acceptance.installed import installed
from tests.acceptance.process import ROOT, soon

RULES = ROOT / "ops/prometheus/rules.yml"


def binary() -> str:
    """Where Prometheus is installed."""
    return installed("prometheus", package="prometheus")


@dataclass(frozen=True)
class Prometheus:
    """Its address, and what can be asked there."""

    address: str

    async def api(self, path: str, **query: str) -> Any:
        """The data of an answer of its HTTP API; raises on an error."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.address}/api/v1/{path}", params=query) as answer:
            body = await answer.json()
        assert body["status"] == "success", body
        return body["data"]

    async def ready(self) -> bool:
        """Whether it has read its data and answers queries."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.address}/-/ready") as answer:
            return answer.status == HTTPStatus.OK

    async def values(self, query: str) -> list[float]:
        """The numbers that a query gives now, without those that are none."""
        samples = (await self.api("query", query=query))["result"]
        return [value for sample in samples if not math.isnan(value := float(sample["value"][1]))]

    async def scraped(self, targets: int) -> None:
        """As soon as so many targets have answered."""

        async def up() -> bool:
            return await self.values("sum(up)") == [targets]

        await soon(up, f"{targets} scraped targets")


@asynccontextmanager
async def a_prometheus(folder: Path, *targets: str) -> AsyncIterator[Prometheus]:
    """Running as long as the block does; `targets` are `host:port`."""
    config, log, port = folder / "prometheus.yml", folder / "prometheus.log", ports.choose()
    scrape = {"job_name": "booking-expiration", "static_configs": [{"targets": list(targets)}]}
    every = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    config.write_text(yaml.safe_dump({"global": every, "rule_files": [str(RULES)], "scrape_configs": [scrape]}))
    options = [f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={ports.HOST}:{port}"]
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(binary(), *options, stdout=output, stderr=output)
    try:
        prometheus = Prometheus(f"http://{ports.HOST}:{port}")

        async def ready() -> bool:
            assert process.returncode is None, log.read_text()
            return ports.answers(port) and await prometheus.ready()

        await soon(ready, "a Prometheus that answers")
        yield prometheus
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
