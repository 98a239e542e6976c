"""The plans of what operators read: an index for every look at a large table, however many rows it has (issue 4)."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from db import due, gauges, holders, outbox_reading, story
from db.commands import _READ
from domain.events import Phase
from tests.floor import Admin

MOMENT = datetime(2026, 7, 1, tzinfo=UTC)
ID = UUID(int=7)
LARGE = ("bookings", "outbox", "booking_audit", "deal_timeline_cards", "operator_actions")
FILTERS = ("topic", ID, timedelta(minutes=1), "text", 50)
STATEMENTS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "status": (gauges._READ, (MOMENT, "booking-expiration")),
    **{f"count {phase}": (due._COUNT[phase], (MOMENT, due.COUNTED)) for phase in Phase},
    **{f"poison {phase}": (due._POISON[phase], (MOMENT,)) for phase in Phase},
    **{f"oldest {phase}": (due._OLDEST[phase], (MOMENT, 20)) for phase in Phase},
    **{f"{by} {phase}": (statement, (MOMENT, due.GROUPED)) for (by, phase), statement in due._GROUPS.items()},
    **{f"before {phase}": (story._BEFORE[phase], (MOMENT, ID, story.AHEAD)) for phase in Phase},
    "booking": (_READ, (ID,)),
    "audit": (story._AUDIT, (ID,)),
    "cards": (story._CARDS, (ID,)),
    "records": (story._RECORDS, (ID,)),
    "acts": (story._ACTS, (MOMENT, 50)),
    "locker": (holders._LOCKER, (ID,)),
    "parked": (outbox_reading._PARKED, (outbox_reading.SEARCHED, *FILTERS)),
    "waiting": (outbox_reading._WAITING, (outbox_reading.SEARCHED, *FILTERS)),
    "record": (outbox_reading._SHOW, (42,)),
}
"""Every statement of status, preview, explain, history and outbox that touches a large table."""


@pytest.fixture
async def crowded(admin: Admin) -> Admin:
    """Tables of twenty thousand rows, nearly all of them terminal or published, and fresh statistics."""
    await admin.execute("""
        INSERT INTO crm.bookings (id, tenant_id, deal_id, property_object_id, status, reserve_expires_at, booking_expires_at)
        SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), gen_random_uuid(),
               CASE n % 200 WHEN 0 THEN 'Reserved' WHEN 1 THEN 'Booked' ELSE 'Cancelled' END,
               timestamptz '2026-07-02' - n * interval '1 minute', timestamptz '2026-07-02' - n * interval '1 minute'
        FROM generate_series(1, 20000) AS n;
        INSERT INTO crm.outbox (event_id, aggregate_type, aggregate_id, aggregate_version, tenant_id, topic, contract_version,
                                payload, correlation_id, occurred_at, published_at, parked_at, park_reason)
        SELECT gen_random_uuid(), 'Booking', gen_random_uuid(), 2, gen_random_uuid(), 'topic', 1, 'x', 'run', now(),
               CASE WHEN n % 200 > 1 THEN now() END, CASE n % 200 WHEN 1 THEN now() END, CASE n % 200 WHEN 1 THEN 'text' END
        FROM generate_series(1, 20000) AS n;
        INSERT INTO crm.booking_audit SELECT id, 2, 'a', 'b', 'c', 'd', now(), 'run' FROM crm.bookings;
        INSERT INTO crm.deal_timeline_cards SELECT deal_id, id, 2, 'k', now() FROM crm.bookings;
        INSERT INTO crm.operator_actions (actor, action, target, reason) SELECT 'a', 'b', 'c', 'd' FROM generate_series(1, 20000);
        INSERT INTO crm.expiration_refusals SELECT id, 'Reserve', 'why', now(), now() FROM crm.bookings WHERE status = 'Reserved'
        ORDER BY id LIMIT 20""")
    for table in (*LARGE, "expiration_refusals"):
        await admin.execute(f"VACUUM ANALYZE crm.{table}")
    return admin


def nodes(plan: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Each scan of the plan: its kind, and the index or else the table that it reads."""
    if "Scan" in plan["Node Type"]:
        yield plan["Node Type"], plan.get("Index Name") or plan.get("Relation Name", "")
    for child in plan.get("Plans", []):
        yield from nodes(child)


def read_whole(plan: dict[str, Any]) -> set[str]:
    """The large tables that the plan reads from end to end."""
    return {name for kind, name in nodes(plan) if kind == "Seq Scan"} & set(LARGE)


async def explained(admin: Admin, statement: str, arguments: tuple[Any, ...]) -> dict[str, Any]:
    """The statement's plan."""
    plan: dict[str, Any] = json.loads(await admin.fetchval(f"EXPLAIN (FORMAT JSON) {statement}", *arguments))[0]["Plan"]
    return plan


async def test_no_large_table_is_read_from_end_to_end(crowded: Admin) -> None:
    """Issue 4, speed: each statement finds its rows by an index, also under a generic plan."""
    wrong = {}
    for mode in ("force_custom_plan", "force_generic_plan"):
        await crowded.execute(f"SET plan_cache_mode = {mode}")
        for name, (statement, arguments) in STATEMENTS.items():
            if read := read_whole(await explained(crowded, statement, arguments)):
                wrong[mode, name] = read
    assert wrong == {}


async def test_a_scan_is_found(crowded: Admin) -> None:
    """The check above notices a statement that reads a whole table."""
    plan = await explained(crowded, "SELECT count(*) FROM crm.bookings WHERE deal_id = $1", (ID,))
    assert read_whole(plan) == {"bookings"}


async def test_what_is_set_aside_has_an_index_of_its_own(crowded: Admin) -> None:
    """Issue 4, speed: looking for parked records costs the same however many wait."""
    found = {name for _, name in nodes(await explained(crowded, *STATEMENTS["parked"]))}
    assert "ix_outbox_parked" in found


@pytest.mark.parametrize("phase", Phase)
async def test_counting_touches_an_index_alone(crowded: Admin, phase: Phase) -> None:
    """Issue 4, speed: the totals of a preview and the place in the backlog read no row of the table."""
    for statement, arguments in (STATEMENTS[f"count {phase}"], STATEMENTS[f"before {phase}"]):
        found = set(nodes(await explained(crowded, statement, arguments)))
        assert ("Index Only Scan", f"ix_bookings_{phase.lower()}_expires_at") in found
