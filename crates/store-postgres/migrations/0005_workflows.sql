-- The tables of format 5. A program of an earlier format may go on: it takes no workflows.

-- Executions of workflows that were followed by others. The primary key serves as the index of those
-- of one workflow.
CREATE TABLE execution (
    tenant  text COLLATE "C" NOT NULL,
    task    text COLLATE "C" NOT NULL,
    number  text COLLATE "C" NOT NULL,
    due_at  bigint,
    version bigint NOT NULL,
    schema  smallint NOT NULL,
    body    text NOT NULL,
    PRIMARY KEY (tenant, task, number)
);

CREATE INDEX execution_due_at ON execution (due_at, tenant, task, number)
WHERE due_at IS NOT NULL;

-- What workflows tell of themselves.
CREATE TABLE note (
    tenant  text COLLATE "C" NOT NULL,
    task    text COLLATE "C" NOT NULL,
    name    text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    schema  smallint NOT NULL,
    body    text NOT NULL,
    PRIMARY KEY (tenant, task, name)
);
