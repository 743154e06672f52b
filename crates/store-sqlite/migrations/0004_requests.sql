-- The tables of format 4. A program of an earlier format may go on: it answers no requests, and
-- leaves what was called for a task behind when it forgets the task.

-- Calls to others, claimed before they are made. The primary key serves as the index of what a task
-- or a request has called.
CREATE TABLE effect (
    tenant   TEXT NOT NULL,
    parent   TEXT NOT NULL,
    provider TEXT NOT NULL,
    name     TEXT NOT NULL,
    due_at   INTEGER,
    version  INTEGER NOT NULL,
    schema   INTEGER NOT NULL,
    body     TEXT NOT NULL,
    PRIMARY KEY (tenant, parent, provider, name)
) WITHOUT ROWID, STRICT;

CREATE INDEX effect_due_at ON effect (due_at, tenant, parent, provider, name)
WHERE due_at IS NOT NULL;

-- What was spent of limits per time.
CREATE TABLE limiter (
    tenant    TEXT NOT NULL,
    name      TEXT NOT NULL,
    contended INTEGER,
    due_at    INTEGER,
    version   INTEGER NOT NULL,
    schema    INTEGER NOT NULL,
    body      TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) WITHOUT ROWID, STRICT;

CREATE INDEX limiter_due_at ON limiter (due_at, tenant, name)
WHERE due_at IS NOT NULL;
