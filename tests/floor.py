"""A small sales floor for tests: bookings to put in, and what to read back."""

from datetime import datetime, timedelta
from typing import TypeAlias
from uuid import UUID, uuid4

import asyncpg

from activities.expire_batch import Batch, Plan, run_batch
from db.bookings import Envelope
from db.ledger import BatchKey
from db.unit_of_work import Pool
from domain.events import Phase

TOPIC = "pin.crm.booking-expired.v1"
Admin: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
MINUTE = timedelta(minutes=1)

_ADD = """
    INSERT INTO crm.bookings (id, tenant_id, deal_id, property_object_id, status, reserve_expires_at, booking_expires_at)
    SELECT unnest($1::uuid[]), unnest($2::uuid[]), unnest($3::uuid[]), unnest($4::uuid[]), $5,
           CASE WHEN $5 = 'Booked' THEN NULL ELSE $6::timestamptz END, CASE WHEN $5 = 'Booked' THEN $6::timestamptz END"""


async def add(admin: Admin, count: int, due: datetime, status: str = "Reserved") -> list[UUID]:
    """Bookings of as many tenants, deals and objects, all with the same deadline; their ids in ascending order."""
    ids = sorted(uuid4() for _ in range(count))
    others = [[uuid4() for _ in ids] for _ in range(3)]
    await admin.execute(_ADD, ids, *others, status, due)
    return ids


async def clock(admin: Admin) -> datetime:
    """The database's clock: what `open_cycle` would take as AsOf."""
    moment: datetime = await admin.fetchval("SELECT clock_timestamp()")
    return moment


async def expire(
    pool: Pool, as_of: datetime, phase: Phase = Phase.RESERVE, *, size: int = 200, run_id: str = "run-1", batch_no: int = 1
) -> Batch:
    """One batch, as the activity runs it."""
    return await run_batch(pool, Plan(BatchKey(run_id, phase, batch_no), as_of, size, Envelope(run_id, TOPIC)))


async def poison(admin: Admin, ids: list[UUID]) -> None:
    """Make the database refuse these bookings with P0001, as a broken trigger would (D6)."""
    await admin.execute("""
        CREATE TABLE IF NOT EXISTS crm.poison (id uuid PRIMARY KEY);
        GRANT SELECT ON crm.poison TO booking_expiration_worker;
        CREATE OR REPLACE FUNCTION crm.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
          IF EXISTS (SELECT 1 FROM crm.poison p WHERE p.id = NEW.id) THEN RAISE EXCEPTION 'poison booking'; END IF;
          RETURN NEW;
        END $$;
        CREATE OR REPLACE TRIGGER refuse BEFORE UPDATE ON crm.bookings FOR EACH ROW EXECUTE FUNCTION crm.refuse();
    """)
    await admin.execute("INSERT INTO crm.poison SELECT unnest($1::uuid[])", ids)


async def statuses(admin: Admin) -> dict[str, int]:
    """How many bookings are in each status."""
    rows = await admin.fetch("SELECT status, count(*)::int FROM crm.bookings GROUP BY status")
    return {row["status"]: row["count"] for row in rows}


async def written(admin: Admin) -> dict[str, int]:
    """Rows of everything that an expiry writes beside the booking."""
    row = await admin.fetchrow("""
        SELECT (SELECT count(*) FROM crm.booking_audit)::int AS audit,
               (SELECT count(*) FROM crm.deal_timeline_cards)::int AS cards,
               (SELECT count(*) FROM crm.outbox)::int AS outbox,
               (SELECT count(*) FROM crm.expiration_batches)::int AS ledger,
               (SELECT count(*) FROM crm.expiration_refusals)::int AS refusals""")
    return dict(row or {})
