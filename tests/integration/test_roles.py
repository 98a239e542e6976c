"""Each role connects and tries: what it needs works, everything else is refused (issue 3 section 3, S4, traps 24 and 43)."""
# every statement is put together from constants of this file

from typing import Any, TypeAlias

import asyncpg
import pytest

from tests.conftest import Database

Connection: TypeAlias = "asyncpg.Connection[Any]"
ROLES = ("worker", "operator", "crm_app", "chessboard")
TABLES = (
    "bookings", "booking_audit", "deal_timeline_cards", "outbox", "expiration_batches", "expiration_refusals", "job_state",
    "operator_actions", "schema_migrations", "phase_pauses", "safety_catch",
)  # fmt: skip
IDS = "gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), gen_random_uuid()"
NEW_BOOKING = (
    "INSERT INTO crm.bookings (id, tenant_id, deal_id, property_object_id, status, reserve_expires_at) "
    f"VALUES ({IDS}, 'Reserved', now())"
)
OUTBOX = (
    "INSERT INTO crm.outbox (event_id, aggregate_type, aggregate_id, aggregate_version, tenant_id, topic, contract_version, "
    "payload, headers, correlation_id, occurred_at{columns}) "
    "VALUES (gen_random_uuid(), 'Booking', gen_random_uuid(), 2, gen_random_uuid(), 't', 1, 'x', '{{}}', 'r', now(){values})"
)
RECORD = OUTBOX.format(columns="", values="")
AUDIT = "INSERT INTO crm.booking_audit VALUES (gen_random_uuid(), 2, 'a', 'b', 'c', 'd', now(), 'r')"
CARD = "INSERT INTO crm.deal_timeline_cards VALUES (gen_random_uuid(), gen_random_uuid(), 2, 'k', now())"
LEDGER = "INSERT INTO crm.expiration_batches VALUES ('r', 'Reserve', 1, now(), 1, 0, 0, '{}')"
REFUSAL = (
    "INSERT INTO crm.expiration_refusals VALUES (gen_random_uuid(), 'Reserve', 'why', now(), now()) "
    "ON CONFLICT (booking_id, phase) DO UPDATE SET times = expiration_refusals.times + 1"
)
STATE = "INSERT INTO crm.job_state (job) VALUES ('j') ON CONFLICT (job) DO UPDATE SET run_id = 'r'"
ACTION = "INSERT INTO crm.operator_actions (actor, action, target, reason) VALUES ('a', 'b', 'c', 'd')"
PUBLISHING = "published_at = now(), kafka_partition = 0, kafka_offset = 1"
LEASE = "claim_token = gen_random_uuid(), claimed_until = now(), attempts = attempts + 1"

