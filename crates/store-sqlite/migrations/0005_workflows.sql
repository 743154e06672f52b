-- The tables of format 5. A program of an earlier format may go on: it takes no workflows.

-- Executions of workflows that were followed by others. The primary key serves as the index of those
-- of one workflow.
CREATE TABLE execution (
    tenant  TEXT NOT NULL,
    task    TEXT NOT NULL,
    number  TEXT NOT NULL,
    due_at  INTEGER,
    version INTEGER NOT NULL,
    schema  INTEGER NOT NULL,
    body    TEXT NOT NULL,
    PRIMARY KEY (tenant, task, number)
) WITHOUT ROWID, STRICT;

CREATE INDEX execution_due_at ON execution (due_at, tenant, task, number)
WHERE due_at IS NOT NULL;

-- What workflows tell of themselves.
CREATE TABLE note (
    tenant  TEXT NOT NULL,
    task    TEXT NOT NULL,
    name    TEXT NOT NULL,
    version INTEGER NOT NULL,
    schema  INTEGER NOT NULL,
    body    TEXT NOT NULL,
    PRIMARY KEY (tenant, task, name)
) WITHOUT ROWID, STRICT;
