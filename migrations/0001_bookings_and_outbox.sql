-- migrate:up
SET LOCAL lock_timeout = '5s';
SET LOCAL statement_timeout = '60s';

-- The aggregate. Deadline and status stand in one row, so that one row lock covers every decision about it (D4).
CREATE TABLE crm.bookings (
  id uuid PRIMARY KEY,
  tenant_id uuid NOT NULL,
  deal_id uuid NOT NULL,
  property_object_id uuid NOT NULL,
  status text NOT NULL,
  reserve_expires_at timestamptz,
  booking_expires_at timestamptz,
  expired_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  version bigint NOT NULL DEFAULT 1,
  CONSTRAINT bookings_status_known CHECK (status IN (
    'Reserved', 'AwaitingPayment', 'Booked', 'ReserveExpired', 'BookingExpired', 'Cancelled', 'Completed')),
  CONSTRAINT bookings_reserve_has_deadline CHECK (
    status NOT IN ('Reserved', 'AwaitingPayment', 'ReserveExpired') OR reserve_expires_at IS NOT NULL),
  CONSTRAINT bookings_booking_has_deadline CHECK (
    status NOT IN ('Booked', 'BookingExpired') OR booking_expires_at IS NOT NULL),
  CONSTRAINT bookings_expired_at_iff_expired CHECK (
    (status IN ('ReserveExpired', 'BookingExpired')) = (expired_at IS NOT NULL)),
  -- INV-BKG-5: never before its time, whoever writes the row.
  CONSTRAINT bookings_reserve_expired_after_deadline CHECK (
    status <> 'ReserveExpired' OR reserve_expires_at < expired_at),
  CONSTRAINT bookings_booking_expired_after_deadline CHECK (
    status <> 'BookingExpired' OR booking_expires_at < expired_at),
  CONSTRAINT bookings_version_positive CHECK (version >= 1),
  CONSTRAINT bookings_expired_version CHECK (expired_at IS NULL OR version >= 2)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- A3: one small index per phase. The id makes the order total, so that two workers walk it the same way.
CREATE INDEX ix_bookings_reserve_expires_at ON crm.bookings (reserve_expires_at, id)
  WHERE status IN ('Reserved', 'AwaitingPayment');
CREATE INDEX ix_bookings_booking_expires_at ON crm.bookings (booking_expires_at, id)
  WHERE status = 'Booked';

-- Audit and timeline have no foreign key: they outlive the booking, and a check per row would double a batch's writes.
CREATE TABLE crm.booking_audit (
  booking_id uuid NOT NULL,
  version bigint NOT NULL,
  actor text NOT NULL,
  action text NOT NULL,
  from_status text NOT NULL,
  to_status text NOT NULL,
  at timestamptz NOT NULL,
  correlation_id text NOT NULL,
  PRIMARY KEY (booking_id, version)
);

CREATE TABLE crm.deal_timeline_cards (
  deal_id uuid NOT NULL,
  booking_id uuid NOT NULL,
  booking_version bigint NOT NULL,
  kind text NOT NULL,
  at timestamptz NOT NULL,
  PRIMARY KEY (booking_id, booking_version)
);
CREATE INDEX ix_deal_timeline_cards_deal ON crm.deal_timeline_cards (deal_id, at);

-- Half of each page stays free at first, so that a claim finds room to rewrite its row in place and touches no index; with
-- rows of about 900 bytes less than that is not enough.
CREATE TABLE crm.outbox (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  event_id uuid NOT NULL UNIQUE,
  aggregate_type text NOT NULL,
  aggregate_id uuid NOT NULL,
  aggregate_version bigint NOT NULL,
  tenant_id uuid NOT NULL,
  topic text NOT NULL,
  contract_version int NOT NULL,
  payload bytea NOT NULL,
  headers jsonb NOT NULL DEFAULT '{}',
  correlation_id text NOT NULL,
  occurred_at timestamptz NOT NULL,
  recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  claim_token uuid,
  claimed_until timestamptz,
  attempts int NOT NULL DEFAULT 0,
  published_at timestamptz,
  kafka_partition int,
  kafka_offset bigint,
  parked_at timestamptz,
  park_reason text,
  skipped_at timestamptz,
  UNIQUE (aggregate_id, aggregate_version),
  CONSTRAINT outbox_claim_is_whole CHECK ((claim_token IS NULL) = (claimed_until IS NULL)),
  CONSTRAINT outbox_parked_with_reason CHECK ((parked_at IS NULL) = (park_reason IS NULL)),
  CONSTRAINT outbox_published_is_final CHECK (
    published_at IS NULL OR (parked_at IS NULL AND skipped_at IS NULL AND claim_token IS NULL)),
  CONSTRAINT outbox_attempts_not_negative CHECK (attempts >= 0)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 50000);

-- D9: what is to be claimed, in order; and, per aggregate, what must go out first. Published rows are in neither, so a claim
-- costs the same with ten million of them. Parked rows are in the second alone: they hold back their own aggregate, and no
-- claim walks over them. (With equal predicates a planner without statistics asks the first index the second one's question.)
CREATE INDEX ix_outbox_unpublished ON crm.outbox (id)
  WHERE published_at IS NULL AND skipped_at IS NULL AND parked_at IS NULL;
CREATE INDEX ix_outbox_unpublished_aggregate ON crm.outbox (aggregate_id, id)
  WHERE published_at IS NULL AND skipped_at IS NULL;

CREATE TABLE crm.expiration_batches (
  run_id text NOT NULL,
  phase text NOT NULL,
  batch_no int NOT NULL,
  as_of timestamptz NOT NULL,
  expired_count int NOT NULL,
  skipped_locked_count int NOT NULL,
  poison_count int NOT NULL,
  poison_ids uuid[] NOT NULL,
  committed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (run_id, phase, batch_no),
  CONSTRAINT expiration_batches_phase_known CHECK (phase IN ('Reserve', 'Booking')),
  CONSTRAINT expiration_batches_from_one CHECK (batch_no >= 1)
);

CREATE TABLE crm.expiration_refusals (
  booking_id uuid NOT NULL,
  phase text NOT NULL,
  reason text NOT NULL,
  first_seen_at timestamptz NOT NULL,
  last_seen_at timestamptz NOT NULL,
  times int NOT NULL DEFAULT 1,
  PRIMARY KEY (booking_id, phase),
  CONSTRAINT expiration_refusals_phase_known CHECK (phase IN ('Reserve', 'Booking'))
);

CREATE TABLE crm.job_state (
  job text PRIMARY KEY,
  last_started_at timestamptz,
  last_finished_at timestamptz,
  last_success_at timestamptz,
  run_id text,
  outcome text,
  counts jsonb NOT NULL DEFAULT '{}',
  CONSTRAINT job_state_outcome_known CHECK (
    outcome IN ('completed', 'stopped', 'held', 'paused', 'failed', 'canceled'))
);

CREATE TABLE crm.operator_actions (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  actor text NOT NULL,
  action text NOT NULL,
  target text NOT NULL,
  reason text NOT NULL,
  details jsonb NOT NULL DEFAULT '{}'
);

-- Least privilege. Nobody but the owner may delete; the worker may write the columns of A4/A5 and no other of a booking.
GRANT USAGE ON SCHEMA crm TO booking_expiration_worker, booking_expiration_operator, crm_app;
GRANT SELECT ON crm.schema_migrations TO booking_expiration_worker, booking_expiration_operator;

GRANT SELECT, UPDATE (status, expired_at, updated_at, version) ON crm.bookings TO booking_expiration_worker;
GRANT INSERT ON crm.booking_audit, crm.deal_timeline_cards TO booking_expiration_worker;
GRANT SELECT, INSERT (event_id, aggregate_type, aggregate_id, aggregate_version, tenant_id, topic, contract_version, payload,
                      headers, correlation_id, occurred_at),
      UPDATE (claim_token, claimed_until, attempts, published_at, kafka_partition, kafka_offset, parked_at, park_reason)
  ON crm.outbox TO booking_expiration_worker;
GRANT SELECT, INSERT ON crm.expiration_batches TO booking_expiration_worker;
GRANT SELECT, INSERT, UPDATE ON crm.expiration_refusals, crm.job_state TO booking_expiration_worker;
GRANT INSERT ON crm.operator_actions TO booking_expiration_worker;

GRANT SELECT ON ALL TABLES IN SCHEMA crm TO booking_expiration_operator;
GRANT UPDATE (claim_token, claimed_until, attempts, parked_at, park_reason, skipped_at) ON crm.outbox
  TO booking_expiration_operator;
GRANT INSERT ON crm.operator_actions TO booking_expiration_operator;

GRANT SELECT, INSERT, UPDATE (status, reserve_expires_at, booking_expires_at, updated_at, version) ON crm.bookings TO crm_app;
GRANT SELECT, INSERT ON crm.booking_audit TO crm_app;
GRANT SELECT ON crm.deal_timeline_cards TO crm_app;
GRANT SELECT, INSERT (event_id, aggregate_type, aggregate_id, aggregate_version, tenant_id, topic, contract_version, payload,
                      headers, correlation_id, occurred_at)
  ON crm.outbox TO crm_app;

-- migrate:down
-- Migrations are additive (layout rule 13): going back means restoring, so nothing is dropped here.
SELECT 1;
