"""The traffic's checker finds what is wrong: every rule, on a database where somebody did it (issue 6 section 3)."""

import random
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from db.unit_of_work import Pool
from domain.booking import Booking, Status
from tests import floor
from tests.conftest import Administrator
from tests.floor import MINUTE
from traffic import rules
from traffic.checker import Bounds, Checker
from traffic.floor import Wrong
from traffic.model import Model
from traffic.topic import Arrived, Topic

# What a correct chessboard would have: the objects of active bookings taken, all others free.
OBJECTS = """
    INSERT INTO chessboard.objects (id, status, booking_id)
    SELECT property_object_id, CASE WHEN expired_at IS NULL THEN 'Taken' ELSE 'Free' END, CASE WHEN expired_at IS NULL THEN id END
      FROM crm.bookings"""
MEANT = {
    "SOME_EXPIRED": "(SELECT id FROM crm.bookings WHERE expired_at IS NOT NULL LIMIT 1)",
    "SOME_ACTIVE": "(SELECT id FROM crm.bookings WHERE expired_at IS NULL LIMIT 1)",
    "EVENT": "chessboard.processed_events "
    "(event_id, booking_id, object_id, outcome, expired_at, topic, kafka_partition, kafka_offset)",
    "RECORD": "chessboard.set_aside (reason, detail, topic, kafka_partition, kafka_offset, kafka_timestamp_ms, headers, digest)",
}
"""Words of the statements below that stand for something longer."""

OFFENCES = {
    "expired early": "UPDATE crm.outbox SET recorded_at = now() - interval '1 hour'",
    "expired twice": "INSERT INTO crm.booking_audit VALUES (SOME_EXPIRED, 3, 'system', 'Expire', 'x', 'y', now(), 'r')",
    "event missing": "DELETE FROM crm.outbox WHERE aggregate_id = SOME_EXPIRED",
    "event extra": "UPDATE crm.outbox SET aggregate_version = 9 WHERE aggregate_id = SOME_EXPIRED",
    "audit row missing": "UPDATE crm.booking_audit SET action = 'Other' WHERE booking_id = SOME_EXPIRED",
    "card missing": "DELETE FROM crm.deal_timeline_cards WHERE booking_id = SOME_EXPIRED",
    "card extra": "UPDATE crm.deal_timeline_cards SET booking_version = 9 WHERE booking_id = SOME_EXPIRED",
    "version gap": "UPDATE crm.bookings SET version = 7 WHERE id = SOME_ACTIVE",
    "moved after its end": "UPDATE crm.booking_audit SET from_status = 'Cancelled' WHERE booking_id = SOME_EXPIRED",
    "active without its object": "UPDATE chessboard.objects SET status = 'Free', booking_id = NULL",
    "sold without its object": """
        UPDATE crm.bookings SET status = 'Completed', property_object_id = gen_random_uuid() WHERE id = SOME_ACTIVE""",
    "sold twice": "UPDATE crm.bookings SET property_object_id = '00000000-0000-0000-0000-000000000001' WHERE expired_at IS NULL",
    "not expired in time": "UPDATE crm.bookings SET reserve_expires_at = now() - interval '10 minutes' WHERE expired_at IS NULL",
    "not published in time": "UPDATE crm.outbox SET recorded_at = now() - interval '2 minutes', published_at = NULL",
    "not free in time": """
        UPDATE chessboard.objects SET status = 'Taken', booking_id = SOME_EXPIRED WHERE booking_id IS NULL;
        UPDATE crm.outbox SET recorded_at = now() - interval '2 minutes'""",
    "held by nobody": """
        UPDATE chessboard.objects
           SET status = 'Taken', booking_id = gen_random_uuid(), updated_at = now() - interval '2 minutes'""",
    "freed without an event": """
        INSERT INTO EVENT VALUES (gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'Freed', now(), 't', 0, 0)""",
    "event came late": """
        INSERT INTO EVENT SELECT event_id, aggregate_id, gen_random_uuid(), 'Late', now(), 't', 0, 0 FROM crm.outbox LIMIT 1""",
    "record set aside": "INSERT INTO RECORD VALUES ('Malformed', 'x', 't', 0, 0, 0, '', '')",
    "record parked": "UPDATE crm.outbox SET parked_at = now(), park_reason = 'too large', published_at = NULL",
    "poison": "INSERT INTO crm.expiration_refusals VALUES (gen_random_uuid(), 'Reserve', 'x', now(), now())",
}