ALLOWED = [
    ("worker", "SELECT id FROM crm.bookings FOR NO KEY UPDATE SKIP LOCKED"),
    (
        "worker",
        "UPDATE crm.bookings SET status = 'ReserveExpired', expired_at = now(), updated_at = now(), version = version + 1",
    ),
    *(("worker", statement) for statement in (RECORD, AUDIT, CARD, LEDGER, REFUSAL, STATE, ACTION)),
    ("worker", f"UPDATE crm.outbox SET {LEASE}, {PUBLISHING}, parked_at = now(), park_reason = 'x'"),
    ("worker", "SELECT version FROM crm.schema_migrations"),
    ("worker", "SELECT pg_advisory_xact_lock(1)"),
    ("operator", "SELECT * FROM crm.bookings, crm.outbox, crm.booking_audit, crm.expiration_refusals, crm.job_state"),
    ("operator", f"UPDATE crm.outbox SET {LEASE}, parked_at = NULL, park_reason = NULL, skipped_at = now()"),
    ("operator", f"{ACTION} RETURNING id"),
    ("operator", "UPDATE crm.phase_pauses SET paused_at = now(), paused_until = NULL, actor = 'a', reason = 'r'"),
    ("operator", "UPDATE crm.safety_catch SET allowance = 5, released_at = now()"),
    ("worker", "SELECT * FROM crm.phase_pauses, crm.safety_catch, crm.operator_actions"),
    ("worker", "UPDATE crm.safety_catch SET allowance = 0, hold_above = 5"),
    *(("crm_app", statement) for statement in (NEW_BOOKING, AUDIT, RECORD, "SELECT * FROM crm.deal_timeline_cards")),
    ("crm_app", "UPDATE crm.bookings SET status = 'Cancelled', reserve_expires_at = now(), updated_at = now(), version = 2"),
    ("crm_app", "SELECT id FROM crm.bookings FOR UPDATE"),
]
REFUSED = [
    ("worker", NEW_BOOKING),
    *(
        ("worker", f"UPDATE crm.bookings SET {column} = {column}")
        for column in (
            "id",
            "tenant_id",
            "deal_id",
            "property_object_id",
            "reserve_expires_at",
            "booking_expires_at",
            "created_at",
        )
    ),
    ("worker", "UPDATE crm.booking_audit SET actor = 'nobody'"),
    ("worker", "UPDATE crm.deal_timeline_cards SET kind = 'x'"),
    ("worker", "UPDATE crm.expiration_batches SET expired_count = 0"),
    ("worker", "UPDATE crm.operator_actions SET reason = 'x'"),
    ("worker", "UPDATE crm.phase_pauses SET paused_at = NULL, actor = NULL, reason = NULL"),
    ("worker", "UPDATE crm.safety_catch SET released_at = now()"),
    ("worker", "UPDATE crm.outbox SET payload = 'x'"),
    ("worker", "UPDATE crm.outbox SET skipped_at = now()"),
    ("worker", OUTBOX.format(columns=", published_at", values=", now()")),
    ("worker", "INSERT INTO crm.schema_migrations VALUES ('9')"),
    ("operator", "UPDATE crm.bookings SET status = 'Booked'"),
    ("operator", "UPDATE crm.outbox SET published_at = now()"),
    ("operator", "UPDATE crm.outbox SET payload = 'x'"),
    ("operator", "UPDATE crm.operator_actions SET reason = 'x'"),
    ("operator", "UPDATE crm.job_state SET last_success_at = now()"),
    ("operator", "INSERT INTO crm.phase_pauses (phase) VALUES ('x')"),
    ("operator", "INSERT INTO crm.safety_catch (job) VALUES ('x')"),
    ("operator", "UPDATE crm.safety_catch SET hold_above = 0"),
    ("operator", RECORD),
    ("crm_app", "UPDATE crm.bookings SET expired_at = now()"),
    ("crm_app", "UPDATE crm.bookings SET tenant_id = gen_random_uuid()"),
    *(
        ("crm_app", f"UPDATE crm.outbox SET {change}")
        for change in (LEASE, PUBLISHING, "parked_at = now()", "skipped_at = now()")
    ),
    ("crm_app", OUTBOX.format(columns=", published_at", values=", now()")),
    ("crm_app", OUTBOX.format(columns=", claim_token, claimed_until", values=", gen_random_uuid(), now()")),
    *(("crm_app", statement) for statement in (CARD, LEDGER, REFUSAL, STATE, ACTION, "SELECT * FROM crm.job_state")),
    ("crm_app", "UPDATE crm.booking_audit SET actor = 'nobody'"),
    *(("chessboard", f"SELECT * FROM crm.{table}") for table in TABLES),
    *((role, f"DELETE FROM crm.{table}") for role in ROLES for table in TABLES),
    *((role, f"TRUNCATE crm.{table}") for role in ROLES for table in TABLES),
    *((role, "CREATE TABLE crm.mine (id int)") for role in ROLES),
    *((role, "CREATE TABLE public.mine (id int)") for role in ROLES),
    *((role, "CREATE SCHEMA mine") for role in ROLES),
    *((role, "SELECT * FROM elsewhere.things") for role in ROLES),
    *((role, "INSERT INTO elsewhere.things VALUES (1)") for role in ROLES),
    *((role, "SET ROLE booking_expiration_owner") for role in ROLES),
    *((role, "ALTER TABLE crm.bookings DISABLE TRIGGER ALL") for role in ROLES),
    *((role, "DROP INDEX crm.ix_bookings_reserve_expires_at") for role in ROLES),
]


@pytest.fixture
async def elsewhere(admin: Connection) -> None:
    """Another context's schema in the same database."""
    await admin.execute("CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.things (id int)")


