-- The tables of format 1. Times are microseconds since 1970 in UTC.
--
-- A record has its key, columns for indexes and for people, a version that rises with each write,
-- and its body as JSON. The columns are derived from the body: changing one by hand changes no
-- record. An index other than `task_state` contains only the rows in which the column that it is named
-- after is not null.
-- Text is compared by its bytes.

-- One row that describes this database. A program that supports no format from `lowest_compatible`
-- on must not open it. `incarnation` identifies its log.
CREATE TABLE meta (
    id                integer NOT NULL PRIMARY KEY CHECK (id = 1),
    format            bigint  NOT NULL,
    lowest_compatible bigint  NOT NULL,
    incarnation       text    NOT NULL
);

-- The time of the last commit. It is a sequence, because every commit writes it, and a sequence
-- leaves no dead rows.
CREATE SEQUENCE clock AS bigint MINVALUE 0 START WITH 0;

-- The number of the last commit that deleted a record. A batch that inserts a key that it found
-- absent checks that the key was not inserted and deleted again since the batch began.
CREATE SEQUENCE last_deletion AS bigint MINVALUE 0 START WITH 0;

-- The last sequence number that was trimmed from the log, so that an empty log reuses none.
CREATE SEQUENCE log_trimmed_through AS bigint MINVALUE 0 START WITH 0;

-- The key hashes of recent deletions, each with the number of the deletion before it. Only
-- transactions in flight read it, and a crash leaves none, so the table is unlogged.
CREATE UNLOGGED TABLE recent_deletion (
    number     bigint   NOT NULL PRIMARY KEY,
    previous   bigint   NOT NULL,
    key_hashes bigint[] NOT NULL
);

-- Units of work. `list` names a list of tasks outside the ready queue: those that a concurrency
-- limit blocks or has admitted, or that a registered worker holds. `listed_at` orders it.
-- `open_parent` is the parent of an open task without a cancellation request.
CREATE TABLE task (
    tenant      text COLLATE "C" NOT NULL,
    id          text COLLATE "C" NOT NULL,
    kind        text COLLATE "C",
    lane        text COLLATE "C",
    route       text COLLATE "C",
    state       text COLLATE "C",
    rank        bigint,
    ready_at    bigint,
    due_at      bigint,
    created_at  bigint,
    ended_at    bigint,
    list        text COLLATE "C",
    listed_at   bigint,
    parent      text COLLATE "C",
    open_parent text COLLATE "C",
    version     bigint   NOT NULL,
    schema      smallint NOT NULL,
    body        text     NOT NULL,
    PRIMARY KEY (tenant, id)
) WITH (fillfactor = 80);

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

-- For lists and counts by state. The condition always holds. It keeps the planner from using this
-- index for a lookup by key: on an empty table a total index looks as good as the primary key, and
-- the plan is cached.
CREATE INDEX task_state ON task (tenant, state, id)
WHERE state IS NOT NULL;

-- For lists of the children of a task.
CREATE INDEX task_parent ON task (tenant, parent, id)
WHERE parent IS NOT NULL;

-- Named queues of tasks, with their state and limit.
CREATE TABLE lane (
    tenant    text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    state     text COLLATE "C",
    contended bigint,
    version   bigint   NOT NULL,
    schema    smallint NOT NULL,
    body      text     NOT NULL,
    PRIMARY KEY (tenant, name)
) WITH (fillfactor = 50);

-- Routes of a lane that may have ready tasks. The primary key serves as the index by lane.
CREATE TABLE ready_route (
    tenant  text COLLATE "C" NOT NULL,
    lane    text COLLATE "C" NOT NULL,
    route   text COLLATE "C" NOT NULL,
    closing bigint,
    due_at  bigint,
    version bigint   NOT NULL,
    schema  smallint NOT NULL,
    body    text     NOT NULL,
    PRIMARY KEY (tenant, lane, route)
);

CREATE INDEX ready_route_due_at ON ready_route (due_at, tenant, lane, route)
WHERE due_at IS NOT NULL;

