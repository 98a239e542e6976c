"""The consumer on real Kafka: order of the two commits, poison, rebalance, a database that goes away (S4, D17)."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy

from tests.chessboard.grid import Grid, Market, Sold, record_of, with_header

CUT = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE application_name = 'chessboard' AND datname = current_database()"
)


async def test_expiries_become_free_objects(market: Market, grid: Grid) -> None:
    """P3 (1): what the worker publishes frees the objects, whatever their partition, and the offsets follow."""
    sold = await grid.sell(30)
    await market.expire(sold)
    market.consume()
    await market.until_free(sold)
    await market.until_committed()
    assert await grid.processed() == {"Freed": 30}


async def test_a_restart_goes_on_where_the_database_is(market: Market, grid: Grid) -> None:
    """D17: what came while nobody was there is applied, nothing is applied twice."""
    first, second = await grid.sell(10), await grid.sell(10)
    await market.expire(first)
    member = market.consume()
    await market.until_free(first)
    await member.stopped()
    await market.expire(second)
    market.consume()
    await market.until_free(second)
    assert await grid.processed() == {"Freed": 20}


async def test_duplicates_on_the_wire(market: Market, grid: Grid) -> None:
    """D11: the whole topic published a second time, and the object sold again meanwhile: nothing changes."""
    sold = await grid.sell(10)
    records = await market.expire(sold)
    market.consume()
    await market.until_free(sold)
    again = [Sold(each.object_id, uuid4()) for each in sold]
    for each in again:
        await grid.take(each)
    for record in records:
        await market.send(record)
    await market.until_committed()
    assert await grid.holders(again) == [each.booking_id for each in again]
    assert await grid.processed() == {"Freed": 10}


async def test_poison_does_not_stop_the_partition(market: Market, grid: Grid) -> None:
    """D17: no value, no JSON, another version, another type, an unknown object: set aside with bytes, headers and reason."""
    before, after = await grid.sell(2)
    good = record_of(before, topic=market.topic)
    poison = [
        good._replace(value=None),
        good._replace(value=b"\x00\xff{"),
        with_header(good, "ContractVersion", b"2"),
        with_header(good, "ce_type", b"something.else"),
        record_of(Sold(uuid4(), uuid4()), topic=market.topic),
        with_header(good, "na\x00me", b"\xff")._replace(key=b"\xfe"),
    ]
    for record in (good, *poison, record_of(after, topic=market.topic)):
        await market.send(record, 0)
    market.consume()
    await market.until_free([before, after])
    rows = await grid.aside()
    assert [row["reason"] for row in rows] == [
        "Malformed", "Malformed", "UnknownVersion", "WrongType", "UnknownObject", "Malformed",
    ]  # fmt: skip
    assert [(row["kafka_offset"], row["value"]) for row in rows] == list(enumerate((r.value for r in poison), start=1))


async def test_a_batch_that_the_client_cannot_read(market: Market, grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    """D17: a header's name that is no text breaks aiokafka's reader: what it cannot read is set aside, the rest is not lost."""
    sold = await grid.sell(6)
    records = [record_of(each, topic=market.topic) for each in sold]
    monkeypatch.setattr("aiokafka.producer.message_accumulator.DefaultRecordBatchBuilder", _DefaultRecordBatchBuilderPy)
    batch = market.producer.create_batch()
    for index, record in enumerate(records[:4]):
        headers = [*record.headers, (Undecodable(), b"")] if index == 2 else list(record.headers)
        batch.append(key=record.key, value=record.value, timestamp=None, headers=headers)
    await (await market.producer.send_batch(batch, market.topic, partition=0))
    await market.expire(sold[4:], 0)
    market.consume()
    await market.until_free(sold[:2] + sold[4:])
    assert [(row["reason"], row["kafka_offset"]) for row in await grid.aside()] == [("Unreadable", 2), ("Unreadable", 3)]


class Undecodable(str):
    """A header's name that is written as a byte which no text has, as other languages' clients can."""

    __slots__ = ()

    def encode(self, *_: Any, **__: Any) -> bytes:
        """What goes on the wire."""
        return b"\xff"


async def test_partitions_move_between_members(market: Market, grid: Grid) -> None:
    """D17: members come and go while events flow; each object is freed, each event counts once."""
    sold = await grid.sell(300)
    members = [market.consume(batch_size=5)]
    for start in range(0, 300, 50):
        await market.expire(sold[start : start + 50])
        members.append(market.consume(batch_size=5))
        if start % 100:
            await members.pop(0).stopped()
    await market.until_free(sold)
    await market.until_committed()
    assert await grid.processed() == {"Freed": 300}


async def test_offsets_follow_the_database(market: Market, grid: Grid) -> None:
    """D17: while the transaction is open nothing is committed in Kafka: who dies here reads again."""
    [sold] = await grid.sell()
    async with grid.admin.transaction():
        await grid.admin.execute("SELECT FROM chessboard.objects FOR UPDATE")
        await market.expire([sold])
        market.consume()
        await asyncio.sleep(2)
        assert await market.lag() == 1
    await market.until_free([sold])
    await market.until_committed()


async def test_connections_that_are_cut(market: Market, grid: Grid) -> None:
    """D17: the database ends the connections again and again while events flow: nothing is skipped."""
    sold = await grid.sell(200)
    market.consume(batch_size=10)
    for start in range(0, 200, 20):
        await market.expire(sold[start : start + 20])
        await grid.admin.execute(CUT)
    await market.until_free(sold)
    assert await grid.processed() == {"Freed": 200}


async def test_a_database_outage_pauses_consumption(market: Market, grid: Grid) -> None:
    """D17: no log-in is possible for a while: the member stays in the group, then goes on where it was."""
    warm, sold = await grid.sell(3), await grid.sell(30)
    member = market.consume()
    await market.expire(warm)
    await market.until_free(warm)
    async with grid.unreachable():
        await grid.admin.execute(CUT)
        await market.expire(sold)
        await asyncio.sleep(2.5)
        assert not await grid.free(sold[:1])
    await market.until_free(sold)
    assert (await grid.processed(), await member.consumer.check()) == ({"Freed": 33}, None)
