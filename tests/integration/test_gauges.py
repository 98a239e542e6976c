"""The gauges' reading: what it counts, and that indexes alone answer it (O2)."""

import asyncio
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

import telemetry
from db import gauges, job_state
from db.gauges import Reading
from db.unit_of_work import Pool, UnitOfWork, open_pool
from gauges import Gauges
from tests import floor
from tests.acceptance.process import soon
from tests.acceptance.proxy import a_proxy
from tests.conftest import Database
from tests.floor import MINUTE, Admin
from workflows import schedule

# What years leave behind: terminal bookings and published records, of which the reading must take no notice.
PAST = """
    INSERT INTO crm.bookings (id, tenant_id, deal_id, property_object_id, status, reserve_expires_at, expired_at, version)
    SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'ReserveExpired',
           now() - interval '1 day', now(), 2 FROM generate_series(1, 20000);
    INSERT INTO crm.outbox (event_id, aggregate_type, aggregate_id, aggregate_version, tenant_id, topic, contract_version,
                            payload, correlation_id, occurred_at, published_at)
    SELECT gen_random_uuid(), 'Booking', gen_random_uuid(), 2, gen_random_uuid(), 'topic', 1, '{}', 'run', now(), now()
    FROM generate_series(1, 20000);"""


async def _read(pool: Pool) -> Reading:
    async with UnitOfWork(pool) as connection:
        return await gauges.read(connection)


async def test_an_empty_database_reads_as_nothing(pool: Pool, admin: Admin) -> None:
    """O2: before the first cycle every count and age is 0, and there is no last success."""
    reading = await _read(pool)
    counts = (reading.reserve_backlog, reading.booking_backlog, reading.poison, reading.outbox_backlog, reading.outbox_parked)
    assert (counts, reading.reserve_oldest_due, reading.outbox_oldest) == ((0, 0, 0, 0, 0), 0, 0)
    assert (reading.last_success_at, reading.held) == (None, False)
    assert reading.schema_version == await admin.fetchval("SELECT max(version) FROM crm.schema_migrations")


async def test_o2_backlog_and_ages(pool: Pool, admin: Admin) -> None:
    """O2: due bookings of both phases and the age of the oldest; what is not due or is terminal does not count."""
    now = await floor.clock(admin)
    await floor.add(admin, 3, now - MINUTE)
    await floor.add(admin, 1, now - 5 * MINUTE, "AwaitingPayment")
    await floor.add(admin, 2, now - 2 * MINUTE, "Booked")
    await floor.add(admin, 4, now + timedelta(hours=1))
    reading = await _read(pool)
    assert (reading.reserve_backlog, reading.booking_backlog) == (4, 2)
    assert (round(reading.reserve_oldest_due), round(reading.booking_oldest_due)) == (300, 120)
    await floor.expire(pool, reading.at)
    assert ((await _read(pool)).reserve_backlog, (await _read(pool)).reserve_oldest_due) == (0, 0)


async def test_poison_counts_while_it_is_still_due(pool: Pool, admin: Admin) -> None:
    """O2, D6: a refused booking counts until it is no longer due, whatever ended that; its row of the refusals stays."""
    now = await floor.clock(admin)
    ids = await floor.add(admin, 3, now - MINUTE)
    await floor.poison(admin, ids[:2])
    await floor.expire(pool, now)
    assert (await _read(pool)).poison == 2
    await admin.execute("DELETE FROM crm.poison")
    await admin.execute("UPDATE crm.bookings SET reserve_expires_at = $2 WHERE id = $1", ids[0], now + timedelta(hours=1))
    assert (await _read(pool)).poison == 1
    await floor.expire(pool, now, run_id="run-2")
    assert ((await _read(pool)).poison, await admin.fetchval("SELECT count(*) FROM crm.expiration_refusals")) == (0, 2)


async def test_o2_the_outbox(pool: Pool, admin: Admin) -> None:
    """O2, D10: waiting records and the age of the oldest; parked ones apart; published and skipped ones not at all."""
    await floor.add(admin, 6, await floor.clock(admin) - MINUTE)
    await floor.expire(pool, await floor.clock(admin))
    ids = [row["id"] for row in await admin.fetch("SELECT id FROM crm.outbox ORDER BY id")]
    await admin.execute("UPDATE crm.outbox SET published_at = now() WHERE id = $1", ids[0])
    await admin.execute("UPDATE crm.outbox SET skipped_at = now() WHERE id = $1", ids[1])
    await admin.execute("UPDATE crm.outbox SET parked_at = now(), park_reason = 'too large' WHERE id = $1", ids[2])
    await admin.execute("UPDATE crm.outbox SET recorded_at = now() - interval '90 s' WHERE id = $1", ids[3])
    reading = await _read(pool)
    assert (reading.outbox_backlog, reading.outbox_parked, round(reading.outbox_oldest)) == (3, 1, 90)


async def test_d24_last_success_is_everybodys(pool: Pool, admin: Admin) -> None:
    """D24, O5: the last completed cycle stands, also when a later one was held."""
    for outcome in ("completed", "held"):
        async with UnitOfWork(pool) as connection:
            await job_state.finished(connection, "run", outcome, {})
    assert (await _read(pool)).last_success_at == await admin.fetchval("SELECT last_success_at FROM crm.job_state")


