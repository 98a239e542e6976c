"""Whatever is done to a booking, in any order, the invariants of INV-BKG-5 and INV-BKG-8 hold (A4, D3, D16)."""

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from domain.booking import EXPIRED, PHASE_OF, Booking, BookingError, Status
from domain.events import BookingExpired

START = datetime(2026, 3, 1, tzinfo=UTC)
IDS = (UUID(int=1), UUID(int=2), UUID(int=3), UUID(int=4))
# A narrow range of microseconds: the interesting cases are deadlines just before, at and just after the moment.
moments = st.integers(min_value=-5, max_value=5).map(lambda ticks: START + timedelta(microseconds=ticks))


class BookingLife(RuleBasedStateMachine):
    """A booking under random commands and expiries, compared after each step with how it was before."""

    booking: Booking
    before: Booking
    raised: list[BookingExpired]

    @initialize(status=st.sampled_from(Status), deadline=st.none() | moments, version=st.integers(1, 2**62))
    def begin(self, status: Status, deadline: datetime | None, version: int) -> None:
        """Start anywhere, also where the database's constraints would not allow."""
        self.booking = Booking(*IDS, status, deadline, deadline, version=version)
        self.raised = []
        self._remember()

    @rule(as_of=moments)
    def expire(self, as_of: datetime) -> None:
        """The worker tries."""
        self._remember()
        with suppress(BookingError):
            self.raised.append(self.booking.expire(as_of))
            deadline = self.before.deadline
            assert deadline is not None
            assert deadline < as_of
            assert self.before.phase is not None
            assert self.booking.status is EXPIRED[self.before.phase]
            assert self.booking.expired_at == as_of

    @rule(name=st.sampled_from(["request_payment", "cancel", "complete"]), at=moments)
    def command(self, name: str, at: datetime) -> None:
        """A manager tries a command without a deadline."""
        self._remember()
        with suppress(BookingError):
            getattr(self.booking, name)(at)

    @rule(name=st.sampled_from(["confirm", "extend"]), deadline=moments, at=moments)
    def command_with_deadline(self, name: str, deadline: datetime, at: datetime) -> None:
        """A manager tries a command that sets a deadline."""
        self._remember()
        with suppress(BookingError):
            getattr(self.booking, name)(deadline, at)

    def _remember(self) -> None:
        self.before = replace(self.booking, events=list(self.booking.events))

    @invariant()
    def terminal_is_for_ever(self) -> None:
        """INV-BKG-8: nothing of a terminal booking changes."""
        if self.before.phase is None:
            assert self.booking == self.before

    @invariant()
    def versions_have_no_gap_and_no_repeat(self) -> None:
        """A4: a change adds exactly one version; a refusal changes nothing at all."""
        if self.booking.version == self.before.version:
            assert self.booking == self.before
        else:
            assert self.booking.version == self.before.version + 1

    @invariant()
    def events_are_raised_exactly_once(self) -> None:
        """A4, A6: the booking holds just the events its expiries returned, at most one in a life."""
        assert self.booking.events == self.raised
        assert len(self.raised) <= 1
        assert bool(self.raised) == (self.booking.expired_at is not None)

    @invariant()
    def phase_and_deadline_agree(self) -> None:
        """S2: a terminal booking has neither phase nor deadline; an active one has its own phase's."""
        assert self.booking.phase == PHASE_OF.get(self.booking.status)
        assert self.booking.phase is not None or self.booking.deadline is None


def test_no_sequence_breaks_an_invariant() -> None:
    """A4, INV-BKG-5, INV-BKG-8: terminal stays terminal, versions have no gap, nothing expires before its time."""
    run_state_machine_as_test(
        BookingLife,
        settings=settings(max_examples=150, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]),
    )


@given(deadline=moments, as_of=moments, status=st.sampled_from(list(PHASE_OF)))
def test_expires_if_and_only_if_due(deadline: datetime, as_of: datetime, status: Status) -> None:
    """D3: an active booking expires exactly when its deadline is strictly before `as_of`."""
    booking = Booking(*IDS, status, deadline, deadline)
    with suppress(BookingError):
        booking.expire(as_of)
    assert (booking.expired_at is not None) == (deadline < as_of)
