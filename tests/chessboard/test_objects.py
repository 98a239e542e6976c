"""The grid as the CRM uses it: take, release, and what is refused (D17, P4)."""

import asyncio
from uuid import uuid4

import pytest

from chessboard import objects
from chessboard.applying import apply
from chessboard.objects import BookingOverError, ObjectNotAvailableError, UnknownObjectError
from db.unit_of_work import Pool, UnitOfWork
from tests.chessboard.grid import TOPIC, Grid, Sold, record_of


async def expire(pool: Pool, sold: Sold) -> None:
    """Apply the expiry of a booking."""
    async with UnitOfWork(pool) as connection:
        await apply(connection, [record_of(sold)], TOPIC)


async def test_a_taken_object_is_refused_and_works_right_after(grid: Grid) -> None:
    """P4: while the object is taken, booking it is refused with the code that the screen knows; once free, it works."""
    [sold] = await grid.sell()
    rival = Sold(sold.object_id, uuid4())
    with pytest.raises(ObjectNotAvailableError, match="CRM_PROPERTY_OBJECT_NOT_AVAILABLE") as refused:
        await grid.take(rival)
    assert refused.value.code == "CRM_PROPERTY_OBJECT_NOT_AVAILABLE"
    await expire(grid.pool, sold)
    await grid.take(rival)
    assert await grid.holders([rival]) == [rival.booking_id]


async def test_one_of_many_gets_the_object(grid: Grid) -> None:
    """P4: twenty bookings want one object at the same moment: one has it, the others are refused."""
    [sold] = await grid.sell()
    await expire(grid.pool, sold)
    rivals = [Sold(sold.object_id, uuid4()) for _ in range(20)]
    outcomes = await asyncio.gather(*(grid.take(rival) for rival in rivals), return_exceptions=True)
    assert outcomes.count(None) == 1
    assert sum(isinstance(outcome, ObjectNotAvailableError) for outcome in outcomes) == 19
    assert await grid.holders([sold]) == [rivals[outcomes.index(None)].booking_id]


async def test_taking_twice_is_no_error(grid: Grid) -> None:
    """Trap 26: whoever lost the answer asks again."""
    [sold] = await grid.sell()
    await grid.take(sold)
    assert await grid.holders([sold]) == [sold.booking_id]


async def test_a_booking_that_is_over_takes_nothing(grid: Grid) -> None:
    """S4: a command that is slower than the booking's own expiry must not block the object for ever."""
    [sold] = await grid.sell()
    await expire(grid.pool, sold)
    with pytest.raises(BookingOverError):
        await grid.take(sold)
    assert await grid.free([sold])


async def test_the_expiry_before_its_own_booking_took_the_object(grid: Grid) -> None:
    """S4: the event came first, changed nothing and was counted; the late command then finds the booking over."""
    [other] = await grid.sell()
    await expire(grid.pool, other)
    slow = Sold(other.object_id, uuid4())
    await expire(grid.pool, slow)
    with pytest.raises(BookingOverError):
        await grid.take(slow)
    assert await grid.processed() == {"Freed": 1, "Late": 1}


async def test_taking_while_the_expiry_is_being_applied(grid: Grid) -> None:
    """S4: the command waits for the transaction that knows of the expiry, and sees what it committed."""
    [sold] = await grid.sell()
    async with UnitOfWork(grid.pool) as connection:
        await apply(connection, [record_of(sold)], TOPIC)
        again = asyncio.create_task(grid.take(sold))
        await asyncio.sleep(0.2)
        assert not again.done()
    with pytest.raises(BookingOverError):
        await again


async def test_release_frees_only_its_own(grid: Grid) -> None:
    """D17: a manager's cancel gives the object back if that booking holds it, and else changes nothing."""
    [sold] = await grid.sell()
    async with UnitOfWork(grid.pool) as connection:
        assert not await objects.release(connection, sold.object_id, uuid4())
        assert await objects.release(connection, sold.object_id, sold.booking_id)
        assert not await objects.release(connection, sold.object_id, sold.booking_id)
    assert await grid.free([sold])


async def test_an_unknown_object(grid: Grid) -> None:
    """D17: what is not on the grid can be neither taken nor given back."""
    with pytest.raises(UnknownObjectError):
        await grid.take(Sold(uuid4(), uuid4()))
    with pytest.raises(UnknownObjectError):
        async with UnitOfWork(grid.pool) as connection:
            await objects.release(connection, uuid4(), uuid4())