@pytest.mark.parametrize(
    ("due", "catch", "held"), [(2, (1, 0), True), (2, (1, 1), False), (1, (1, 0), False), (2, (0, 0), False)]
)
async def test_a_hold_shows_while_it_is_on(pool: Pool, admin: Admin, due: int, catch: tuple[int, int], *, held: bool) -> None:
    """Issue 5, 1: held is what a cycle would find now: one that failed since then hides no hold, nor does an old hold linger."""
    await floor.add(admin, due, await floor.clock(admin) - MINUTE)
    await admin.execute("UPDATE crm.safety_catch SET hold_above = $1, allowance = $2", *catch)
    for outcome in ("held", "failed"):
        async with UnitOfWork(pool) as connection:
            await job_state.finished(connection, "run", outcome, {})
        assert (await _read(pool)).held is held


def _scans(node: dict[str, Any]) -> list[tuple[str, str]]:
    """Every scan of a plan: kind, and its index or table."""
    own = [(node["Node Type"], node.get("Index Name") or node["Relation Name"])] if "Scan" in node["Node Type"] else []
    return own + [scan for child in node.get("Plans", []) for scan in _scans(child)]


async def test_indexes_alone_answer_it(pool: Pool, admin: Admin) -> None:
    """Issue 5, 1: bookings and outbox are counted in their partial indexes, and no table of theirs is read from end to end."""
    await admin.execute(PAST)
    await floor.add(admin, 300, await floor.clock(admin) - MINUTE)
    await floor.expire(pool, await floor.clock(admin), size=200)
    await admin.execute("VACUUM ANALYZE crm.bookings, crm.outbox")
    plan = await admin.fetchval(f"EXPLAIN (FORMAT JSON) {_literal()}")
    scans = [scan for scan in _scans(json.loads(plan)[0]["Plan"]) if "bookings" in scan[1] or "outbox" in scan[1]]
    counted = {name for kind, name in scans if kind in ("Index Only Scan", "Bitmap Index Scan")}
    assert counted >= {
        "ix_bookings_reserve_expires_at",
        "ix_bookings_booking_expires_at",
        "ix_outbox_unpublished",
        "ix_outbox_parked",
    }
    assert [scan for scan in scans if scan[0] == "Seq Scan"] == []


def _literal() -> str:
    return gauges._READ.replace("$1", "clock_timestamp()::timestamptz(6)").replace("$2", "'booking-expiration'")


async def test_an_outage_is_said_once_and_the_gauges_grow_old(
    database: Database, addresses: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 5, 1: while a source is away nothing is made up and its outage is said once; what comes back is read again."""
    said: list[str] = []
    monkeypatch.setattr(telemetry, "gauges_unreadable", lambda source, _: said.append(source))
    monkeypatch.setattr(telemetry, "database_read", lambda **_: said.append("read"))
    client = await Client.connect(addresses["TEMPORAL_ADDRESS"], data_converter=pydantic_data_converter)
    host = database.worker.partition("@")[2].partition("/")[0]
    async with a_proxy(host) as proxy:
        pool = await open_pool(database.worker.replace(host, proxy.address))
        reader = Gauges(pool, client, f"no-such-schedule-{uuid4()}", 10)
        for change in (_nothing, proxy.cut, _nothing, proxy.open):
            await change()
            await reader.read()
        pool.terminate()
    assert sorted(said) == ["database", "read", "read", "schedule"]


async def test_a_reader_survives_what_nobody_thought_of(
    pool: Pool, addresses: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 5, 1: an error that is no outage is said too, and the next reading is tried."""
    said: list[str] = []
    looks = 0

    def surprise(**_: Any) -> None:
        nonlocal looks
        looks += 1
        raise ValueError("a surprise")

    async def looked_again() -> bool:
        return looks > 1

    monkeypatch.setattr(telemetry, "gauges_unreadable", lambda source, why: said.append(f"{source} {why}"))
    monkeypatch.setattr(telemetry, "database_read", surprise)  # no row of a real database makes this reader fail
    client = await Client.connect(addresses["TEMPORAL_ADDRESS"], data_converter=pydantic_data_converter)
    reader = asyncio.create_task(Gauges(pool, client, f"no-such-schedule-{uuid4()}", 0.05).run())
    await soon(looked_again, "another look after the surprise")
    reader.cancel()
    await asyncio.wait([reader])
    # On a busy machine the first look may have been too slow, and then that is what was said.
    assert next(line for line in said if line.startswith("database")) in (
        "database ValueError('a surprise')",
        "database no answer in time",
    )


async def _nothing() -> None:
    pass


async def test_a_pause_and_missed_ticks_come_from_the_schedule(
    pool: Pool, addresses: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """O2, O5: what the schedule says of itself: paused by somebody, and the ticks that the server counted as missed."""
    said: list[tuple[bool, int]] = []
    monkeypatch.setattr(telemetry, "schedule_read", lambda **it: said.append((it["paused"], it["missed_ticks"])))
    client = await Client.connect(addresses["TEMPORAL_ADDRESS"], data_converter=pydantic_data_converter)
    name = f"gauges-{uuid4()}"
    await schedule.ensure(client, schedule.ScheduleSettings(name, name, 200))
    handle = client.get_schedule_handle(name)
    await Gauges(pool, client, name, 10).read()
    await handle.pause(note="by the test")
    await Gauges(pool, client, name, 10).read()
    await handle.delete()
    assert said == [(False, 0), (True, 0)]
