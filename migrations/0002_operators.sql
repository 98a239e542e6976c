-- migrate:up
SET LOCAL lock_timeout = '5s';
SET LOCAL statement_timeout = '60s';

-- What an operator stopped. Two rows for ever, so that pausing and resuming are updates and nobody needs the right to delete.
CREATE TABLE crm.phase_pauses (
  phase text PRIMARY KEY,
  paused_at timestamptz,
  paused_until timestamptz,
  actor text,
  reason text,
  CONSTRAINT phase_pauses_phase_known CHECK (phase IN ('Reserve', 'Booking')),
  CONSTRAINT phase_pauses_whole CHECK (
    (paused_at IS NULL) = (actor IS NULL) AND (paused_at IS NULL) = (reason IS NULL)),
  CONSTRAINT phase_pauses_until_after_start CHECK (paused_until IS NULL OR paused_until > paused_at)
);
INSERT INTO crm.phase_pauses (phase) VALUES ('Reserve'), ('Booking');

-- How many bookings an operator lets through a hold (release-hold). The batch that expires them takes them off, in its own
-- transaction, so a repeated attempt takes nothing twice. The limit is a setting of the workers; each cycle leaves it here, so
-- that commands can tell whether it holds, whatever became of that cycle (0: off).
CREATE TABLE crm.safety_catch (
  job text PRIMARY KEY,
  allowance int NOT NULL DEFAULT 0,
  released_at timestamptz,
  hold_above int NOT NULL DEFAULT 0,
  CONSTRAINT safety_catch_allowance_not_negative CHECK (allowance >= 0),
  CONSTRAINT safety_catch_hold_above_not_negative CHECK (hold_above >= 0)
);
INSERT INTO crm.safety_catch (job) VALUES ('booking-expiration');

-- What the clock of the worker said when the database's said `last_started_at`: from elsewhere nobody can read that clock.
ALTER TABLE crm.job_state ADD COLUMN worker_clock_at timestamptz;

-- A deadline is a moment that every program can read: not infinity, not before the year 1. One such row would be the first of
-- each claim, and nobody could even look at it. New rows are checked from here on; 0004 looks at those that are there.
ALTER TABLE crm.bookings
  ADD CONSTRAINT bookings_reserve_deadline_is_a_moment CHECK (
    extract(year FROM reserve_expires_at AT TIME ZONE 'UTC') BETWEEN 1 AND 9999) NOT VALID,
  ADD CONSTRAINT bookings_booking_deadline_is_a_moment CHECK (
    extract(year FROM booking_expires_at AT TIME ZONE 'UTC') BETWEEN 1 AND 9999) NOT VALID;

-- What a workflow wrote down is looked for before it is written again, among the rows of years and of mass requeues. Before this
-- version next to nothing wrote any, so building it holds nobody up.
-- squawk-ignore require-concurrent-index-creation
CREATE INDEX ix_operator_actions_run ON crm.operator_actions ((details ->> 'run_id'), (details ->> 'act'))
  WHERE details ->> 'run_id' IS NOT NULL;

GRANT SELECT ON crm.phase_pauses, crm.safety_catch TO booking_expiration_worker, booking_expiration_operator;
GRANT UPDATE (allowance, hold_above) ON crm.safety_catch TO booking_expiration_worker;
GRANT SELECT ON crm.operator_actions TO booking_expiration_worker; -- so that a repeated attempt writes no act twice
GRANT UPDATE (paused_at, paused_until, actor, reason) ON crm.phase_pauses TO booking_expiration_operator;
GRANT UPDATE (allowance, released_at) ON crm.safety_catch TO booking_expiration_operator;

-- migrate:down
-- Migrations are additive (layout rule 13): going back means restoring, so nothing is dropped here.
SELECT 1;
