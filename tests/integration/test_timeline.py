"""The deal timeline: one card per expiry, read by deal in order (P3, D8)."""

from collections.abc import AsyncIterator
from datetime import datetime
from uuid import UUID

import pytest

from db import timeline
from db.timeline import Card
from db.unit_of_work import Pool, UnitOfWork, open_pool
from domain.events import Phase
from tests import floor
from tests.conftest import Database
from tests.floor import MINUTE, Admin


@pytest.fixture
async def crm(database: Database) -> AsyncIterator[Pool]:
    """Who reads the timeline."""
    opened = await open_pool(database.crm_app)
    yield opened
    opened.terminate()


async def read(crm: Pool, deal_id: UUID, limit: int = 200) -> list[Card]:
    """The deal's cards."""
    async with UnitOfWork(crm) as connection:
        return await timeline.cards(connection, deal_id, limit)


async def in_one_deal(admin: Admin, deadlines: dict[datetime, str]) -> UUID:
    """Bookings of one deal with these deadlines and statuses; the deal."""
    ids = [booking for due, status in deadlines.items() for booking in await floor.add(admin, 1, due, status)]
    deal: UUID = await admin.fetchval("SELECT deal_id FROM crm.bookings WHERE id = $1", ids[0])
    await admin.execute("UPDATE crm.bookings SET deal_id = $1 WHERE id = ANY ($2)", deal, ids)
    return deal


async def test_p3_one_card_per_expiry_in_order(pool: Pool, crm: Pool, admin: Admin) -> None:
    """P3 (2): kind, text key, moments and ids of each expiry of a deal, oldest first, whatever else expires."""
    now = await floor.clock(admin)
    deal = await in_one_deal(
        admin, {now - 3 * MINUTE: "Booked", now - 5 * MINUTE: "Reserved", now - 4 * MINUTE: "AwaitingPayment"}
    )
    await floor.add(admin, 5, now - MINUTE)
    await floor.expire(pool, now)
    await floor.expire(pool, now + MINUTE, Phase.BOOKING, run_id="run-2")
    cards = await read(crm, deal)
    assert [card.text_key.rpartition(".")[2] for card in cards] == ["reserve_expired", "reserve_expired", "booking_expired"]
    assert [card.at for card in cards] == [now, now, now + MINUTE]
    assert [now - card.deadline for card in cards] == [5 * MINUTE, 4 * MINUTE, 3 * MINUTE]
    assert {(card.deal_id, card.booking_version) for card in cards} == {(deal, 2)}
    assert len({card.booking_id for card in cards}) == 3
    assert await read(crm, deal, limit=1) == cards[:1]


async def test_r1_a_repeated_cycle_adds_no_card(pool: Pool, crm: Pool, admin: Admin) -> None:
    """R1, D8: the same bookings are not expired again, so there is no second card."""
    now = await floor.clock(admin)
    deal = await in_one_deal(admin, {now - MINUTE: "Reserved"})
    for run_id in ("run-1", "run-1", "run-2"):
        await floor.expire(pool, now, run_id=run_id)
    assert len(await read(crm, deal)) == 1


async def test_a_deal_without_expiries_has_no_cards(crm: Pool, admin: Admin) -> None:
    """P3: an active booking has no card, and an unknown deal is no error."""
    deal = await in_one_deal(admin, {await floor.clock(admin) + MINUTE: "Reserved"})
    assert await read(crm, deal) == await read(crm, UUID(int=1)) == []
