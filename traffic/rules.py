"""What must hold in the two schemas at any moment, asked in one snapshot of both; every row that comes back is wrong."""

from typing import Final

import asyncpg

from traffic.floor import Wrong

# An active booking holds its object from before its first row until after its last, so that one snapshot must agree. What
# follows a commit (event, free object) may take its time, but not longer than $1 seconds after a deadline, $2 after a commit.
_WRONG: Final = """
WITH expired AS MATERIALIZED (
  SELECT id, version, CASE status WHEN 'ReserveExpired' THEN reserve_expires_at ELSE booking_expires_at END AS due
    FROM crm.bookings WHERE status IN ('ReserveExpired', 'BookingExpired')
), active AS MATERIALIZED (
  SELECT id, property_object_id, status, CASE status WHEN 'Booked' THEN booking_expires_at ELSE reserve_expires_at END AS due
    FROM crm.bookings WHERE status IN ('Reserved', 'AwaitingPayment', 'Booked')
), expire AS MATERIALIZED (
  SELECT booking_id, version FROM crm.booking_audit WHERE action = 'Expire'
)
SELECT 'expired early' AS rule, aggregate_id AS subject, format('due %s, written %s', due, recorded_at) AS detail
  FROM expired JOIN crm.outbox ON aggregate_id = expired.id WHERE recorded_at <= due
UNION ALL
SELECT 'expired twice', booking_id, format('%s audit rows', count(*)) FROM expire GROUP BY booking_id HAVING count(*) > 1
UNION ALL
SELECT 'event missing', id, format('version %s', version)
  FROM (SELECT id, version FROM expired EXCEPT SELECT aggregate_id, aggregate_version FROM crm.outbox) AS a
UNION ALL
SELECT 'event extra', aggregate_id, format('version %s', aggregate_version)
  FROM (SELECT aggregate_id, aggregate_version FROM crm.outbox EXCEPT SELECT id, version FROM expired) AS b
UNION ALL
SELECT 'audit row missing', id, format('version %s', version)
  FROM (SELECT id, version FROM expired EXCEPT SELECT booking_id, version FROM expire) AS c
UNION ALL
SELECT 'card missing', id, format('version %s', version)
  FROM (SELECT id, version FROM expired EXCEPT SELECT booking_id, booking_version FROM crm.deal_timeline_cards) AS d
UNION ALL
SELECT 'card extra', booking_id, format('version %s', booking_version)
  FROM (SELECT booking_id, booking_version FROM crm.deal_timeline_cards EXCEPT SELECT id, version FROM expired) AS e
UNION ALL
SELECT 'version gap', booking_id, format('version %s with %s audit rows up to %s', version, rows, last)
  FROM crm.bookings
       JOIN (SELECT booking_id, count(*) AS rows, max(version) AS last FROM crm.booking_audit GROUP BY booking_id) AS history
         ON booking_id = id
 WHERE rows <> version - 1 OR last <> version
UNION ALL
SELECT 'version gap', id, format('version %s without any audit row', version)
  FROM crm.bookings WHERE version > 1 AND NOT EXISTS (SELECT FROM crm.booking_audit WHERE booking_id = bookings.id)
UNION ALL
SELECT 'moved after its end', booking_id, format('version %s from %s', version, from_status)
  FROM crm.booking_audit WHERE from_status IN ('ReserveExpired', 'BookingExpired', 'Cancelled', 'Completed')
UNION ALL
SELECT 'active without its object', active.id, format('the object is held by %s', coalesce(holder.booking_id::text, 'nobody'))
  FROM active LEFT JOIN chessboard.objects AS holder ON holder.id = property_object_id
 WHERE holder.booking_id IS DISTINCT FROM active.id
UNION ALL
SELECT 'sold without its object', sold.id, format('the object is held by %s', coalesce(holder.booking_id::text, 'nobody'))
  FROM crm.bookings AS sold LEFT JOIN chessboard.objects AS holder ON holder.id = property_object_id
 WHERE sold.status = 'Completed' AND holder.booking_id IS DISTINCT FROM sold.id
UNION ALL
SELECT 'sold twice', property_object_id, format('%s active bookings', count(*))
  FROM active GROUP BY property_object_id HAVING count(*) > 1
UNION ALL
SELECT 'not expired in time', id, format('due %s', due) FROM active WHERE due < now() - make_interval(secs => $1)
UNION ALL
SELECT 'not published in time', aggregate_id, format('written %s', recorded_at)
  FROM crm.outbox WHERE published_at IS NULL AND recorded_at < now() - make_interval(secs => $2)
UNION ALL
SELECT 'not free in time', object.id, format('booking %s expired %s', aggregate_id, recorded_at)
  FROM crm.outbox JOIN chessboard.objects AS object ON object.booking_id = aggregate_id
 WHERE recorded_at < now() - make_interval(secs => $2)
UNION ALL
SELECT 'held by nobody', object.id, format('by %s since %s', object.booking_id, object.updated_at)
  FROM chessboard.objects AS object LEFT JOIN crm.bookings AS holder ON holder.id = object.booking_id
 WHERE object.booking_id IS NOT NULL AND (holder.id IS NULL OR holder.status = 'Cancelled')
   AND greatest(object.updated_at, holder.updated_at) < now() - make_interval(secs => $2)
UNION ALL
SELECT 'freed without an event', processed.booking_id, format('event %s', processed.event_id)
  FROM chessboard.processed_events AS processed LEFT JOIN crm.outbox AS event USING (event_id)
 WHERE event.aggregate_id IS DISTINCT FROM processed.booking_id
UNION ALL
SELECT 'event came late', booking_id, format('event %s freed nothing', event_id)
  FROM chessboard.processed_events WHERE outcome <> 'Freed'
UNION ALL
SELECT 'record set aside', NULL, reason || ': ' || detail FROM chessboard.set_aside
UNION ALL
SELECT 'record parked', aggregate_id, park_reason FROM crm.outbox WHERE parked_at IS NOT NULL
UNION ALL
SELECT 'poison', booking_id, reason FROM crm.expiration_refusals"""


async def broken(connection: "asyncpg.Connection[asyncpg.Record]", late_expiry: float, late_free: float) -> list[Wrong]:
    """What is wrong in this connection's snapshot; both bounds in seconds."""
    rows = await connection.fetch(_WRONG, late_expiry, late_free)
    return [Wrong(row["rule"], str(row["subject"]), row["detail"]) for row in rows]