-- Accepted idempotency keys.
CREATE TABLE admission (
    tenant  text COLLATE "C" NOT NULL,
    scope   text COLLATE "C" NOT NULL,
    key     text COLLATE "C" NOT NULL,
    due_at  bigint,
    version bigint   NOT NULL,
    schema  smallint NOT NULL,
    body    text     NOT NULL,
    PRIMARY KEY (tenant, scope, key)
);

CREATE INDEX admission_due_at ON admission (due_at, tenant, scope, key)
WHERE due_at IS NOT NULL;

-- Retention of the event log: all sequence numbers up to `floor` are deleted.
CREATE TABLE log (
    name    text COLLATE "C" NOT NULL PRIMARY KEY,
    floor   bigint,
    version bigint   NOT NULL,
    schema  smallint NOT NULL,
    body    text     NOT NULL
);

-- Engines that share this store. Each writes its row every few seconds, so the pages have free
-- space for new row versions.
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

-- Counters of the messages of a task.
CREATE TABLE mailbox (
    tenant    text COLLATE "C" NOT NULL,
    task      text COLLATE "C" NOT NULL,
    messages  bigint,
    contended bigint,
    version   bigint   NOT NULL,
    schema    smallint NOT NULL,
    body      text     NOT NULL,
    PRIMARY KEY (tenant, task)
) WITH (fillfactor = 50);

-- Messages to tasks. The primary key serves as the index of a task's messages in their order.
CREATE TABLE message (
    tenant  text COLLATE "C" NOT NULL,
    task    text COLLATE "C" NOT NULL,
    seq     text COLLATE "C" NOT NULL,
    name    text COLLATE "C",
    due_at  bigint,
    version bigint   NOT NULL,
    schema  smallint NOT NULL,
    body    text     NOT NULL,
    PRIMARY KEY (tenant, task, seq)
);

CREATE INDEX message_due_at ON message (due_at, tenant, task, seq)
WHERE due_at IS NOT NULL;

-- Rights to send one message from outside. Their tokens are not stored.
CREATE TABLE waitpoint (
    tenant     text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    task       text COLLATE "C",
    state      text COLLATE "C",
    expires_at bigint,
    version    bigint   NOT NULL,
    schema     smallint NOT NULL,
    body       text     NOT NULL,
    PRIMARY KEY (tenant, id)
);

CREATE INDEX waitpoint_task ON waitpoint (tenant, task, id)
WHERE task IS NOT NULL;

-- The keys that sign tokens. A role that can read this table can sign tokens.
CREATE TABLE keyring (
    tenant  text COLLATE "C" NOT NULL,
    due_at  bigint,
    version bigint   NOT NULL,
    schema  smallint NOT NULL,
    body    text     NOT NULL,
    PRIMARY KEY (tenant)
);

CREATE INDEX keyring_due_at ON keyring (due_at, tenant)
WHERE due_at IS NOT NULL;

-- Counters of the children of a task.
CREATE TABLE children (
    tenant    text COLLATE "C" NOT NULL,
    parent    text COLLATE "C" NOT NULL,
    open      bigint,
    contended bigint,
    due_at    bigint,
    version   bigint   NOT NULL,
    schema    smallint NOT NULL,
    body      text     NOT NULL,
    PRIMARY KEY (tenant, parent)
) WITH (fillfactor = 50);

CREATE INDEX children_due_at ON children (due_at, tenant, parent)
WHERE due_at IS NOT NULL;

-- Concurrency limits and rate limits with their counters, and the owners of sessions.
CREATE TABLE concurrency_limit (
    tenant    text COLLATE "C" NOT NULL,
    kind      text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    blocked   bigint,
    running   bigint,
    owner     text COLLATE "C",
    contended bigint,
    due_at    bigint,
    version   bigint   NOT NULL,
    schema    smallint NOT NULL,
    body      text     NOT NULL,
    PRIMARY KEY (tenant, kind, name)
) WITH (fillfactor = 50);

CREATE INDEX concurrency_limit_due_at ON concurrency_limit (due_at, tenant, kind, name)
WHERE due_at IS NOT NULL;

