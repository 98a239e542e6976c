"""The aggregate's transitions: what each moves, what it refuses, and what an expiry raises (A4, D3, D16, D23)."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest

from domain.booking import (
    EXPIRED,
    PHASE_OF,
    Booking,
    BookingError,
    DeadlineError,
    NotDueError,
    Status,
    TerminalBookingError,
    WrongStatusError,
)
from domain.events import BookingExpired, Phase

NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
TICK = timedelta(microseconds=1)
IDS = (UUID(int=1), UUID(int=2), UUID(int=3), UUID(int=4))
ACTIVE = [Status.RESERVED, Status.AWAITING_PAYMENT, Status.BOOKED]
TERMINAL = [Status.RESERVE_EXPIRED, Status.BOOKING_EXPIRED, Status.CANCELLED, Status.COMPLETED]

Transition = Callable[[Booking], object]
TRANSITIONS: dict[str, Transition] = {
    "expire": lambda booking: booking.expire(NOW),
    "request_payment": lambda booking: booking.request_payment(NOW),
    "confirm": lambda booking: booking.confirm(NOW + TICK, NOW),
    "extend": lambda booking: booking.extend(NOW + TICK, NOW),
    "cancel": lambda booking: booking.cancel(NOW),
    "complete": lambda booking: booking.complete(NOW),
}


def a_booking(status: Status, deadline: datetime | None = NOW - TICK) -> Booking:
    """A booking of version 7 in `status` whose deadlines are both `deadline`."""
    return Booking(*IDS, status, deadline, deadline, version=7)


@pytest.mark.parametrize("status", [Status.RESERVED, Status.AWAITING_PAYMENT])
def test_x2_reserve_expires(status: Status) -> None:
    """X2: a reserve past its deadline becomes ReserveExpired at `as_of`, version + 1, with Phase = Reserve."""
    booking = a_booking(status)
    event = booking.expire(NOW)
    assert (booking.status, booking.expired_at, booking.updated_at, booking.version) == (Status.RESERVE_EXPIRED, NOW, NOW, 8)
    assert (event.phase, event.from_status, event.to_status) == (Phase.RESERVE, status, "ReserveExpired")


def test_x3_booking_expires() -> None:
    """X3: a booking past its deadline becomes BookingExpired at `as_of`, version + 1, with Phase = Booking."""
    booking = a_booking(Status.BOOKED)
    event = booking.expire(NOW)
    assert (booking.status, booking.expired_at, booking.updated_at, booking.version) == (Status.BOOKING_EXPIRED, NOW, NOW, 8)
    assert (event.phase, event.from_status, event.to_status) == (Phase.BOOKING, "Booked", "BookingExpired")


def test_event_carries_the_aggregate() -> None:
    """A6: the event repeats the aggregate's four ids, the moment and the version after the transition, and is kept once."""
    booking = a_booking(Status.BOOKED)
    event = booking.expire(NOW)
    assert event == BookingExpired(*IDS, Phase.BOOKING, NOW, "Booked", "BookingExpired", 8)
    assert booking.events == [event]


@pytest.mark.parametrize("status", ACTIVE)
def test_deadline_equal_to_as_of_is_not_due(status: Status) -> None:
    """D3: the comparison is strict, so a deadline equal to `as_of` is refused, and one microsecond earlier expires."""
    with pytest.raises(NotDueError, match=r"12:00:00\.123456"):
        a_booking(status, NOW).expire(NOW)
    assert a_booking(status, NOW - TICK).expire(NOW).expired_at == NOW


def test_deadline_is_an_instant_not_a_wall_clock() -> None:
    """I1: the deadline is compared as an instant, whatever offset it is written with."""
    moscow = timezone(timedelta(hours=3))
    assert a_booking(Status.RESERVED, (NOW - TICK).astimezone(moscow)).expire(NOW).expired_at == NOW
    with pytest.raises(NotDueError):
        a_booking(Status.RESERVED, NOW.astimezone(moscow)).expire(NOW)


@pytest.mark.parametrize(("status", "other"), [(Status.RESERVED, "booking_expires_at"), (Status.BOOKED, "reserve_expires_at")])
def test_only_the_own_phase_counts(status: Status, other: str) -> None:
    """S2: the other phase's deadline, long past or missing, decides nothing."""
    for moment in (NOW - timedelta(days=9), None):
        booking = a_booking(status, NOW + TICK)
        setattr(booking, other, moment)
        with pytest.raises(NotDueError):
            booking.expire(NOW)


@pytest.mark.parametrize("status", ACTIVE)
def test_no_deadline_no_expiry(status: Status) -> None:
    """A4: an active booking without its phase's deadline is refused, not expired."""
    with pytest.raises(DeadlineError, match=status.value):
        a_booking(status, None).expire(NOW)


