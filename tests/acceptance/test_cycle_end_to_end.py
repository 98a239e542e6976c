"""Whole cycles of the real worker on real servers: what a cycle leaves everywhere, and what it gets over (issue 3, 5 and 6)."""

import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError

from tests import floor
from tests.acceptance.held import batch_waits, close_gate, nothing_left, open_gate, whole
from tests.acceptance.process import WorkerProcess, World, a_namespace, soon
from tests.acceptance.proxy import a_proxy
from tests.floor import MINUTE, Admin
from tests.outbox_rows import consume, header

KILL_CONNECTIONS = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                      WHERE datname = current_database() AND usename = 'booking_expiration_worker'"""


async def _sales_floor(admin: Admin) -> tuple[list[UUID], UUID]:
    """30 due reserves, one of them poison, 20 due bookings, 5 of neither; those that can expire, and the poison."""
    now = await floor.clock(admin)
    reserves, booked = await floor.add(admin, 30, now - MINUTE), await floor.add(admin, 20, now - MINUTE, "Booked")
    await floor.add(admin, 5, now + timedelta(hours=1))
    await floor.poison(admin, [reserves[7]])
    return [*reserves[:7], *reserves[8:], *booked], reserves[7]


async def _attributes(run: WorkflowHandle[Any, Any]) -> dict[str, Any]:
    return {pair.key.name: pair.value for pair in (await run.describe()).typed_search_attributes}


async def _job_state(admin: Admin) -> tuple[str, str, bool, dict[str, Any]]:
    """Run, outcome, whether it counts as a success, and the counts."""
    row = await admin.fetchrow("SELECT run_id, outcome, last_success_at = last_finished_at, counts FROM crm.job_state")
    assert row is not None
    return row[0], row[1], row[2], json.loads(row[3])


async def test_a_triggered_cycle_end_to_end(world: World, admin: Admin) -> None:
    """S1, A8, T2, D12, D24, D28: result, database, Kafka, job state and search attributes say the same about a cycle."""
    due, _ = await _sales_floor(admin)
    await world.start()
    run = await world.trigger()
    result = await run.result()
    assert await whole(admin) == 49
    events = await consume(world.servers["KAFKA_BOOTSTRAP_SERVERS"], world.topic)
    assert sorted(event.key.decode() for event in events) == sorted(map(str, due))
    assert {header(event, "CorrelationId") for event in events} == {run.result_run_id}
    assert await _job_state(admin) == (run.result_run_id, "completed", True, result)
    found = {"ExpirationOutcome": "completed", "BookingsExpired": 49, "PoisonBookings": 1, "RecordsParked": 0}
    assert found.items() <= (await _attributes(run)).items()
    assert 0 < result.pop("DurationMs") < 30_000
    said = {"ReserveExpiredCount": 29, "BookingExpiredCount": 20, "SkippedLockedCount": 0, "PoisonCount": 1}
    assert result == {**said, "PublishedCount": 49, "ParkedCount": 0, "Outcome": "completed", "Reason": ""}


async def test_o1_the_log_of_a_cycle(world: World, admin: Admin) -> None:
    """O1, O3, A1: each moment of a cycle is one line with its fields and the job run id."""
    due, poison = await _sales_floor(admin)
    worker, run = await world.start(), await world.cycle()
    await run.result()
    lines = [line for line in worker.lines() if line.get("run_id") == run.result_run_id]
    assert {line["event"]: set(line) - {"timestamp", "level", "event", "run_id"} for line in lines} == {
        "cycle started": {"as_of", "reserve_backlog", "booking_backlog"},
        "batch selected": {"phase", "count"},
        "booking expired": {"booking_id", "deal_id", "phase", "tenant_id"},
        "item failed": {"booking_id", "phase", "exception"},
        "batch committed": {"phase", "expired", "skipped_locked", "poison"},
        "records published": {"count"},
        "cycle completed": {"outcome", "counts", "duration_ms", "skipped_locked", "failures"},
    }
    assert {line["booking_id"] for line in worker.events("booking expired")} == set(map(str, due))
    assert [line["booking_id"] for line in worker.events("item failed", level="error")] == [str(poison)]


async def test_x1_an_idle_cycle_writes_only_job_state(world: World, admin: Admin) -> None:
    """X1, D24: nothing due: success, and of all tables only `job_state` is written, at the start and at the end."""
    await floor.add(admin, 5, await floor.clock(admin) + timedelta(hours=1))
    worker = await world.start()
    assert (await world.result())["Outcome"] == "completed"
    await worker.stop()
    await nothing_left(admin)
    await admin.execute("SELECT pg_stat_force_next_flush()")
    written = "SELECT relname, n_tup_ins + n_tup_upd + n_tup_del AS rows FROM pg_stat_user_tables WHERE schemaname = 'crm'"
    rows = {row["relname"]: row["rows"] for row in await admin.fetch(written) if row["rows"]}
    assert rows == {"bookings": 5, "job_state": 2}


@pytest.mark.slow
async def test_r5_500_poison_rows_are_logged_once_each_cycle(world: World, admin: Admin) -> None:
    """R5, D6: each poison row is one ERROR line with its id in each cycle, and 200 good rows expire past them."""
    now = await floor.clock(admin)
    poison = await floor.add(admin, 500, now - 2 * MINUTE)
    await floor.poison(admin, poison)
    await floor.add(admin, 400, now - MINUTE)
    worker = await world.start()
    results = [await world.result() for _ in range(2)]
    assert [(r["ReserveExpiredCount"], r["PoisonCount"], r["Outcome"]) for r in results] == [(200, 500, "completed")] * 2
    failed = [line["booking_id"] for line in worker.events("item failed", level="error", phase="Reserve")]
    assert sorted(failed) == sorted(2 * list(map(str, poison)))
    assert max(result["DurationMs"] for result in results) < 30_000


@pytest.mark.parametrize(
    ("break_it", "mend_it", "words"),
    [
        (
            "REVOKE INSERT ON crm.deal_timeline_cards FROM booking_expiration_worker",
            "GRANT INSERT ON crm.deal_timeline_cards TO booking_expiration_worker",
            "permission denied for table deal_timeline_cards (SQLSTATE 42501); the role lacks a grant",
        ),
        (
            "ALTER TABLE crm.booking_audit RENAME TO mislaid",
            "ALTER TABLE crm.mislaid RENAME TO booking_audit",
            'relation "crm.booking_audit" does not exist (SQLSTATE 42P01); apply the migrations',
        ),
    ],
    ids=["permission", "table"],
)
async def test_what_no_retry_heals_fails_the_cycle(world: World, admin: Admin, break_it: str, mend_it: str, words: str) -> None:
    """R4, D22: one attempt, then Failed with the step's name and what to do; once mended, the same worker goes on."""
    await floor.add(admin, 3, await floor.clock(admin) - MINUTE)
    worker = await world.start()
    await admin.execute(break_it)
    with pytest.raises(WorkflowFailureError) as caught:
        await world.result()
    assert isinstance(caught.value.cause, ApplicationError)
    assert f"expire_batch (Reserve: up to 200): database: {words}" in caught.value.cause.message
    assert [line["retryable"] for line in worker.events("step failed", step="expire_batch Reserve")] == [False]
    assert await admin.fetchval("SELECT outcome FROM crm.job_state WHERE last_success_at IS NULL") == "failed"
    await admin.execute(mend_it)
    assert (await world.result())["PublishedCount"] == await whole(admin) == 3


