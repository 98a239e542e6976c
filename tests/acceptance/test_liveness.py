"""Liveness: a worker that lives and takes no work is restarted; servers that are away are no reason (issue 5 section 5)."""

import asyncio
import signal
import sys

import pytest

from process import PollLoops
from tests.acceptance.process import ROOT, WorkerProcess, World, soon


async def _lamed(world: World, loop: str) -> WorkerProcess:
    out, err = world.folder / "lamed.out", world.folder / "lamed.err"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        command = (sys.executable, "-m", "tests.acceptance.lamed", loop)
        process = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, env=world.environment({}), stdout=stdout, stderr=stderr
        )
    world.workers.append(WorkerProcess(process, out, err))
    await world.workers[-1].said("worker started")
    return world.workers[-1]


@pytest.mark.parametrize("loop", sorted(PollLoops.KNOWN))
async def test_a_dead_poll_loop_is_noticed_while_the_process_lives(world: World, loop: str) -> None:
    """Issue 5 section 5 (temporal#2582): the loop is killed, the process goes on, every server is well, and liveness says no."""
    worker = await _lamed(world, loop)
    await world.result()
    assert await worker.get("/livez") == (200, {"status": "alive"})
    worker.process.send_signal(signal.SIGUSR1)

    async def noticed() -> bool:
        return (await worker.get("/livez"))[0] == 503

    await soon(noticed, "a liveness probe that fails", seconds=5)
    assert (await worker.get("/livez"))[1]["reason"] == f"{loop} has ended: no more work is taken"
    assert (await worker.get("/readyz"))[1]["checks"] == {"database": "ok", "temporal": "ok", "kafka": "ok"}
    assert worker.process.returncode is None


async def test_liveness_asks_no_server(world: World) -> None:
    """Issue 5 section 5: the answer is the same and comes at once while Kafka was never there."""
    worker = await world.start(KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1")
    await world.result()
    async with asyncio.timeout(1):
        assert await worker.get("/livez") == (200, {"status": "alive"})
    assert (await worker.get("/readyz"))[1]["status"] == "unready"
