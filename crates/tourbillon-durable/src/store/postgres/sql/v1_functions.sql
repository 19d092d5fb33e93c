-- The functions of format 1: what applications call in transactions of their own, and what these functions need.

-- Returns a time as microseconds since 1970. Whole seconds and their fraction apart, because PostgreSQL 13 extracts both as a float.
CREATE FUNCTION tourbillon.micros(at timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT extract(epoch FROM date_trunc('second', at))::bigint * 1000000
        + extract(microseconds FROM at)::bigint % 1000000
$$;

-- Returns the time of the store's clock.
CREATE FUNCTION tourbillon.now_micros() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT tourbillon.micros(clock_timestamp())
$$;

-- Returns the length of an interval as the library writes a duration.
CREATE FUNCTION tourbillon.duration(field text, length interval) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    whole bigint;
BEGIN
    IF length IS NULL THEN
        RETURN NULL;
    END IF;
    IF extract(year FROM length) <> 0 OR extract(month FROM length) <> 0 THEN
        RAISE EXCEPTION 'the length of "%" is not fixed: it has months', field USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Give days, hours, minutes and seconds, or a time with "at".';
    END IF;
    IF length < interval '0' THEN
        RAISE EXCEPTION '"%" is negative', field USING ERRCODE = 'invalid_parameter_value';
    END IF;
    whole := round(extract(epoch FROM length) * 1000000)::bigint;
    RETURN jsonb_build_object('secs', whole / 1000000, 'nanos', whole % 1000000 * 1000);
END
$$;

-- Returns the shard of a timer: FNV-1a of the namespace, a zero byte, and the name, else the key, else the id.
CREATE FUNCTION tourbillon.shard_of(namespace text, key text, name text, id uuid) RETURNS smallint
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    bytes bytea := convert_to(namespace, 'UTF8') || '\x00'::bytea
        || coalesce(convert_to(name, 'UTF8'), convert_to(key, 'UTF8'), uuid_send(id));
    hash bigint := 2166136261;
BEGIN
    FOR place IN 0 .. length(bytes) - 1 LOOP
        hash := (hash # get_byte(bytes, place)) * 16777619 & 4294967295;
    END LOOP;
    RETURN (hash % 256)::smallint;
END
$$;

-- Returns a new id: a UUID of version 7.
CREATE FUNCTION tourbillon.new_id() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
        PLACING substring(int8send(tourbillon.now_micros() / 1000) FROM 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid
$$;

-- Raises an error unless a text can be a namespace or a kind.
CREATE FUNCTION tourbillon.check_word(field text, word text) RETURNS void LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    IF word IS NULL OR octet_length(word) NOT BETWEEN 1 AND 128 OR word !~ '^[A-Za-z0-9._:/-]*$' THEN
        RAISE EXCEPTION 'the % must have 1 to 128 letters, digits and . _ - : /', field
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
END
$$;

-- Raises an error unless a text can be a key, a name or a content type.
CREATE FUNCTION tourbillon.check_text(field text, word text) RETURNS void LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    IF octet_length(word) NOT BETWEEN 1 AND 512 OR word ~ '[\u0001-\u001f\u007f-\u009f]' THEN
        RAISE EXCEPTION 'the % must have 1 to 512 bytes and no control characters', field
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
END
$$;

-- Cancels rows that the caller has locked: writes them to the history.
CREATE FUNCTION tourbillon.end_cancelled(ids uuid[], occurrences bigint[]) RETURNS void LANGUAGE sql VOLATILE AS $$
    WITH ended AS (
        DELETE FROM tourbillon.timers t USING unnest(ids, occurrences) AS e(id, occurrence)
        WHERE t.id = e.id AND t.occurrence = e.occurrence RETURNING t.*
    )
    INSERT INTO tourbillon.history (id, occurrence, at, due, attempts, ended_as, namespace, kind, key, name, error)
    SELECT id, occurrence, tourbillon.now_micros(), due, attempt, 1, namespace, kind, key, name, last_error FROM ended
$$;

-- Arms a timer in the transaction of the caller: it exists if and when that transaction commits. The answer is `created` or `existing`.
-- A pending timer with the same key that was asked for differently raises unique_violation, unless `on_conflict` says what to do: keep,
-- replace, earlier or later.
--
-- `missed` and `retry` are the library's policies as it writes them, such as '{"Skip": {"older_than": {"secs": 60, "nanos": 0}}}'.
-- Cron lines are refused, because SQL cannot check them.
CREATE FUNCTION tourbillon.create_timer(
    kind text,
    at timestamptz DEFAULT NULL,
    after interval DEFAULT NULL,
    every interval DEFAULT NULL,
    cron text DEFAULT NULL,
    key text DEFAULT NULL,
    name text DEFAULT NULL,
    payload bytea DEFAULT '',
    content_type text DEFAULT NULL,
    namespace text DEFAULT 'default',
    times bigint DEFAULT NULL,
    until timestamptz DEFAULT NULL,
    missed jsonb DEFAULT NULL,
    retry jsonb DEFAULT NULL,
    on_conflict text DEFAULT 'refuse'
) RETURNS TABLE (timer uuid, answer text, due_at timestamptz) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    new_plan jsonb;
    new_due bigint;
    new_timer uuid := tourbillon.new_id();
    now_is bigint := tourbillon.now_micros();
    holder tourbillon.timers%ROWTYPE;
BEGIN
    new_plan := tourbillon.plan_of(create_timer.at, create_timer.after, create_timer.every, create_timer.cron,
        create_timer.times, create_timer.until, create_timer.missed, create_timer.retry);
    PERFORM tourbillon.check_word('namespace', create_timer.namespace), tourbillon.check_word('kind', create_timer.kind),
        tourbillon.check_text('key', create_timer.key), tourbillon.check_text('name', create_timer.name),
        tourbillon.check_text('content type', create_timer.content_type);
    IF create_timer.payload IS NULL OR octet_length(create_timer.payload) > 1048576 THEN
        RAISE EXCEPTION 'a payload has at most 1048576 bytes' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF coalesce(create_timer.on_conflict, '') NOT IN ('refuse', 'keep', 'replace', 'earlier', 'later') THEN
        RAISE EXCEPTION '"on_conflict" is one of refuse, keep, replace, earlier and later'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    new_due := coalesce(tourbillon.micros(create_timer.at), now_is
        + (new_plan #>> '{first,After,secs}')::bigint * 1000000 + (new_plan #>> '{first,After,nanos}')::bigint / 1000);
    IF new_due > 253402207200000000 OR new_due > tourbillon.micros(create_timer.until) THEN
        RAISE EXCEPTION 'the timer would never be due: it ends before, or the time is after the year 9999'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    LOOP
        SELECT * INTO holder FROM tourbillon.timers t
            WHERE t.namespace = create_timer.namespace AND t.key = create_timer.key AND t.is_head FOR UPDATE;
        IF FOUND THEN
            IF create_timer.on_conflict = 'keep'
                OR (holder.kind, holder.plan, holder.payload) = (create_timer.kind, new_plan, create_timer.payload)
                    AND holder.name IS NOT DISTINCT FROM create_timer.name
                    AND holder.content_type IS NOT DISTINCT FROM create_timer.content_type
                OR create_timer.on_conflict = 'earlier' AND new_due >= holder.due
                OR create_timer.on_conflict = 'later' AND new_due <= holder.due
            THEN
                RETURN QUERY SELECT holder.id, 'existing', to_timestamp(holder.due / 1e6);
                RETURN;
            END IF;
            IF create_timer.on_conflict = 'refuse' THEN
                RAISE EXCEPTION 'the timer % has the key "%", and was asked for differently', holder.id, create_timer.key
                    USING ERRCODE = 'unique_violation';
            END IF;
            PERFORM tourbillon.take_key(holder.id);
        END IF;
        BEGIN
            INSERT INTO tourbillon.timers VALUES (new_timer, 1, new_due, new_due, 1, 0, 0, 0, create_timer.times, 0, now_is, NULL,
                tourbillon.shard_of(create_timer.namespace, create_timer.key, create_timer.name, new_timer), 0, true,
                create_timer.namespace, create_timer.kind, create_timer.key, create_timer.name, create_timer.content_type,
                new_plan, create_timer.payload, NULL);
            EXIT;
        EXCEPTION WHEN unique_violation THEN
            NULL; -- Another transaction was quicker: look again at the timer that has the key.
        END;
    END LOOP;
    IF new_due < now_is + 2000000 THEN
        PERFORM pg_notify(@channel@, '');
    END IF;
    RETURN QUERY SELECT new_timer, 'created', to_timestamp(new_due / 1e6);
END
$$;

-- Checks when a timer is due, and returns it as the library writes it.
CREATE FUNCTION tourbillon.plan_of(
    at timestamptz, after interval, every interval, cron text, times bigint, until timestamptz, missed jsonb, retry jsonb
) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE
    usual_retry CONSTANT jsonb := '{"attempts": 10, "first": {"secs": 1, "nanos": 0}, "factor": 2,
        "longest": {"secs": 300, "nanos": 0}, "jitter_percent": 50, "give_up_after": null}';
BEGIN
    IF cron IS NOT NULL THEN
        RAISE EXCEPTION 'a cron line cannot be checked in SQL' USING ERRCODE = 'feature_not_supported',
            HINT = 'Create timers with cron lines through the library or the server.';
    END IF;
    IF num_nonnulls(at, after) <> 1 AND (every IS NULL OR num_nonnulls(at, after) > 1) THEN
        RAISE EXCEPTION 'give one of "at", "after" and "every"' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'With "every", one of "at" and "after" says when the first occurrence is due.';
    END IF;
    IF at < 'epoch' OR until < 'epoch' OR at >= '9999-12-31 UTC' OR until >= '9999-12-31 UTC' THEN
        RAISE EXCEPTION 'a durable timer is due between the years 1970 and 9999' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF every IS NULL AND (times > 1 OR until IS NOT NULL) THEN
        RAISE EXCEPTION 'a timer that is due once has neither "times" nor "until"' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF times < 1 OR every <= interval '0' THEN
        RAISE EXCEPTION '"times" is at least 1, and "every" is longer than zero' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM tourbillon.check_missed(missed), tourbillon.check_retry(usual_retry || retry);
    RETURN jsonb_strip_nulls(jsonb_build_object(
        'first', CASE WHEN at IS NULL THEN jsonb_build_object('After', tourbillon.duration('after', coalesce(after, every)))
            ELSE jsonb_build_object('At', tourbillon.micros(at)) END,
        'every', tourbillon.duration('every', every), 'times', times, 'until', tourbillon.micros(until)))
        || CASE WHEN missed IS NULL OR missed = '"Once"' THEN '{}'::jsonb ELSE jsonb_build_object('missed', missed) END
        || CASE WHEN retry IS NULL OR usual_retry || retry = usual_retry THEN '{}'::jsonb
            ELSE jsonb_build_object('retry', usual_retry || retry) END;
END
$$;

-- Raises an error unless a value is a duration as the library writes it.
CREATE FUNCTION tourbillon.check_duration(field text, length jsonb) RETURNS void LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    IF jsonb_typeof(length) IS DISTINCT FROM 'object' OR length - 'secs' - 'nanos' <> '{}'
        OR coalesce(length ->> 'secs', '') !~ '^[0-9]{1,18}$' OR coalesce(length ->> 'nanos', '') !~ '^[0-9]{1,9}$'
    THEN
        RAISE EXCEPTION '"%" is not a duration such as {"secs": 60, "nanos": 0}', field USING ERRCODE = 'invalid_parameter_value';
    END IF;
END
$$;

-- Raises an error unless a value is a policy for missed fires as the library writes it.
CREATE FUNCTION tourbillon.check_missed(missed jsonb) RETURNS void LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    IF missed IS NULL OR missed = '"Once"' THEN
        RETURN;
    ELSIF missed ? 'Skip' AND missed - 'Skip' = '{}' AND (missed -> 'Skip') - 'older_than' = '{}' THEN
        PERFORM tourbillon.check_duration('missed', missed #> '{Skip,older_than}');
    ELSIF missed ? 'DeadAfter' AND missed - 'DeadAfter' = '{}' THEN
        PERFORM tourbillon.check_duration('missed', missed -> 'DeadAfter');
    ELSIF missed - 'All' <> '{}' OR coalesce(missed #>> '{All,at_most}', '') !~ '^[1-9][0-9]{0,17}$' THEN
        RAISE EXCEPTION '"missed" is none of the policies of the library: %', missed USING ERRCODE = 'invalid_parameter_value';
    END IF;
END
$$;

-- Raises an error unless a value is a policy for failed deliveries as the library writes it.
CREATE FUNCTION tourbillon.check_retry(retry jsonb) RETURNS void LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    IF retry IS NULL THEN
        RETURN;
    END IF;
    PERFORM tourbillon.check_duration('retry.first', retry -> 'first'),
        tourbillon.check_duration('retry.longest', retry -> 'longest');
    IF jsonb_typeof(retry -> 'give_up_after') <> 'null' THEN
        PERFORM tourbillon.check_duration('retry.give_up_after', retry -> 'give_up_after');
    END IF;
    IF retry - '{attempts,first,factor,longest,jitter_percent,give_up_after}'::text[] <> '{}'
        OR coalesce(retry ->> 'attempts', '') !~ '^[1-9][0-9]{0,8}$' OR coalesce(retry ->> 'factor', '') !~ '^[1-9][0-9]{0,8}$'
        OR coalesce(retry ->> 'jitter_percent', '') !~ '^([0-9]{1,2}|100)$'
        OR (retry #>> '{longest,secs}')::bigint < (retry #>> '{first,secs}')::bigint
    THEN
        RAISE EXCEPTION '"retry" is not a policy of the library: %', retry USING ERRCODE = 'invalid_parameter_value';
    END IF;
END
$$;

-- Cancels the armed rows of a timer, and takes its key from one that is being delivered.
CREATE FUNCTION tourbillon.take_key(timer uuid) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    ids uuid[];
    occurrences bigint[];
BEGIN
    SELECT array_agg(r.id), array_agg(r.occurrence) INTO ids, occurrences FROM (
        SELECT t.id, t.occurrence FROM tourbillon.timers t WHERE t.id = timer AND t.state = 0
        ORDER BY t.id, t.occurrence FOR UPDATE) r;
    PERFORM tourbillon.end_cancelled(ids, occurrences);
    UPDATE tourbillon.timers t SET is_head = false WHERE t.id = timer AND t.is_head;
END
$$;

-- Cancels timers in the transaction of the caller: the one with this id or key, or all with this name. `cancelled` of them are never
-- delivered, once the transaction has committed; `in_flight` are being delivered; `gone` had ended before.
--
-- A claim that another transaction commits between two statements of this function can arm the next occurrence of a repeating timer. So the
-- function locks what is armed until a later look finds nothing that is not locked.
CREATE FUNCTION tourbillon.cancel(
    key text DEFAULT NULL,
    name text DEFAULT NULL,
    timer uuid DEFAULT NULL,
    namespace text DEFAULT 'default'
) RETURNS TABLE (cancelled bigint, in_flight bigint, gone bigint) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    of_timer uuid := cancel.timer;
    ids uuid[];
    occurrences bigint[];
    heads uuid[];
BEGIN
    IF num_nonnulls(cancel.key, cancel.name, cancel.timer) <> 1 THEN
        RAISE EXCEPTION 'give one of "key", "name" and "timer"' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    LOOP
        IF cancel.key IS NOT NULL THEN
            SELECT t.id INTO of_timer FROM tourbillon.timers t
                WHERE t.namespace = cancel.namespace AND t.key = cancel.key AND t.is_head;
        END IF;
        IF cancel.name IS NULL THEN
            SELECT array_agg(r.id), array_agg(r.occurrence), array_agg(r.id) FILTER (WHERE r.is_head)
                INTO ids, occurrences, heads FROM (
                SELECT t.id, t.occurrence, t.is_head FROM tourbillon.timers t
                WHERE t.id = of_timer AND t.state = 0
                ORDER BY t.id, t.occurrence FOR UPDATE) r;
            SELECT count(*) FILTER (WHERE t.state = 0), count(*) FILTER (WHERE t.state = 1), count(*) FILTER (WHERE t.state = 2)
                INTO cancelled, in_flight, gone
                FROM tourbillon.timers t WHERE t.id = of_timer;
        ELSE
            SELECT array_agg(r.id), array_agg(r.occurrence), array_agg(r.id) FILTER (WHERE r.is_head)
                INTO ids, occurrences, heads FROM (
                SELECT t.id, t.occurrence, t.is_head FROM tourbillon.timers t
                WHERE t.namespace = cancel.namespace AND t.name = cancel.name AND t.state = 0
                ORDER BY t.id, t.occurrence FOR UPDATE) r;
            SELECT count(*) FILTER (WHERE t.state = 0), count(*) FILTER (WHERE t.state = 1), count(*) FILTER (WHERE t.state = 2)
                INTO cancelled, in_flight, gone
                FROM tourbillon.timers t WHERE t.namespace = cancel.namespace AND t.name = cancel.name;
        END IF;
        -- Rows that are locked stay armed: so equal numbers mean that all armed rows are locked.
        EXIT WHEN cancelled = coalesce(cardinality(ids), 0);
    END LOOP;
    PERFORM tourbillon.end_cancelled(ids, occurrences);
    -- The key passes to the latest occurrence that is being delivered.
    UPDATE tourbillon.timers t SET is_head = true FROM (
            SELECT c.id, max(c.occurrence) AS occurrence FROM tourbillon.timers c
            WHERE c.id = ANY (heads) AND c.state = 1 GROUP BY c.id) heir
        WHERE t.id = heir.id AND t.occurrence = heir.occurrence;
    IF cancel.name IS NULL AND cancelled + in_flight + gone = 0 THEN
        gone := 1;
    END IF;
    RETURN NEXT;
END
$$;

-- Makes the partitions of the history from today on, and drops those that are older than `keep` days. A day that cannot be locked soon is
-- left to the next call. Returns how many partitions were made and dropped.
CREATE FUNCTION tourbillon.keep_history(keep integer, ahead integer) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    day CONSTANT bigint := 86400000000;
    today bigint := tourbillon.now_micros() / 86400000000;
    part text;
    changes integer := 0;
BEGIN
    PERFORM set_config('lock_timeout', '100', true);
    FOR number IN today .. today + ahead LOOP
        part := 'history_' || to_char(to_timestamp(number * 86400.0) AT TIME ZONE 'UTC', 'YYYYMMDD');
        CONTINUE WHEN to_regclass(format('%I.%I', @schema@, part)) IS NOT NULL;
        BEGIN
            EXECUTE format('CREATE TABLE %I.%I (LIKE tourbillon.history)', @schema@, part);
            EXECUTE format('WITH moved AS (DELETE FROM tourbillon.history_rest WHERE at >= %s AND at < %s RETURNING *)
                INSERT INTO %I.%I SELECT * FROM moved', number * day, (number + 1) * day, @schema@, part);
            EXECUTE format('ALTER TABLE tourbillon.history ATTACH PARTITION %I.%I FOR VALUES FROM (%s) TO (%s)',
                @schema@, part, number * day, (number + 1) * day);
            changes := changes + 1;
        EXCEPTION WHEN lock_not_available THEN
            RETURN changes;
        END;
    END LOOP;
    FOR part IN SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'tourbillon.history'::regclass AND c.relname ~ '^history_[0-9]{8}$'
            AND c.relname < 'history_' || to_char(to_timestamp((today - keep) * 86400.0) AT TIME ZONE 'UTC', 'YYYYMMDD')
    LOOP
        BEGIN
            EXECUTE format('DROP TABLE %I.%I', @schema@, part);
            changes := changes + 1;
        EXCEPTION WHEN lock_not_available THEN
            RETURN changes;
        END;
    END LOOP;
    DELETE FROM tourbillon.history_rest WHERE at < (today - keep) * day;
    RETURN changes;
END
$$;