@pytest.mark.parametrize("at", ["write", "commit"])
async def test_lost_connections_heal_within_the_cycle(world: World, admin: Admin, at: Any) -> None:
    """R4: every connection of the worker is ended in the middle of a batch; the same cycle completes with exact counts."""
    await floor.add(admin, 25, await floor.clock(admin) - MINUTE)
    await close_gate(admin, at)
    worker, cycle = await world.start(), await world.cycle()
    await batch_waits(admin)
    await admin.execute(KILL_CONNECTIONS)
    failure = await worker.said("step failed", step="expire_batch Reserve")
    assert (failure["retryable"], await whole(admin)) == (True, 0)
    await open_gate(admin)
    result = await cycle.result()
    assert (result["Outcome"], result["ReserveExpiredCount"], result["PublishedCount"]) == ("completed", 25, 25)
    assert await whole(admin) == 25


async def test_a_read_only_server_heals_within_the_cycle(world: World, admin: Admin) -> None:
    """R4: sessions that came up read-only, as after a failover, are replaced as soon as others are not."""
    await floor.add(admin, 5, await floor.clock(admin) - MINUTE)
    worker = await world.start()
    await admin.execute(f"ALTER DATABASE {world.database.name} SET default_transaction_read_only = on")
    await admin.execute(KILL_CONNECTIONS)
    cycle = await world.cycle()
    failure = await worker.said("step failed", step="open_cycle")
    assert (failure["retryable"], "SQLSTATE 25006" in failure["error"]) == (True, True)
    await admin.execute(f"ALTER DATABASE {world.database.name} RESET default_transaction_read_only")
    assert (await cycle.result())["ReserveExpiredCount"] == await whole(admin) == 5


