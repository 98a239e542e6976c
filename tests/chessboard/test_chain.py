"""From the deadline to the free object: the worker's batch, its publisher, Kafka, the chessboard (P3, X8)."""

from datetime import timedelta

from activities.expire_batch import Plan, run_batch
from activities.publish_outbox import publish
from db.bookings import Envelope
from db.ledger import BatchKey
from db.unit_of_work import Pool
from domain.events import Phase
from publishing import KafkaOptions, Publisher
from tests import floor
from tests.chessboard.grid import Grid, Market, Sold


async def test_an_expired_booking_frees_its_object(pool: Pool, market: Market, grid: Grid) -> None:
    """P3, X8: what one cycle expires is free on the chessboard, and what is not due stays taken."""
    now = await floor.clock(grid.admin)
    due = await floor.add(grid.admin, 50, now - floor.MINUTE, "AwaitingPayment")
    later = await floor.add(grid.admin, 5, now + timedelta(hours=1))
    rows = await grid.admin.fetch("SELECT property_object_id, id FROM crm.bookings")
    sold = {row["id"]: Sold(row["property_object_id"], row["id"]) for row in rows}
    for each in sold.values():
        await grid.put(each)
    publisher = Publisher(KafkaOptions(bootstrap_servers=market.servers), topic=market.topic)
    await run_batch(pool, Plan(BatchKey("run", Phase.RESERVE, 1), now, 200, Envelope("run", market.topic)))
    await publish(pool, publisher, 10)
    await publisher.close()
    market.consume()
    await market.until_free([sold[booking] for booking in due])
    assert await grid.holders([sold[booking] for booking in later]) == later
    assert (await grid.processed(), await grid.aside()) == ({"Freed": 50}, [])
