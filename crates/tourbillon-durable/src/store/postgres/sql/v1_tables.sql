-- The tables of format 1. The program writes the name of the schema in the place of `tourbillon` where a point follows it.
-- Times are whole microseconds since 1970.

-- The formats that the schema has had.
CREATE TABLE tourbillon.formats (
    version integer PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Occurrences of timers that are armed (0), claimed (1) or dead (2).
CREATE TABLE tourbillon.timers (
    id uuid NOT NULL,
    occurrence bigint NOT NULL,
    due bigint NOT NULL,
    wake bigint NOT NULL,
    version bigint NOT NULL,
    epoch bigint NOT NULL,
    claim bigint NOT NULL,
    attempt bigint NOT NULL,
    remaining bigint,
    stands_for bigint NOT NULL,
    created bigint NOT NULL,
    replayed_at bigint,
    shard smallint NOT NULL,
    state smallint NOT NULL,
    is_head boolean NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    key text COLLATE "C",
    name text COLLATE "C",
    content_type text COLLATE "C",
    -- When the timer is due, and what happens to missed fires and failures. What is as usual is left out.
    plan jsonb NOT NULL,
    payload bytea NOT NULL,
    last_error text COLLATE "C",
    PRIMARY KEY (id, occurrence)
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);

CREATE UNIQUE INDEX timers_key ON tourbillon.timers (namespace, key) WHERE is_head AND key IS NOT NULL;
CREATE INDEX timers_former_key ON tourbillon.timers (namespace, key) WHERE NOT is_head AND key IS NOT NULL;
CREATE INDEX timers_name ON tourbillon.timers (namespace, name) WHERE name IS NOT NULL;
CREATE INDEX timers_wake ON tourbillon.timers (kind, wake, id) WHERE state < 2;
CREATE INDEX timers_claimed ON tourbillon.timers (kind, shard, epoch) WHERE state = 1;
CREATE INDEX timers_dead ON tourbillon.timers (id, occurrence) WHERE state = 2;

-- The owners of the shards. A shard whose node is not in `nodes`, or no longer alive, can be taken over.
CREATE TABLE tourbillon.shards (
    shard smallint PRIMARY KEY,
    epoch bigint NOT NULL,
    node uuid
) WITH (fillfactor = 50);

INSERT INTO tourbillon.shards SELECT shard, 0, NULL FROM generate_series(0, 255) AS shard;

CREATE TABLE tourbillon.nodes (
    node uuid PRIMARY KEY,
    alive_until bigint NOT NULL
) WITH (fillfactor = 50);

-- Occurrences that have ended: fired (0), cancelled (1), dead (2) or skipped (3). One partition a day.
CREATE TABLE tourbillon.history (
    id uuid NOT NULL,
    occurrence bigint NOT NULL,
    at bigint NOT NULL,
    due bigint NOT NULL,
    attempts bigint NOT NULL,
    ended_as smallint NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    key text COLLATE "C",
    name text COLLATE "C",
    error text COLLATE "C"
) PARTITION BY RANGE (at);

CREATE INDEX history_id ON tourbillon.history (id);

-- For days that have no partition yet, because no process was there to make one.
CREATE TABLE tourbillon.history_rest PARTITION OF tourbillon.history DEFAULT;
