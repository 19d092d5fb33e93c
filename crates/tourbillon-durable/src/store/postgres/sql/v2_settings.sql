-- Format 2: a store can be paused. The table has one row.
CREATE TABLE tourbillon.settings (
    is_paused boolean NOT NULL
);

INSERT INTO tourbillon.settings (is_paused) VALUES (false);
