-- Format 2. How many deliveries of an occurrence were given back untried.
ALTER TABLE tourbillon.timers ADD COLUMN returned bigint NOT NULL DEFAULT 0;

-- A store can be paused. The table has one row.
CREATE TABLE tourbillon.settings (
    is_paused boolean NOT NULL
);

INSERT INTO tourbillon.settings (is_paused) VALUES (false);

-- Returns the rows of a kind behind a place in the index of times, up to the time `upto`; and if there are fewer than `most`, the first one after
-- that time. Rows of other shards are left out. One statement, because owners of shards look a few times a second.
-- The settings are part of the function: a plan that was made while the table was empty would read it from one end to the other.
CREATE FUNCTION tourbillon.due_rows(
    kind text, after_wake bigint, after_id uuid, after_occurrence bigint, upto bigint, most bigint, shards smallint[]
) RETURNS TABLE (wake bigint, id uuid, occurrence bigint, version bigint, shard smallint)
LANGUAGE plpgsql STABLE ROWS 100 SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    listed bigint;
BEGIN
    RETURN QUERY SELECT t.wake, t.id, t.occurrence, t.version, t.shard FROM tourbillon.timers t
        WHERE t.kind = due_rows.kind AND t.state < 2 AND (t.wake, t.id, t.occurrence) > (after_wake, after_id, after_occurrence)
            AND t.wake <= upto AND (shards IS NULL OR t.shard = ANY (shards))
        ORDER BY t.wake, t.id, t.occurrence LIMIT most;
    GET DIAGNOSTICS listed = ROW_COUNT;
    IF listed < most THEN
        -- Of a node that owns a part of the shards only the next rows are looked at, so that it does not walk the rows of all others.
        RETURN QUERY SELECT n.wake, n.id, n.occurrence, n.version, n.shard FROM (
                SELECT t.wake, t.id, t.occurrence, t.version, t.shard FROM tourbillon.timers t
                WHERE t.kind = due_rows.kind AND t.state < 2 AND t.wake > upto
                ORDER BY t.wake LIMIT CASE WHEN shards IS NULL THEN 1 ELSE 256 END
            ) AS n WHERE shards IS NULL OR n.shard = ANY (shards) ORDER BY n.wake LIMIT 1;
    END IF;
END
$$;
