"""`python -m tests.acceptance.lamed LOOP`: the real worker, whose poll loop of that name is cancelled when SIGUSR1 comes."""

import asyncio
import signal
import sys

import worker


def cancel_the_loop(*_: object) -> None:
    """As if something in the process had cancelled it; the SDK waits on beside the rest."""
    loop = asyncio.get_running_loop()
    (found,) = [task for task in asyncio.all_tasks(loop) if getattr(task.get_coro(), "__qualname__", "") == sys.argv[1]]
    loop.call_soon_threadsafe(found.cancel)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, cancel_the_loop)
    worker.main()
