-- Format 5. The checks of times name the last time, and an interval that is longer than all time is refused before its
-- microseconds overflow.
CREATE OR REPLACE FUNCTION tourbillon.duration(field text, length interval) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
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
    -- Longer than from the first time to the last: the number of microseconds might not fit.
    IF length > interval '3000000 days' THEN
        RAISE EXCEPTION '"%" is longer than all time until 9999-12-30T22:00:00Z', field
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    whole := round(extract(epoch FROM length) * 1000000)::bigint;
    RETURN jsonb_build_object('secs', whole / 1000000, 'nanos', whole % 1000000 * 1000);
END
$$;

CREATE OR REPLACE FUNCTION tourbillon.plan_of(
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
    IF at < 'epoch' OR until < 'epoch' OR at > '9999-12-30 22:00 UTC' OR until > '9999-12-30 22:00 UTC' THEN
        RAISE EXCEPTION 'the times of a durable timer are from 1970-01-01T00:00:00Z to 9999-12-30T22:00:00Z'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF every IS NULL AND (times > 1 OR until IS NOT NULL) THEN
        RAISE EXCEPTION 'a timer that is due once has neither "times" nor "until"' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF times < 1 OR every <= interval '0' THEN
        RAISE EXCEPTION '"times" is at least 1, and "every" is longer than zero' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM tourbillon.check_missed(missed), tourbillon.check_retry(usual_retry || retry);
    RETURN jsonb_strip_nulls(jsonb_build_object(
        'first', CASE WHEN at IS NULL THEN jsonb_build_object('After',
                tourbillon.duration(CASE WHEN after IS NULL THEN 'every' ELSE 'after' END, coalesce(after, every)))
            ELSE jsonb_build_object('At', tourbillon.micros(at)) END,
        'every', tourbillon.duration('every', every), 'times', times, 'until', tourbillon.micros(until)))
        || CASE WHEN missed IS NULL OR missed = '"Once"' THEN '{}'::jsonb ELSE jsonb_build_object('missed', missed) END
        || CASE WHEN retry IS NULL OR usual_retry || retry = usual_retry THEN '{}'::jsonb
            ELSE jsonb_build_object('retry', usual_retry || retry) END;
END
$$;

-- `create_timer` as in format 1, but in a transaction that reads a snapshot a key that another transaction has given away since then is
-- serialization_failure: the look for the timer that has the key could not end.
CREATE OR REPLACE FUNCTION tourbillon.create_timer(
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
        RAISE EXCEPTION 'the timer would never be due: it ends before, or the time is after 9999-12-30T22:00:00Z'
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
            -- Another transaction was quicker: look again at the timer that has the key, unless this transaction never sees it.
            IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
                RAISE EXCEPTION 'another transaction has given the key "%" to a timer', create_timer.key
                    USING ERRCODE = 'serialization_failure', HINT = 'Repeat the transaction.';
            END IF;
        END;
    END LOOP;
    IF new_due < now_is + 2000000 THEN
        PERFORM pg_notify(@channel@, '');
    END IF;
    RETURN QUERY SELECT new_timer, 'created', to_timestamp(new_due / 1e6);
END
$$;

COMMENT ON FUNCTION tourbillon.create_timer IS
    'Arms a timer in the transaction of the caller. One of "at", "after" and "every" says when it is due. A pending timer with the same key
that was asked for differently is unique_violation, unless "on_conflict" says keep, replace, earlier or later. A payload has at most 1 MiB.';

COMMENT ON FUNCTION tourbillon.cancel IS
    'Cancels timers in the transaction of the caller, by "key", "name" or "timer". "cancelled" of them are never delivered once it has committed;
"in_flight" are being delivered; "gone" had ended before.';
