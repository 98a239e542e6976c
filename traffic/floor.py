"""The sales floor that never sleeps: managers reserve, confirm, extend, cancel, complete, and sell again what became free."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, NamedTuple
from uuid import UUID

from chessboard.objects import ObjectError
from db.commands import By
from db.unit_of_work import Pool, UnitOfWork
from domain.booking import Booking, BookingError, Status, TerminalBookingError
from domain.events import Phase
from traffic import crm
from traffic.crm import Crm
from traffic.model import TICK, Model

TENANTS: Final = 8
SPARE: Final = 0.1
"""Free objects at the start, as a share of the active bookings."""

_SEEDING: Final = timedelta(milliseconds=0.2)
"""What one booking takes to seed, generously; `Model.deadline` adds two seconds to all of them."""

_AT_ONCE: Final = 8
"""Commands under way at the same time at most."""

_MEETING: Final = 0.1
_MEETING_AT_THE_TICK: Final = 0.9
"""The share of commands aimed at a booking that is due in this very minute; and while a cycle is at work."""

_SHARES: Final = {Status.RESERVED: 0.55, Status.AWAITING_PAYMENT: 0.15, Status.BOOKED: 0.30}
"""Of the bookings at the start."""

_ACTIONS: Final = {"RequestPayment": 20, "Confirm": 30, "Extend": 25, "Cancel": 12, "Complete": 8, "Knock": 5}
_FROM: Final = {
    "RequestPayment": (Status.RESERVED,),
    "Confirm": (Status.RESERVED, Status.AWAITING_PAYMENT),
    "Extend": (Status.RESERVED, Status.AWAITING_PAYMENT, Status.BOOKED),
    "Cancel": (Status.RESERVED, Status.AWAITING_PAYMENT, Status.BOOKED),
    "Complete": (Status.BOOKED,),
    "Knock": (Status.BOOKED,),
}


class Wrong(NamedTuple):
    """Something that must never be: which rule, about which booking or object, in which numbers."""

    rule: str
    subject: str
    detail: str


class Floor:
    """Seeds the floor and then gives `rate` commands a minute. `wrong` is told what the commands themselves find wrong."""

    def __init__(self, model: Model, crm: Pool, chessboard: Pool, wrong: Callable[[Wrong], None]) -> None:
        self.model = model
        self.done: Counter[str] = Counter()
        self.lost = 0
        self._crm, self._chessboard = crm, chessboard
        self._managers = Crm(crm, chessboard)
        self._wrong = wrong
        self._rng: random.Random = model.rng
        self._tenants = [model.new_id() for _ in range(TENANTS)]
        self._size = 0
        self._number = 0

    async def seed(self, size: int) -> None:
        """Put in `size` active bookings with their objects taken, and some free objects. Raises `DatabaseError`.

        Their deadlines come after the rows: X8 promises nothing to a booking that was overdue before it was there.
        """
        self._size = size
        model, now = self.model, self.model.now() + size * _SEEDING
        for number in range(size):
            status = self._rng.choices(list(_SHARES), list(_SHARES.values()))[0]
            phase = Phase.BOOKING if status is Status.BOOKED else Phase.RESERVE
            model.put(self._booking(model.new_id(), status, model.deadline(phase, now), number))
        model.free = [model.new_id() for _ in range(max(int(size * SPARE), 20))]
        await _copy(self._chessboard, self._crm, list(model.bookings.values()), model.free)

    async def run(self, rate: float, stop: asyncio.Event) -> None:
        """Give commands until `stop`; those under way are finished."""
        async with asyncio.TaskGroup() as commands:
            slots, loop = asyncio.Semaphore(_AT_ONCE), asyncio.get_running_loop()
            next_at = loop.time()
            while not stop.is_set():
                await slots.acquire()
                commands.create_task(self._one()).add_done_callback(lambda _: slots.release())
                next_at = max(next_at + 60 / rate, loop.time() - 1)
                await asyncio.sleep(max(next_at - loop.time(), 0))

    async def _one(self) -> None:
        """Sell while there are fewer bookings than wanted; else something with one that is there."""
        if self.model.size < self._size and self.model.free:
            await self._reserve()
            return
        action = self._rng.choices(list(_ACTIONS), list(_ACTIONS.values()))[0]
        booking = self._choose(_FROM[action])
        if booking is None:
            return
        self.model.busy.add(booking.id)
        try:
            await (self._knock(booking) if action == "Knock" else self._command(action, booking))
        finally:
            self.model.busy.discard(booking.id)
            self.model.changed.add(booking.id)

    def _choose(self, statuses: tuple[Status, ...]) -> Booking | None:
        now = self.model.now()
        share = _MEETING_AT_THE_TICK if now.second < TICK.total_seconds() else _MEETING
        due = self.model.due_soon(now) if self._rng.random() < share else None
        booking_id = due or self.model.active[self._rng.choice(statuses)].draw(self._rng)
        booking = self.model.bookings.get(booking_id) if booking_id else None
        return booking if booking and booking.status in statuses and booking.id not in self.model.busy else None

    async def _reserve(self) -> None:
        """Sell the object that became free last: a late event about its former booking would meet the new one (D17)."""
        model, object_id = self.model, self.model.free.pop()
        booking_id = model.new_id()
        model.busy.add(booking_id)
        booking = self._booking(booking_id, Status.RESERVED, model.deadline(Phase.RESERVE, model.now()), object_id=object_id)
        try:
            await self._managers.reserve(booking)
        except ObjectError as error:
            self._wrong(Wrong("a free object was refused", str(object_id), str(error)))
            return
        finally:
            model.busy.discard(booking_id)
        model.put(booking)
        self.done["Reserve"] += 1

    async def _command(self, action: str, booking: Booking) -> None:
        self._number += 1
        now = self.model.now()
        by = By(actor="manager", action=action, at=now, request=f"traffic-{self._number}-{booking.id}")
        decide = self._decision(action, booking)
        try:
            after = await self._managers.command(booking.id, decide, by)
        except TerminalBookingError:
            self.lost += 1
            self.model.lost(booking.id)
            return
        except BookingError as error:
            self._wrong(Wrong("a command was refused", str(booking.id), f"{action}: {error}"))
            return
        self.done[action] += 1
        await self._follow_up(action, booking, after)

    def _decision(self, action: str, booking: Booking) -> Callable[[Booking], None]:
        now = self.model.now()
        phase = booking.phase or Phase.RESERVE
        match action:
            case "RequestPayment":
                return lambda read: read.request_payment(now)
            case "Confirm":
                deadline = self.model.deadline(Phase.BOOKING, now)
                return lambda read: read.confirm(deadline, now)
            case "Extend":
                deadline = self.model.deadline(phase, now, booking.deadline)
                return lambda read: read.extend(deadline, now)
            case "Cancel":
                return lambda read: read.cancel(now)
            case _:
                return lambda read: read.complete(now)

    async def _follow_up(self, action: str, before: Booking, after: Booking) -> None:
        """What the command means for object and market; the booking is busy until all of it is done."""
        if after.version != before.version + 1:
            self._wrong(Wrong("changed by nobody", str(before.id), f"{action} made version {after.version} of {before.version}"))
        self.model.put(after)
        if action == "Cancel":
            await self._managers.release(after)
            self.model.over(after.id)
        elif action == "Complete":
            self.model.forget(after.id)
            flat = self.model.new_id()
            await crm.put_free(self._chessboard, [flat])
            self.model.free.insert(0, flat)

    async def _knock(self, booking: Booking) -> None:
        """Another investor asks for a taken object and must be refused (P4); only where nobody can free it meanwhile."""
        deadline = booking.deadline
        if deadline is None or (deadline - self.model.now()).total_seconds() < 120:  # noqa: PLR2004 # two ticks away
            return
        if not await self._managers.knock(booking.property_object_id, self.model.new_id()):
            self._wrong(Wrong("sold twice", str(booking.property_object_id), f"it was taken by booking {booking.id}"))
        self.done["Knock"] += 1

    def _booking(
        self, booking_id: UUID, status: Status, deadline: datetime, tenant: int = 0, *, object_id: UUID | None = None
    ) -> Booking:
        booked = status is Status.BOOKED
        now = self.model.now()
        return Booking(
            booking_id,
            self._tenants[tenant % TENANTS],
            self.model.new_id(),
            object_id or self.model.new_id(),
            status,
            None if booked else deadline,
            deadline if booked else None,
            updated_at=now,
        )


async def _copy(chessboard: Pool, crm_app: Pool, bookings: list[Booking], free: list[UUID]) -> None:
    """Objects first: no booking is active without its object, not even for a moment."""
    held = [(booking.property_object_id, "Taken", booking.id) for booking in bookings]
    async with UnitOfWork(chessboard) as connection:
        await connection.copy_records_to_table(
            "objects", schema_name="chessboard", columns=("id", "status", "booking_id"),
            records=[*held, *((one, "Free", None) for one in free)], timeout=60,
        )  # fmt: skip
    columns = (
        "id", "tenant_id", "deal_id", "property_object_id", "status", "reserve_expires_at", "booking_expires_at", "updated_at",
    )  # fmt: skip
    rows = [
        (b.id, b.tenant_id, b.deal_id, b.property_object_id, b.status, b.reserve_expires_at, b.booking_expires_at, b.updated_at)
        for b in bookings
    ]
    async with UnitOfWork(crm_app) as connection:
        await connection.copy_records_to_table("bookings", schema_name="crm", columns=columns, records=rows, timeout=60)
