"""The real process: stop, kill -9, freeze, silent servers, and the operator's commands (D17)."""

import asyncio
import json
import signal
from uuid import uuid4

import pytest

from tests.acceptance.process import soon
from tests.acceptance.proxy import a_proxy
from tests.chessboard.grid import Grid, Market, Sold, record_of
from tests.chessboard.member import Member, Members


async def test_a_stop_between_events(processes: Members, market: Market, grid: Grid) -> None:
    """D17: SIGTERM while events flow: exit code 0 within seconds, offsets where the database is, the rest for the next one."""
    sold = await grid.sell(200)
    first = await processes.start(CHESSBOARD_BATCH_SIZE="3")
    await market.expire(sold)
    await first.said("object freed")
    code, seconds = await first.stop()
    assert (code, first.err.read_text(), seconds < 5) == (0, "", True)
    assert await market.lag() == 200 - (await grid.processed())["Freed"]
    await processes.start()
    await market.until_free(sold)
    assert await grid.processed() == {"Freed": 200}


async def test_readiness_names_what_is_missing(processes: Members, grid: Grid) -> None:
    """D17: ready with partitions; not ready while the database takes no log-in, and ready again after."""
    member = await processes.start()
    assert await member.ready() == (200, {"status": "ready", "checks": {"database": "ok", "kafka": "ok"}})
    async with grid.unreachable():
        await grid.admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'chessboard'")
        status, answer = await member.ready()
        assert (status, answer["checks"]["kafka"]) == (503, "ok")
    assert (await member.ready())[0] == 200


async def test_a_stop_while_the_database_is_silent(processes: Members, market: Market, grid: Grid) -> None:
    """Traps 24, 28: a server that hangs holds up the stop for less than 15 s, and nothing of the batch is half done."""
    [sold] = await grid.sell()
    host = market.database.chessboard.partition("@")[2].partition("/")[0]
    async with a_proxy(host) as database:
        url = market.database.chessboard.replace(host, database.address)
        member = await processes.start(CHESSBOARD_DATABASE_URL=url)
        database.freeze()
        await market.expire([sold])
        await asyncio.sleep(0.5)
        code, seconds = await member.stop()
    assert (code, member.err.read_text(), seconds < 15) == (0, "", True)
    assert (await grid.holders([sold]), await market.lag()) == ([sold.booking_id], 1)


@pytest.mark.slow
async def test_kill_9_in_the_middle(processes: Members, market: Market, grid: Grid) -> None:
    """D17: killed with a transaction open: another member gets the partitions, everything is freed once."""
    sold = await grid.sell(300)
    victim = await processes.start(CHESSBOARD_BATCH_SIZE="2")
    await processes.start(CHESSBOARD_BATCH_SIZE="50")
    await market.expire(sold)
    await victim.said("object freed")
    victim.send(signal.SIGKILL)
    await market.until_free(sold, 30)
    await market.until_committed()
    assert await grid.processed() == {"Freed": 300}


@pytest.mark.slow
async def test_frozen_past_the_session(processes: Members, market: Market, grid: Grid) -> None:
    """D17: a member sleeps past its session with a batch in hand, its objects are freed and sold again, then it wakes up."""
    sold = await grid.sell(60)
    async with grid.admin.transaction():
        await grid.admin.execute("SELECT FROM chessboard.objects FOR UPDATE")
        sleeper = await processes.start()
        await market.expire(sold)
        await asyncio.sleep(1)
        sleeper.send(signal.SIGSTOP)
    await processes.start()
    await market.until_free(sold, 40)
    again = [Sold(each.object_id, uuid4()) for each in sold]
    for each in again:
        await grid.take(each)
    sleeper.send(signal.SIGCONT)
    assigned = len(sleeper.events("partitions assigned"))
    await soon(lambda: rejoined(sleeper, assigned), "the sleeper is back", 30)
    await market.until_committed()
    assert await grid.holders(again) == [each.booking_id for each in again]
    assert await grid.processed() == {"Freed": 60}


async def rejoined(member: Member, times: int) -> bool:
    """Whether the member got partitions again."""
    return len(member.events("partitions assigned")) > times


async def test_an_operator_deals_with_what_was_set_aside(processes: Members, market: Market, grid: Grid) -> None:
    """D17: list, replay when the cause is gone, drop with a reason; a second decision is refused."""
    stranger = Sold(uuid4(), uuid4())
    for record in (record_of(stranger, topic=market.topic), record_of(stranger, topic=market.topic)._replace(value=None)):
        await market.send(record, 0)
    market.consume()
    await soon(lambda: two(grid), "both are set aside")
    code, printed = await processes.command("aside", "list", "--json")
    assert [(row["id"], row["reason"]) for row in json.loads(printed)] == [(2, "Malformed"), (1, "UnknownObject")]
    code, printed = await processes.command("aside", "replay", "1", "--reason", "too early")
    assert (code, "UnknownObject" in printed) == (1, True)
    await grid.put(stranger)
    assert await processes.command("aside", "replay", "1", "--reason", "object imported") == (0, "1: freed\n")
    assert (await processes.command("aside", "drop", "2", "--reason", "a test of the producer", "--by", "me"))[0] == 0
    assert (await processes.command("aside", "drop", "1", "--reason", "again"))[0] == 1
    assert [(row["resolution"], row["resolved_why"]) for row in await grid.aside()] == [
        ("Replayed", "object imported"),
        ("Dropped", "a test of the producer"),
    ]


async def two(grid: Grid) -> bool:
    """Whether two records are set aside."""
    return len(await grid.aside()) == 2
