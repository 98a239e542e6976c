"""The sales grid as the CRM uses it, synchronously: take an object for a booking, give it back (D17, P4).

ObjectError
├── ObjectNotAvailableError   another booking holds it; `code` is what the user's screen knows (P4)
├── BookingOverError          the booking's expiry is known: it can hold nothing any more
└── UnknownObjectError        there is no such property object
"""

from collections.abc import Iterable
from typing import ClassVar, Final
from uuid import UUID

from db.unit_of_work import Connection


class ObjectError(Exception):
    """The operation was refused; nothing changed."""


class ObjectNotAvailableError(ObjectError):
    """Somebody else's booking holds the object (P4)."""

    code: ClassVar = "CRM_PROPERTY_OBJECT_NOT_AVAILABLE"


class BookingOverError(ObjectError):
    """A command that was slower than the booking's own expiry."""


class UnknownObjectError(ObjectError):
    """The object is not on the chessboard."""


_ADD: Final = "INSERT INTO chessboard.objects (id) SELECT unnest($1::uuid[]) ON CONFLICT (id) DO NOTHING"


async def add(connection: Connection, objects: Iterable[UUID]) -> None:
    """Put free objects on the grid; one that is there already stays as it is."""
    await connection.execute(_ADD, sorted(objects))


# Locked before anything is asked, and asked in a statement of its own: an expiry that is being applied right now holds this
# lock, and the second statement's snapshot sees what it has committed. In one statement it would not.
_HOLDER: Final = "SELECT booking_id FROM chessboard.objects WHERE id = $1 FOR NO KEY UPDATE"

_OVER: Final = "SELECT EXISTS (SELECT FROM chessboard.processed_events WHERE booking_id = $1)"

_TAKE: Final = "UPDATE chessboard.objects SET status = 'Taken', booking_id = $2, updated_at = clock_timestamp() WHERE id = $1"


async def take(connection: Connection, object_id: UUID, booking_id: UUID) -> None:
    """Let the booking hold the object; asking again for what it holds already is no error (a lost answer, trap 26).

    Raises `ObjectNotAvailableError` (P4), `BookingOverError`, `UnknownObjectError`.
    """
    holder = await _lock(connection, object_id)
    if holder == booking_id:
        return
    if holder is not None:
        raise ObjectNotAvailableError(f"{ObjectNotAvailableError.code}: object {object_id} is taken by booking {holder}")
    if await connection.fetchval(_OVER, booking_id):
        raise BookingOverError(f"booking {booking_id} has expired: object {object_id} stays free")
    await connection.execute(_TAKE, object_id, booking_id)


_RELEASE: Final = "UPDATE chessboard.objects SET status = 'Free', booking_id = NULL, updated_at = clock_timestamp() WHERE id = $1"


async def release(connection: Connection, object_id: UUID, booking_id: UUID) -> bool:
    """Free the object if the booking holds it (a manager cancelled); False when it does not, and nothing changes.

    Raises `UnknownObjectError`.
    """
    if await _lock(connection, object_id) != booking_id:
        return False
    await connection.execute(_RELEASE, object_id)
    return True


async def _lock(connection: Connection, object_id: UUID) -> UUID | None:
    row = await connection.fetchrow(_HOLDER, object_id)
    if row is None:
        raise UnknownObjectError(f"there is no property object {object_id}")
    holder: UUID | None = row["booking_id"]
    return holder