@pytest.fixture
async def sound(pool: Pool, admin: Administrator) -> Administrator:
    """Three bookings that expired, two that are active, and their objects, all as it must be."""
    now = await floor.clock(admin)
    await floor.add(admin, 3, now - MINUTE)
    await floor.add(admin, 2, now + timedelta(hours=1))
    await floor.expire(pool, now)
    await admin.execute(OBJECTS)
    await admin.execute("UPDATE crm.outbox SET published_at = now()")
    return admin


async def found(admin: Administrator) -> set[str]:
    """The names of the rules that are broken."""
    return {wrong.rule for wrong in await rules.broken(admin, 75, 60)}


async def test_nothing_is_wrong_with_a_sound_floor(sound: Administrator) -> None:
    """Issue 6 section 3: the checker is silent as long as all is right."""
    assert await found(sound) == set()


@pytest.mark.parametrize("rule", OFFENCES)
async def test_every_offence_is_found(sound: Administrator, rule: str) -> None:
    """Issue 6 section 3: what somebody did wrong on purpose is reported by the name of its rule."""
    statement = OFFENCES[rule]
    for word, meant in MEANT.items():
        statement = statement.replace(word, meant)
    await sound.execute(statement)
    assert rule in await found(sound)


def checker(wrong: list[Wrong]) -> Checker:
    """A checker with an empty floor, which tells `wrong`."""
    return Checker(Model(random.Random(1), 5), Topic("t"), Bounds(), wrong.append)


async def known(sound: Administrator, watching: Checker, *, expired: bool) -> Booking:
    """One of the floor's bookings as its manager had known it before anything expired."""
    row = await sound.fetchrow("SELECT * FROM crm.bookings WHERE (expired_at IS NOT NULL) = $1 LIMIT 1", expired)
    assert row
    ids = (row["id"], row["tenant_id"], row["deal_id"], row["property_object_id"])
    booking = Booking(*ids, Status.RESERVED, row["reserve_expires_at"], None)
    watching.model.put(booking)
    return booking


async def test_a_right_expiry_frees_the_object_for_sale(sound: Administrator) -> None:
    """P3: a booking that expired as it should is followed until its object can be sold again."""
    wrong: list[Wrong] = []
    watching = checker(wrong)
    booking = await known(sound, watching, expired=True)
    await watching.round(sound)
    await watching.round(sound)
    assert (watching.expired, watching.model.free) == (1, [booking.property_object_id])
    assert [one for one in wrong if "Kafka" not in one.rule] == []


async def test_an_expiry_against_the_managers_word(sound: Administrator) -> None:
    """X6: the manager was told of a later deadline, and the booking expired all the same: expired early."""
    wrong: list[Wrong] = []
    watching = checker(wrong)
    booking = await known(sound, watching, expired=True)
    booking.reserve_expires_at = await floor.clock(sound) + MINUTE
    await watching.round(sound)
    assert ("expired early", str(booking.id)) in watching.wrong


async def test_a_change_by_nobody_and_a_lost_booking(sound: Administrator) -> None:
    """R3: a row that differs from what was acknowledged, and one that is not there, are both reported, once."""
    wrong: list[Wrong] = []
    watching = checker(wrong)
    changed = await known(sound, watching, expired=False)
    changed.version = 4
    lost = Booking(uuid4(), uuid4(), uuid4(), uuid4(), Status.RESERVED, await floor.clock(sound), None)
    watching.model.put(lost)
    for _ in range(2):
        await watching.round(sound)
    assert [one.rule for one in wrong if one.subject in (str(changed.id), str(lost.id))] == ["changed by nobody", "booking lost"]


async def test_records_of_the_topic(sound: Administrator) -> None:
    """D11: a record that the outbox does not know, one with other bytes, and one that never came are reported."""
    wrong: list[Wrong] = []
    watching = checker(wrong)
    rows = await sound.fetch("SELECT event_id, aggregate_id, md5(payload) AS digest FROM crm.outbox ORDER BY id")
    watching.topic.arrived(Arrived(*rows[0]))
    watching.topic.arrived(Arrived(rows[1]["event_id"], rows[1]["aggregate_id"], "other"))
    watching.topic.arrived(Arrived(uuid4(), UUID(int=7), "unknown"))
    await sound.execute("UPDATE crm.outbox SET published_at = now() - interval '1 minute'")
    await watching.round(sound)
    await watching.round(sound)
    assert [(one.rule, one.subject) for one in wrong] == [
        ("event extra in Kafka", str(rows[1]["aggregate_id"])),
        ("event extra in Kafka", str(UUID(int=7))),
        ("event missing in Kafka", str(rows[2]["aggregate_id"])),
    ]
