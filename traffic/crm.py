"""The CRM's synchronous side, through its own commands and the chessboard's operations, each with its own role (D16, D17).

Whoever lost an answer asks again until it is known what has happened (trap 26): a manager's command by its audit row, taking and
releasing an object by simply repeating it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar
from uuid import UUID

from chessboard import objects
from chessboard.objects import ObjectNotAvailableError
from db import commands
from db.commands import By
from db.errors import DatabaseUnavailableError, VersionConflictError
from db.unit_of_work import Connection, Pool, UnitOfWork
from domain.booking import Booking

T = TypeVar("T")
_AGAIN: Final = 0.3
"""Seconds until a database that did not answer is asked again."""


# A repeated insert of a booking that is there already changes nothing; a new booking has version 1 and no audit row.
_RESERVE: Final = """
    INSERT INTO crm.bookings (id, tenant_id, deal_id, property_object_id, status, reserve_expires_at, booking_expires_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO NOTHING"""

_DONE: Final = "SELECT EXISTS (SELECT FROM crm.booking_audit WHERE booking_id = $1 AND correlation_id = $2)"


@dataclass(frozen=True, slots=True)
class Crm:
    """Managers at work; `crm` and `chessboard` are pools of these two roles."""

    crm: Pool
    chessboard: Pool

    async def reserve(self, booking: Booking) -> None:
        """Take the object, then write the booking (D17). Raises `ObjectError` when the object cannot be had."""
        await self._take(booking)
        await _patiently(self.crm, lambda connection: connection.execute(_RESERVE, *_row(booking)))

    async def knock(self, object_id: UUID, booking_id: UUID) -> bool:
        """Ask for an object that is taken; whether it was refused as P4 wants."""
        try:
            async with UnitOfWork(self.chessboard) as connection:
                await objects.take(connection, object_id, booking_id)
        except (ObjectNotAvailableError, DatabaseUnavailableError):
            return True
        return False

    async def release(self, booking: Booking) -> None:
        """Give back the object of a cancelled booking; it may have been given back by an attempt whose answer was lost."""
        await _patiently(self.chessboard, lambda c: objects.release(c, booking.property_object_id, booking.id))

    async def command(self, booking_id: UUID, decide: Callable[[Booking], None], by: By) -> Booking:
        """One command, read again and decided again after a conflict. Raises `BookingError` when the domain refuses."""
        while True:
            try:
                async with UnitOfWork(self.crm) as connection:
                    return await commands.command(connection, booking_id, decide, by)
            except VersionConflictError:
                continue
            except DatabaseUnavailableError:
                await asyncio.sleep(_AGAIN)
                if await _patiently(self.crm, lambda c: c.fetchval(_DONE, booking_id, by.request)):
                    return await _patiently(self.crm, lambda c: commands.read(c, booking_id))

    async def _take(self, booking: Booking) -> None:
        await _patiently(self.chessboard, lambda c: objects.take(c, booking.property_object_id, booking.id))


async def put_free(chessboard: Pool, ids: Iterable[UUID]) -> None:
    """New flats come on the market."""
    await _patiently(chessboard, lambda connection: objects.add(connection, ids))


async def _patiently(pool: Pool, work: Callable[[Connection], Awaitable[T]]) -> T:
    while True:
        try:
            async with UnitOfWork(pool) as connection:
                return await work(connection)
        except DatabaseUnavailableError:
            await asyncio.sleep(_AGAIN)


def _row(booking: Booking) -> tuple[object, ...]:
    ids = (booking.id, booking.tenant_id, booking.deal_id, booking.property_object_id)
    return (*ids, booking.status, booking.reserve_expires_at, booking.booking_expires_at)
