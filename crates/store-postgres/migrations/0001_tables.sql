-- The tables of format 1. Times are microseconds since 1970 in UTC.
--
-- Every record has its key, some columns for indexes and for people, a version that rises with
-- each write, and its body as JSON. The columns follow from the body: changing one by hand
-- changes no record. An index holds only the rows in which the column that it is named after is
-- set. Texts are compared by their bytes.

-- One row: what this database is. A program older than `lowest` must not open it; `incarnation`
-- marks this log apart from any other.
CREATE TABLE meta (
    id          integer NOT NULL PRIMARY KEY CHECK (id = 1),
    format      bigint  NOT NULL,
    lowest      bigint  NOT NULL,
    incarnation text    NOT NULL
);

-- The time of the last commit. A sequence, because it is written by every commit and leaves no
-- dead rows behind.
CREATE SEQUENCE clock AS bigint MINVALUE 0 START WITH 0;

-- The time of the last commit that deleted anything young. A batch that found a key absent and
-- makes it must know that the key was not made and deleted again in the meantime.
CREATE SEQUENCE deletion AS bigint MINVALUE 0 START WITH 0;

-- The last number that the log has forgotten, so that none is given again when it is empty.
CREATE SEQUENCE forgotten AS bigint MINVALUE 0 START WITH 0;

-- Units of work.
CREATE TABLE task (
    tenant     text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    kind       text COLLATE "C",
    lane       text COLLATE "C",
    route      text COLLATE "C",
    state      text COLLATE "C",
    rank       bigint,
    ready_at   bigint,
    due_at     bigint,
    created_at bigint,
    ended_at   bigint,
    version    bigint   NOT NULL,
    schema     smallint NOT NULL,
    body       text     NOT NULL,
    PRIMARY KEY (tenant, id)
) WITH (fillfactor = 80);

-- What a claim may take, in the order in which it is taken.
CREATE INDEX task_ready_at ON task (tenant, lane, route, rank, ready_at, id)
WHERE ready_at IS NOT NULL;

-- What needs the engine, and when.
CREATE INDEX task_due_at ON task (due_at, tenant, id)
WHERE due_at IS NOT NULL;

-- Lists by state, and how many there are of each. The condition always holds, and keeps the index
-- out of any search by key: on an empty table it looks as good as the key, and the plan stays.
CREATE INDEX task_state ON task (tenant, state, id)
WHERE state IS NOT NULL;

-- Named queues, with their state and limit.
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

-- Which routes of a lane may have tasks ready. The primary key serves as the index by lane.
CREATE TABLE queue (
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

CREATE INDEX queue_due_at ON queue (due_at, tenant, lane, route)
WHERE due_at IS NOT NULL;

-- Request keys that were accepted.
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

-- What the event log has forgotten: every number up to `floor`.
CREATE TABLE log (
    name    text COLLATE "C" NOT NULL PRIMARY KEY,
    floor   bigint,
    version bigint   NOT NULL,
    schema  smallint NOT NULL,
    body    text     NOT NULL
);

-- Inputs and results of tasks, apart from them so that moving a task never rewrites them.
CREATE TABLE payload (
    tenant       text COLLATE "C" NOT NULL,
    task         text COLLATE "C" NOT NULL,
    generation   bigint NOT NULL,
    slot         text COLLATE "C" NOT NULL,
    content_type text   NOT NULL,
    bytes        bytea  NOT NULL,
    PRIMARY KEY (tenant, task, generation, slot)
);

-- The event log, in the order of the commits. A number is never given twice.
CREATE TABLE event (
    seq    bigint NOT NULL PRIMARY KEY,
    at     bigint NOT NULL,
    tenant text   NOT NULL,
    lane   text   NOT NULL,
    task   text,
    kind   text,
    family text   NOT NULL,
    name   text   NOT NULL,
    body   text   NOT NULL
);
