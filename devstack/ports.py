"""Ports on this machine that nobody listens on."""

import random
import socket
from typing import Final

from devstack.errors import StackError

HOST: Final = "127.0.0.1"
# Below the range from which Linux and macOS take the local end of outgoing connections, so that none can grab a port
# between our look and the server's bind.
_RANGE: Final = (15_000, 32_000)


def choose(*preferred: int) -> int:
    """The first preferred port that is free, else any free one."""
    rolled = random.Random()  # noqa: S311 # not a secret; an own generator, because tests seed the shared one
    candidates = (*preferred, *(rolled.randint(*_RANGE) for _ in range(200)))
    for port in candidates:
        if is_free(port):
            return port
    raise StackError(f"no free port on {HOST}; tried {', '.join(map(str, candidates[:5]))} and more")


def is_free(port: int) -> bool:
    """Whether a server could listen here: nobody answers, and binding works."""
    if answers(port):
        return False
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port whose last server has just ended counts as free
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def answers(port: int) -> bool:
    """Whether somebody accepts connections."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0
