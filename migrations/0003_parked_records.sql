-- migrate:up transaction:false
-- Parked records are few, those that wait may be many: without an index of their own the few are found only by walking past
-- the many. One statement outside a transaction, as CONCURRENTLY wants it: so nothing can be set before it, and the owner's
-- lock_timeout (bootstrap.sql) holds. Where it was cut off (docs/deploy.md), drop the index, which is marked invalid, and apply
-- again: with IF NOT EXISTS the invalid one would stay.
-- squawk-ignore ban-concurrent-index-creation-in-transaction,prefer-robust-stmts,require-lock-timeout,require-statement-timeout
CREATE INDEX CONCURRENTLY ix_outbox_parked ON crm.outbox (id)
  WHERE parked_at IS NOT NULL AND published_at IS NULL AND skipped_at IS NULL;

-- migrate:down
-- Migrations are additive (layout rule 13): going back means restoring, so nothing is dropped here.
SELECT 1;