CREATE INDEX concurrency_limit_owner ON concurrency_limit (tenant, owner, kind, name)
WHERE owner IS NOT NULL;

-- Registered workers.
CREATE TABLE worker (
    tenant  text COLLATE "C" NOT NULL,
    id      text COLLATE "C" NOT NULL,
    seen_at bigint,
    due_at  bigint,
    version bigint   NOT NULL,
    schema  smallint NOT NULL,
    body    text     NOT NULL,
    PRIMARY KEY (tenant, id)
) WITH (fillfactor = 50);

CREATE INDEX worker_due_at ON worker (due_at, tenant, id)
WHERE due_at IS NOT NULL;

-- Cursors of durable subscriptions.
CREATE TABLE subscription_cursor (
    tenant  text COLLATE "C" NOT NULL,
    name    text COLLATE "C" NOT NULL,
    seq     bigint,
    version bigint   NOT NULL,
    schema  smallint NOT NULL,
    body    text     NOT NULL,
    PRIMARY KEY (tenant, name)
) WITH (fillfactor = 50);

-- External calls, claimed before they are made. The primary key serves as the index of the calls of
-- a task or a request.
CREATE TABLE effect (
    tenant   text COLLATE "C" NOT NULL,
    owner    text COLLATE "C" NOT NULL,
    provider text COLLATE "C" NOT NULL,
    name     text COLLATE "C" NOT NULL,
    due_at   bigint,
    version  bigint   NOT NULL,
    schema   smallint NOT NULL,
    body     text     NOT NULL,
    PRIMARY KEY (tenant, owner, provider, name)
);

CREATE INDEX effect_due_at ON effect (due_at, tenant, owner, provider, name)
WHERE due_at IS NOT NULL;

-- Spent units of rate limiters.
CREATE TABLE limiter (
    tenant    text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    contended bigint,
    due_at    bigint,
    version   bigint   NOT NULL,
    schema    smallint NOT NULL,
    body      text     NOT NULL,
    PRIMARY KEY (tenant, name)
) WITH (fillfactor = 50);

CREATE INDEX limiter_due_at ON limiter (due_at, tenant, name)
WHERE due_at IS NOT NULL;

-- Past executions of workflows that continued as new. The primary key serves as the index of the
-- executions of one workflow.
CREATE TABLE execution (
    tenant  text COLLATE "C" NOT NULL,
    task    text COLLATE "C" NOT NULL,
    number  text COLLATE "C" NOT NULL,
    due_at  bigint,
    version bigint   NOT NULL,
    schema  smallint NOT NULL,
    body    text     NOT NULL,
    PRIMARY KEY (tenant, task, number)
);

CREATE INDEX execution_due_at ON execution (due_at, tenant, task, number)
WHERE due_at IS NOT NULL;

-- Published statuses and values of workflows.
CREATE TABLE workflow_property (
    tenant  text COLLATE "C" NOT NULL,
    task    text COLLATE "C" NOT NULL,
    name    text COLLATE "C" NOT NULL,
    version bigint   NOT NULL,
    schema  smallint NOT NULL,
    body    text     NOT NULL,
    PRIMARY KEY (tenant, task, name)
);

-- Inputs, results, messages and histories, apart from their records so that a change of a record
-- does not rewrite them.
CREATE TABLE payload (
    tenant       text COLLATE "C" NOT NULL,
    task         text COLLATE "C" NOT NULL,
    execution    bigint NOT NULL,
    slot         text COLLATE "C" NOT NULL,
    content_type text   NOT NULL,
    bytes        bytea  NOT NULL,
    PRIMARY KEY (tenant, task, execution, slot)
);

-- The event log, in commit order. A sequence number is never reused.
CREATE TABLE event (
    seq      bigint NOT NULL PRIMARY KEY,
    at       bigint NOT NULL,
    tenant   text   NOT NULL,
    lane     text   NOT NULL,
    task     text,
    kind     text,
    category text   NOT NULL,
    name     text   NOT NULL,
    body     text   NOT NULL
);
