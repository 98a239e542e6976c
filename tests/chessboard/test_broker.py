"""A Kafka that is killed, started again, or frozen, under a consumer that runs; on a broker of its own (D17, trap 31)."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from chessboard.consumer import Consumer
from devstack.launcher import Launcher
from tests.acceptance.process import soon
from tests.chaos.test_kafka_faults import Broker, left_behind
from tests.chessboard.grid import Grid, Market
from tests.conftest import Database

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("a broker of its own")]


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker per test, gone at its end."""
    launcher = Launcher()
    try:
        yield Broker(launcher, tmp_path_factory.mktemp("broker"))
    finally:
        launcher.close()


@pytest.fixture
async def market(broker: Broker, grid: Grid, database: Database) -> AsyncIterator[Market]:
    """A topic on that broker."""
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.servers)
    await admin.start()
    await admin.create_topics([NewTopic("chess", 3, 1)])
    await admin.close()
    async with Market.opened(broker.servers, "chess", grid, database) as opened:
        yield opened


async def test_a_broker_that_is_killed_and_started_again(market: Market, grid: Grid, broker: Broker) -> None:
    """D17: the member says so, joins again by itself, and everything is freed once."""
    first, second = await grid.sell(20), await grid.sell(20)
    await market.expire(first)
    member = market.consume(batch_size=3)
    await market.until_free(first[:1])
    await asyncio.to_thread(broker.kill)
    assert await member.consumer.check() is not None
    await asyncio.sleep(8)  # longer than a session
    await asyncio.to_thread(broker.start)
    await market.expire(second)
    await market.until_free(first + second, 40)
    await market.until_committed()
    assert (await grid.processed(), await member.consumer.check()) == ({"Freed": 40}, None)


async def test_a_stop_while_the_broker_is_frozen(market: Market, grid: Grid, broker: Broker) -> None:
    """Trap 31: a broker that hangs holds up the good-bye for 15 s at most, and no task or socket of the consumer is left."""
    [sold] = await grid.sell()
    await market.expire([sold])
    member = market.consume()
    await market.until_free([sold])
    await market.until_committed()
    before = len(left_behind(broker)[1])
    broker.signal(signal.SIGSTOP)
    try:
        async with asyncio.timeout(15):
            await member.stopped()
        tasks, sockets = left_behind(broker)
        assert [task for task in tasks if "consumer" in task] == []
        assert len(sockets) < before
    finally:
        broker.signal(signal.SIGCONT)


async def test_a_stop_while_the_broker_is_down(market: Market, grid: Grid, broker: Broker) -> None:
    """Trap 31: with the broker gone a stop ends cleanly and at once, although aiokafka's own good-bye raises a cancellation."""
    [sold] = await grid.sell()
    await market.expire([sold])
    member = market.consume()
    await market.until_free([sold])
    await market.until_committed()
    await asyncio.to_thread(broker.kill)
    await asyncio.sleep(1)  # fetches are being retried
    async with asyncio.timeout(8):
        await member.stopped()
    assert [task for task in left_behind(broker)[0] if "consumer" in task] == []


async def test_no_broker_at_first(market: Market, grid: Grid, broker: Broker) -> None:
    """D17: who starts before Kafka does waits for it, says so, and then works."""
    [sold] = await grid.sell()
    await market.expire([sold])
    await asyncio.to_thread(broker.kill)
    member = market.consume()
    await soon(lambda: unable(member.consumer), "the member says that no broker answers")
    await asyncio.to_thread(broker.start)
    await market.until_free([sold], 40)


async def unable(consumer: Consumer) -> bool:
    """Whether the consumer says that it could not connect."""
    return "KafkaConnectionError" in (await consumer.check() or "")
