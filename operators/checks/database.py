"""`doctor`: the database. Who we are there, which rights and migrations are missing, and the roles with their time-outs."""

from typing import Final

from db import controls, migrations, privileges, server
from db.errors import MIGRATE, DatabaseError
from db.server import OPERATOR
from db.unit_of_work import Pool, UnitOfWork
from operators import words
from operators.checks.finding import Finding, State
from operators.checks.places import Place, Places

OLDEST: Final = 150_000
BOOTSTRAP: Final = "let an administrator run migrations/bootstrap.sql (docs/deploy.md)"


async def connection(place: Place[Pool], check: str, role: str, variable: str) -> Finding:
    """Whether the database answers, may be written, is new enough (D29), and takes us for the role that we should be."""
    try:
        async with UnitOfWork(await place.there()) as opened:
            who = await server.identity(opened, role)
    except (DatabaseError, TimeoutError) as error:
        why = str(error).removeprefix("database: ") or "no answer"
        return Finding(check, State.FAIL, why, f"see whether the database is up and {variable} is right")
    what = f"connected as {who.user}, PostgreSQL {who.version // 10_000}.{who.version % 10_000}"
    if not who.writable:
        return Finding(
            check, State.FAIL, f"{what}, which is a standby: nothing can be written", f"name the primary in {variable}"
        )
    if who.version < OLDEST:
        return Finding(check, State.FAIL, what, "PostgreSQL 15 or newer is needed (D29)")
    if not who.member:
        return Finding(check, State.FAIL, f"{what}, which is not {role}", f"name {role} in {variable}")
    if who.superuser:
        return Finding(
            check, State.WARN, f"{what}, a superuser", f"name {role} in {variable}: it can do no harm that it need not"
        )
    return Finding(check, State.OK, what)


async def grants(places: Places) -> Finding:
    """Whether each role has every right that its program needs."""
    async with UnitOfWork(await places.database.needed()) as opened:
        lacking = await privileges.lacking(opened)
    if not lacking:
        return Finding("grants", State.OK, f"all {len([*privileges.needs()])} that the roles need are there")
    what = "; ".join(f"{each.role} lacks {_right(each)}" for each in lacking)
    todo = f"as {server.OWNER}: {'; '.join(each.grant for each in lacking)}"
    return Finding("grants", State.FAIL, what, todo)


def _right(lack: privileges.Lack) -> str:
    columns = f" ({', '.join(lack.columns)})" if lack.columns else ""
    return f"{lack.right}{columns} on {f'crm.{lack.table}' if lack.table else 'schema crm'}"


async def applied_migrations(places: Places) -> Finding:
    """Whether the schema is the one that this program was written for (D18)."""
    known = migrations.known()
    async with UnitOfWork(await places.database.needed()) as opened:
        missing = await migrations.missing(opened, known)
        newer = [] if missing else sorted(set(await migrations.applied(opened)) - set(known))
    if missing:
        return Finding("migrations", State.FAIL, f"not applied, or not to be seen by this role: {', '.join(missing)}", MIGRATE)
    if newer:
        todo = "nothing, if workers of that version run; else see which version this command is of"
        return Finding("migrations", State.WARN, f"the database is ahead of this program: {', '.join(newer)}", todo)
    return Finding("migrations", State.OK, f"all {len(known)} applied, the newest {known[-1]}")


async def phases(places: Places) -> Finding:
    """Whether both phases run, or somebody stopped one."""
    async with UnitOfWork(await places.database.needed()) as opened:
        pauses = await controls.paused(opened, await server.clock(opened))
    if not pauses:
        return Finding("phases", State.OK, "both run")
    what = "; ".join(f"{each.phase} is {words.paused(each.actor, each.until, each.reason)}" for each in pauses)
    todo = "; ".join(f"booking-expiration phase resume {each.phase} --reason …" for each in pauses)
    return Finding("phases", State.WARN, what, f"when the reason is over: {todo}")


async def roles(places: Places) -> Finding:
    """Whether each role is there, with the time-outs that keep a dead client from holding a booking's lock (trap 24)."""
    async with UnitOfWork(await places.database.needed()) as opened:
        version = (await server.identity(opened, OPERATOR)).version
        found, reads_statistics = await server.role_settings(opened), await server.reads_statistics(opened, OPERATOR)
    if absent := [role for role in server.ROLES if role not in found]:
        return Finding("roles", State.FAIL, f"missing: {', '.join(absent)}", BOOTSTRAP)
    wrong = [
        f"{role}: {name} is {found[role].get(name, 'not set')}, not {value}"
        for role in server.ROLES
        for name, value in server.wanted_settings(role, version).items()
        if found[role].get(name) != value
    ]
    if not reads_statistics:
        wrong.append(f"{OPERATOR} is no member of pg_read_all_stats, so that explain cannot name who holds a booking's lock")
    if wrong:
        return Finding("roles", State.WARN, "; ".join(wrong), BOOTSTRAP)
    return Finding("roles", State.OK, f"all {len(server.ROLES)} there, with their time-outs")
