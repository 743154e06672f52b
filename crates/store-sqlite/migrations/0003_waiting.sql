-- The tables of format 3. A program of an earlier format may go on: it leaves tasks alone that are
-- in a state which it cannot read, and keeps what it does not know of the others.

-- The line in which a task stands apart from the queue of its lane, and whose child it is.
ALTER TABLE task ADD COLUMN line TEXT;
ALTER TABLE task ADD COLUMN since INTEGER;
ALTER TABLE task ADD COLUMN parent TEXT;
ALTER TABLE task ADD COLUMN open_parent TEXT;

CREATE INDEX task_line ON task (tenant, line, rank, since, id)
WHERE line IS NOT NULL;

CREATE INDEX task_open_parent ON task (tenant, open_parent, id)
WHERE open_parent IS NOT NULL;

-- Lists of the children of a task.
CREATE INDEX task_parent ON task (tenant, parent, id)
WHERE parent IS NOT NULL;

-- What has been posted to a task, counted.
CREATE TABLE mailbox (
    tenant    TEXT NOT NULL,
    task      TEXT NOT NULL,
    held      INTEGER,
    contended INTEGER,
    version   INTEGER NOT NULL,
    schema    INTEGER NOT NULL,
    body      TEXT NOT NULL,
    PRIMARY KEY (tenant, task)
) WITHOUT ROWID, STRICT;

-- Messages to tasks. The primary key serves as the index of a task's messages in their order.
CREATE TABLE message (
    tenant  TEXT NOT NULL,
    task    TEXT NOT NULL,
    seq     TEXT NOT NULL,
    name    TEXT,
    due_at  INTEGER,
    version INTEGER NOT NULL,
    schema  INTEGER NOT NULL,
    body    TEXT NOT NULL,
    PRIMARY KEY (tenant, task, seq)
) WITHOUT ROWID, STRICT;

CREATE INDEX message_due_at ON message (due_at, tenant, task, seq)
WHERE due_at IS NOT NULL;

-- Rights to post one message from outside. Their tokens are not here.
CREATE TABLE waitpoint (
    tenant     TEXT NOT NULL,
    id         TEXT NOT NULL,
    task       TEXT,
    state      TEXT,
    expires_at INTEGER,
    version    INTEGER NOT NULL,
    schema     INTEGER NOT NULL,
    body       TEXT NOT NULL,
    PRIMARY KEY (tenant, id)
) WITHOUT ROWID, STRICT;

CREATE INDEX waitpoint_task ON waitpoint (tenant, task, id)
WHERE task IS NOT NULL;

-- The keys that sign tokens. Whoever can read this table can make them.
CREATE TABLE keyring (
    tenant  TEXT NOT NULL,
    due_at  INTEGER,
    version INTEGER NOT NULL,
    schema  INTEGER NOT NULL,
    body    TEXT NOT NULL,
    PRIMARY KEY (tenant)
) WITHOUT ROWID, STRICT;

CREATE INDEX keyring_due_at ON keyring (due_at, tenant)
WHERE due_at IS NOT NULL;

-- The children of a task, counted.
CREATE TABLE children (
    tenant    TEXT NOT NULL,
    parent    TEXT NOT NULL,
    open      INTEGER,
    contended INTEGER,
    due_at    INTEGER,
    version   INTEGER NOT NULL,
    schema    INTEGER NOT NULL,
    body      TEXT NOT NULL,
    PRIMARY KEY (tenant, parent)
) WITHOUT ROWID, STRICT;

CREATE INDEX children_due_at ON children (due_at, tenant, parent)
WHERE due_at IS NOT NULL;

-- Limits of so many at once or per time, and who owns a session.
CREATE TABLE gate (
    tenant    TEXT NOT NULL,
    kind      TEXT NOT NULL,
    name      TEXT NOT NULL,
    waiting   INTEGER,
    running   INTEGER,
    owner     TEXT,
    contended INTEGER,
    due_at    INTEGER,
    version   INTEGER NOT NULL,
    schema    INTEGER NOT NULL,
    body      TEXT NOT NULL,
    PRIMARY KEY (tenant, kind, name)
) WITHOUT ROWID, STRICT;

CREATE INDEX gate_due_at ON gate (due_at, tenant, kind, name)
WHERE due_at IS NOT NULL;

CREATE INDEX gate_owner ON gate (tenant, owner, kind, name)
WHERE owner IS NOT NULL;

-- Registered workers.
CREATE TABLE worker (
    tenant  TEXT NOT NULL,
    id      TEXT NOT NULL,
    seen_at INTEGER,
    due_at  INTEGER,
    version INTEGER NOT NULL,
    schema  INTEGER NOT NULL,
    body    TEXT NOT NULL,
    PRIMARY KEY (tenant, id)
) WITHOUT ROWID, STRICT;

CREATE INDEX worker_due_at ON worker (due_at, tenant, id)
WHERE due_at IS NOT NULL;

-- How far named subscribers have come in the log.
CREATE TABLE bookmark (
    tenant  TEXT NOT NULL,
    name    TEXT NOT NULL,
    seq     INTEGER,
    version INTEGER NOT NULL,
    schema  INTEGER NOT NULL,
    body    TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) WITHOUT ROWID, STRICT;
