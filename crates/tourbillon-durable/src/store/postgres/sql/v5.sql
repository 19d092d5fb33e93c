-- Format 5. `create_timer` as in format 1, but in a transaction that reads a snapshot a key that another transaction has given away since then is
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
