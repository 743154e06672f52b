-- What the store says besides loading and saving rows of any table, which it makes from the shape
-- of the table. A line `-- @name` begins a statement; {schema} is the schema.

-- @settings
-- For the transaction alone, so that a pooler can be in between. Statements are planned when
-- tables may be empty, and must stay good when they are full. Who waits for a lock loses patience
-- before its statement does: it is told of a conflict. $1: patience in milliseconds.
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
-- Who waits for a lock loses patience after $1 milliseconds.
SELECT set_config('lock_timeout', $1, true)

-- @start
-- The name of the transaction, the time, the last commit and the last deletion; and the life of
-- the server: what it counts begins again when it comes back from a crash, or another takes its
-- place.
SELECT pg_current_xact_id()::text::bigint,
       (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
       (SELECT last_value FROM {schema}.clock),
       (SELECT last_value FROM {schema}.deletion),
       (coalesce(extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()), 0) * 1000000)::bigint

-- @clock
SELECT last_value FROM {schema}.clock

-- @log_head
SELECT seq, at FROM {schema}.event ORDER BY seq LIMIT $1

-- @lock_log
-- The log is written by one transaction at a time, from here to its commit.
SELECT pg_advisory_xact_lock($1)

-- @seal
-- Raises the clock, by something in any case so that a look at it shows every commit, and tells
-- the others. $4 is the last deletion when the batch began, $5 the marks of the keys that it found
-- absent and makes. It is an error if one of them was deleted since then: each deletion since then
-- must be known, and of other keys. $6 is the latest time that the log may tell of for the events
-- of this batch to follow: it is an error if there is a later commit.
SELECT setval('{schema}.clock', greatest($1, (SELECT last_value + 1 FROM {schema}.clock))),
       pg_notify($2, $3),
       1 / (CASE WHEN (SELECT last_value FROM {schema}.clock) > $6 THEN 0
           WHEN $5 = '{}' OR NOT EXISTS (
           SELECT FROM (
               SELECT last_value AS number FROM {schema}.deletion
               UNION ALL SELECT before FROM {schema}.gone WHERE number > $4
           ) AS since
           WHERE since.number > $4 AND NOT EXISTS (
               SELECT FROM {schema}.gone
               WHERE gone.number = since.number AND NOT gone.keys && $5)
       ) THEN 1 ELSE 0 END)

-- @note_deletion
-- Another number after every deletion, and the marks of its keys for a minute:
-- for whoever is under way for longer there is a gap. A sequence stays raised when the transaction
-- ends badly, which for a number that may only rise does no harm.
WITH raised AS (
    SELECT setval('{schema}.deletion', greatest($1, last_value + 1)) AS number,
           last_value AS before
    FROM {schema}.deletion
), forgotten AS (
    DELETE FROM {schema}.gone WHERE number < $1 - 60000000
)
INSERT INTO {schema}.gone (number, before, keys) SELECT number, before, $2 FROM raised

-- @append
WITH last AS MATERIALIZED (
    SELECT coalesce((SELECT max(seq) FROM {schema}.event WHERE seq > f.last_value), f.last_value)
        AS seq
    FROM {schema}.forgotten AS f
)
INSERT INTO {schema}.event (seq, at, tenant, lane, task, kind, family, name, body)
SELECT last.seq + e.ord, e.at, e.tenant, e.lane, e.task, e.kind, e.family, e.name, e.body
FROM last, unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[],
    $7::text[], $8::text[]) WITH ORDINALITY
    AS e(at, tenant, lane, task, kind, family, name, body, ord)

-- @trim
DELETE FROM {schema}.event WHERE seq <= $1

-- @note_trim
SELECT setval('{schema}.forgotten', greatest($1, (SELECT last_value FROM {schema}.forgotten)))

-- @save_payloads
INSERT INTO {schema}.payload (tenant, task, generation, slot, content_type, bytes)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::bytea[])
ON CONFLICT (tenant, task, generation, slot)
DO UPDATE SET content_type = excluded.content_type, bytes = excluded.bytes

-- @drop_payloads
DELETE FROM {schema}.payload AS t
USING unnest($1::text[], $2::text[], $3::bigint[], $4::text[])
    AS k(tenant, task, generation, slot)
WHERE t.tenant = k.tenant AND t.task = k.task AND t.generation = k.generation AND t.slot = k.slot

-- @payloads
SELECT k.ord, t.content_type, t.bytes
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[]) WITH ORDINALITY
    AS k(tenant, task, generation, slot, ord)
JOIN {schema}.payload AS t ON t.tenant = k.tenant AND t.task = k.task
    AND t.generation = k.generation AND t.slot = k.slot

-- @events
SELECT seq, at, tenant, lane, task, kind, family, name, body FROM {schema}.event
WHERE seq > $1 ORDER BY seq LIMIT $2

-- @life_of_log
-- Its name may change while it is open, by whoever restores a backup.
SELECT coalesce((SELECT max(seq) FROM {schema}.event WHERE seq > f.last_value), f.last_value),
       (SELECT incarnation FROM {schema}.meta)
FROM {schema}.forgotten AS f

-- @outcome
-- What became of a transaction. After a crash its number may be given again, unless it was
-- committed: that another one of this number was not says that it was not either, and that one was
-- says nothing unless its events bear the time of the batch. $2: its life, $3: its time.
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