async def test_temporal_away_in_the_middle_of_a_batch(world: World, admin: Admin) -> None:
    """D7, R4: the batch commits while its completion cannot be delivered; counts are exact all the same."""
    await floor.add(admin, 25, await floor.clock(admin) - MINUTE)
    await close_gate(admin, "write")
    async with a_proxy(world.where("TEMPORAL_ADDRESS")) as proxy:
        worker, cycle = await world.start(TEMPORAL_ADDRESS=proxy.address), await world.cycle()
        await batch_waits(admin)
        await proxy.cut()
        await open_gate(admin)
        await worker.said("batch committed")
        status, body = await worker.get("/readyz")
        assert (status, body["status"], body["checks"]["database"]) == (503, "unready", "ok")
        await proxy.open()
        assert (await cycle.result())["ReserveExpiredCount"] == await whole(admin) == 25
        assert (await worker.stop())[0] == 0


@pytest.mark.slow
async def test_trap_19_the_sdk_speaks_in_our_shape(world: World) -> None:
    """Trap 19, O1: what the SDK's core says about a lost server is one JSON object a line, too; nothing else is printed."""
    async with a_proxy(world.where("TEMPORAL_ADDRESS")) as proxy:
        worker = await world.start(TEMPORAL_ADDRESS=proxy.address)
        await proxy.cut()
        line = await soon(lambda: _foreign(worker), "a line of the SDK", 60)
        assert (line[0]["logger"].startswith("temporalio.core"), line[0]["level"]) == (True, "warning")
        assert ((await worker.stop())[0], worker.err.read_text()) == (0, "")


async def _foreign(worker: WorkerProcess) -> list[dict[str, Any]]:
    """What libraries said in its log."""
    return [line for line in worker.lines() if "logger" in line]


@pytest.mark.slow
async def test_d28_a_namespace_without_our_search_attributes(world: World, admin: Admin) -> None:
    """D28: the worker warns once and sets none of them; the cycle is not stalled by what the namespace lacks."""
    await floor.add(admin, 5, await floor.clock(admin) - MINUTE)
    async with a_namespace(world) as elsewhere:
        worker = await elsewhere.start(TEMPORAL_NAMESPACE=elsewhere.client.namespace)
        run = await elsewhere.cycle()
        assert (await run.result())["ReserveExpiredCount"] == 5
        assert "ExpirationOutcome" not in await _attributes(run)
        assert (await worker.stop())[0] == 0
    [warning] = worker.events("search attributes missing", level="warning")
    assert warning["names"] == ["ExpirationOutcome", "BookingsExpired", "PoisonBookings", "RecordsParked"]


@pytest.mark.slow
async def test_trap_29_without_prepared_statements(world: World, admin: Admin) -> None:
    """Trap 29: with the statement cache off, as pgbouncer needs it, a whole cycle works the same."""
    due, poison = await _sales_floor(admin)
    worker = await world.start(BOOKING_EXPIRATION_DATABASE_STATEMENT_CACHE_SIZE="0")
    result = await world.result()
    assert (result["PublishedCount"], result["PoisonCount"], await whole(admin)) == (len(due), 1, len(due))
    assert [line["booking_id"] for line in worker.events("item failed")] == [str(poison)]
