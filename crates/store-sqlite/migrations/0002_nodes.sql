-- The tables of format 2. A program of format 1 may go on: it knows nothing of what is added here.

-- The engines that run on this store, where several can. On a file there are none.
CREATE TABLE node (
    id      TEXT    NOT NULL PRIMARY KEY,
    name    TEXT,
    seen_at INTEGER,
    due_at  INTEGER,
    version INTEGER NOT NULL,
    schema  INTEGER NOT NULL,
    body    TEXT    NOT NULL
) WITHOUT ROWID, STRICT;

CREATE INDEX node_due_at ON node (due_at, id)
WHERE due_at IS NOT NULL;
