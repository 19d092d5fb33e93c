-- Format 3. The kinds that a node has handlers for; NULL for a node of an older program, which does not say.
ALTER TABLE tourbillon.nodes ADD COLUMN kinds text[] COLLATE "C";
