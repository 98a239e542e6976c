"""A batch that waits at a chosen moment, and what its end left behind."""

from typing import Final, Literal

from tests.acceptance.process import soon
from tests.floor import Admin

# Short sleeps, because a waiting statement must be as easy to interrupt as a working one.
_GATE: Final = """
    CREATE FUNCTION crm.gate() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      WHILE NOT pg_try_advisory_xact_lock_shared(4711) LOOP PERFORM pg_sleep(0.02); END LOOP;
      RETURN NULL;
    END $$;
    SELECT pg_advisory_lock(4711);"""
_AT: Final = {
    "write": """CREATE TRIGGER gate AFTER INSERT ON crm.expiration_batches
                FOR EACH ROW EXECUTE FUNCTION crm.gate()""",
    "commit": """CREATE CONSTRAINT TRIGGER gate AFTER INSERT ON crm.expiration_batches DEFERRABLE INITIALLY DEFERRED
                 FOR EACH ROW EXECUTE FUNCTION crm.gate()""",
}
_WORKERS: Final = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND usename LIKE '%_worker'"


async def close_gate(admin: Admin, at: Literal["write", "commit"]) -> None:
    """From now on every batch that did something waits after its last statement, or in its COMMIT."""
    await admin.execute(_GATE)
    await admin.execute(_AT[at])


async def open_gate(admin: Admin) -> None:
    """Let the waiting batch go on, and all later ones."""
    await admin.execute("SELECT pg_advisory_unlock(4711)")


async def batch_waits(admin: Admin) -> None:
    """Return once a batch waits at the gate."""

    async def waiting() -> bool:
        return bool(await admin.fetchval(f"{_WORKERS} AND wait_event = 'PgSleep'"))

    await soon(waiting, "a batch at the gate")


async def nothing_left(admin: Admin) -> None:
    """Return once no worker's transaction, and so no lock of one, is open in this database."""

    async def idle() -> bool:
        return not await admin.fetchval(f"{_WORKERS} AND xact_start IS NOT NULL")

    await soon(idle, "the end of every worker's transaction", 5)


async def whole(admin: Admin) -> int:
    """How many bookings are expired; each with one audit row, card, event, its next version, and a place in the ledger."""
    row = await admin.fetchrow("""
        SELECT (SELECT count(*) FROM crm.bookings WHERE expired_at IS NOT NULL AND version = 2),
               (SELECT count(*) FROM crm.bookings WHERE status LIKE '%Expired'),
               (SELECT count(DISTINCT booking_id) FROM crm.booking_audit), (SELECT count(*) FROM crm.booking_audit),
               (SELECT count(*) FROM crm.deal_timeline_cards), (SELECT count(*) FROM crm.outbox),
               (SELECT coalesce(sum(expired_count), 0) FROM crm.expiration_batches)""")
    counts = {int(value) for value in row or ()}
    assert len(counts) == 1, f"not whole: {row}"
    return counts.pop()
