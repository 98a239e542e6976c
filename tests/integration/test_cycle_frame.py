"""The activities on a real database, called as Temporal calls them: first and last step, errors, heartbeats (D2, D24, R4)."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities import heartbeat
from activities.cycle_frame import CycleFrame
from activities.expire_batch import ExpireBatch
from activities.messages import BatchOrder, BatchResult, ClosingCycle, CycleResult, Outcome
from db import job_state
from db.unit_of_work import Pool, UnitOfWork
from domain.events import Phase
from tests import floor
from tests.floor import MINUTE, Admin


@pytest.fixture
def temporal() -> ActivityEnvironment:
    """What an activity sees of Temporal; its run id is `test-run`."""
    return ActivityEnvironment()


async def _state(admin: Admin) -> dict[str, Any]:
    return dict(await admin.fetchrow("SELECT * FROM crm.job_state") or {})


async def _close(temporal: ActivityEnvironment, pool: Pool, outcome: Outcome) -> None:
    closing = ClosingCycle(result=CycleResult(outcome=outcome, reserve_expired_count=7))
    await temporal.run(CycleFrame(pool).close_cycle, closing)


async def test_d2_as_of_is_the_databases_clock(temporal: ActivityEnvironment, pool: Pool, admin: Admin) -> None:
    """D2, I1: AsOf comes from the database, with offset; a phase's backlog is what is due at it; the start is marked."""
    before = await floor.clock(admin)
    await floor.add(admin, 3, before - MINUTE, "AwaitingPayment")
    await floor.add(admin, 2, before - MINUTE, "Booked")
    await floor.add(admin, 4, before + timedelta(hours=1))
    opened = await temporal.run(CycleFrame(pool, ["ExpirationOutcome"]).open_cycle)
    assert before < opened.as_of < await floor.clock(admin)
    assert opened.as_of.utcoffset() is not None
    assert (opened.reserve_backlog, opened.booking_backlog, opened.search_attributes) == (3, 2, ["ExpirationOutcome"])
    state = await _state(admin)
    assert (state["run_id"], state["last_started_at"], state["outcome"]) == (None, opened.as_of, None)


@pytest.mark.parametrize("ahead", [timedelta(0), timedelta(seconds=30), timedelta(seconds=-30)])
async def test_d2_the_workers_clock_stands_beside_the_databases(pool: Pool, ahead: timedelta) -> None:
    """D2, issue 4 §4: what `doctor` compares, from wherever it runs; a slow answer is no difference."""
    async with UnitOfWork(pool) as connection:
        assert await job_state.worker_clock(connection) is None
        await job_state.opened(connection, lambda: datetime.now(UTC) + ahead)
        told = await job_state.worker_clock(connection)
    assert told is not None
    assert (told[1] - told[0]).total_seconds() == pytest.approx(ahead.total_seconds(), abs=5)


async def test_d2_a_slow_answer_is_no_difference(pool: Pool) -> None:
    """D2: the database's moment lies between asking and answer, so a worker that waited long for it is not called off."""
    asked = datetime.now(UTC) - timedelta(seconds=20)
    moments = iter((asked, asked + timedelta(seconds=40)))
    async with UnitOfWork(pool) as connection:
        opening = await job_state.opened(connection, lambda: next(moments))
        assert await job_state.worker_clock(connection) == (opening.as_of, opening.as_of)


@pytest.mark.parametrize("outcome", Outcome)
async def test_d24_only_completed_is_a_success(temporal: ActivityEnvironment, pool: Pool, admin: Admin, outcome: Outcome) -> None:
    """D24, O5: every outcome is left with its counts; only `completed` moves the time of the last success."""
    await _close(temporal, pool, Outcome.COMPLETED)
    first = await _state(admin)
    await _close(temporal, pool, outcome)
    state = await _state(admin)
    assert (state["outcome"], json.loads(state["counts"])["ReserveExpiredCount"]) == (outcome, 7)
    assert first["last_finished_at"] < state["last_finished_at"]
    assert (state["last_success_at"] > first["last_success_at"]) == (outcome is Outcome.COMPLETED)


async def test_a_cycle_that_never_opened_can_be_closed(temporal: ActivityEnvironment, pool: Pool, admin: Admin) -> None:
    """D22: `close_cycle` does not need what `open_cycle` writes."""
    await _close(temporal, pool, Outcome.FAILED)
    state = await _state(admin)
    assert (state["outcome"], state["last_started_at"], state["last_success_at"]) == ("failed", None, None)


