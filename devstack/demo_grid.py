"""The demo's chessboard: which flat is taken, expired or free, live; and the consumer's own process behind it (P3, P4)."""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import zip_longest
from typing import Final, NamedTuple
from uuid import UUID

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from db.reading import reading
from db.unit_of_work import Pool, UnitOfWork

CONSUMER: Final = [sys.executable, "-m", "chessboard", "run"]


class Flat(NamedTuple):
    """A property object as people call it."""

    tenant: str
    house: int
    number: int


class State(StrEnum):
    """What a cell shows. Expired: the booking is over and the object not yet free, so that nobody can book it (P4)."""

    TAKEN = "taken"
    EXPIRED = "expired"
    FREE = "free"


_COLOURS: Final = {State.TAKEN: "blue", State.EXPIRED: "bright_red", State.FREE: "bright_green"}


@dataclass(slots=True)
class Grid:
    """Every flat's state, house by house."""

    flats: Mapping[UUID, Flat] = field(default_factory=dict)
    states: dict[UUID, State] = field(default_factory=dict)

    @property
    def counts(self) -> Counter[State]:
        """How many flats are in each state."""
        return Counter(self.states.values())

    async def look(self, chessboard: Pool, operator: Pool) -> None:
        """Read the objects, then which holders are over: an object in between shows as expired, never the other way."""
        held = await _holders(chessboard)
        over = await _over(operator, [holder for holder in held.values() if holder])
        for object_id, holder in held.items():
            self.states[object_id] = State.FREE if holder is None else State.EXPIRED if holder in over else State.TAKEN

    def line(self) -> str:
        """The counts, for those who see lines."""
        return f"Chessboard: {', '.join(f'{self.counts[state]} {state}' for state in State)}"

    def picture(self) -> RenderableType:
        """One row per company and pair of houses: the upper half of a cell is a flat of the one, the lower of the other."""
        table = Table.grid(padding=(0, 1))
        for _ in range(3):
            table.add_column(no_wrap=True, overflow="crop")
        for (tenant, upper, lower), cells in self._rows():
            free = sum(self.states[cell] is State.FREE for pair in cells for cell in pair if cell)
            table.add_row(f"[dim]{tenant} {upper}, {lower}[/dim]", self._cells(cells), f"[green]{free:>3}[/green] free")
        counts = self.counts
        legend = "  ".join(f"[{_COLOURS[state]}]■[/] {state} {counts[state]}" for state in State)
        outer = Table.grid()
        outer.add_row(f"[bold]Chessboard[/bold], a flat per half cell, two houses per row:  {legend}")
        outer.add_row(table)
        outer.add_row("")
        return outer

    def _rows(self) -> Iterable[tuple[tuple[str, int, int], list[tuple[UUID | None, UUID | None]]]]:
        houses: dict[tuple[str, int], list[UUID]] = {}
        for object_id, flat in sorted(self.flats.items(), key=lambda pair: pair[1]):
            if object_id in self.states:
                houses.setdefault((flat.tenant, flat.house), []).append(object_id)
        for (tenant, house), upper in houses.items():
            if house % 2:
                both = zip_longest(upper, houses.get((tenant, house + 1), []))
                yield (tenant, house, house + 1), list(both)

    def _cells(self, cells: Iterable[tuple[UUID | None, UUID | None]]) -> Text:
        text = Text()
        for upper, lower in cells:
            above, below = (_COLOURS[self.states[cell]] if cell else "default" for cell in (upper, lower))
            text.append("▀" if upper else "▄", f"{above} on {below}" if upper else below)
        return text


_HOLDERS: Final = "SELECT id, booking_id FROM chessboard.objects"


async def _holders(chessboard: Pool) -> dict[UUID, UUID | None]:
    async with reading(chessboard) as connection:
        return {row["id"]: row["booking_id"] for row in await connection.fetch(_HOLDERS)}


_OVER: Final = "SELECT id FROM crm.bookings WHERE id = ANY ($1::uuid[]) AND status IN ('ReserveExpired', 'BookingExpired')"


async def _over(operator: Pool, holders: list[UUID]) -> set[UUID]:
    async with reading(operator) as connection:
        return {row["id"] for row in await connection.fetch(_OVER, holders)}


async def seed(chessboard: Pool, held: Mapping[UUID, UUID | None]) -> None:
    """Put the objects on the chessboard, with the booking that holds each, or free. Raises `DatabaseError`."""
    rows = [(object_id, "Taken" if booking_id else "Free", booking_id) for object_id, booking_id in held.items()]
    async with UnitOfWork(chessboard) as connection:
        await connection.copy_records_to_table(
            "objects", schema_name="chessboard", columns=("id", "status", "booking_id"), records=rows, timeout=10
        )


@dataclass(frozen=True, slots=True)
class Objects:
    """What the chessboard says at the end: objects of bookings that expired and that are still active, and who holds them."""

    freed: int
    still_taken: int
    wrong: int


_AT_THE_END: Final = """
    SELECT count(*) FILTER (WHERE object.booking_id IS NULL AND held.was_expired)::int AS freed,
           count(*) FILTER (WHERE object.booking_id = held.booking_id AND NOT held.was_expired)::int AS still_taken,
           count(*) FILTER (WHERE object.booking_id IS NOT NULL AND held.was_expired
                               OR object.booking_id IS DISTINCT FROM held.booking_id AND NOT held.was_expired)::int AS wrong
      FROM unnest($1::uuid[], $2::uuid[], $3::bool[]) AS held (object_id, booking_id, was_expired)
           LEFT JOIN chessboard.objects AS object ON object.id = held.object_id"""


async def at_the_end(chessboard: Pool, operator: Pool, held: Mapping[UUID, UUID]) -> Objects:
    """Each object that a booking held in the beginning must be free if that booking expired, and else still be held by it."""
    expired = await _over(operator, list(held.values()))
    bookings = list(held.values())
    async with reading(chessboard) as connection:
        row = await connection.fetchrow(_AT_THE_END, list(held), bookings, [one in expired for one in bookings])
    return Objects(**dict(row or {}))
