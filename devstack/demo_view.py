"""What the demo shows: a live picture on a terminal, plain lines anywhere else."""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from devstack.demo_cycles import Cycle, Event, Events, next_minute
from devstack.demo_grid import Grid
from domain.booking import PHASE_OF, Status

_STYLES: Final = {"Reserve": "cyan", "Booking": "magenta"}
_SHORT: Final = {
    Status.RESERVED: "Reserved",
    Status.AWAITING_PAYMENT: "Awaiting\nPayment",
    Status.BOOKED: "Booked",
    Status.RESERVE_EXPIRED: "Reserve\nExpired",
    Status.BOOKING_EXPIRED: "Booking\nExpired",
    Status.CANCELLED: "Cancelled",
    Status.COMPLETED: "Completed",
}
_PLAIN_ROW: Final = "  {:>2}  {:<8}  {:<13}  {:>7}  {:>7}  {:>6}  {:>6}  {:>9}  {:>7}  {:>4}  {}"
_PLAIN_TITLES: Final = (
    "#", "at (UTC)", "started", "Reserve", "Booking", "locked", "poison", "published", "backlog", "ms", "outcome",
)  # fmt: skip
_OTHER_LINES: Final = 25
"""What the picture needs besides the lines of cycles and events."""

_WIDE: Final = 92
_FLOOR_LINES: Final = 7
_GRID_LINES: Final = 10
_MOST_EVENTS: Final = 8


