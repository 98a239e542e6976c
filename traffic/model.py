"""What the managers know: each booking as it was last acknowledged to them, which objects are free, and when what is due."""

import math
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from domain.booking import PHASE_OF, Booking, Status
from domain.events import Phase

HORIZON: Final = 15
"""Minutes ahead that deadlines are planned for; the others are hours and days away."""

NEAR: Final = 0.7
"""The share of new deadlines that lie within the horizon, as long as there is room."""

TICK: Final = timedelta(seconds=2)
"""After the full minute a cycle is at work for about that long."""

_MINUTE: Final = timedelta(minutes=1)


class Bag:
    """Ids of which any one can be drawn, added and taken out at once."""

    def __init__(self) -> None:
        self._ids: list[UUID] = []
        self._places: dict[UUID, int] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, one: object) -> bool:
        return one in self._places

    def __iter__(self) -> Iterator[UUID]:
        return iter(self._ids)

    def add(self, one: UUID) -> None:
        """Put it in; it must not be there yet."""
        self._places[one] = len(self._ids)
        self._ids.append(one)

    def discard(self, one: UUID) -> None:
        """Take it out if it is there: the last one moves into its place."""
        place = self._places.pop(one, None)
        if place is not None:
            last = self._ids.pop()
            if last != one:
                self._ids[place], self._places[last] = last, place

    def draw(self, rng: random.Random) -> UUID | None:
        """Any one, which stays in."""
        return rng.choice(self._ids) if self._ids else None


@dataclass(slots=True)
class Model:
    """The floor in memory. `due` bounds the deadlines of a phase per minute (D27); `ahead`: the database's clock minus ours."""

    rng: random.Random
    due: int
    ahead: timedelta = timedelta()
    bookings: dict[UUID, Booking] = field(default_factory=dict)
    active: dict[Status, Bag] = field(default_factory=lambda: {status: Bag() for status in PHASE_OF})
    slots: dict[tuple[Phase, int], Bag] = field(default_factory=lambda: defaultdict(Bag))
    busy: set[UUID] = field(default_factory=set)
    changed: set[UUID] = field(default_factory=set)
    waiting: dict[UUID, UUID] = field(default_factory=dict)
    free: list[UUID] = field(default_factory=list)

    def now(self) -> datetime:
        """The database's clock, UTC."""
        return datetime.now(UTC) + self.ahead

    def new_id(self) -> UUID:
        """An id that the seed decides."""
        return UUID(int=self.rng.getrandbits(128), version=4)

    @property
    def size(self) -> int:
        """How many bookings are active, as far as is known."""
        return sum(map(len, self.active.values()))

    def deadline(self, phase: Phase, now: datetime, later_than: datetime | None = None) -> datetime:
        """A deadline in a minute that has room for one more, or hours to days away."""
        first = max(now + timedelta(seconds=2), later_than or now)
        if self.rng.random() < NEAR:
            start = self.rng.randrange(HORIZON)
            for step in range(HORIZON):
                begins = _start_of(_minute(first) + (start + step) % HORIZON)
                drawn = begins + self.rng.random() * _MINUTE
                if drawn > first and len(self.slots[phase, _minute(drawn)]) < self.due:
                    return drawn
        return first + timedelta(hours=1 + 72 * self.rng.random())

    def put(self, booking: Booking) -> None:
        """Know a booking as it is now; what was known before is forgotten."""
        self._unplan(booking.id)
        self.bookings[booking.id] = booking
        self.changed.add(booking.id)
        if booking.phase and booking.deadline:
            self.active[booking.status].add(booking.id)
            self.slots[booking.phase, _minute(booking.deadline)].add(booking.id)

    def over(self, booking_id: UUID) -> None:
        """It expired, or was cancelled: once its object is seen to be free, it is sold again."""
        self._unplan(booking_id)
        booking = self.bookings.pop(booking_id)
        self.waiting[booking.property_object_id] = booking_id

    def forget(self, booking_id: UUID) -> None:
        """A sold flat: it leaves the market with its booking."""
        self._unplan(booking_id)
        self.bookings.pop(booking_id)

    def lost(self, booking_id: UUID) -> None:
        """A command found it expired: no further one is given; the checker will see it and say whether that was right."""
        self._unplan(booking_id)

    def became_free(self, object_id: UUID) -> None:
        """An object can be sold again."""
        if self.waiting.pop(object_id, None):
            self.free.append(object_id)

    def due_soon(self, now: datetime) -> UUID | None:
        """A booking whose deadline is in this minute, or has just passed at the tick: there managers and worker meet (D23)."""
        phase = self.rng.choice(list(Phase))
        return self.slots[phase, _minute(now - TICK)].draw(self.rng)

    def _unplan(self, booking_id: UUID) -> None:
        known = self.bookings.get(booking_id)
        if known and known.phase and known.deadline:
            self.active[known.status].discard(booking_id)
            self.slots[known.phase, _minute(known.deadline)].discard(booking_id)


def _minute(moment: datetime) -> int:
    return math.floor(moment.timestamp() / 60)


def _start_of(minute: int) -> datetime:
    return datetime.fromtimestamp(minute * 60, UTC)
