-- The tables of format 1. Times are microseconds since 1970 in UTC.
--
-- Every record has its key, some columns for indexes and for people, a version that rises with
-- each write, and its body as JSON. The columns follow from the body: changing one by hand
-- changes no record. An index holds only the rows in which the column that it is named after is
-- set.

-- One row: what this database is. A program older than `lowest` must not open it; `incarnation`
-- marks this log apart from any other; `clock` is the time of the last commit, `last_seq` the last
-- number that the log has given.
CREATE TABLE meta (
    id          INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    format      INTEGER NOT NULL,
    lowest      INTEGER NOT NULL,
    incarnation TEXT    NOT NULL,
    clock       INTEGER NOT NULL,
    last_seq    INTEGER NOT NULL
) STRICT;

-- The programs that have this file open, with the number of the last batch each committed: how a
-- program learns after an I/O error whether its commit took effect.
CREATE TABLE writer (
    id       TEXT    NOT NULL PRIMARY KEY,
    batch    INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    reopened INTEGER NOT NULL
) WITHOUT ROWID, STRICT;

-- Units of work.
CREATE TABLE task (
    tenant     TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    kind       TEXT,
    lane       TEXT,
    route      TEXT,
    state      TEXT,
    rank       INTEGER,
    ready_at   INTEGER,
    due_at     INTEGER,
    created_at INTEGER,
    ended_at   INTEGER,
    version    INTEGER NOT NULL,
    schema     INTEGER NOT NULL,
    body       TEXT    NOT NULL,
    PRIMARY KEY (tenant, id)
) WITHOUT ROWID, STRICT;

-- What a claim may take, in the order in which it is taken.
CREATE INDEX task_ready_at ON task (tenant, lane, route, rank, ready_at, id)
WHERE ready_at IS NOT NULL;

-- What needs the engine, and when.
CREATE INDEX task_due_at ON task (due_at, tenant, id)
WHERE due_at IS NOT NULL;

-- Lists by state, and how many there are of each.
CREATE INDEX task_state ON task (tenant, state, id);

-- Named queues, with their state and limit.
CREATE TABLE lane (
    tenant    TEXT    NOT NULL,
    name      TEXT    NOT NULL,
    state     TEXT,
    contended INTEGER,
    version   INTEGER NOT NULL,
    schema    INTEGER NOT NULL,
    body      TEXT    NOT NULL,
    PRIMARY KEY (tenant, name)
) WITHOUT ROWID, STRICT;

-- Which routes of a lane may have tasks ready. The primary key serves as the index by lane.
CREATE TABLE queue (
    tenant  TEXT    NOT NULL,
    lane    TEXT    NOT NULL,
    route   TEXT    NOT NULL,
    closing INTEGER,
    due_at  INTEGER,
    version INTEGER NOT NULL,
    schema  INTEGER NOT NULL,
    body    TEXT    NOT NULL,
    PRIMARY KEY (tenant, lane, route)
) WITHOUT ROWID, STRICT;

CREATE INDEX queue_due_at ON queue (due_at, tenant, lane, route)
WHERE due_at IS NOT NULL;

-- Request keys that were accepted.
CREATE TABLE admission (
    tenant  TEXT    NOT NULL,
    scope   TEXT    NOT NULL,
    key     TEXT    NOT NULL,
    due_at  INTEGER,
    version INTEGER NOT NULL,
    schema  INTEGER NOT NULL,
    body    TEXT    NOT NULL,
    PRIMARY KEY (tenant, scope, key)
) WITHOUT ROWID, STRICT;

CREATE INDEX admission_due_at ON admission (due_at, tenant, scope, key)
WHERE due_at IS NOT NULL;

-- What the event log has forgotten: every number up to `floor`.
CREATE TABLE log (
    name    TEXT    NOT NULL PRIMARY KEY,
    floor   INTEGER,
    version INTEGER NOT NULL,
    schema  INTEGER NOT NULL,
    body    TEXT    NOT NULL
) WITHOUT ROWID, STRICT;

-- Inputs and results of tasks, apart from them so that moving a task never rewrites them.
CREATE TABLE payload (
    tenant       TEXT    NOT NULL,
    task         TEXT    NOT NULL,
    generation   INTEGER NOT NULL,
    slot         TEXT    NOT NULL,
    content_type TEXT    NOT NULL,
    bytes        BLOB    NOT NULL,
    PRIMARY KEY (tenant, task, generation, slot)
) WITHOUT ROWID, STRICT;

-- The event log, in the order of the commits. A number is never given twice.
CREATE TABLE event (
    seq    INTEGER NOT NULL PRIMARY KEY,
    at     INTEGER NOT NULL,
    tenant TEXT    NOT NULL,
    lane   TEXT    NOT NULL,
    task   TEXT,
    kind   TEXT,
    family TEXT    NOT NULL,
    name   TEXT    NOT NULL,
    body   TEXT    NOT NULL
) STRICT;
