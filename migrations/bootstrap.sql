-- Step one of two, run once by an administrator (a superuser, or a role with CREATEROLE that owns the database):
-- the roles, their time-outs and the empty schemas. Step two, the numbered migrations, is run by booking_expiration_owner.
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

-- Time-outs of every role that can lock a booking (trap 24), so that no dead client keeps one. A killed client's query ends
-- at the next connection check (0.5 s). A silent client loses its rows after the rest of its statement (12 s) and the wait
-- for the next one (15 s), 27 s at most; before PostgreSQL 17, which brought transaction_timeout, nothing else bounds it.
-- Only what differs is set, so a second run changes nothing; and a concurrent run of this file is waited for and repeated.
DO $timeouts$
DECLARE
  lockers CONSTANT text[] := ARRAY['booking_expiration_owner', 'booking_expiration_worker', 'booking_expiration_operator',
                                   'crm_app', 'chessboard'];
  every_role CONSTANT text[] := ARRAY[
    'client_connection_check_interval=500ms', 'idle_in_transaction_session_timeout=15s', 'lock_timeout=5s',
    'tcp_keepalives_idle=5', 'tcp_keepalives_interval=3', 'tcp_keepalives_count=3', 'tcp_user_timeout=15s'];
  -- A migration may build an index for as long as it takes. All other statements are short: compiling one costs more than it saves.
  but_the_owner CONSTANT text[] := ARRAY['statement_timeout=12s', 'jit=off'];
  since_17 CONSTANT text[] := ARRAY['transaction_timeout=25s'];
  locker text;
  setting text;
BEGIN
  FOR locker, setting IN
    SELECT role, wanted
      FROM unnest(lockers) AS role
           CROSS JOIN LATERAL unnest(
             every_role
             || CASE WHEN role = 'booking_expiration_owner' THEN '{}' ELSE but_the_owner END
             || CASE WHEN role = 'booking_expiration_owner' OR current_setting('server_version_num')::int < 170000
                     THEN '{}' ELSE since_17 END) AS wanted
     WHERE NOT EXISTS (SELECT FROM pg_db_role_setting
                        WHERE setdatabase = 0 AND setrole = role::regrole AND wanted = ANY (setconfig))
  LOOP
    FOR attempt IN 1 .. 50 LOOP
      BEGIN
        EXECUTE format('ALTER ROLE %I SET %I = %L', locker, split_part(setting, '=', 1), split_part(setting, '=', 2));
        EXIT;
      EXCEPTION WHEN internal_error OR unique_violation THEN -- "tuple concurrently updated": another run of this file
        IF attempt = 50 THEN RAISE; END IF;
        PERFORM pg_sleep(0.02);
      END;
    END LOOP;
  END LOOP;
END
$timeouts$;

-- So that `explain` can name who holds a booking's lock (D5). Not every administrator may grant it; the command says when it lacks it.
DO $statistics$
BEGIN
  IF NOT pg_has_role('booking_expiration_operator', 'pg_read_all_stats', 'MEMBER') THEN
    GRANT pg_read_all_stats TO booking_expiration_operator;
  END IF;
EXCEPTION WHEN insufficient_privilege OR internal_error OR unique_violation THEN
  NULL;
END
$statistics$;

-- From here on everything belongs to this one database, so an advisory lock makes concurrent runs of this file take turns.
DO $database$
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('migrations/bootstrap.sql'));
  EXECUTE format('GRANT CONNECT ON DATABASE %I TO booking_expiration_owner, booking_expiration_worker, '
                 'booking_expiration_operator, crm_app, chessboard', current_database());
END
$database$;

-- To make a schema for another role, an administrator who is no superuser must be able to become that role: CREATEROLE alone
-- gives that up to PostgreSQL 15, and only the right to grant it to oneself from 16 on. It is handed back at once.
DO $schema$
DECLARE
  borrowed boolean := false;
  wanted text;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('migrations/bootstrap.sql'));
  IF to_regnamespace('crm') IS NOT NULL AND to_regnamespace('chessboard') IS NOT NULL THEN
    RETURN;
  END IF;
  IF NOT pg_has_role(current_user, 'booking_expiration_owner',
                     CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END) THEN
    EXECUTE format('GRANT booking_expiration_owner TO %I', current_user);
    borrowed := true;
  END IF;
  FOREACH wanted IN ARRAY ARRAY['crm', 'chessboard'] LOOP
    IF to_regnamespace(wanted) IS NULL THEN
      EXECUTE format('CREATE SCHEMA %I AUTHORIZATION booking_expiration_owner', wanted);
    END IF;
  END LOOP;
  IF borrowed THEN
    EXECUTE format('REVOKE booking_expiration_owner FROM %I', current_user);
  END IF;
END
$schema$;
