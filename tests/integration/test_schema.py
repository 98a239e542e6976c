"""What the schema itself refuses, its keys and indexes, and that `schema.sql` says the same (decisions, D4, D15, trap 43)."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
import pytest

from db.bookings import _CLAIM
from db.job_state import _BACKLOG
from devstack import schema, schema_dump
from domain.events import Phase
from tests.conftest import Database

Connection: TypeAlias = "asyncpg.Connection[Any]"
BOOTSTRAP = Path(schema_dump.SCHEMA_FILE).parent / "migrations" / "bootstrap.sql"
PAST, NOW = "2026-01-01T00:00Z", "2026-02-01T00:00Z"
NEW_ID = "gen_random_uuid()"


def booking(status: str, **columns: str) -> str:
    """An INSERT of a booking; the columns that matter are SQL expressions."""
    names = "".join(f", {name}" for name in columns)
    values = "".join(f", {value}" for value in columns.values())
    return (
        f"INSERT INTO crm.bookings (id, tenant_id, deal_id, property_object_id, status{names}) "  # literals of this file
        f"VALUES ({NEW_ID}, {NEW_ID}, {NEW_ID}, {NEW_ID}, '{status}'{values})"
    )


def record(event_id: str = NEW_ID, aggregate_id: str = NEW_ID, **columns: str) -> str:
    """An INSERT of an outbox record."""
    names = "".join(f", {name}" for name in columns)
    values = "".join(f", {value}" for value in columns.values())
    return (
        "INSERT INTO crm.outbox (event_id, aggregate_type, aggregate_id, aggregate_version, tenant_id, topic, contract_version, "
        f"payload, correlation_id, occurred_at{names}) "
        f"VALUES ({event_id}, 'Booking', {aggregate_id}, 2, {NEW_ID}, 't', 1, 'x', 'run', now(){values})"
    )


def batch(run_id: str = "r", phase: str = "Reserve", batch_no: int = 1) -> str:
    """An INSERT of a ledger row."""
    return f"INSERT INTO crm.expiration_batches VALUES ('{run_id}', '{phase}', {batch_no}, now(), 1, 0, 0, '{{}}')"


def refusal(phase: str = "Reserve") -> str:
    """An INSERT of a remembered refusal, always of the same booking."""
    return f"INSERT INTO crm.expiration_refusals VALUES ('{ONE}', '{phase}', 'why', now(), now())"


ONE = "00000000-0000-0000-0000-000000000001"
AUDIT = """
    INSERT INTO crm.booking_audit (booking_id, version, actor, action, from_status, to_status, at, correlation_id)
    VALUES ('00000000-0000-0000-0000-000000000001', 2, 'system', 'Expire', 'Reserved', 'ReserveExpired', now(), 'run')"""
CARD = """
    INSERT INTO crm.deal_timeline_cards (deal_id, booking_id, booking_version, kind, at)
    VALUES (gen_random_uuid(), '00000000-0000-0000-0000-000000000001', 2, 'ReserveExpired', now())"""
JOB = "INSERT INTO crm.job_state (job, outcome) VALUES ('j', 'completed')"
EXPIRED = {"reserve_expires_at": f"'{PAST}'", "booking_expires_at": f"'{PAST}'", "expired_at": f"'{NOW}'", "version": "2"}

PAUSE = "UPDATE crm.phase_pauses SET paused_at = now(), paused_until = NULL, actor = 'anna', reason = 'why'"
REFUSED_BY_CHECK = [
    ("bookings_status_known", booking("Sold")),
    ("bookings_reserve_has_deadline", booking("Reserved")),
    ("bookings_reserve_has_deadline", booking("AwaitingPayment", booking_expires_at="now()")),
    ("bookings_reserve_has_deadline", booking("ReserveExpired", **(EXPIRED | {"reserve_expires_at": "NULL"}))),
    ("bookings_booking_has_deadline", booking("Booked", reserve_expires_at="now()")),
    ("bookings_booking_has_deadline", booking("BookingExpired", **(EXPIRED | {"booking_expires_at": "NULL"}))),
    ("bookings_expired_at_iff_expired", booking("Reserved", **EXPIRED)),
    ("bookings_expired_at_iff_expired", booking("Cancelled", **EXPIRED)),
    ("bookings_expired_at_iff_expired", booking("ReserveExpired", reserve_expires_at="now()", version="2")),
    ("bookings_reserve_expired_after_deadline", booking("ReserveExpired", **(EXPIRED | {"reserve_expires_at": f"'{NOW}'"}))),
    ("bookings_booking_expired_after_deadline", booking("BookingExpired", **(EXPIRED | {"booking_expires_at": f"'{NOW}'"}))),
    *[
        (f"bookings_{kind}_deadline_is_a_moment", booking(status, **{f"{kind}_expires_at": f"'{moment}'"}))
        for kind, status in (("reserve", "Reserved"), ("booking", "Booked"))
        for moment in ("infinity", "-infinity", "0044-03-15 BC", "10000-01-01Z")
    ],
    ("bookings_version_positive", booking("Cancelled", version="0")),
    ("bookings_expired_version", booking("ReserveExpired", **(EXPIRED | {"version": "1"}))),
    ("outbox_claim_is_whole", record(claim_token=NEW_ID)),
    ("outbox_claim_is_whole", record(claimed_until="now()")),
    ("outbox_parked_with_reason", record(parked_at="now()")),
    ("outbox_parked_with_reason", record(park_reason="'too large'")),
    ("outbox_published_is_final", record(published_at="now()", skipped_at="now()")),
    ("outbox_published_is_final", record(published_at="now()", parked_at="now()", park_reason="'x'")),
    ("outbox_published_is_final", record(published_at="now()", claim_token=NEW_ID, claimed_until="now()")),
    ("outbox_attempts_not_negative", record(attempts="-1")),
    ("expiration_batches_phase_known", batch(phase="Payment")),
    ("expiration_batches_from_one", batch(batch_no=0)),
    ("expiration_refusals_phase_known", refusal(phase="Payment")),
    ("job_state_outcome_known", JOB.replace("completed", "fine")),
    ("phase_pauses_phase_known", "INSERT INTO crm.phase_pauses (phase) VALUES ('Payment')"),
    ("phase_pauses_whole", "UPDATE crm.phase_pauses SET paused_at = now(), actor = 'anna'"),
    ("phase_pauses_whole", "UPDATE crm.phase_pauses SET reason = 'why'"),
    ("phase_pauses_until_after_start", PAUSE.replace("NULL", "now() - interval '1 s'")),
    ("safety_catch_allowance_not_negative", "UPDATE crm.safety_catch SET allowance = -1"),
    ("safety_catch_hold_above_not_negative", "UPDATE crm.safety_catch SET hold_above = -1"),
]
TWICE = {
    "booking_audit_pkey": AUDIT,
    "deal_timeline_cards_pkey": CARD,
    "outbox_event_id_key": record(event_id=f"'{ONE}'"),
    "outbox_aggregate_id_aggregate_version_key": record(aggregate_id=f"'{ONE}'"),
    "expiration_batches_pkey": batch(),
    "expiration_refusals_pkey": refusal(),
    "job_state_pkey": JOB,
}
ACCEPTED = [
    *TWICE.values(),
    booking("ReserveExpired", **EXPIRED),
    booking("BookingExpired", **EXPIRED),
    booking("Cancelled"),
    booking("Completed", booking_expires_at=f"'{PAST}'"),
    record(published_at="now()", kafka_partition="0", kafka_offset="7"),
    record(claim_token=NEW_ID, claimed_until="now()", attempts="3"),
    record(parked_at="now()", park_reason="'too large'", skipped_at="now()"),
]


@pytest.mark.parametrize(("status", "deadline"), [("Reserved", "reserve"), ("AwaitingPayment", "reserve"), ("Booked", "booking")])
async def test_an_active_booking_needs_six_values(admin: Connection, status: str, deadline: str) -> None:
    """Decisions, fixed names: four ids, status and deadline are enough; the rest has the defaults of a new booking."""
    statement = booking(status, **{f"{deadline}_expires_at": f"'{PAST}'"})
    row = await admin.fetchrow(f"{statement} RETURNING version, expired_at, created_at, updated_at, clock_timestamp() AS now")
    assert row is not None
    assert (row["version"], row["expired_at"]) == (1, None)
    assert row["created_at"] <= row["updated_at"] <= row["now"]


@pytest.mark.parametrize("statement", ACCEPTED)
async def test_a_right_row_is_taken(admin: Connection, statement: str) -> None:
    """D15, D9: what the program writes passes every constraint."""
    assert await admin.execute(statement) == "INSERT 0 1"


@pytest.mark.parametrize(("constraint", "statement"), REFUSED_BY_CHECK)
async def test_a_wrong_row_is_refused(admin: Connection, constraint: str, statement: str) -> None:
    """Layout rule 3, D15, INV-BKG-5: each CHECK refuses what it is there for, whoever writes."""
    with pytest.raises(asyncpg.CheckViolationError) as refused:
        await admin.execute(statement)
    assert refused.value.constraint_name == constraint


async def test_every_check_has_a_refusal(admin: Connection) -> None:
    """Layout rule 3: no CHECK stands in the schema without a row above that it refuses."""
    rows = await admin.fetch("SELECT conname FROM pg_constraint WHERE contype = 'c' AND connamespace = 'crm'::regnamespace")
    assert {row["conname"] for row in rows} == {constraint for constraint, _ in REFUSED_BY_CHECK}


@pytest.mark.parametrize(("key", "statement"), TWICE.items(), ids=TWICE)
async def test_a_key_is_unique(admin: Connection, key: str, statement: str) -> None:
    """D7, D11: one audit row, one card, one event per transition; one ledger row per batch."""
    await admin.execute(statement)
    with pytest.raises(asyncpg.UniqueViolationError) as refused:
        await admin.execute(statement)
    assert refused.value.constraint_name == key


@pytest.mark.parametrize(
    ("index", "columns", "condition"),
    [
        ("ix_bookings_reserve_expires_at", "(reserve_expires_at, id)", "ARRAY['Reserved'::text, 'AwaitingPayment'::text]"),
        ("ix_bookings_booking_expires_at", "(booking_expires_at, id)", "(status = 'Booked'::text)"),
        ("ix_outbox_unpublished", "(id)", "(published_at IS NULL) AND (skipped_at IS NULL)"),
        ("ix_outbox_unpublished_aggregate", "(aggregate_id, id)", "(published_at IS NULL) AND (skipped_at IS NULL)"),
        ("ix_operator_actions_run", "(((details ->> 'run_id'::text)), ((details ->> 'act'::text)))", "IS NOT NULL"),
        ("ix_outbox_parked", "(id)", "(parked_at IS NOT NULL) AND (published_at IS NULL) AND (skipped_at IS NULL)"),
    ],
)
async def test_partial_indexes(admin: Connection, index: str, columns: str, condition: str) -> None:
    """A3, D9: the partial indexes by their names, with (deadline, id), and over what is still to be done only."""
    definition = await admin.fetchval("SELECT indexdef FROM pg_indexes WHERE schemaname = 'crm' AND indexname = $1", index)
    assert f"btree {columns} WHERE" in definition
    assert condition in definition


async def many_bookings(admin: Connection) -> None:
    """Twenty thousand bookings, one in a hundred active, and fresh statistics."""
    await admin.execute(f"""
        INSERT INTO crm.bookings (id, tenant_id, deal_id, property_object_id, status, reserve_expires_at, booking_expires_at)
        SELECT {NEW_ID}, {NEW_ID}, {NEW_ID}, {NEW_ID},
               CASE n % 200 WHEN 0 THEN 'Reserved' WHEN 1 THEN 'Booked' ELSE 'Cancelled' END,
               now() - n * interval '1 second', now() - n * interval '1 second'
        FROM generate_series(1, 20000) AS n""")  # a constant
    await admin.execute("VACUUM ANALYZE crm.bookings")


@pytest.mark.parametrize("phase", Phase)
async def test_the_claim_walks_its_index(admin: Connection, phase: Phase) -> None:
    """D4, A3: the claim reads the partial index in order, also under a generic plan: no sort, no scan of the table."""
    await many_bookings(admin)
    await admin.execute(f"PREPARE claim (timestamptz, int, uuid[]) AS {_CLAIM[phase]}")
    await admin.execute("SET plan_cache_mode = force_generic_plan")
    plan = await admin.fetchval("EXPLAIN (FORMAT JSON) EXECUTE claim (now(), 200, '{}')")
    assert f'"Index Name": "ix_bookings_{phase.lower()}_expires_at"' in plan
    assert "Sort" not in plan
    assert "Seq Scan" not in plan


async def test_the_backlog_is_counted_in_the_indexes_alone(admin: Connection) -> None:
    """Issue 3 section 6: counting the backlog reads no row of the table."""
    await many_bookings(admin)
    await admin.execute("SET plan_cache_mode = force_generic_plan")
    await admin.execute(f"PREPARE backlog (timestamptz) AS {_BACKLOG}")
    plan = await admin.fetchval("EXPLAIN (FORMAT JSON) EXECUTE backlog (now())")
    assert plan.count('"Node Type": "Index Only Scan"') == 2
    assert '"Node Type": "Index Scan"' not in plan


async def test_schema_sql_is_the_sum_of_the_migrations(database: Database) -> None:
    """Layout rule 13, trap 43: the dumped file says what the migrations make, on every server version (D29)."""
    dumped = await asyncio.to_thread(schema_dump.dump, database.admin)
    assert dumped == schema_dump.SCHEMA_FILE.read_text(encoding="utf-8"), "run `python -m devstack.schema_dump`"


async def test_migrating_again_changes_nothing(database: Database, admin: Connection) -> None:
    """D18: the migrations are recorded, so a second run of both steps does nothing."""
    before = await admin.fetch("SELECT version FROM crm.schema_migrations")
    await asyncio.to_thread(schema.migrate, database.owner)
    assert await admin.fetch("SELECT version FROM crm.schema_migrations") == before


@asynccontextmanager
async def new_database(admin: Connection, owner: str) -> AsyncIterator[str]:
    """An empty database of this role, dropped at the end."""
    name = f"bootstrap_{secrets.token_hex(4)}"
    await admin.execute(f"CREATE DATABASE {name} OWNER {owner}")
    try:
        yield name
    finally:
        await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


async def bootstrap(**connect: Any) -> None:
    """Run the administrator's step over a connection of its own."""
    connection = await asyncpg.connect(**connect)
    try:
        await connection.execute(BOOTSTRAP.read_text(encoding="utf-8"))
    finally:
        await connection.close()


