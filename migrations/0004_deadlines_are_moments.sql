-- migrate:up
SET LOCAL lock_timeout = '5s';
SET LOCAL statement_timeout = '10min';

-- Reads the table once and holds nobody up. Where it finds a deadline that is no moment (0002), docs/deploy.md says what to do.
ALTER TABLE crm.bookings
  VALIDATE CONSTRAINT bookings_reserve_deadline_is_a_moment,
  VALIDATE CONSTRAINT bookings_booking_deadline_is_a_moment;

-- migrate:down
-- Migrations are additive (layout rule 13): going back means restoring, so nothing is dropped here.
SELECT 1;
