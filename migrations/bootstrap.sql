-- Step one of two, run once by an administrator (a superuser, or a role with CREATEROLE that owns the database):
-- the roles, their time-outs and the empty schema. Step two, the numbered migrations, is run by booking_expiration_owner.
-- Idempotent: run it again after an upgrade. Roles get no password here; set them with ALTER ROLE … PASSWORD, or use
-- whatever authentication your servers use. dbmate ignores this file: its name starts with no number.

DO $roles$
DECLARE
  wanted text;
BEGIN
  FOREACH wanted IN ARRAY ARRAY['booking_expiration_owner', 'booking_expiration_worker', 'booking_expiration_operator',
                                'crm_app', 'chessboard']
  LOOP
    BEGIN
      EXECUTE format('CREATE ROLE %I LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE', wanted);
    EXCEPTION WHEN duplicate_object OR unique_violation THEN
      NULL; -- already there: the administrator's own attributes stay
    END;
  END LOOP;
END
$roles$;

-- Time-outs of every role that can lock a booking (trap 24), so that no dead client keeps one: a killed client's query
-- ends at the next connection check (0.5 s); a silent client's transaction ends after 15 s, on a cut network as well.
DO $timeouts$
DECLARE
  locker text;
BEGIN
  FOREACH locker IN ARRAY ARRAY['booking_expiration_owner', 'booking_expiration_worker', 'booking_expiration_operator',
                                'crm_app', 'chessboard']
  LOOP
    EXECUTE format('ALTER ROLE %I SET client_connection_check_interval = ''500ms''', locker);
    EXECUTE format('ALTER ROLE %I SET idle_in_transaction_session_timeout = ''15s''', locker);
    EXECUTE format('ALTER ROLE %I SET tcp_keepalives_idle = 5', locker);
    EXECUTE format('ALTER ROLE %I SET tcp_keepalives_interval = 3', locker);
    EXECUTE format('ALTER ROLE %I SET tcp_keepalives_count = 3', locker);
    EXECUTE format('ALTER ROLE %I SET tcp_user_timeout = ''15s''', locker);
    EXECUTE format('ALTER ROLE %I SET lock_timeout = ''5s''', locker);
    CONTINUE WHEN locker = 'booking_expiration_owner'; -- a migration may build an index for as long as it takes
    EXECUTE format('ALTER ROLE %I SET statement_timeout = ''20s''', locker);
    IF current_setting('server_version_num')::int >= 170000 THEN
      EXECUTE format('ALTER ROLE %I SET transaction_timeout = ''25s''', locker);
    END IF;
  END LOOP;
END
$timeouts$;

DO $database$
BEGIN
  EXECUTE format('GRANT CONNECT ON DATABASE %I TO booking_expiration_owner, booking_expiration_worker, '
                 'booking_expiration_operator, crm_app, chessboard', current_database());
END
$database$;

-- CREATE SCHEMA IF NOT EXISTS … AUTHORIZATION needs membership in the role for an administrator who is no superuser.
DO $schema$
BEGIN
  IF to_regnamespace('crm') IS NULL THEN
    IF NOT pg_has_role(current_user, 'booking_expiration_owner', 'MEMBER') THEN
      EXECUTE format('GRANT booking_expiration_owner TO %I', current_user);
    END IF;
    CREATE SCHEMA crm AUTHORIZATION booking_expiration_owner;
  END IF;
END
$schema$;