async def test_bootstrap_by_several_at_once(admin: Connection, database: Database) -> None:
    """Decisions, roles: the bootstrap is idempotent, and several administrators may run it at the same moment."""
    async with new_database(admin, "postgres") as name, asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(bootstrap(dsn=database.admin, database=name))
        group.create_task(bootstrap(dsn=database.admin))


@pytest.fixture
async def limited_administrator(admin: Connection) -> AsyncIterator[str]:
    """A role with CREATEROLE and no more, with the rights it would have had it made the roles itself."""
    name, is_16 = f"limited_{secrets.token_hex(4)}", admin.get_server_version() >= (16,)
    await admin.execute(f"CREATE ROLE {name} LOGIN CREATEROLE")
    if is_16:
        await admin.execute(f"GRANT booking_expiration_owner TO {name} WITH ADMIN TRUE, INHERIT FALSE, SET FALSE")
    yield name
    await admin.execute(f"DROP ROLE {name}")


async def test_bootstrap_without_superuser(admin: Connection, database: Database, limited_administrator: str) -> None:
    """Decisions, roles: CREATEROLE and owning the database is enough, and no membership is left behind."""
    async with new_database(admin, limited_administrator) as name:
        for _ in range(2):
            await bootstrap(dsn=database.admin, database=name, user=limited_administrator)
        made = await asyncpg.connect(database.admin, database=name)
        assert await made.fetchval("SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = 'crm'") == (
            "booking_expiration_owner"
        )
        await made.close()
    can_act = "MEMBER" if admin.get_server_version() < (16,) else "SET"
    assert not await admin.fetchval("SELECT pg_has_role($1, 'booking_expiration_owner', $2)", limited_administrator, can_act)
