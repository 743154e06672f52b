-- The tables of format 3. A program of an earlier format may go on: it leaves tasks alone that are
-- in a state which it cannot read, and keeps what it does not know of the others.

-- The line in which a task stands apart from the queue of its lane, and whose child it is.
ALTER TABLE task ADD COLUMN line text COLLATE "C";
ALTER TABLE task ADD COLUMN since bigint;
ALTER TABLE task ADD COLUMN parent text COLLATE "C";
ALTER TABLE task ADD COLUMN open_parent text COLLATE "C";

CREATE INDEX task_line ON task (tenant, line, rank, since, id)
WHERE line IS NOT NULL;

CREATE INDEX task_open_parent ON task (tenant, open_parent, id)
WHERE open_parent IS NOT NULL;

-- Lists of the children of a task.
CREATE INDEX task_parent ON task (tenant, parent, id)
WHERE parent IS NOT NULL;

-- What has been posted to a task, counted.
CREATE TABLE mailbox (
    tenant    text COLLATE "C" NOT NULL,
    task      text COLLATE "C" NOT NULL,
    held      bigint,
    contended bigint,
    version   bigint NOT NULL,
    schema    smallint NOT NULL,
    body      text NOT NULL,
    PRIMARY KEY (tenant, task)
) WITH (fillfactor = 50);

-- Messages to tasks. The primary key serves as the index of a task's messages in their order.
CREATE TABLE message (
    tenant  text COLLATE "C" NOT NULL,
    task    text COLLATE "C" NOT NULL,
    seq     text COLLATE "C" NOT NULL,
    name    text COLLATE "C",
    due_at  bigint,
    version bigint NOT NULL,
    schema  smallint NOT NULL,
    body    text NOT NULL,
    PRIMARY KEY (tenant, task, seq)
);

CREATE INDEX message_due_at ON message (due_at, tenant, task, seq)
WHERE due_at IS NOT NULL;

-- Rights to post one message from outside. Their tokens are not here.
CREATE TABLE waitpoint (
    tenant     text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    task       text COLLATE "C",
    state      text COLLATE "C",
    expires_at bigint,
    version    bigint NOT NULL,
    schema     smallint NOT NULL,
    body       text NOT NULL,
    PRIMARY KEY (tenant, id)
);

CREATE INDEX waitpoint_task ON waitpoint (tenant, task, id)
WHERE task IS NOT NULL;

-- The keys that sign tokens. Whoever can read this table can make them.
CREATE TABLE keyring (
    tenant  text COLLATE "C" NOT NULL,
    due_at  bigint,
    version bigint NOT NULL,
    schema  smallint NOT NULL,
    body    text NOT NULL,
    PRIMARY KEY (tenant)
);

CREATE INDEX keyring_due_at ON keyring (due_at, tenant)
WHERE due_at IS NOT NULL;

-- The children of a task, counted.
CREATE TABLE children (
    tenant    text COLLATE "C" NOT NULL,
    parent    text COLLATE "C" NOT NULL,
    open      bigint,
    contended bigint,
    due_at    bigint,
    version   bigint NOT NULL,
    schema    smallint NOT NULL,
    body      text NOT NULL,
    PRIMARY KEY (tenant, parent)
) WITH (fillfactor = 50);

CREATE INDEX children_due_at ON children (due_at, tenant, parent)
WHERE due_at IS NOT NULL;

-- Limits of so many at once or per time, and who owns a session.
CREATE TABLE gate (
    tenant    text COLLATE "C" NOT NULL,
    kind      text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    waiting   bigint,
    running   bigint,
    owner     text COLLATE "C",
    contended bigint,
    due_at    bigint,
    version   bigint NOT NULL,
    schema    smallint NOT NULL,
    body      text NOT NULL,
    PRIMARY KEY (tenant, kind, name)
) WITH (fillfactor = 50);

CREATE INDEX gate_due_at ON gate (due_at, tenant, kind, name)
WHERE due_at IS NOT NULL;

CREATE INDEX gate_owner ON gate (tenant, owner, kind, name)
WHERE owner IS NOT NULL;

-- Registered workers.
CREATE TABLE worker (
    tenant  text COLLATE "C" NOT NULL,
    id      text COLLATE "C" NOT NULL,
    seen_at bigint,
    due_at  bigint,
    version bigint NOT NULL,
    schema  smallint NOT NULL,
    body    text NOT NULL,
    PRIMARY KEY (tenant, id)
) WITH (fillfactor = 50);

CREATE INDEX worker_due_at ON worker (due_at, tenant, id)
WHERE due_at IS NOT NULL;

-- How far named subscribers have come in the log.
CREATE TABLE bookmark (
    tenant  text COLLATE "C" NOT NULL,
    name    text COLLATE "C" NOT NULL,
    seq     bigint,
    version bigint NOT NULL,
    schema  smallint NOT NULL,
    body    text NOT NULL,
    PRIMARY KEY (tenant, name)
) WITH (fillfactor = 50);