async def try_all(dsn: str, statements: list[str]) -> dict[str, str | None]:
    """Try each statement in a transaction that is rolled back: None where it worked, else the SQLSTATE."""
    connection, outcome = await asyncpg.connect(dsn), dict[str, str | None]()
    for statement in statements:
        transaction = connection.transaction()
        await transaction.start()
        try:
            await connection.execute(statement)
            outcome[statement] = None
        except asyncpg.PostgresError as error:
            outcome[statement] = error.sqlstate
        await transaction.rollback()
    await connection.close()
    return outcome


@pytest.mark.parametrize("role", ROLES)
async def test_what_a_role_needs_works(database: Database, role: str) -> None:
    """Issue 3 section 3: each role can do its own work."""
    wanted = [statement for who, statement in ALLOWED if who == role]
    outcome = await try_all(getattr(database, role), wanted)
    assert {statement: state for statement, state in outcome.items() if state} == {}


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.usefixtures("elsewhere")
async def test_everything_else_is_refused(database: Database, role: str) -> None:
    """Issue 3 section 3, S4: each of these is refused for lack of permission, and for no other reason."""
    unwanted = [statement for who, statement in REFUSED if who == role]
    outcome = await try_all(getattr(database, role), unwanted)
    assert {statement: state for statement, state in outcome.items() if state != "42501"} == {}


async def test_the_workers_columns_are_those_of_a4(admin: Connection) -> None:
    """A4, A5: the worker may update these four columns of a booking and no other, also of a column added one day."""
    rows = await admin.fetch(
        "SELECT column_name FROM information_schema.column_privileges "
        "WHERE grantee = 'booking_expiration_worker' AND table_name = 'bookings' AND privilege_type = 'UPDATE'"
    )
    assert {row["column_name"] for row in rows} == {"status", "expired_at", "updated_at", "version"}


async def test_nobody_may_delete(admin: Connection) -> None:
    """D30: no role but the owner has DELETE, TRUNCATE, REFERENCES or TRIGGER on any table, also one added one day."""
    rows = await admin.fetch(
        "SELECT grantee, table_name, privilege_type FROM information_schema.table_privileges WHERE table_schema = 'crm' "
        "AND grantee <> 'booking_expiration_owner' AND privilege_type IN ('DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER')"
    )
    assert rows == []


async def test_every_table_is_tried(admin: Connection) -> None:
    """Issue 3 section 3: the list of tables above is complete."""
    rows = await admin.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'crm'")
    assert {row["tablename"] for row in rows} == set(TABLES)


async def test_no_role_has_special_rights(admin: Connection) -> None:
    """Issue 3 section 3: no superuser, no role or database maker, no member of another; operators may see who is connected."""
    rows = await admin.fetch(
        "SELECT rolname FROM pg_roles r WHERE rolname IN ('booking_expiration_owner', 'booking_expiration_worker', "
        "'booking_expiration_operator', 'crm_app', 'chessboard') AND (rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication "
        "OR rolbypassrls OR EXISTS (SELECT FROM pg_auth_members WHERE member = r.oid "
        "AND (member, roleid) <> ('booking_expiration_operator'::regrole, 'pg_read_all_stats'::regrole)))"
    )
    assert rows == []


@pytest.fixture(params=[*ROLES, "owner"])
async def session_settings(request: pytest.FixtureRequest, database: Database) -> dict[str, str]:
    """What a new session of a role has, by the server's own words."""
    connection = await asyncpg.connect(getattr(database, request.param))
    rows = await connection.fetch("SELECT name, current_setting(name) AS value FROM pg_settings")
    await connection.close()
    return {row["name"]: row["value"] for row in rows} | {"role": request.param}


async def test_time_outs(session_settings: dict[str, str]) -> None:
    """Trap 24: a silent client's rest of a statement and the wait for its next one together are under 30 s."""
    assert session_settings["client_connection_check_interval"] == "500ms"
    assert session_settings["lock_timeout"] == "5s"
    idle = int(session_settings["idle_in_transaction_session_timeout"].removesuffix("s"))
    if session_settings["role"] == "owner":
        assert (idle, session_settings["statement_timeout"]) == (15, "0")
        return
    assert int(session_settings["statement_timeout"].removesuffix("s")) + idle < 30
    assert session_settings.get("transaction_timeout", "25s") == "25s"