@pytest.mark.parametrize(
    ("broken", "kind", "words"),
    [
        ("ALTER TABLE crm.job_state RENAME TO mislaid", "DatabaseRefusedError", "apply the migrations"),
        ("REVOKE ALL ON crm.job_state FROM booking_expiration_worker", "DatabaseRefusedError", "the role lacks a grant"),
        ("ALTER DATABASE {} SET default_transaction_read_only = on", "DatabaseUnavailableError", "25006"),
    ],
    ids=["table", "permission", "read-only"],
)
async def test_trap_4_errors_are_named_and_final_or_not(pool: Pool, admin: Admin, broken: str, kind: str, words: str) -> None:
    """Trap 4, R4: what reaches Temporal has the condition's name, says what to do, and is retried only if that can help."""
    await admin.execute(broken.format(await admin.fetchval("SELECT current_database()")))
    await pool.expire_connections()
    with pytest.raises(ApplicationError, match=words) as caught:
        await ActivityEnvironment().run(CycleFrame(pool).open_cycle)
    assert (caught.value.type, caught.value.non_retryable) == (kind, kind == "DatabaseRefusedError")
    assert isinstance(caught.value.__cause__.__cause__, asyncpg.PostgresError)  # type: ignore[union-attr] # there is one


async def test_a_bug_is_final(temporal: ActivityEnvironment, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """R4: an error that nobody foresaw is not retried for ever, and keeps its name."""
    monkeypatch.setattr("db.job_state.JOB", object())
    with pytest.raises(ApplicationError) as caught:
        await temporal.run(CycleFrame(pool).open_cycle)
    assert (caught.value.non_retryable, caught.value.type) == (True, "DatabaseRefusedError")


async def _expire(temporal: ActivityEnvironment, pool: Pool, as_of: datetime, phase: Phase = Phase.RESERVE) -> BatchResult:
    order = BatchOrder(phase=phase, as_of=as_of, batch_size=10)
    return await temporal.run(ExpireBatch(pool, floor.TOPIC).expire_batch, order)


async def test_d7_a_lost_completion_reports_the_same_counts(temporal: ActivityEnvironment, pool: Pool, admin: Admin) -> None:
    """D7: called again for the same run, phase and number, the activity gives the very same answer and expires nothing more."""
    now = await floor.clock(admin)
    ids = await floor.add(admin, 30, now - MINUTE)
    await floor.poison(admin, ids[:2])
    first = await _expire(temporal, pool, now)
    assert (first.expired_count, first.poison_count, first.poison_ids) == (10, 2, ids[:2])
    assert await _expire(temporal, pool, now) == first
    assert await floor.statuses(admin) == {"Reserved": 20, "ReserveExpired": 10}
    assert (await _expire(temporal, pool, now, Phase.BOOKING)).expired_count == 0


async def test_trap_42_an_attempt_beside_its_retry(pool: Pool, admin: Admin) -> None:
    """D7, trap 42: several attempts at one batch at once report the same counts, and it is done once."""
    now = await floor.clock(admin)
    await floor.add(admin, 30, now - MINUTE)
    attempts = await asyncio.gather(*(_expire(ActivityEnvironment(), pool, now) for _ in range(4)))
    assert [attempt.expired_count for attempt in attempts] == [10] * 4
    assert (await floor.written(admin))["ledger"] == 1
    assert await floor.statuses(admin) == {"Reserved": 20, "ReserveExpired": 10}


async def test_trap_9_heartbeats_go_on_while_a_batch_waits(
    temporal: ActivityEnvironment, pool: Pool, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trap 9: a batch that waits for the database heartbeats all the time, so that a cancel can reach it; then it stops."""
    monkeypatch.setattr(heartbeat, "INTERVAL", 0.05)
    beats: list[Any] = []
    temporal.on_heartbeat = lambda *details: beats.append(details)
    await floor.add(admin, 3, await floor.clock(admin) - MINUTE)
    async with admin.transaction():
        await admin.execute("LOCK TABLE crm.outbox")
        batch = asyncio.create_task(_expire(temporal, pool, datetime.now(UTC)))
        await asyncio.wait({batch}, timeout=0.5)
        assert len(beats) > 4
        temporal.cancel()
        with pytest.raises(asyncio.CancelledError):
            await batch
    assert await floor.statuses(admin) == {"Reserved": 3}
