"""The booking aggregate: its two phases, its states, and who may move it. Pure decisions, no I/O, time is an argument."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from domain.events import BookingExpired, Phase


class Status(StrEnum):
    """The states of a booking (D15). The values are what the database stores."""

    RESERVED = "Reserved"
    AWAITING_PAYMENT = "AwaitingPayment"
    BOOKED = "Booked"
    RESERVE_EXPIRED = "ReserveExpired"
    BOOKING_EXPIRED = "BookingExpired"
    CANCELLED = "Cancelled"
    COMPLETED = "Completed"


PHASE_OF = {Status.RESERVED: Phase.RESERVE, Status.AWAITING_PAYMENT: Phase.RESERVE, Status.BOOKED: Phase.BOOKING}
"""The phase of each active status (S2); a status that is not a key is terminal."""

EXPIRED = {Phase.RESERVE: Status.RESERVE_EXPIRED, Phase.BOOKING: Status.BOOKING_EXPIRED}


class BookingError(Exception):
    """A booking refused a transition; the booking is unchanged."""


class TerminalBookingError(BookingError):
    """The booking is already in a terminal state and never changes again (INV-BKG-8)."""


class NotDueError(BookingError):
    """The deadline is not strictly before the given moment, so the booking may not expire (INV-BKG-5, D3)."""


class WrongStatusError(BookingError):
    """The transition does not exist from the booking's present status."""


class DeadlineError(BookingError):
    """The phase has no deadline, or the new one is not later than the present one."""


@dataclass(slots=True)
class Booking:
    """One booking of a property object. All moments are aware datetimes in UTC; `version` counts changes from 1."""

    id: UUID
    tenant_id: UUID
    deal_id: UUID
    property_object_id: UUID
    status: Status
    reserve_expires_at: datetime | None
    booking_expires_at: datetime | None
    expired_at: datetime | None = None
    updated_at: datetime | None = None
    version: int = 1
    events: list[BookingExpired] = field(default_factory=list)

    @property
    def phase(self) -> Phase | None:
        """The phase the booking is in, or None when it is terminal (S2)."""
        return PHASE_OF.get(self.status)

    @property
    def deadline(self) -> datetime | None:
        """The moment (UTC) the present phase runs out; None when the booking is terminal."""
        match self.phase:
            case Phase.RESERVE:
                return self.reserve_expires_at
            case Phase.BOOKING:
                return self.booking_expires_at
            case _:
                return None

    def expire(self, as_of: datetime) -> BookingExpired:
        """Move a due booking to its phase's expired state and raise `BookingExpired` (A4, INV-BKG-5, INV-BKG-8).

        Raises `TerminalBookingError` for a terminal booking, `DeadlineError` where the phase has no deadline, and
        `NotDueError` unless the deadline is strictly before `as_of` (D3).
        """
        phase, from_status = self._active_phase(), self.status
        deadline = self.deadline
        if deadline is None:
            raise DeadlineError(f"booking {self.id} is {self.status} without a deadline for its phase")
        if not deadline < as_of:
            raise NotDueError(f"booking {self.id} is due at {deadline.isoformat()}, not before {as_of.isoformat()}")
        self._move(EXPIRED[phase], as_of)
        self.expired_at = as_of
        event = BookingExpired(
            self.id, self.tenant_id, self.deal_id, self.property_object_id, phase, as_of,
            from_status.value, self.status.value, self.version,
        )  # fmt: skip
        self.events.append(event)
        return event

    def request_payment(self, at: datetime) -> None:
        """Reserved → AwaitingPayment; the reserve's deadline stays (D16)."""
        self._require(Status.RESERVED)
        self._move(Status.AWAITING_PAYMENT, at)

    def confirm(self, booking_expires_at: datetime, at: datetime) -> None:
        """Reserved or AwaitingPayment → Booked with the booking's deadline, even after the reserve's (D16, D23)."""
        self._require(Status.RESERVED, Status.AWAITING_PAYMENT)
        self.booking_expires_at = booking_expires_at
        self._move(Status.BOOKED, at)

    def extend(self, new_deadline: datetime, at: datetime) -> None:
        """Move the present phase's deadline later, also after it has passed (D16, D23).

        Raises `DeadlineError` when the new deadline is not later than the present one.
        """
        phase, deadline = self._active_phase(), self.deadline
        if deadline is not None and not deadline < new_deadline:
            raise DeadlineError(f"booking {self.id} is due at {deadline.isoformat()}; extend it to a later moment")
        if phase is Phase.RESERVE:
            self.reserve_expires_at = new_deadline
        else:
            self.booking_expires_at = new_deadline
        self._move(self.status, at)

    def cancel(self, at: datetime) -> None:
        """Any active status → Cancelled (D16, D23)."""
        self._active_phase()
        self._move(Status.CANCELLED, at)

    def complete(self, at: datetime) -> None:
        """Booked → Completed: the flat is sold (D16)."""
        self._require(Status.BOOKED)
        self._move(Status.COMPLETED, at)

    def _active_phase(self) -> Phase:
        if (phase := self.phase) is None:
            raise TerminalBookingError(f"booking {self.id} is {self.status} and never changes again")
        return phase

    def _require(self, *statuses: Status) -> None:
        self._active_phase()
        if self.status not in statuses:
            raise WrongStatusError(f"booking {self.id} is {self.status}; this needs {' or '.join(statuses)}")

    def _move(self, status: Status, at: datetime) -> None:
        self.status = status
        self.updated_at = at
        self.version += 1
