"""What operators stop and let through, on a real database: paused phases, the safety catch, acts written once (issue 4)."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.cycle_frame import CycleFrame
from activities.expire_batch import ExpireBatch
from activities.messages import ActsToRecord, BatchOrder, ClosingCycle, CycleResult, OperatorAct, Outcome
from db import controls, gauges
from db.controls import EndlessPauseError, Hold, NothingHeldError, PhaseNotPausedError
from db.reading import reading
from db.unit_of_work import Pool, UnitOfWork, open_pool
from domain.events import Phase
from tests import floor
from tests.conftest import Database
from tests.floor import MINUTE, Admin

_NEWEST = "SELECT details FROM crm.operator_actions ORDER BY id DESC LIMIT 1"


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


async def _pause(operator: Pool, until: Any, now: Any, *, replace: bool = False, actor: str = "boris") -> Any:
    async with UnitOfWork(operator) as connection:
        return await controls.pause(connection, Phase.RESERVE, now, until, actor=actor, reason="why", replace=replace)


async def test_an_endless_pause_gets_no_end_by_accident(operator: Pool, admin: Admin) -> None:
    """Issue 4 §4: what somebody paused until further notice ends by itself only if that is asked for; without an act else."""
    now, later = await floor.clock(admin), timedelta(hours=2)
    assert await _pause(operator, None, now, actor="anna") is None
    with pytest.raises(EndlessPauseError, match="phase Reserve is paused without an end by anna: why"):
        await _pause(operator, now + later, now)
    assert (
        await admin.fetchval("SELECT paused_until FROM crm.phase_pauses WHERE phase = 'Reserve'"),
        len(await _acts(admin)),
    ) == (
        None,
        1,
    )
    assert (await _pause(operator, now + later, now, replace=True)).actor == "anna"
    assert (await _pause(operator, now + MINUTE, now)).until == now + later
    assert await _pause(operator, None, now + later) is None  # the one before is over by then


async def test_two_who_pause_at_once(operator: Pool, admin: Admin) -> None:
    """Issue 4 §4: the guard is asked under the row's lock: beside an endless pause being made just then it waits, and refuses."""
    now = await floor.clock(admin)
    async with UnitOfWork(operator) as connection:
        await controls.pause(connection, Phase.RESERVE, now, None, actor="anna", reason="why")
        beside = asyncio.create_task(_pause(operator, now + MINUTE, now))
        await asyncio.sleep(0.3)
        assert not beside.done()
    with pytest.raises(EndlessPauseError):
        await beside
    assert [act[1] for act in await _acts(admin)] == ["anna"]


@pytest.mark.parametrize(("due", "limit", "allowed"), [(5, 0, None), (5, 5, None), (6, 5, 0)])
async def test_the_safety_catch_speaks_above_its_limit(
    pool: Pool, admin: Admin, due: int, limit: int, allowed: int | None
) -> None:
    """Issue 4 §4: off by 0, silent at the limit, nothing may expire above it."""
    now = await floor.clock(admin)
    await floor.add(admin, due - 1, now - MINUTE)
    await floor.add(admin, 1, now - MINUTE, "Booked")
    assert (await _open(pool, hold_above=limit)).allowed == allowed


async def _release(operator: Pool, up_to: int) -> None:
    async with UnitOfWork(operator) as connection:
        await controls.release(connection, up_to, actor="anna", reason="looked at them")


async def _hold(operator: Pool, admin: Admin) -> Hold:
    async with reading(operator) as connection:
        return await controls.hold(connection, await floor.clock(admin))


async def test_a_release_lets_so_many_through_and_no_more(pool: Pool, operator: Pool, admin: Admin) -> None:
    """Issue 4 §4: the batch takes what it expired off the allowance, and the act tells what was allowed before."""
    await floor.add(admin, 10, await floor.clock(admin) - MINUTE)
    assert (await _open(pool, hold_above=5)).allowed == 0
    await _release(operator, 7)
    opened = await _open(pool, hold_above=5)
    assert opened.allowed == 7
    order = BatchOrder(phase=Phase.RESERVE, as_of=opened.as_of, batch_size=4, spends_allowance=True)
    await ActivityEnvironment().run(ExpireBatch(pool, floor.TOPIC).expire_batch, order)
    assert (await _open(pool, hold_above=5)).allowed == 3
    assert await _acts(admin) == [("release_hold", "anna", "job/booking-expiration", "looked at them")]


