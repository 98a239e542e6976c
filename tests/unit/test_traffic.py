"""The traffic's memory and the goals of X8, without any server."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from domain.booking import Booking, Status
from domain.events import Phase
from traffic import slo
from traffic.model import Bag, Model
from traffic.slo import Span

NOW = datetime(2026, 3, 1, 12, 0, 10, tzinfo=UTC)


def reserved(model: Model, deadline: datetime) -> Booking:
    """A reserved booking that the model knows."""
    booking = Booking(model.new_id(), uuid4(), uuid4(), model.new_id(), Status.RESERVED, deadline, None)
    model.put(booking)
    return booking


def test_a_bag_keeps_what_is_in_it() -> None:
    """Issue 6 section 3: whatever is taken out in whatever order, the bag holds exactly the rest."""
    bag, rng, inside = Bag(), random.Random(4), set[UUID]()
    for _ in range(500):
        if rng.random() < 0.6 or not inside:
            inside.add(one := uuid4())
            bag.add(one)
        else:
            gone = rng.choice(sorted(inside))
            inside.discard(gone)
            bag.discard(gone)
        bag.discard(uuid4())
        assert (set(bag), len(bag)) == (inside, len(inside))
        assert bag.draw(rng) in inside or not inside


def test_d27_no_minute_gets_more_than_its_share() -> None:
    """D27: however many deadlines are drawn, at most `due` of a phase lie in one minute of the horizon."""
    model = Model(random.Random(1), due=20)
    drawn = [reserved(model, model.deadline(Phase.RESERVE, NOW)).deadline for _ in range(1000)]
    minutes = Counter(deadline.replace(second=0, microsecond=0) for deadline in drawn if deadline)
    near = [count for minute, count in minutes.items() if minute < NOW + timedelta(minutes=16)]
    assert max(near) == 20
    assert all(deadline > NOW for deadline in drawn if deadline)


def test_the_seed_decides() -> None:
    """Issue 6 section 3: the same seed draws the same ids and deadlines, another one others."""
    first, same, other = (Model(random.Random(seed), due=5) for seed in (1, 1, 2))
    draws = [[(model.new_id(), model.deadline(Phase.BOOKING, NOW)) for _ in range(50)] for model in (first, same, other)]
    assert draws[0] == draws[1] != draws[2]


def test_an_extension_is_later() -> None:
    """D16: a new deadline for an extension is later than the present one, near or far."""
    model = Model(random.Random(1), due=5)
    for hours in (0, 1, 50):
        present = NOW + timedelta(hours=hours)
        assert all(model.deadline(Phase.RESERVE, NOW, present) > present for _ in range(50))


def test_what_is_over_waits_for_its_object() -> None:
    """D17: an object is for sale again only when it was seen to be free."""
    model = Model(random.Random(1), due=5)
    booking = reserved(model, NOW)
    assert (model.size, model.due_soon(NOW) or booking.id) == (1, booking.id)
    model.over(booking.id)
    assert (model.size, model.free) == (0, [])
    model.became_free(booking.property_object_id)
    model.became_free(booking.property_object_id)
    assert model.free == [booking.property_object_id]


@pytest.mark.parametrize(
    ("expired", "free_p99", "free_most", "kept"),
    [
        (60.9, 1.9, 59.0, [True, True, True]),
        (61.1, 1.9, 59.0, [False, True, True]),
        (1.0, 2.0, 59.0, [True, False, True]),
        (1.0, 0.1, 60.1, [True, True, False]),
    ],
)
def test_x8_each_goal_can_be_missed(expired: float, free_p99: float, free_most: float, kept: list[bool]) -> None:
    """X8: 60 s plus the longest cycle, p99 below 2 s, never above 60 s."""
    spans = [Span(slo.EXPIRED, 9, 1, 1, 1, expired), Span(slo.FREE, 9, 0.1, 0.2, free_p99, free_most)]
    assert [goal.kept for goal in slo.goals(spans, longest_cycle=1.0)] == kept


def test_nothing_measured_is_no_success() -> None:
    """X8: a run in which nothing expired proves nothing."""
    assert [goal.kept for goal in slo.goals([], 1.0)] == [False]
