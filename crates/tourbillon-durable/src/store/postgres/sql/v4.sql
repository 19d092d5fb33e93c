-- Format 4. The API keys of the service, for all its nodes. Of a secret only the hash is stored.
CREATE TABLE tourbillon.api_keys (
    id text COLLATE "C" PRIMARY KEY,
    name text NOT NULL,
    -- The namespaces that the key allows; all if there is no list.
    namespaces text[],
    is_read_only boolean NOT NULL,
    hash text NOT NULL,
    created timestamptz NOT NULL DEFAULT clock_timestamp()
);
