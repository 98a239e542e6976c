"""A batch in the database: what is freed, what is not, and what is set aside (S4, D11, D17)."""

import asyncio
from uuid import uuid4

import pytest

from chessboard.applying import apply
from chessboard.batch import apply_batch
from chessboard.decision import Verdict
from chessboard.record import Record
from db.unit_of_work import UnitOfWork
from tests.chessboard.grid import TOPIC, Grid, Sold, record_of, with_header

NOTHING = {"freed": 0, "late": 0, "duplicate": 0, "set_aside": 0}


async def applied(grid: Grid, *records: Record) -> dict[str, int]:
    """Apply a batch and return its counts."""
    return await apply_batch(grid.pool, records, TOPIC)


async def test_an_expiry_frees_its_object(grid: Grid) -> None:
    """P3 (1): the object is free, and no other one."""
    sold, other = await grid.sell(2)
    assert await applied(grid, record_of(sold)) == {**NOTHING, "freed": 1}
    assert await grid.holders([sold, other]) == [None, other.booking_id]


async def test_a_duplicate_changes_nothing(grid: Grid) -> None:
    """D11: the same event again, in the same batch and in a later one, is counted and that is all."""
    [sold] = await grid.sell()
    record = record_of(sold)
    assert await applied(grid, record, record) == {**NOTHING, "freed": 1, "duplicate": 1}
    assert await applied(grid, record) == {**NOTHING, "duplicate": 1}
    assert await grid.processed() == {"Freed": 1}


async def test_a_duplicate_after_the_object_was_sold_again(grid: Grid) -> None:
    """D17: the object stays with its new booking."""
    [sold] = await grid.sell()
    record, again = record_of(sold), Sold(sold.object_id, uuid4())
    await applied(grid, record)
    await grid.take(again)
    assert await applied(grid, record) == {**NOTHING, "duplicate": 1}
    assert await grid.holders([again]) == [again.booking_id]


async def test_a_late_event_after_the_object_was_sold_again(grid: Grid) -> None:
    """D17: another event of a booking that does not hold the object any more changes nothing and is counted."""
    [sold] = await grid.sell()
    await applied(grid, record_of(sold))
    again = Sold(sold.object_id, uuid4())
    await grid.take(again)
    assert await applied(grid, record_of(sold)) == {**NOTHING, "late": 1}
    assert await grid.holders([again]) == [again.booking_id]


async def test_two_bookings_of_one_object_in_one_batch(grid: Grid) -> None:
    """D17: the order of events of different bookings does not matter: the one that holds the object frees it."""
    [sold] = await grid.sell()
    former = Sold(sold.object_id, uuid4())
    assert await applied(grid, record_of(sold), record_of(former)) == {**NOTHING, "freed": 1, "late": 1}
    assert await grid.free([sold])


async def test_an_unknown_object_is_set_aside(grid: Grid) -> None:
    """D17: with the record as it came and its place; once, however often it is read."""
    [sold] = await grid.sell()
    record = record_of(Sold(uuid4(), uuid4()), offset=7)
    assert await applied(grid, record, record_of(sold)) == {**NOTHING, "freed": 1, "set_aside": 1}
    assert await applied(grid, record) == {**NOTHING, "set_aside": 1}
    [row] = await grid.aside()
    assert (row["reason"], row["kafka_offset"], row["key"], row["value"]) == ("UnknownObject", 7, record.key, record.value)


async def test_one_place_in_two_lives_of_a_topic(grid: Grid) -> None:
    """D17: a topic made anew counts from zero again: another record at the same place is set aside as well."""
    first, second = (with_header(record_of(Sold(uuid4(), uuid4())), "ce_type", None) for _ in range(2))
    await applied(grid, first)
    await applied(grid, second)
    assert [row["value"] for row in await grid.aside()] == [first.value, second.value]


async def test_an_event_id_used_for_two_bookings(grid: Grid) -> None:
    """D11: a duplicate has the same content; another booking under a known id is no duplicate, and not lost."""
    one, two = await grid.sell(2)
    event = uuid4()
    assert await applied(grid, record_of(one, event_id=event), record_of(two, 1, event_id=event)) == {
        **NOTHING,
        "freed": 1,
        "set_aside": 1,
    }
    assert [row["reason"] for row in await grid.aside()] == ["ReusedEventId"]


async def test_a_row_that_the_database_refuses(grid: Grid) -> None:
    """D6, D17: a trigger refuses one object; its record is set aside and the rest of the batch is committed."""
    sold = await grid.sell(5)
    await grid.admin.execute(f"""
        CREATE FUNCTION chessboard.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE EXCEPTION 'no'; END $$;
        CREATE TRIGGER refuse BEFORE UPDATE ON chessboard.objects FOR EACH ROW
          WHEN (OLD.id = '{sold[2].object_id}') EXECUTE FUNCTION chessboard.refuse()""")
    counts = await applied(grid, *(record_of(each, index) for index, each in enumerate(sold)))
    assert counts == {**NOTHING, "freed": 4, "set_aside": 1}
    assert await grid.holders(sold) == [None, None, sold[2].booking_id, None, None]
    assert [(row["reason"], row["kafka_offset"]) for row in await grid.aside()] == [("RefusedByDatabase", 2)]


async def test_the_same_batch_at_the_same_time(grid: Grid) -> None:
    """D17: members that meet over the same records, in any order, wait for each other: no deadlock, each freed once."""
    sold = await grid.sell(100)
    records = [record_of(each, index) for index, each in enumerate(sold)]
    batches = [records, records[::-1], records[50:] + records[:50], records]
    counts = await asyncio.gather(*(applied(grid, *batch) for batch in batches))
    assert sum(count["freed"] for count in counts) == 100
    assert sum(count["duplicate"] for count in counts) == 300
    assert await grid.free(sold)


async def test_a_batch_that_is_rolled_back_leaves_nothing(grid: Grid) -> None:
    """D17: events, objects and what is set aside are one atomic write."""
    [sold] = await grid.sell()
    stranger = record_of(Sold(uuid4(), uuid4()), 1)

    async def interrupted() -> list[Verdict]:
        async with UnitOfWork(grid.pool) as connection:
            await apply(connection, [record_of(sold), stranger], TOPIC)
            raise KeyError

    with pytest.raises(KeyError):
        await interrupted()
    assert (await grid.holders([sold]), await grid.processed(), await grid.aside()) == ([sold.booking_id], {}, [])
