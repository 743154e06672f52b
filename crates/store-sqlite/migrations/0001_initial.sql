-- The tables of format 1. Times are microseconds since 1970 in UTC.
--
-- A record has its key, columns for indexes and for people, a version that rises with each write,
-- and its body as JSON. The columns are derived from the body: changing one by hand changes no
-- record. An index other than `task_state` contains only the rows in which the column that it is named
-- after is not null.

-- One row that describes this database. A program that supports no format from `lowest_compatible`
-- on must not open it. `incarnation` identifies its log, `clock` is the time of the last commit,
-- and `last_seq` the last sequence number of the log.
CREATE TABLE meta (
    id                INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    format            INTEGER NOT NULL,
    lowest_compatible INTEGER NOT NULL,
    incarnation       TEXT    NOT NULL,
    clock             INTEGER NOT NULL,
    last_seq          INTEGER NOT NULL
) STRICT;

-- The programs that have this file open, with the number of the last batch that each committed.
-- After an I/O error a program finds out from it whether its commit took effect.
CREATE TABLE writer (
    id       TEXT    NOT NULL PRIMARY KEY,
    batch    INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    reopened INTEGER NOT NULL
) WITHOUT ROWID, STRICT;

-- Units of work. `list` names a list of tasks outside the ready queue: those that a concurrency
-- limit blocks or has admitted, or that a registered worker holds. `listed_at` orders it.
-- `open_parent` is the parent of an open task without a cancellation request.
CREATE TABLE task (
    tenant      TEXT    NOT NULL,
    id          TEXT    NOT NULL,
    kind        TEXT,
    lane        TEXT,
    route       TEXT,
    state       TEXT,
    rank        INTEGER,
    ready_at    INTEGER,
    due_at      INTEGER,
    created_at  INTEGER,
    ended_at    INTEGER,
    list        TEXT,
    listed_at   INTEGER,
    parent      TEXT,
    open_parent TEXT,
    version     INTEGER NOT NULL,
    schema      INTEGER NOT NULL,
    body        TEXT    NOT NULL,
    PRIMARY KEY (tenant, id)
) WITHOUT ROWID, STRICT;

-- Ready tasks, in the order in which claims lease them.
CREATE INDEX task_ready_at ON task (tenant, lane, route, rank, ready_at, id)
WHERE ready_at IS NOT NULL;

-- Tasks that the sweep must check, by time.
CREATE INDEX task_due_at ON task (due_at, tenant, id)
WHERE due_at IS NOT NULL;

CREATE INDEX task_list ON task (tenant, list, rank, listed_at, id)
WHERE list IS NOT NULL;

CREATE INDEX task_open_parent ON task (tenant, open_parent, id)
WHERE open_parent IS NOT NULL;

-- For lists and counts by state.
CREATE INDEX task_state ON task (tenant, state, id);

-- For lists of the children of a task.
CREATE INDEX task_parent ON task (tenant, parent, id)
WHERE parent IS NOT NULL;

-- Named queues of tasks, with their state and limit.
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

