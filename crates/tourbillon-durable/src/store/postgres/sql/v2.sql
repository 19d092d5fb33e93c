-- Format 2. How many deliveries of an occurrence were given back untried.
ALTER TABLE tourbillon.timers ADD COLUMN returned bigint NOT NULL DEFAULT 0;

-- A store can be paused. The table has one row.
CREATE TABLE tourbillon.settings (
    is_paused boolean NOT NULL
);

INSERT INTO tourbillon.settings (is_paused) VALUES (false);
