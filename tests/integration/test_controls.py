"""What operators stop and let through, on a real database: paused phases, the safety catch, acts written once (issue 4)."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.cycle_frame import CycleFrame
from activities.expire_batch import ExpireBatch
from activities.messages import ActsToRecord, BatchOrder, OperatorAct
from db import controls, gauges
from db.controls import PhaseNotPausedError
from db.unit_of_work import Pool, UnitOfWork, open_pool
from domain.events import Phase
from tests import floor
from tests.conftest import Database
from tests.floor import MINUTE, Admin


@pytest.fixture
async def operator(database: Database) -> Any:
    """The operators' own pool."""
    opened = await open_pool(database.operator)
    yield opened
    opened.terminate()


async def _acts(admin: Admin) -> list[tuple[str, ...]]:
    return [tuple(row) for row in await admin.fetch("SELECT action, actor, target, reason FROM crm.operator_actions ORDER BY id")]


async def _open(pool: Pool, hold_above: int = 0) -> Any:
    return await ActivityEnvironment().run(CycleFrame(pool, hold_above=hold_above).open_cycle)


async def test_a_paused_phase_is_told_to_the_cycle_and_to_the_gauges(pool: Pool, operator: Pool, admin: Admin) -> None:
    """Issue 4 §4: who, why and until when reach the cycle; the act is written in the same transaction, with before and after."""
    now = await floor.clock(admin)
    async with UnitOfWork(operator) as connection:
        await controls.pause(connection, Phase.RESERVE, now, now + MINUTE, actor="anna", reason="price change")
    (pause,) = (await _open(pool)).paused
    assert (pause.phase, pause.actor, pause.reason, pause.until) == (Phase.RESERVE, "anna", "price change", now + MINUTE)
    async with UnitOfWork(pool) as connection:
        assert (await gauges.read(connection)).paused == ["Reserve"]
    assert await _acts(admin) == [("pause_phase", "anna", "phase/Reserve", "price change")]
    details = json.loads(await admin.fetchval("SELECT details FROM crm.operator_actions"))
    assert (details["before"]["paused_at"], details["after"]["reason"]) == (None, "price change")


async def test_a_pause_ends_by_itself_or_by_hand(pool: Pool, operator: Pool, admin: Admin) -> None:
    """Issue 4 §4: after its time a pause counts no more, for cycles and for `resume` alike; before it `resume` ends it."""
    now = await floor.clock(admin)
    async with UnitOfWork(operator) as connection:
        await controls.pause(connection, Phase.BOOKING, now - MINUTE, now - MINUTE / 2, actor="anna", reason="over")
    assert (await _open(pool)).paused == []
    with pytest.raises(PhaseNotPausedError, match="Booking is not paused"):
        async with UnitOfWork(operator) as connection:
            await controls.resume(connection, Phase.BOOKING, now, actor="anna", reason="x")
    async with UnitOfWork(operator) as connection:
        await controls.pause(connection, Phase.BOOKING, now, None, actor="anna", reason="stays")
        await controls.resume(connection, Phase.BOOKING, now + MINUTE, actor="boris", reason="done")
    assert (await _open(pool)).paused == []
    assert [act[0] for act in await _acts(admin)] == ["pause_phase", "pause_phase", "resume_phase"]


@pytest.mark.parametrize(("due", "limit", "allowed"), [(5, 0, None), (5, 5, None), (6, 5, 0)])
async def test_the_safety_catch_speaks_above_its_limit(
    pool: Pool, admin: Admin, due: int, limit: int, allowed: int | None
) -> None:
    """Issue 4 §4: off by 0, silent at the limit, nothing may expire above it."""
    now = await floor.clock(admin)
    await floor.add(admin, due - 1, now - MINUTE)
    await floor.add(admin, 1, now - MINUTE, "Booked")
    assert (await _open(pool, hold_above=limit)).allowed == allowed


async def test_a_release_lets_so_many_through_and_no_more(pool: Pool, operator: Pool, admin: Admin) -> None:
    """Issue 4 §4: the batch takes what it expired off the allowance, and the act tells what was allowed before."""
    await floor.add(admin, 10, await floor.clock(admin) - MINUTE)
    async with UnitOfWork(operator) as connection:
        await controls.release(connection, 7, actor="anna", reason="looked at them")
    opened = await _open(pool, hold_above=5)
    assert opened.allowed == 7
    order = BatchOrder(phase=Phase.RESERVE, as_of=opened.as_of, batch_size=4, spends_allowance=True)
    await ActivityEnvironment().run(ExpireBatch(pool, floor.TOPIC).expire_batch, order)
    assert (await _open(pool, hold_above=5)).allowed == 3
    assert await _acts(admin) == [("release_hold", "anna", "job/booking-expiration", "looked at them")]


async def test_d7_a_repeated_batch_takes_nothing_off_twice(pool: Pool, operator: Pool, admin: Admin) -> None:
    """D7: attempts at one batch, beside each other and after it, spend the allowance once."""
    now = await floor.clock(admin)
    await floor.add(admin, 10, now - MINUTE)
    async with UnitOfWork(operator) as connection:
        await controls.release(connection, 9, actor="anna", reason="why")
    order = BatchOrder(phase=Phase.RESERVE, as_of=now, batch_size=4, spends_allowance=True)
    step = ExpireBatch(pool, floor.TOPIC).expire_batch
    await asyncio.gather(*(ActivityEnvironment().run(step, order) for _ in range(3)))
    await ActivityEnvironment().run(step, order)
    assert await admin.fetchval("SELECT allowance FROM crm.safety_catch") == 5
    assert (await floor.statuses(admin))["ReserveExpired"] == 4


async def test_acts_are_written_once_however_often_it_is_asked(pool: Pool, admin: Admin) -> None:
    """Issue 4 §4: the workflow tells all acts of its run each time; a retry, and an attempt beside it, write none twice."""
    acts = [
        OperatorAct(action=action, actor="anna", target="workflow/w", reason="why", details={"cap": 5})
        for action in ("start_drain", "stop_drain")
    ]
    frame = CycleFrame(pool)
    await ActivityEnvironment().run(frame.record_acts, ActsToRecord(acts=acts[:1]))
    await asyncio.gather(*(ActivityEnvironment().run(frame.record_acts, ActsToRecord(acts=acts)) for _ in range(3)))
    assert [act[0] for act in await _acts(admin)] == ["start_drain", "stop_drain"]
    details = json.loads(await admin.fetchval("SELECT details FROM crm.operator_actions ORDER BY id LIMIT 1"))
    assert details == {"cap": 5, "run_id": "test-run", "act": "1"}


async def test_a_drain_looks_without_writing(pool: Pool, admin: Admin) -> None:
    """D14: `read_backlog` counts as a cycle does, tells the settings' limit, and leaves `job_state` to the cycles."""
    now = await floor.clock(admin)
    await floor.add(admin, 3, now - MINUTE)
    await floor.add(admin, 2, now + timedelta(hours=1), "Booked")
    backlog = await ActivityEnvironment().run(CycleFrame(pool, drain_limit=77).read_backlog)
    assert (backlog.reserve_backlog, backlog.booking_backlog, backlog.drain_limit) == (3, 0, 77)
    assert await admin.fetchval("SELECT count(*) FROM crm.job_state") == 0
