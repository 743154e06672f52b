-- The tables of format 4. A program of an earlier format may go on: it answers no requests, and
-- leaves what was called for a task behind when it forgets the task.

-- Calls to others, claimed before they are made. The primary key serves as the index of what a task
-- or a request has called.
CREATE TABLE effect (
    tenant   text COLLATE "C" NOT NULL,
    parent   text COLLATE "C" NOT NULL,
    provider text COLLATE "C" NOT NULL,
    name     text COLLATE "C" NOT NULL,
    due_at   bigint,
    version  bigint NOT NULL,
    schema   smallint NOT NULL,
    body     text NOT NULL,
    PRIMARY KEY (tenant, parent, provider, name)
);

CREATE INDEX effect_due_at ON effect (due_at, tenant, parent, provider, name)
WHERE due_at IS NOT NULL;

-- What was spent of limits per time.
CREATE TABLE limiter (
    tenant    text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    contended bigint,
    due_at    bigint,
    version   bigint NOT NULL,
    schema    smallint NOT NULL,
    body      text NOT NULL,
    PRIMARY KEY (tenant, name)
) WITH (fillfactor = 50);

CREATE INDEX limiter_due_at ON limiter (due_at, tenant, name)
WHERE due_at IS NOT NULL;
