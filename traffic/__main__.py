"""`make traffic`, `make slo`: a sales floor that never sleeps, on real processes, and a checker that follows everything.

Exit codes: 0 nothing was wrong (and, with --slo, every goal was met), 1 something was, or a piece failed.
"""

import argparse
import asyncio
import logging
import random
import signal
import sys
from collections.abc import Sequence
from typing import Final

import asyncpg
from temporalio.service import RPCError

from db.errors import DatabaseError
from devstack import demo_place, stack
from devstack.errors import StackError, StackStopped
from devstack.watch import Watch
from traffic.play import Options, Play

SLO_SIZE: Final = 10_000
SLO_MINUTES: Final = 10.0
DUE: Final = 150
"""Bookings of a phase that become due per minute at most, by D27; a batch has room for 200."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Play until the time is over or Ctrl-C; the exit code."""
    options = _options(arguments)
    watch, brought = Watch(), demo_place.parts()
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # a broker that is away is said once, by the faults
    if options.faults and "kafka" not in brought:
        print("traffic: the broker is yours, so it is not restarted", file=sys.stderr)
    try:
        with (
            stack.running(parts=brought, durable=True, watch=watch, say=_say) as running,
            demo_place.prepared(running.addresses, brought, "traffic") as place,
        ):
            watch()
            return 0 if asyncio.run(Play(options, place, running, _say).run()) else 1
    except StackStopped:
        return 128 + (watch.signal or signal.SIGTERM)
    except ExceptionGroup as group:
        print(f"traffic: {_first(group)}", file=sys.stderr)
    except (StackError, DatabaseError, asyncpg.PostgresError, RPCError, RuntimeError, OSError) as error:
        print(f"traffic: {error}", file=sys.stderr)
    return 1


def _options(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(prog="python -m traffic", description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--slo", action="store_true", help="print the figures of X8 and fail where a goal is missed")
    parser.add_argument("--faults", action="store_true", help="kill, restart and cut while it runs; goals are then only shown")
    parser.add_argument("--minutes", type=float, help="default: until Ctrl-C; with --slo 10")
    parser.add_argument("--size", type=int, help="active bookings, 100 to 100000; default 1000, with --slo 10000")
    parser.add_argument("--rate", type=float, help="commands a minute; default: an eighth of the size, 300 to 3000")
    parser.add_argument("--due", type=int, help=f"bookings of a phase due per minute at most; default a thirtieth, up to {DUE}")
    parser.add_argument("--workers", type=int, default=None, help="worker processes; default 1, with --slo 2")
    parser.add_argument("--consumers", type=int, default=None, help="consumer processes; default 1, with --slo 2")
    parser.add_argument(
        "--seed", type=int, default=None, help="the same seed: the same floor and the same draws; default: rolled"
    )
    given = parser.parse_args(arguments)
    size = given.size or (SLO_SIZE if given.slo else 1000)
    if not 100 <= size <= 100_000:  # noqa: PLR2004 # what the help says
        parser.error("--size must be 100 to 100000")
    processes = 2 if given.slo else 1
    return Options(
        slo=given.slo,
        faults=given.faults,
        minutes=given.minutes or (SLO_MINUTES if given.slo else None),
        size=size,
        rate=given.rate or min(max(size / 8, 300.0), 3000.0),
        due=given.due or min(DUE, size // 30),
        workers=given.workers or processes,
        consumers=given.consumers or processes,
        seed=given.seed if given.seed is not None else random.randrange(1_000_000),  # noqa: S311 # not a secret
    )


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error behind the tasks that it ended."""
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
