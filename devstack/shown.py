"""Makes two pages of docs/observability from a real run: `.venv/bin/python -m devstack.shown`, which takes two minutes.

It plays the demo with a collector of its own beside it. From its end are the worker's /metrics (metrics-after-demo.txt) and the
trace of the cycle that has most spans, as a tree (trace-of-a-cycle.txt).
"""

import asyncio
import json
import os
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from devstack import demo
from devstack.demo_play import ROOT, Play
from tests.acceptance.collector import Collector, a_collector

PAGES: Final = ROOT / "docs" / "observability"


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector in a thread, as long as the block lasts; processes that start meanwhile push their traces to it."""
    ready, over = threading.Event(), asyncio.Event()
    loop, found = asyncio.new_event_loop(), Collector()

    async def collect() -> None:
        nonlocal found
        async with a_collector() as found:
            ready.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=[collect()])
    thread.start()
    ready.wait()
    os.environ |= {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{found.address}/v1/traces", "OTEL_BSP_SCHEDULE_DELAY": "500"}
    try:
        yield found
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


def scrape(play: Play) -> None:
    """The worker's /metrics, when all is done and it still runs."""
    lines = (play.logs / "worker.log").read_text(encoding="utf-8").splitlines()
    web = next(json.loads(line)["web"] for line in lines if '"worker started"' in line)
    with urllib.request.urlopen(f"{web}/metrics", timeout=5) as answer:  # noqa: S310 # the address is the worker's own
        (PAGES / "metrics-after-demo.txt").write_bytes(answer.read())


def draw(collector: Collector) -> None:
    """The trace with most spans: a cycle that expired bookings of both phases."""
    ((largest, _),) = Counter(span.trace_id for span in collector.spans).most_common(1)
    (PAGES / "trace-of-a-cycle.txt").write_text(collector.tree(largest) + "\n", encoding="utf-8")


def main() -> int:
    """Play, scrape, draw; the demo's exit code."""
    with collecting() as collector:
        code = demo.main([], scrape)
    draw(collector)
    return code


if __name__ == "__main__":
    sys.exit(main())
