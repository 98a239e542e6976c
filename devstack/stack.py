"""The stack as a whole: all pieces at once, one folder, nothing left behind."""

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from devstack import addresses, kafka, postgres, schema, temporal
from devstack.launcher import Launcher

HOME: Final = Path(__file__).resolve().parent.parent / ".devstack"
"""All that the stack writes; ignored by git."""
ALL: Final = tuple(addresses.PARTS)


@dataclass
class Stack:
    """A running stack: where its pieces are, and the launcher that keeps them."""

    launcher: Launcher
    folder: Path
    durable: bool
    preferred_ports: bool
    say: Callable[[str], None]
    addresses: dict[str, str] = field(default_factory=addresses.given)

    @property
    def logs(self) -> Path:
        """The folder with one log per server."""
        return self.folder / "logs"

    def start(self, parts: Sequence[str], watch: Callable[[], None]) -> None:
        """Start what is wanted and not given, all at once. `watch` is called while waiting and may raise."""
        self.logs.mkdir(parents=True, exist_ok=True)
        self.addresses.setdefault(addresses.NAMESPACE, "default")
        wanted = [part for part in parts if addresses.PARTS[part] not in self.addresses]
        jobs = {"postgres": self._postgres, "temporal": self._temporal, "kafka": self._kafka}
        problems: list[BaseException] = []
        threads = [threading.Thread(target=_noting, args=(jobs[part], problems), daemon=True) for part in wanted]
        if "postgres" in parts and "postgres" not in wanted:
            threads.append(threading.Thread(target=_noting, args=(self._prepare_given, problems), daemon=True))
        for thread in threads:
            thread.start()
        while not problems and any(thread.is_alive() for thread in threads):
            watch()
            time.sleep(0.05)
        if problems:
            raise problems[0]

    def _postgres(self) -> None:
        port = postgres.start(self.launcher, self.folder, self.logs, preferred=self.preferred_ports, durable=self.durable)
        found = addresses.of_database(port)
        schema.prepare(found[addresses.ADMIN], found[addresses.MIGRATION])
        self.addresses |= found

    def _prepare_given(self) -> None:
        """Somebody's own database is changed only with the two URLs that say so."""
        if {addresses.ADMIN, addresses.MIGRATION} <= self.addresses.keys():
            schema.prepare(self.addresses[addresses.ADMIN], self.addresses[addresses.MIGRATION])

    def _temporal(self) -> None:
        found = temporal.start(self.launcher, self.folder, self.logs, preferred=self.preferred_ports, durable=self.durable)
        self.addresses |= {addresses.TEMPORAL: found.address, addresses.TEMPORAL_UI: found.ui}

    def _kafka(self) -> None:
        self.addresses[addresses.KAFKA] = kafka.start(
            self.launcher,
            self.folder,
            self.logs,
            cache=HOME,
            preferred=self.preferred_ports,
            durable=self.durable,
            say=self.say,
        )


@contextlib.contextmanager
def running(
    folder: Path | None = None,
    *,
    parts: Sequence[str] = ALL,
    durable: bool = False,
    preferred_ports: bool = False,
    keep_open: Sequence[int] = (),
    watch: Callable[[], None] = lambda: None,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[Stack]:
    """A stack for as long as the block runs. Without a folder it has its own, which is deleted at the end.

    Descriptors in `keep_open` stay open until the last server has stopped. Raises `StackError`.
    """
    launcher = Launcher(keep_open=keep_open)
    try:
        place = (folder or HOME / f"run-{secrets.token_hex(6)}").absolute()
        place.mkdir(parents=True, exist_ok=True)
        if folder is None:
            launcher.remove_at_end(place)
        stack = Stack(launcher, place, durable, preferred_ports, say)
        stack.start(parts, watch)
        yield stack
    finally:
        launcher.close()


@contextlib.contextmanager
def running_stack(
    folder: Path | None = None, *, parts: Sequence[str] = ALL, durable: bool = False
) -> Iterator[Mapping[str, str]]:
    """The addresses of a stack that runs as long as the block does, by the names of their variables."""
    with running(folder, parts=parts, durable=durable) as stack:
        yield stack.addresses


def _noting(job: Callable[[], None], problems: list[BaseException]) -> None:
    try:
        job()
    except BaseException as error:  # noqa: BLE001 # raised again by the thread that waits
        problems.append(error)
