-- The tables of format 2. A program of format 1 may go on: it knows nothing of what is added here.

-- The engines that run on this store. Each is written every few seconds, so that there is room for
-- that beside the rows.
CREATE TABLE node (
    id      text COLLATE "C" NOT NULL PRIMARY KEY,
    name    text COLLATE "C",
    seen_at bigint,
    due_at  bigint,
    version bigint   NOT NULL,
    schema  smallint NOT NULL,
    body    text     NOT NULL
) WITH (fillfactor = 50);

CREATE INDEX node_due_at ON node (due_at, id)
WHERE due_at IS NOT NULL;
