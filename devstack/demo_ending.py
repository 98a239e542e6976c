"""How the demo ends: the sums, each with its reason, and where to look next."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import NamedTuple
from urllib.parse import quote
from uuid import UUID

from rich.console import RenderableType
from rich.panel import Panel
from rich.table import Table

from devstack import addresses
from devstack.demo_cycles import Cycle, Events
from devstack.demo_floor import Sums
from devstack.demo_grid import Objects
from devstack.demo_place import Place
from devstack.postgres import binaries


class Check(NamedTuple):
    """One thing that must be so, in the numbers of this run."""

    right: bool
    text: str


@dataclass(frozen=True, slots=True)
class Ending:
    """What the database, the chessboard, Kafka and the cycles say; `active`: the bookings that could expire."""

    sums: Sums
    objects: Objects
    events: Events
    cycles: Sequence[Cycle]
    active: set[UUID]

    @property
    def right(self) -> bool:
        """Whether all is as it must be."""
        return all(check.right for check in self.checks())

    def checks(self) -> Iterator[Check]:
        """Every sum and every special booking."""
        sums, events = self.sums, self.events
        counted = sum(cycle.result.reserve_expired_count + cycle.result.booking_expired_count for cycle in self.cycles)
        yield Check(
            0 < sums.expired == sums.audited == len(events.bookings) == counted
            and not events.repeated
            and events.bookings <= self.active,
            f"Sums: {sums.expired} bookings expired = {counted} in the cycles' results = {sums.audited} audit rows with action "
            f"Expire = {len(events.arrived)} events consumed, each once",
        )
        yield Check(
            sums.expired == sums.cards == sums.published,
            f"Deal timeline: {sums.cards} cards; outbox: {sums.published} records, all published",
        )
        yield Check(
            sums.expired == self.objects.freed and self.objects.still_taken > 0 and not self.objects.wrong,
            f"Chessboard: {self.objects.freed} flats turned free, each of an expired booking; {self.objects.still_taken} of "
            "other bookings are still taken, the locked and the poison one's among them",
        )
        skipped = sum(cycle.result.skipped_locked_count for cycle in self.cycles)
        yield Check(
            sums.locked_is_extended and skipped > 0,
            f"Locked by a manager: skipped {skipped} times without waiting, now extended and not expired",
        )
        refused = sum(cycle.result.poison_count for cycle in self.cycles)
        yield Check(
            sums.poison_is_due and sums.poison_times == refused == len(self.cycles),
            f"Poison: refused in {refused} of {len(self.cycles)} cycles, still due, listed in crm.expiration_refusals",
        )

    def lines(self) -> list[str]:
        """The checks as plain lines."""
        return [f"{'ok   ' if right else 'WRONG'}  {text}" for right, text in self.checks()]

    def panel(self) -> RenderableType:
        """The checks in colours."""
        grid = Table.grid(padding=(0, 1))
        for right, text in self.checks():
            grid.add_row("[green]✓[/green]" if right else "[red]✗[/red]", text if right else f"[red]{text}: WRONG[/red]")
        title = "[bold green]All right[/bold green]" if self.right else "[bold red]Something is wrong[/bold red]"
        return Panel(grid, title=title, title_align="left", border_style="green" if self.right else "red")


def look_around(place: Place, last: Cycle) -> list[tuple[str, str]]:
    """Pages and commands for the time while the servers are up, each with what it shows."""
    found, pages = place.addresses, []
    if ui := place.web_ui:
        query = quote("`PoisonBookings` > 0")
        pages = [
            ("The schedule, in the Web UI", f"{ui}/schedules/{place.settings.schedule_id}"),
            ("The last cycle, step by step", f"{ui}/workflows/{last.workflow_id}/{last.run_id}/timeline"),
            ("Cycles that met poison", f"{ui}/workflows?query={query}"),
        ]
    needed = [f"{name}={found[name]}" for name in (addresses.TEMPORAL, addresses.DATABASE, addresses.KAFKA)]
    needed += [f"BOOKING_EXPIRATION_SCHEDULE_ID={place.settings.schedule_id}"]
    command = Path(sys.executable).with_name("booking-expiration")
    psql = "psql" if which("psql") else _short(binaries() / "psql")
    return [
        *pages,
        ("For the next command", f"export {' '.join(needed)}"),
        ("The schedule, for operators", f"{_short(command)} schedule show"),
        ("The poison", f"{psql} '{found[addresses.OPERATOR]}' -c 'TABLE crm.expiration_refusals'"),
    ]


def read_on() -> str:
    """What to look at when all is over."""
    return "Read on: README.md, docs/lifecycle.md, runbooks/. Run it yourself: `make stack`, and `make worker` beside it."


def _short(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