async def test_what_is_taken_back_expires_no_more(pool: Pool, operator: Pool, admin: Admin) -> None:
    """Issue 4 §4: a release that is taken back while a cycle runs holds its next batch, too."""
    now = await floor.clock(admin)
    await floor.add(admin, 10, now - MINUTE)
    await _open(pool, hold_above=5)
    await _release(operator, 7)
    opened = await _open(pool, hold_above=5)
    await _release(operator, 2)
    order = BatchOrder(phase=Phase.RESERVE, as_of=opened.as_of, batch_size=7, spends_allowance=True)
    done = [
        await ActivityEnvironment().run(
            ExpireBatch(pool, floor.TOPIC).expire_batch, order.model_copy(update={"batch_no": number})
        )
        for number in (1, 2)
    ]
    assert ([each.expired_count for each in done], (await _hold(operator, admin)).allowance) == ([2, 0], 0)


async def test_a_release_ends_with_its_hold(pool: Pool, operator: Pool, admin: Admin) -> None:
    """Issue 4 §4: what is left of a release when the hold is over lets nothing of the next one through; history tells."""
    now = await floor.clock(admin)
    await floor.add(admin, 4, now - MINUTE)
    await floor.add(admin, 2, now - MINUTE, "Booked")
    await _open(pool, hold_above=5)
    await _release(operator, 7)
    await floor.expire(pool, now)
    assert (await _hold(operator, admin)) == Hold(limit=5, allowance=7, on=False)
    assert [(await _open(pool, hold_above=5)).allowed for _ in range(2)] == [None, None]
    await floor.add(admin, 10, now - MINUTE)
    assert (await _open(pool, hold_above=5)).allowed == 0
    why = "the hold is over: 2 bookings are due, no more than 5"
    assert (await _acts(admin))[1:] == [("end_release", "system", "job/booking-expiration", why)]
    assert json.loads(await admin.fetchval(_NEWEST))["before"] == {"allowance": 7}


async def test_a_release_ends_where_the_catch_is_switched_off(pool: Pool, operator: Pool, admin: Admin) -> None:
    """Issue 4 §4: a worker without a limit holds nothing, so nothing is left to let through when one is set again."""
    await floor.add(admin, 6, await floor.clock(admin) - MINUTE)
    await _open(pool, hold_above=5)
    await _release(operator, 7)
    assert [(await _open(pool, limit)).allowed for limit in (0, 5)] == [None, 0]
    assert [act[3] for act in await _acts(admin)] == ["looked at them", "the safety catch is off"]


async def test_a_release_given_since_the_look_began_is_for_the_next(pool: Pool, operator: Pool, admin: Admin) -> None:
    """Issue 4 §4: a look of an earlier moment, as of a repeated attempt, does not end what was released after it."""
    now = await floor.clock(admin)
    await floor.add(admin, 6, now - MINUTE)
    await _open(pool, hold_above=5)
    await _release(operator, 7)
    async with UnitOfWork(pool) as connection:
        assert await controls.look(connection, 0, 5, now) is None
    assert (await _hold(operator, admin)) == Hold(limit=5, allowance=7, on=True)


@pytest.mark.parametrize(("limit", "why"), [(0, "no safety catch, or none ran yet"), (6, "no more than 6 bookings are due")])
async def test_nothing_to_release(pool: Pool, operator: Pool, admin: Admin, limit: int, why: str) -> None:
    """Issue 4 §4: a release in advance would let through what nobody has looked at; taking one back is always possible."""
    await floor.add(admin, 6, await floor.clock(admin) - MINUTE)
    await _open(pool, limit)
    with pytest.raises(NothingHeldError, match=rf"nothing is held \(.*{why}\)"):
        await _release(operator, 7)
    await _release(operator, 0)
    assert (await _hold(operator, admin)) == Hold(limit, allowance=0, on=False)
    assert [act[0] for act in await _acts(admin)] == ["release_hold"]


@pytest.mark.parametrize("outcome", [None, *Outcome])
async def test_a_hold_is_seen_whatever_became_of_the_last_cycle(
    pool: Pool, operator: Pool, admin: Admin, outcome: Outcome | None
) -> None:
    """Issue 4 §4: a cycle that was stopped or failed under a hold, or none since, hides it from nobody."""
    now = await floor.clock(admin)
    await floor.add(admin, 5, now - MINUTE)
    await _open(pool, hold_above=5)
    await floor.add(admin, 1, now - MINUTE, "Booked")
    if outcome:
        closing = ClosingCycle(result=CycleResult(outcome=outcome))
        await ActivityEnvironment().run(CycleFrame(pool).close_cycle, closing)
    assert (await _hold(operator, admin)) == Hold(limit=5, allowance=0, on=True)


async def test_d7_a_repeated_batch_takes_nothing_off_twice(pool: Pool, operator: Pool, admin: Admin) -> None:
    """D7: attempts at one batch, beside each other and after it, spend the allowance once."""
    now = await floor.clock(admin)
    await floor.add(admin, 10, now - MINUTE)
    await _open(pool, hold_above=5)
    await _release(operator, 9)
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
