-- migrate:up
SET LOCAL lock_timeout = '5s';
SET LOCAL statement_timeout = '60s';

-- The sales grid. An object is taken by exactly one booking or free: the booking that holds it decides who may free it (D17).
CREATE TABLE chessboard.objects (
  id uuid PRIMARY KEY,
  status text NOT NULL DEFAULT 'Free',
  booking_id uuid,
  updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT objects_status_known CHECK (status IN ('Free', 'Taken')),
  CONSTRAINT objects_taken_by_a_booking CHECK ((status = 'Taken') = (booking_id IS NOT NULL))
) WITH (fillfactor = 70);

-- What was read and counted, so that a duplicate changes nothing (D11). The place in the topic says where to look.
CREATE TABLE chessboard.processed_events (
  event_id uuid PRIMARY KEY,
  booking_id uuid NOT NULL,
  object_id uuid NOT NULL,
  outcome text NOT NULL,
  expired_at timestamptz NOT NULL,
  topic text NOT NULL,
  kafka_partition int NOT NULL,
  kafka_offset bigint NOT NULL,
  processed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT processed_events_outcome_known CHECK (outcome IN ('Freed', 'Late'))
);
-- A booking whose expiry is known takes nothing any more: `take` asks this index.
CREATE INDEX ix_processed_events_booking ON chessboard.processed_events (booking_id);

-- Records that mean nothing to us, as they came. Headers are the text of a JSON array of [name, value], where a value is null,
-- text, or {"base64": …}; as bytes, because a name may hold what text cannot. The digest tells apart two records of one place:
-- a topic that was made anew counts from zero again.
CREATE TABLE chessboard.set_aside (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  reason text NOT NULL,
  detail text NOT NULL,
  topic text NOT NULL,
  kafka_partition int NOT NULL,
  kafka_offset bigint NOT NULL,
  kafka_timestamp_ms bigint NOT NULL,
  key bytea,
  value bytea,
  headers bytea NOT NULL,
  digest bytea NOT NULL,
  set_aside_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  resolution text,
  resolved_at timestamptz,
  resolved_by text,
  resolved_why text,
  UNIQUE (topic, kafka_partition, kafka_offset, digest),
  CONSTRAINT set_aside_reason_known CHECK (reason IN (
    'Malformed', 'UnknownVersion', 'WrongType', 'UnknownObject', 'ReusedEventId', 'RefusedByDatabase', 'Unreadable')),
  CONSTRAINT set_aside_resolution_known CHECK (resolution IN ('Replayed', 'Dropped')),
  CONSTRAINT set_aside_resolved_by_somebody CHECK (
    (resolution IS NULL) = (resolved_at IS NULL) AND (resolution IS NULL) = (resolved_by IS NULL)
    AND (resolution IS NULL) = (resolved_why IS NULL))
);
CREATE INDEX ix_set_aside_open ON chessboard.set_aside (id) WHERE resolution IS NULL;

-- Least privilege: nobody but the owner may delete or rewrite what came in.
GRANT USAGE ON SCHEMA chessboard TO chessboard;
GRANT SELECT ON chessboard.schema_migrations TO chessboard;
GRANT SELECT, INSERT, UPDATE (status, booking_id, updated_at) ON chessboard.objects TO chessboard;
GRANT SELECT, INSERT ON chessboard.processed_events TO chessboard;
GRANT SELECT, INSERT, UPDATE (resolution, resolved_at, resolved_by, resolved_why) ON chessboard.set_aside TO chessboard;

-- migrate:down
-- Migrations are additive (layout rule 13): going back means restoring, so nothing is dropped here.
SELECT 1;
