-- Format 6. Functions that have changed.

-- As in format 1, but a policy that no delivery can keep is refused.
CREATE OR REPLACE FUNCTION tourbillon.check_missed(missed jsonb) RETURNS void LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    lateness jsonb;
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
    lateness := coalesce(missed #> '{Skip,older_than}', missed -> 'DeadAfter');
    IF (lateness ->> 'secs')::bigint = 0 AND (lateness ->> 'nanos')::bigint = 0 THEN
        RAISE EXCEPTION 'every delivery is a little late: "Skip" and "DeadAfter" need a time longer than zero'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
END
$$;

-- As in format 5, but `replace`, `earlier` and `later` take a timer that is due once and has a delay for another request each time, and `replace`
-- arms a new timer after one that is being delivered. A timer that has the key is looked for before the times are checked.
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
    never_due boolean;
    is_same boolean;
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
    never_due := new_due > 253402207200000000 OR coalesce(new_due > tourbillon.micros(create_timer.until), false);
    LOOP
        SELECT * INTO holder FROM tourbillon.timers t
            WHERE t.namespace = create_timer.namespace AND t.key = create_timer.key AND t.is_head FOR UPDATE;
        IF FOUND THEN
            is_same := (holder.kind, holder.plan, holder.payload) = (create_timer.kind, new_plan, create_timer.payload)
                AND holder.name IS NOT DISTINCT FROM create_timer.name
                AND holder.content_type IS NOT DISTINCT FROM create_timer.content_type;
            IF create_timer.on_conflict = 'keep'
                OR is_same AND create_timer.on_conflict = 'refuse'
                OR is_same AND (never_due OR new_due = holder.due OR create_timer.every IS NOT NULL)
                    AND (never_due OR create_timer.on_conflict <> 'replace' OR holder.state <> 1)
                OR NOT never_due AND create_timer.on_conflict = 'earlier' AND new_due >= holder.due
                OR NOT never_due AND create_timer.on_conflict = 'later' AND new_due <= holder.due
            THEN
                RETURN QUERY SELECT holder.id, 'existing', to_timestamp(holder.due / 1e6);
                RETURN;
            END IF;
        END IF;
        IF never_due THEN
            RAISE EXCEPTION 'the timer would never be due: it ends before, or the time is after 9999-12-30T22:00:00Z'
                USING ERRCODE = 'invalid_parameter_value';
        END IF;
        IF holder.id IS NOT NULL THEN
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

-- As in format 1, but the timer that has the key is looked for again if the key has passed to another one meanwhile, and a key passes also to
-- an occurrence that waits for its next attempt.
CREATE OR REPLACE FUNCTION tourbillon.cancel(
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
        CONTINUE WHEN cancelled <> coalesce(cardinality(ids), 0);
        -- The key can have passed to another timer before the rows of the first were locked.
        EXIT WHEN cancel.key IS NULL OR of_timer IS NOT DISTINCT FROM (SELECT t.id FROM tourbillon.timers t
            WHERE t.namespace = cancel.namespace AND t.key = cancel.key AND t.is_head);
    END LOOP;
    PERFORM tourbillon.end_cancelled(ids, occurrences);
    -- The key passes to the latest occurrence that has not ended: one that was being delivered may wait for its next attempt by now. They are
    -- locked before one of them is chosen, so that it does not end meanwhile.
    PERFORM FROM tourbillon.timers c WHERE c.id = ANY (heads) AND c.state < 2 ORDER BY c.id, c.occurrence FOR UPDATE;
    UPDATE tourbillon.timers t SET is_head = true FROM (
            SELECT c.id, max(c.occurrence) AS occurrence FROM tourbillon.timers c
            WHERE c.id = ANY (heads) AND c.state < 2 GROUP BY c.id) heir
        WHERE t.id = heir.id AND t.occurrence = heir.occurrence;
    IF cancel.name IS NULL AND cancelled + in_flight + gone = 0 THEN
        gone := 1;
    END IF;
    RETURN NEXT;
END
$$;
