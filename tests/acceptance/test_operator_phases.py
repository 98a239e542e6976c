"""`phase pause` and `phase resume` as people type them, against real workers (issue 4 section 4)."""

from datetime import UTC, datetime, timedelta

from tests import floor
from tests.acceptance.command import WHY, acts, answer, call
from tests.acceptance.process import World
from tests.floor import MINUTE, Admin


async def _due(admin: Admin, count: int, status: str = "Reserved") -> None:
    await floor.add(admin, count, await floor.clock(admin) - MINUTE, status)


async def test_phase_pause_stops_one_phase(world: World, admin: Admin) -> None:
    """Issue 4 §4: the paused phase keeps its bookings, the other goes on; after resume both do; each act has its row."""
    await _due(admin, 3)
    await _due(admin, 2, "Booked")
    await world.start()
    paused = await call(world, "phase", "pause", "reserve", "--for", "2h", *WHY)
    assert (paused.code, "phase Reserve: paused from the next cycle on, until" in paused.out) == (0, True), paused
    assert (await world.result())["Outcome"] == "paused"
    assert await floor.statuses(admin) == {"Reserved": 3, "BookingExpired": 2}
    assert await answer(world, "phase", "resume", "Reserve", *WHY) == {"phase": "Reserve", "paused": False, "until": None}
    assert (await world.result())["Outcome"] == "completed"
    again = await call(world, "phase", "resume", "Reserve", *WHY)
    assert (again.code, again.err) == (1, "phase Reserve is not paused; nothing changed\n")
    assert await acts(admin) == ["pause_phase", "resume_phase"]


async def test_the_end_of_a_phases_pause_as_json(world: World) -> None:
    """docs/commands.md: `until` is RFC 3339, as every moment of an answer."""
    paused = await answer(world, "phase", "pause", "Booking", "--for", "1h", *WHY)
    length = datetime.fromisoformat(paused.pop("until")) - datetime.now(UTC)
    assert paused == {"phase": "Booking", "paused": True, "replaced": None}
    assert timedelta(minutes=59) < length < timedelta(minutes=61)


async def test_a_phases_pause_without_an_end_gets_none_by_accident(world: World, admin: Admin) -> None:
    """Issue 4 §4: as for the schedule, `--for` over somebody's endless pause needs `--replace`; what is replaced is said."""
    await call(world, "phase", "pause", "Reserve", "--reason", "ask Anna", BOOKING_EXPIRATION_ACTOR="anna")
    refused = await call(world, "phase", "pause", "Reserve", "--for", "1h", *WHY)
    assert (refused.code, refused.out, refused.err.count("\n")) == (1, "", 1), refused
    assert refused.err.startswith("phase Reserve is paused without an end by anna: ask Anna; --for would end that too.")
    assert await admin.fetchval("SELECT paused_until FROM crm.phase_pauses WHERE phase = 'Reserve'") is None
    done = await call(world, "phase", "pause", "Reserve", "--for", "1h", "--replace", *WHY)
    assert (done.code, done.out.splitlines()[1]) == (0, "this replaces the pause by anna: ask Anna")
    again = await answer(world, "phase", "pause", "Reserve", *WHY)
    assert (again["replaced"]["reason"], await acts(admin)) == (WHY[1], ["pause_phase"] * 3)
