-- The statements that are not generated from the table specs. A line `-- @name` begins a statement;
-- {schema} is the schema.

-- @settings
-- Settings for this transaction only, so that a pooler can be in between. Statements are planned
-- when tables may be empty, and the plans must stay good when the tables are full. The lock timeout
-- is shorter than the statement timeout, so that a lock wait ends with a conflict.
-- $1: statement timeout in milliseconds.
SELECT set_config('statement_timeout', $1, true),
       set_config('lock_timeout', ($1::bigint / 5)::text, true),
       set_config('idle_in_transaction_session_timeout', $1, true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('jit', 'off', true),
       set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('synchronous_commit', CASE current_setting('synchronous_commit')
           WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true)

-- @set_lock_timeout
-- $1: lock timeout in milliseconds.
SELECT set_config('lock_timeout', $1, true)

-- @start
-- The transaction id, the time, the time of the last commit, the number of the last deletion, and
-- the incarnation of the server: its counters start again after a crash or a failover.
SELECT pg_current_xact_id()::text::bigint,
       (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
       (SELECT last_value FROM {schema}.clock),
       (SELECT last_value FROM {schema}.last_deletion),
       (coalesce(extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()), 0) * 1000000)::bigint

-- @clock
SELECT last_value FROM {schema}.clock

-- @log_head
SELECT seq, at FROM {schema}.event ORDER BY seq LIMIT $1

-- @lock_log
-- From here to its commit, one transaction at a time writes the log.
SELECT pg_advisory_xact_lock($1)

-- @seal
-- Raises the clock by at least one, so that a read of the clock shows every commit, and notifies
-- other handles. $4 is the number of the last deletion when the batch began; $5 has the hashes of
-- the keys that the batch found absent and inserts. Fails if one of them was deleted since then:
-- every deletion since then must be known, and must be of other keys. $6 is the latest time of the
-- log that the events of this batch may follow: fails if there is a later commit.
SELECT setval('{schema}.clock', greatest($1, (SELECT last_value + 1 FROM {schema}.clock))),
       pg_notify($2, $3),
       1 / (CASE WHEN (SELECT last_value FROM {schema}.clock) > $6 THEN 0
           WHEN $5 = '{}' OR NOT EXISTS (
           SELECT FROM (
               SELECT last_value AS number FROM {schema}.last_deletion
               UNION ALL SELECT previous FROM {schema}.recent_deletion WHERE number > $4
           ) AS since
           WHERE since.number > $4 AND NOT EXISTS (
               SELECT FROM {schema}.recent_deletion AS recent
               WHERE recent.number = since.number AND NOT recent.key_hashes && $5)
       ) THEN 1 ELSE 0 END)

-- @record_deletion
-- Raises the number of the last deletion, and stores the hashes of the deleted keys for a minute. A
-- batch that is open for longer finds a gap in the numbers. A sequence stays raised when its
-- transaction is rolled back, which is harmless for a number that may only rise.
WITH raised AS (
    SELECT setval('{schema}.last_deletion', greatest($1, last_value + 1)) AS number,
           last_value AS previous
    FROM {schema}.last_deletion
), expired AS (
    DELETE FROM {schema}.recent_deletion WHERE number < $1 - 60000000
)
INSERT INTO {schema}.recent_deletion (number, previous, key_hashes)
SELECT number, previous, $2 FROM raised

-- @append
WITH last AS MATERIALIZED (
    SELECT coalesce((SELECT max(seq) FROM {schema}.event WHERE seq > t.last_value), t.last_value)
        AS seq
    FROM {schema}.log_trimmed_through AS t
)
INSERT INTO {schema}.event (seq, at, tenant, lane, task, kind, category, name, body)
SELECT last.seq + e.ord, e.at, e.tenant, e.lane, e.task, e.kind, e.category, e.name, e.body
FROM last, unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[],
    $7::text[], $8::text[]) WITH ORDINALITY
    AS e(at, tenant, lane, task, kind, category, name, body, ord)

-- @trim
DELETE FROM {schema}.event WHERE seq <= $1

-- @record_trim
SELECT setval('{schema}.log_trimmed_through',
    greatest($1, (SELECT last_value FROM {schema}.log_trimmed_through)))

-- @save_payloads
INSERT INTO {schema}.payload (tenant, task, execution, slot, content_type, bytes)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::bytea[])
ON CONFLICT (tenant, task, execution, slot)
DO UPDATE SET content_type = excluded.content_type, bytes = excluded.bytes

-- @drop_payloads
DELETE FROM {schema}.payload AS t
USING unnest($1::text[], $2::text[], $3::bigint[], $4::text[])
    AS k(tenant, task, execution, slot)
WHERE t.tenant = k.tenant AND t.task = k.task AND t.execution = k.execution AND t.slot = k.slot

-- @payloads
SELECT k.ord, t.content_type, t.bytes
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[]) WITH ORDINALITY
    AS k(tenant, task, execution, slot, ord)
JOIN {schema}.payload AS t ON t.tenant = k.tenant AND t.task = k.task
    AND t.execution = k.execution AND t.slot = k.slot

-- @events
SELECT seq, at, tenant, lane, task, kind, category, name, body FROM {schema}.event
WHERE seq > $1 ORDER BY seq LIMIT $2

-- @log_incarnation
-- The last sequence number of the log, and its incarnation, which an operator may renew while the
-- store is open.
SELECT coalesce((SELECT max(seq) FROM {schema}.event WHERE seq > t.last_value), t.last_value),
       (SELECT incarnation FROM {schema}.meta)
FROM {schema}.log_trimmed_through AS t

-- @outcome
-- The outcome of a transaction. After a crash the server may reuse its id, unless it was committed.
-- If another transaction with this id was not committed, neither was this one. If one was
-- committed, that proves nothing unless its events have the time of the batch. $2: incarnation of
-- the server, $3: time of the batch.
SELECT CASE
    WHEN $2 = (coalesce(extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()), 0) * 1000000)::bigint
        THEN pg_xact_status(xid)
    WHEN xid >= pg_current_xact_id() THEN 'aborted'
    WHEN pg_xact_status(xid) <> 'committed' THEN pg_xact_status(xid)
    WHEN EXISTS (
        SELECT FROM {schema}.event
        WHERE seq > (SELECT max(seq) FROM {schema}.event) - 10000 AND at = $3 AND xmin = xid::xid
    ) THEN 'committed'
END
FROM CAST($1::text AS xid8) AS xid