@dataclass(slots=True)
class Screen:
    """All that is shown; whoever knows something new writes it here."""

    console: Console
    events: Events
    grid: Grid = field(default_factory=Grid)
    names: dict[UUID, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    seeded: Counter[str] = field(default_factory=Counter)
    now: Counter[str] = field(default_factory=Counter)
    backlog: int = 0
    cycles: list[Cycle] = field(default_factory=list)
    story: list[tuple[datetime, str]] = field(default_factory=list)
    waiting: Callable[[], str] = lambda: ""
    live: Live | None = None
    _titled: bool = False
    _told: int = 0
    _last: int = 0

    def begin(self) -> None:
        """Start the live picture, if this is a terminal."""
        if self.console.is_terminal:
            self.live = Live(get_renderable=self.picture, console=self.console, refresh_per_second=5)
            self.live.start()

    def end(self) -> None:
        """Leave the picture as it is; from here on lines follow below it."""
        if self.live:
            self.live.stop()
            self._told = self._last = len(self.events.arrived)
        self.live = None

    def say(self, text: str) -> None:
        """One line of the story."""
        self.story.append((datetime.now(UTC), text))
        if not self.live:
            self._line(text)

    def note(self, text: str) -> None:
        """What the picture shows anyway, for those who see lines."""
        if not self.live:
            self._line(text)

    def link(self, name: str, target: str) -> None:
        """One line of the head."""
        self.links[name] = target
        if not self.live:
            self._line(f"{name}: {target}")

    def cycle(self, cycle: Cycle) -> None:
        """A cycle is over."""
        self.cycles.append(cycle)
        if self.live:
            return
        if not self._titled:
            self._line(_PLAIN_ROW.format(*_PLAIN_TITLES))
            self._titled = True
        self._line(_PLAIN_ROW.format(*_cells(len(self.cycles), cycle)))

    def measured(self, now: Counter[str], backlog: int) -> None:
        """The floor as it is now. Without a picture, events are told together when no more of them come."""
        self.now, self.backlog = now, backlog
        count, before = len(self.events.arrived), self._last
        self._last = count
        if self.live or count == self._told or count != before:
            return
        self._line(self.grid.line())
        new = self.events.arrived[self._told :]
        phases = ", ".join(f"{phase} {many}" for phase, many in sorted(Counter(event.phase for event in new).items()))
        self._line(f"Kafka: {len(new)} events arrived ({phases}), {count} in all; the last one: {self._name(new[-1])}")
        self._told = count

    def show(self, what: RenderableType, plain: Sequence[str] = ()) -> None:
        """Something below the picture: on a terminal as it is, elsewhere as plain lines, if there are any."""
        if self.console.is_terminal and what:
            self.console.print(what)
            return
        for line in plain or [str(what)]:
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def picture(self) -> RenderableType:
        """The whole picture; a low terminal gets it without the table of statuses, and with fewer events."""
        room = self.console.height - _OTHER_LINES - len(self.cycles)
        grid = [self.grid.picture()] if room + _FLOOR_LINES > _GRID_LINES else []
        room -= _GRID_LINES if grid else 0
        floor = [self._floor(), ""] if room > 0 else []
        room += 0 if floor else _FLOOR_LINES
        events = self._events(min(max(room, 1), _MOST_EVENTS))
        return Group(self._head(), *grid, *floor, self._cycles(), events, self._story())

    def _line(self, text: str) -> None:
        self.console.print(f"{datetime.now(UTC):%H:%M:%S}  {text}", markup=False, highlight=False, soft_wrap=True)

    def _name(self, event: Event) -> str:
        return f"{event.phase} of {self.names.get(event.booking_id, event.booking_id)}"

    def _head(self) -> RenderableType:
        grid = Table.grid(padding=(0, 2))
        grid.add_column()
        grid.add_column(overflow="fold")
        for name, target in self.links.items():
            text = escape(target)
            grid.add_row(f"[bold]{name}[/bold]", f"[green][link={target}]{text}[/link][/green]" if name == "Web UI" else text)
        return Group("[bold reverse] booking-expiration [/] releases bookings whose timer ran out, every minute", "", grid, "")

    def _floor(self) -> RenderableType:
        table = _table("Bookings by status")
        table.add_column("")
        for status, short in _SHORT.items():
            table.add_column(short, justify="right", style=None if status in PHASE_OF else "dim")
        table.add_row("at first", *(str(self.seeded[status]) for status in _SHORT))
        table.add_row("now", *(_changed(self.now[status], self.seeded[status]) for status in _SHORT))
        return table

    def _cycles(self) -> RenderableType:
        waiting = f"[yellow]{self.backlog}[/yellow]" if self.backlog else "0"
        left = (next_minute() - datetime.now(UTC)).seconds
        caption = f"due and not expired yet: {waiting}   next tick {next_minute():%H:%M:%S} in {left:2} s   {self.waiting()}"
        table = _table("Cycles", caption, padding=int(self.console.width >= _WIDE))
        for title in _TITLES:
            words = title in _WORDS
            table.add_column(title, justify="left" if words else "right", no_wrap=title != _WORDS[1])
        for number, cycle in enumerate(self.cycles, 1):
            cells = _cells(number, cycle)
            cells[2] = f"[bold yellow]{cells[2]}[/bold yellow]" if cycle.on_the_minute else cells[2]
            cells[5], cells[6] = _warned(cells[5], "yellow"), _warned(cells[6], "red")
            cells[-1] = f"[green]{cells[-1]}[/green]"
            table.add_row(*cells)
        return table

    def _events(self, lines: int) -> RenderableType:
        count = self.events.by_phase
        grid = Table.grid(padding=(0, 2))
        for _ in range(4):
            grid.add_column(no_wrap=True)
        for event in self.events.arrived[-lines:]:
            where = f"[dim]partition {event.partition} offset {event.offset:>3}[/dim]"
            style = _STYLES[event.phase]
            name = escape(str(self.names.get(event.booking_id, event.booking_id)))
            grid.add_row(f"[{style}]{event.phase}[/{style}]", name, f"{event.expired_at:%H:%M:%S}", where)
        title = (
            f"Events in Kafka: [bold]{len(self.events.arrived)}[/bold] "
            f"([cyan]Reserve {count['Reserve']}[/cyan], [magenta]Booking {count['Booking']}[/magenta])"
        )
        return Panel(
            grid if self.events.arrived else Text("none yet"), title=title, title_align="left", subtitle=self.events.topic
        )

    def _story(self) -> RenderableType:
        lines = [Text(f"{at:%H:%M:%S}  {text}", style="dim", overflow="ellipsis", no_wrap=True) for at, text in self.story[-5:]]
        if lines:
            lines[-1].style = "bold"
        return Group(*lines)


_WORDS: Final = ("At\n(UTC)", "Started", "Outcome")
_TITLES: Final = (
    "#", *_WORDS[:2], "Reserve\nexpired", "Booking\nexpired", "Locked,\nskipped", "Poison", "Pub-\nlished", "Due\nafter", "ms",
    _WORDS[2],
)  # fmt: skip


def _cells(number: int, cycle: Cycle) -> list[str]:
    result = cycle.result
    return [
        str(number),
        f"{cycle.started_at:%H:%M:%S}",
        "on the minute" if cycle.on_the_minute else "triggered",
        str(result.reserve_expired_count),
        str(result.booking_expired_count),
        str(result.skipped_locked_count),
        str(result.poison_count),
        str(result.published_count),
        str(cycle.backlog),
        str(result.duration_ms),
        result.outcome,
    ]


def _changed(now: int, before: int) -> str:
    return str(now) if now == before else f"[bold]{now}[/bold]"


def _warned(count: str, style: str) -> str:
    return count if count == "0" else f"[{style}]{count}[/{style}]"


def _table(title: str, caption: str | None = None, padding: int = 1) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True, padding=(0, padding))
    table.title, table.title_justify, table.title_style = title, "left", "bold"
    table.caption, table.caption_justify, table.caption_style = caption, "left", ""
    return table


def console() -> Console:
    """Standard output; wide enough that a pipe's lines are not broken."""
    return Console(file=sys.stdout) if sys.stdout.isatty() else Console(file=sys.stdout, width=200, force_terminal=False)
