-- What all migrations together make. Written by `python -m devstack.schema_dump`, never by hand;
-- a test compares it with the migrations. Roles and their settings are in migrations/bootstrap.sql.

CREATE SCHEMA crm;

ALTER SCHEMA crm OWNER TO booking_expiration_owner;

CREATE TABLE crm.booking_audit (
    booking_id uuid NOT NULL,
    version bigint NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    from_status text NOT NULL,
    to_status text NOT NULL,
    at timestamp with time zone NOT NULL,
    correlation_id text NOT NULL
);

ALTER TABLE crm.booking_audit OWNER TO booking_expiration_owner;

CREATE TABLE crm.bookings (
    id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    deal_id uuid NOT NULL,
    property_object_id uuid NOT NULL,
    status text NOT NULL,
    reserve_expires_at timestamp with time zone,
    booking_expires_at timestamp with time zone,
    expired_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    version bigint DEFAULT 1 NOT NULL,
    CONSTRAINT bookings_booking_deadline_is_a_moment CHECK (((EXTRACT(year FROM (booking_expires_at AT TIME ZONE 'UTC'::text)) >= (1)::numeric) AND (EXTRACT(year FROM (booking_expires_at AT TIME ZONE 'UTC'::text)) <= (9999)::numeric))),
    CONSTRAINT bookings_booking_expired_after_deadline CHECK (((status <> 'BookingExpired'::text) OR (booking_expires_at < expired_at))),
    CONSTRAINT bookings_booking_has_deadline CHECK (((status <> ALL (ARRAY['Booked'::text, 'BookingExpired'::text])) OR (booking_expires_at IS NOT NULL))),
    CONSTRAINT bookings_expired_at_iff_expired CHECK (((status = ANY (ARRAY['ReserveExpired'::text, 'BookingExpired'::text])) = (expired_at IS NOT NULL))),
    CONSTRAINT bookings_expired_version CHECK (((expired_at IS NULL) OR (version >= 2))),
    CONSTRAINT bookings_reserve_deadline_is_a_moment CHECK (((EXTRACT(year FROM (reserve_expires_at AT TIME ZONE 'UTC'::text)) >= (1)::numeric) AND (EXTRACT(year FROM (reserve_expires_at AT TIME ZONE 'UTC'::text)) <= (9999)::numeric))),
    CONSTRAINT bookings_reserve_expired_after_deadline CHECK (((status <> 'ReserveExpired'::text) OR (reserve_expires_at < expired_at))),
    CONSTRAINT bookings_reserve_has_deadline CHECK (((status <> ALL (ARRAY['Reserved'::text, 'AwaitingPayment'::text, 'ReserveExpired'::text])) OR (reserve_expires_at IS NOT NULL))),
    CONSTRAINT bookings_status_known CHECK ((status = ANY (ARRAY['Reserved'::text, 'AwaitingPayment'::text, 'Booked'::text, 'ReserveExpired'::text, 'BookingExpired'::text, 'Cancelled'::text, 'Completed'::text]))),
    CONSTRAINT bookings_version_positive CHECK ((version >= 1))
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000');

ALTER TABLE crm.bookings OWNER TO booking_expiration_owner;

CREATE TABLE crm.deal_timeline_cards (
    deal_id uuid NOT NULL,
    booking_id uuid NOT NULL,
    booking_version bigint NOT NULL,
    kind text NOT NULL,
    at timestamp with time zone NOT NULL
);

ALTER TABLE crm.deal_timeline_cards OWNER TO booking_expiration_owner;

CREATE TABLE crm.expiration_batches (
    run_id text NOT NULL,
    phase text NOT NULL,
    batch_no integer NOT NULL,
    as_of timestamp with time zone NOT NULL,
    expired_count integer NOT NULL,
    skipped_locked_count integer NOT NULL,
    poison_count integer NOT NULL,
    poison_ids uuid[] NOT NULL,
    committed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT expiration_batches_from_one CHECK ((batch_no >= 1)),
    CONSTRAINT expiration_batches_phase_known CHECK ((phase = ANY (ARRAY['Reserve'::text, 'Booking'::text])))
);

ALTER TABLE crm.expiration_batches OWNER TO booking_expiration_owner;

CREATE TABLE crm.expiration_refusals (
    booking_id uuid NOT NULL,
    phase text NOT NULL,
    reason text NOT NULL,
    first_seen_at timestamp with time zone NOT NULL,
    last_seen_at timestamp with time zone NOT NULL,
    times integer DEFAULT 1 NOT NULL,
    CONSTRAINT expiration_refusals_phase_known CHECK ((phase = ANY (ARRAY['Reserve'::text, 'Booking'::text])))
);

ALTER TABLE crm.expiration_refusals OWNER TO booking_expiration_owner;

CREATE TABLE crm.job_state (
    job text NOT NULL,
    last_started_at timestamp with time zone,
    last_finished_at timestamp with time zone,
    last_success_at timestamp with time zone,
    run_id text,
    outcome text,
    counts jsonb DEFAULT '{}'::jsonb NOT NULL,
    worker_clock_at timestamp with time zone,
    CONSTRAINT job_state_outcome_known CHECK ((outcome = ANY (ARRAY['completed'::text, 'stopped'::text, 'held'::text, 'paused'::text, 'failed'::text, 'canceled'::text])))
);

ALTER TABLE crm.job_state OWNER TO booking_expiration_owner;

CREATE TABLE crm.operator_actions (
    id bigint NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    target text NOT NULL,
    reason text NOT NULL,
    details jsonb DEFAULT '{}'::jsonb NOT NULL
);

ALTER TABLE crm.operator_actions OWNER TO booking_expiration_owner;

ALTER TABLE crm.operator_actions ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME crm.operator_actions_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE crm.outbox (
    id bigint NOT NULL,
    event_id uuid NOT NULL,
    aggregate_type text NOT NULL,
    aggregate_id uuid NOT NULL,
    aggregate_version bigint NOT NULL,
    tenant_id uuid NOT NULL,
    topic text NOT NULL,
    contract_version integer NOT NULL,
    payload bytea NOT NULL,
    headers jsonb DEFAULT '{}'::jsonb NOT NULL,
    correlation_id text NOT NULL,
    occurred_at timestamp with time zone NOT NULL,
    recorded_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    claim_token uuid,
    claimed_until timestamp with time zone,
    attempts integer DEFAULT 0 NOT NULL,
    published_at timestamp with time zone,
    kafka_partition integer,
    kafka_offset bigint,
    parked_at timestamp with time zone,
    park_reason text,
    skipped_at timestamp with time zone,
    CONSTRAINT outbox_attempts_not_negative CHECK ((attempts >= 0)),
    CONSTRAINT outbox_claim_is_whole CHECK (((claim_token IS NULL) = (claimed_until IS NULL))),
    CONSTRAINT outbox_parked_with_reason CHECK (((parked_at IS NULL) = (park_reason IS NULL))),
    CONSTRAINT outbox_published_is_final CHECK (((published_at IS NULL) OR ((parked_at IS NULL) AND (skipped_at IS NULL) AND (claim_token IS NULL))))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000', autovacuum_vacuum_insert_scale_factor='0', autovacuum_vacuum_insert_threshold='50000');

ALTER TABLE crm.outbox OWNER TO booking_expiration_owner;

ALTER TABLE crm.outbox ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME crm.outbox_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE crm.phase_pauses (
    phase text NOT NULL,
    paused_at timestamp with time zone,
    paused_until timestamp with time zone,
    actor text,
    reason text,
    CONSTRAINT phase_pauses_phase_known CHECK ((phase = ANY (ARRAY['Reserve'::text, 'Booking'::text]))),
    CONSTRAINT phase_pauses_until_after_start CHECK (((paused_until IS NULL) OR (paused_until > paused_at))),
    CONSTRAINT phase_pauses_whole CHECK ((((paused_at IS NULL) = (actor IS NULL)) AND ((paused_at IS NULL) = (reason IS NULL))))
);

ALTER TABLE crm.phase_pauses OWNER TO booking_expiration_owner;

CREATE TABLE crm.safety_catch (
    job text NOT NULL,
    allowance integer DEFAULT 0 NOT NULL,
    released_at timestamp with time zone,
    hold_above integer DEFAULT 0 NOT NULL,
    CONSTRAINT safety_catch_allowance_not_negative CHECK ((allowance >= 0)),
    CONSTRAINT safety_catch_hold_above_not_negative CHECK ((hold_above >= 0))
);

ALTER TABLE crm.safety_catch OWNER TO booking_expiration_owner;

CREATE TABLE crm.schema_migrations (
    version character varying NOT NULL
);

ALTER TABLE crm.schema_migrations OWNER TO booking_expiration_owner;

ALTER TABLE ONLY crm.booking_audit
    ADD CONSTRAINT booking_audit_pkey PRIMARY KEY (booking_id, version);

ALTER TABLE ONLY crm.bookings
    ADD CONSTRAINT bookings_pkey PRIMARY KEY (id);

ALTER TABLE ONLY crm.deal_timeline_cards
    ADD CONSTRAINT deal_timeline_cards_pkey PRIMARY KEY (booking_id, booking_version);

ALTER TABLE ONLY crm.expiration_batches
    ADD CONSTRAINT expiration_batches_pkey PRIMARY KEY (run_id, phase, batch_no);

ALTER TABLE ONLY crm.expiration_refusals
    ADD CONSTRAINT expiration_refusals_pkey PRIMARY KEY (booking_id, phase);

ALTER TABLE ONLY crm.job_state
    ADD CONSTRAINT job_state_pkey PRIMARY KEY (job);

ALTER TABLE ONLY crm.operator_actions
    ADD CONSTRAINT operator_actions_pkey PRIMARY KEY (id);

ALTER TABLE ONLY crm.outbox
    ADD CONSTRAINT outbox_aggregate_id_aggregate_version_key UNIQUE (aggregate_id, aggregate_version);

ALTER TABLE ONLY crm.outbox
    ADD CONSTRAINT outbox_event_id_key UNIQUE (event_id);

ALTER TABLE ONLY crm.outbox
    ADD CONSTRAINT outbox_pkey PRIMARY KEY (id);

ALTER TABLE ONLY crm.phase_pauses
    ADD CONSTRAINT phase_pauses_pkey PRIMARY KEY (phase);

ALTER TABLE ONLY crm.safety_catch
    ADD CONSTRAINT safety_catch_pkey PRIMARY KEY (job);

ALTER TABLE ONLY crm.schema_migrations
    ADD CONSTRAINT schema_migrations_pkey PRIMARY KEY (version);

CREATE INDEX ix_bookings_booking_expires_at ON crm.bookings USING btree (booking_expires_at, id) WHERE (status = 'Booked'::text);

CREATE INDEX ix_bookings_reserve_expires_at ON crm.bookings USING btree (reserve_expires_at, id) WHERE (status = ANY (ARRAY['Reserved'::text, 'AwaitingPayment'::text]));

CREATE INDEX ix_deal_timeline_cards_deal ON crm.deal_timeline_cards USING btree (deal_id, at);

CREATE INDEX ix_operator_actions_run ON crm.operator_actions USING btree (((details ->> 'run_id'::text)), ((details ->> 'act'::text))) WHERE ((details ->> 'run_id'::text) IS NOT NULL);

CREATE INDEX ix_outbox_parked ON crm.outbox USING btree (id) WHERE ((parked_at IS NOT NULL) AND (published_at IS NULL) AND (skipped_at IS NULL));

CREATE INDEX ix_outbox_unpublished ON crm.outbox USING btree (id) WHERE ((published_at IS NULL) AND (skipped_at IS NULL) AND (parked_at IS NULL));

CREATE INDEX ix_outbox_unpublished_aggregate ON crm.outbox USING btree (aggregate_id, id) WHERE ((published_at IS NULL) AND (skipped_at IS NULL));

GRANT USAGE ON SCHEMA crm TO booking_expiration_worker;
GRANT USAGE ON SCHEMA crm TO booking_expiration_operator;
GRANT USAGE ON SCHEMA crm TO crm_app;

GRANT INSERT ON TABLE crm.booking_audit TO booking_expiration_worker;
GRANT SELECT ON TABLE crm.booking_audit TO booking_expiration_operator;
GRANT SELECT,INSERT ON TABLE crm.booking_audit TO crm_app;

GRANT SELECT ON TABLE crm.bookings TO booking_expiration_worker;
GRANT SELECT ON TABLE crm.bookings TO booking_expiration_operator;
GRANT SELECT,INSERT ON TABLE crm.bookings TO crm_app;

GRANT UPDATE(status) ON TABLE crm.bookings TO booking_expiration_worker;
GRANT UPDATE(status) ON TABLE crm.bookings TO crm_app;

GRANT UPDATE(reserve_expires_at) ON TABLE crm.bookings TO crm_app;

GRANT UPDATE(booking_expires_at) ON TABLE crm.bookings TO crm_app;

GRANT UPDATE(expired_at) ON TABLE crm.bookings TO booking_expiration_worker;

GRANT UPDATE(updated_at) ON TABLE crm.bookings TO booking_expiration_worker;
GRANT UPDATE(updated_at) ON TABLE crm.bookings TO crm_app;

GRANT UPDATE(version) ON TABLE crm.bookings TO booking_expiration_worker;
GRANT UPDATE(version) ON TABLE crm.bookings TO crm_app;

GRANT INSERT ON TABLE crm.deal_timeline_cards TO booking_expiration_worker;
GRANT SELECT ON TABLE crm.deal_timeline_cards TO booking_expiration_operator;
GRANT SELECT ON TABLE crm.deal_timeline_cards TO crm_app;

GRANT SELECT,INSERT ON TABLE crm.expiration_batches TO booking_expiration_worker;
GRANT SELECT ON TABLE crm.expiration_batches TO booking_expiration_operator;

GRANT SELECT,INSERT,UPDATE ON TABLE crm.expiration_refusals TO booking_expiration_worker;
GRANT SELECT ON TABLE crm.expiration_refusals TO booking_expiration_operator;

GRANT SELECT,INSERT,UPDATE ON TABLE crm.job_state TO booking_expiration_worker;
GRANT SELECT ON TABLE crm.job_state TO booking_expiration_operator;

GRANT SELECT,INSERT ON TABLE crm.operator_actions TO booking_expiration_worker;
GRANT SELECT,INSERT ON TABLE crm.operator_actions TO booking_expiration_operator;

GRANT SELECT ON TABLE crm.outbox TO booking_expiration_worker;
GRANT SELECT ON TABLE crm.outbox TO booking_expiration_operator;
GRANT SELECT ON TABLE crm.outbox TO crm_app;

GRANT INSERT(event_id) ON TABLE crm.outbox TO booking_expiration_worker;
GRANT INSERT(event_id) ON TABLE crm.outbox TO crm_app;

GRANT INSERT(aggregate_type) ON TABLE crm.outbox TO booking_expiration_worker;
GRANT INSERT(aggregate_type) ON TABLE crm.outbox TO crm_app;

GRANT INSERT(aggregate_id) ON TABLE crm.outbox TO booking_expiration_worker;
GRANT INSERT(aggregate_id) ON TABLE crm.outbox TO crm_app;

GRANT INSERT(aggregate_version) ON TABLE crm.outbox TO booking_expiration_worker;
GRANT INSERT(aggregate_version) ON TABLE crm.outbox TO crm_app;

GRANT INSERT(tenant_id) ON TABLE crm.outbox TO booking_expiration_worker;
GRANT INSERT(tenant_id) ON TABLE crm.outbox TO crm_app;

GRANT INSERT(topic) ON TABLE crm.outbox TO booking_expiration_worker;
GRANT INSERT(topic) ON TABLE crm.outbox TO crm_app;

GRANT INSERT(contract_version) ON TABLE crm.outbox TO booking_expiration_worker;
GRANT INSERT(contract_version) ON TABLE crm.outbox TO crm_app;

GRANT INSERT(payload) ON TABLE crm.outbox TO booking_expiration_worker;
GRANT INSERT(payload) ON TABLE crm.outbox TO crm_app;

GRANT INSERT(headers) ON TABLE crm.outbox TO booking_expiration_worker;
GRANT INSERT(headers) ON TABLE crm.outbox TO crm_app;

GRANT INSERT(correlation_id) ON TABLE crm.outbox TO booking_expiration_worker;
GRANT INSERT(correlation_id) ON TABLE crm.outbox TO crm_app;

GRANT INSERT(occurred_at) ON TABLE crm.outbox TO booking_expiration_worker;
GRANT INSERT(occurred_at) ON TABLE crm.outbox TO crm_app;

GRANT UPDATE(claim_token) ON TABLE crm.outbox TO booking_expiration_worker;
GRANT UPDATE(claim_token) ON TABLE crm.outbox TO booking_expiration_operator;

GRANT UPDATE(claimed_until) ON TABLE crm.outbox TO booking_expiration_worker;
GRANT UPDATE(claimed_until) ON TABLE crm.outbox TO booking_expiration_operator;

GRANT UPDATE(attempts) ON TABLE crm.outbox TO booking_expiration_worker;
GRANT UPDATE(attempts) ON TABLE crm.outbox TO booking_expiration_operator;

GRANT UPDATE(published_at) ON TABLE crm.outbox TO booking_expiration_worker;

GRANT UPDATE(kafka_partition) ON TABLE crm.outbox TO booking_expiration_worker;

GRANT UPDATE(kafka_offset) ON TABLE crm.outbox TO booking_expiration_worker;

GRANT UPDATE(parked_at) ON TABLE crm.outbox TO booking_expiration_worker;
GRANT UPDATE(parked_at) ON TABLE crm.outbox TO booking_expiration_operator;

GRANT UPDATE(park_reason) ON TABLE crm.outbox TO booking_expiration_worker;
GRANT UPDATE(park_reason) ON TABLE crm.outbox TO booking_expiration_operator;

GRANT UPDATE(skipped_at) ON TABLE crm.outbox TO booking_expiration_operator;

GRANT SELECT ON TABLE crm.phase_pauses TO booking_expiration_worker;
GRANT SELECT ON TABLE crm.phase_pauses TO booking_expiration_operator;

GRANT UPDATE(paused_at) ON TABLE crm.phase_pauses TO booking_expiration_operator;

GRANT UPDATE(paused_until) ON TABLE crm.phase_pauses TO booking_expiration_operator;

GRANT UPDATE(actor) ON TABLE crm.phase_pauses TO booking_expiration_operator;

GRANT UPDATE(reason) ON TABLE crm.phase_pauses TO booking_expiration_operator;

GRANT SELECT ON TABLE crm.safety_catch TO booking_expiration_worker;
GRANT SELECT ON TABLE crm.safety_catch TO booking_expiration_operator;

GRANT UPDATE(allowance) ON TABLE crm.safety_catch TO booking_expiration_worker;
GRANT UPDATE(allowance) ON TABLE crm.safety_catch TO booking_expiration_operator;

GRANT UPDATE(released_at) ON TABLE crm.safety_catch TO booking_expiration_operator;

GRANT UPDATE(hold_above) ON TABLE crm.safety_catch TO booking_expiration_worker;

GRANT SELECT ON TABLE crm.schema_migrations TO booking_expiration_worker;
GRANT SELECT ON TABLE crm.schema_migrations TO booking_expiration_operator;