@pytest.mark.parametrize("status", TERMINAL)
@pytest.mark.parametrize("name", TRANSITIONS)
def test_terminal_never_changes(status: Status, name: str) -> None:
    """INV-BKG-8: every transition refuses a terminal booking and leaves it as it was."""
    booking = a_booking(status)
    before = replace(booking, events=[])
    with pytest.raises(TerminalBookingError, match="never changes again"):
        TRANSITIONS[name](booking)
    assert booking == before
    assert (booking.phase, booking.deadline) == (None, None)


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("request_payment", Status.AWAITING_PAYMENT),
        ("request_payment", Status.BOOKED),
        ("confirm", Status.BOOKED),
        ("complete", Status.RESERVED),
        ("complete", Status.AWAITING_PAYMENT),
    ],
)
def test_wrong_status_is_refused(name: str, status: Status) -> None:
    """D16: a manager's command that does not exist from this status is refused and names what it needs."""
    booking = a_booking(status)
    before = replace(booking, events=[])
    with pytest.raises(WrongStatusError, match="this needs"):
        TRANSITIONS[name](booking)
    assert booking == before


@pytest.mark.parametrize(
    ("name", "status", "then"),
    [
        ("request_payment", Status.RESERVED, Status.AWAITING_PAYMENT),
        ("confirm", Status.RESERVED, Status.BOOKED),
        ("confirm", Status.AWAITING_PAYMENT, Status.BOOKED),
        ("extend", Status.RESERVED, Status.RESERVED),
        ("extend", Status.AWAITING_PAYMENT, Status.AWAITING_PAYMENT),
        ("extend", Status.BOOKED, Status.BOOKED),
        ("cancel", Status.RESERVED, Status.CANCELLED),
        ("cancel", Status.AWAITING_PAYMENT, Status.CANCELLED),
        ("cancel", Status.BOOKED, Status.CANCELLED),
        ("complete", Status.BOOKED, Status.COMPLETED),
    ],
)
def test_managers_commands(name: str, status: Status, then: Status) -> None:
    """D16, D23: each command works after the deadline too, adds one version, and raises no expiry."""
    booking = a_booking(status)
    TRANSITIONS[name](booking)
    assert (booking.status, booking.version, booking.updated_at, booking.expired_at) == (then, 8, NOW, None)
    assert booking.events == []


def test_extend_moves_only_its_own_phase() -> None:
    """D16: `extend` moves the deadline of the phase the booking is in and leaves the other one."""
    later = NOW + timedelta(days=1)
    reserved, booked = a_booking(Status.RESERVED, NOW), a_booking(Status.BOOKED, NOW)
    reserved.extend(later, NOW)
    booked.extend(later, NOW)
    assert (reserved.reserve_expires_at, reserved.booking_expires_at) == (later, NOW)
    assert (booked.reserve_expires_at, booked.booking_expires_at) == (NOW, later)


@pytest.mark.parametrize("step", [timedelta(0), -TICK])
def test_extend_only_to_a_later_moment(step: timedelta) -> None:
    """D16: a deadline can only move later; the present one or an earlier one is refused."""
    booking = a_booking(Status.RESERVED, NOW)
    with pytest.raises(DeadlineError, match="later"):
        booking.extend(NOW + step, NOW)
    assert (booking.reserve_expires_at, booking.version) == (NOW, 7)


def test_confirmed_booking_leaves_the_reserve_phase() -> None:
    """X6: a reserve confirmed after its deadline is no longer due for it, and expires by the booking's deadline only."""
    booking = a_booking(Status.RESERVED)
    booking.confirm(NOW + TICK, NOW)
    with pytest.raises(NotDueError):
        booking.expire(NOW + TICK)
    assert booking.expire(NOW + 2 * TICK).phase is Phase.BOOKING


def test_every_status_is_active_or_terminal() -> None:
    """D15: the seven statuses are known by these values, and exactly three of them have a phase."""
    assert {status.value for status in Status} == {status.value for status in [*ACTIVE, *TERMINAL]}
    assert list(PHASE_OF) == ACTIVE
    assert EXPIRED == {Phase.RESERVE: Status.RESERVE_EXPIRED, Phase.BOOKING: Status.BOOKING_EXPIRED}


def test_every_refusal_is_a_booking_error() -> None:
    """A7: whatever the guard refuses is one kind of error, which makes the row poison and nothing else."""
    refusals = [TerminalBookingError, NotDueError, WrongStatusError, DeadlineError]
    assert all(issubclass(refusal, BookingError) for refusal in refusals)