-- Routes of a lane that may have ready tasks. The primary key serves as the index by lane.
CREATE TABLE ready_route (
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

CREATE INDEX ready_route_due_at ON ready_route (due_at, tenant, lane, route)
WHERE due_at IS NOT NULL;

-- Accepted idempotency keys.
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

-- Retention of the event log: all sequence numbers up to `floor` are deleted.
CREATE TABLE log (
    name    TEXT    NOT NULL PRIMARY KEY,
    floor   INTEGER,
    version INTEGER NOT NULL,
    schema  INTEGER NOT NULL,
    body    TEXT    NOT NULL
) WITHOUT ROWID, STRICT;

-- Engines that share this store. An engine on a file registers no node.
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

-- Counters of the messages of a task.
CREATE TABLE mailbox (
    tenant    TEXT    NOT NULL,
    task      TEXT    NOT NULL,
    messages  INTEGER,
    contended INTEGER,
    version   INTEGER NOT NULL,
    schema    INTEGER NOT NULL,
    body      TEXT    NOT NULL,
    PRIMARY KEY (tenant, task)
) WITHOUT ROWID, STRICT;

-- Messages to tasks. The primary key serves as the index of a task's messages in their order.
CREATE TABLE message (
    tenant  TEXT    NOT NULL,
    task    TEXT    NOT NULL,
    seq     TEXT    NOT NULL,
    name    TEXT,
    due_at  INTEGER,
    version INTEGER NOT NULL,
    schema  INTEGER NOT NULL,
    body    TEXT    NOT NULL,
    PRIMARY KEY (tenant, task, seq)
) WITHOUT ROWID, STRICT;

CREATE INDEX message_due_at ON message (due_at, tenant, task, seq)
WHERE due_at IS NOT NULL;

-- Rights to send one message from outside. Their tokens are not stored.
CREATE TABLE waitpoint (
    tenant     TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    task       TEXT,
    state      TEXT,
    expires_at INTEGER,
    version    INTEGER NOT NULL,
    schema     INTEGER NOT NULL,
    body       TEXT    NOT NULL,
    PRIMARY KEY (tenant, id)
) WITHOUT ROWID, STRICT;

CREATE INDEX waitpoint_task ON waitpoint (tenant, task, id)
WHERE task IS NOT NULL;

-- The keys that sign tokens. A role that can read this table can sign tokens.
CREATE TABLE keyring (
    tenant  TEXT    NOT NULL,
    due_at  INTEGER,
    version INTEGER NOT NULL,
    schema  INTEGER NOT NULL,
    body    TEXT    NOT NULL,
    PRIMARY KEY (tenant)
) WITHOUT ROWID, STRICT;

CREATE INDEX keyring_due_at ON keyring (due_at, tenant)
WHERE due_at IS NOT NULL;

-- Counters of the children of a task.
CREATE TABLE children (
    tenant    TEXT    NOT NULL,
    parent    TEXT    NOT NULL,
    open      INTEGER,
    contended INTEGER,
    due_at    INTEGER,
    version   INTEGER NOT NULL,
    schema    INTEGER NOT NULL,
    body      TEXT    NOT NULL,
    PRIMARY KEY (tenant, parent)
) WITHOUT ROWID, STRICT;

CREATE INDEX children_due_at ON children (due_at, tenant, parent)
WHERE due_at IS NOT NULL;

-- Concurrency limits and rate limits with their counters, and the owners of sessions.
CREATE TABLE concurrency_limit (
    tenant    TEXT    NOT NULL,
    kind      TEXT    NOT NULL,
    name      TEXT    NOT NULL,
    blocked   INTEGER,
    running   INTEGER,
    owner     TEXT,
    contended INTEGER,
    due_at    INTEGER,
    version   INTEGER NOT NULL,
    schema    INTEGER NOT NULL,
    body      TEXT    NOT NULL,
    PRIMARY KEY (tenant, kind, name)
) WITHOUT ROWID, STRICT;

CREATE INDEX concurrency_limit_due_at ON concurrency_limit (due_at, tenant, kind, name)
WHERE due_at IS NOT NULL;

CREATE INDEX concurrency_limit_owner ON concurrency_limit (tenant, owner, kind, name)
WHERE owner IS NOT NULL;

-- Registered workers.
CREATE TABLE worker (
    tenant  TEXT    NOT NULL,
    id      TEXT    NOT NULL,
    seen_at INTEGER,
    due_at  INTEGER,
    version INTEGER NOT NULL,
    schema  INTEGER NOT NULL,
    body    TEXT    NOT NULL,
    PRIMARY KEY (tenant, id)
) WITHOUT ROWID, STRICT;

CREATE INDEX worker_due_at ON worker (due_at, tenant, id)
WHERE due_at IS NOT NULL;

-- Cursors of durable subscriptions.
CREATE TABLE subscription_cursor (
    tenant  TEXT    NOT NULL,
    name    TEXT    NOT NULL,
    seq     INTEGER,
    version INTEGER NOT NULL,
    schema  INTEGER NOT NULL,
    body    TEXT    NOT NULL,
    PRIMARY KEY (tenant, name)
) WITHOUT ROWID, STRICT;

-- External calls, claimed before they are made. The primary key serves as the index of the calls of
-- a task or a request.
CREATE TABLE effect (
    tenant   TEXT    NOT NULL,
    owner    TEXT    NOT NULL,
    provider TEXT    NOT NULL,
    name     TEXT    NOT NULL,
    due_at   INTEGER,
    version  INTEGER NOT NULL,
    schema   INTEGER NOT NULL,
    body     TEXT    NOT NULL,
    PRIMARY KEY (tenant, owner, provider, name)
) WITHOUT ROWID, STRICT;

CREATE INDEX effect_due_at ON effect (due_at, tenant, owner, provider, name)
WHERE due_at IS NOT NULL;

-- Spent units of rate limiters.
CREATE TABLE limiter (
    tenant    TEXT    NOT NULL,
    name      TEXT    NOT NULL,
    contended INTEGER,
    due_at    INTEGER,
    version   INTEGER NOT NULL,
    schema    INTEGER NOT NULL,
    body      TEXT    NOT NULL,
    PRIMARY KEY (tenant, name)
) WITHOUT ROWID, STRICT;

CREATE INDEX limiter_due_at ON limiter (due_at, tenant, name)
WHERE due_at IS NOT NULL;

-- Past executions of workflows that continued as new. The primary key serves as the index of the
-- executions of one workflow.
CREATE TABLE execution (
    tenant  TEXT    NOT NULL,
    task    TEXT    NOT NULL,
    number  TEXT    NOT NULL,
    due_at  INTEGER,
    version INTEGER NOT NULL,
    schema  INTEGER NOT NULL,
    body    TEXT    NOT NULL,
    PRIMARY KEY (tenant, task, number)
) WITHOUT ROWID, STRICT;

CREATE INDEX execution_due_at ON execution (due_at, tenant, task, number)
WHERE due_at IS NOT NULL;

-- Published statuses and values of workflows.
CREATE TABLE workflow_property (
    tenant  TEXT    NOT NULL,
    task    TEXT    NOT NULL,
    name    TEXT    NOT NULL,
    version INTEGER NOT NULL,
    schema  INTEGER NOT NULL,
    body    TEXT    NOT NULL,
    PRIMARY KEY (tenant, task, name)
) WITHOUT ROWID, STRICT;

-- Inputs, results, messages and histories, apart from their records so that a change of a record
-- does not rewrite them.
CREATE TABLE payload (
    tenant       TEXT    NOT NULL,
    task         TEXT    NOT NULL,
    execution    INTEGER NOT NULL,
    slot         TEXT    NOT NULL,
    content_type TEXT    NOT NULL,
    bytes        BLOB    NOT NULL,
    PRIMARY KEY (tenant, task, execution, slot)
) WITHOUT ROWID, STRICT;

-- The event log, in commit order. A sequence number is never reused.
CREATE TABLE event (
    seq      INTEGER NOT NULL PRIMARY KEY,
    at       INTEGER NOT NULL,
    tenant   TEXT    NOT NULL,
    lane     TEXT    NOT NULL,
    task     TEXT,
    kind     TEXT,
    category TEXT    NOT NULL,
    name     TEXT    NOT NULL,
    body     TEXT    NOT NULL
) STRICT;
