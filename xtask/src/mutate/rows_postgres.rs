//! The rules that tests on Postgres guard.

use super::mutation::Mutation;

/// A rule, and the test that must fail without it.
pub(super) struct Guard {
    pub(super) mutation: Mutation,
    pub(super) test: &'static str,
}

const fn guard(
    rule: &'static str,
    test: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
) -> Guard {
    Guard { mutation: Mutation { rule, file, from, to }, test }
}

const SAVE: &str = "crates/store-postgres/src/save.rs";
const SQL: &str = "crates/store-postgres/src/sql.rs";
const STORE: &str = "crates/store-postgres/src/store.rs";
const TX: &str = "crates/store-postgres/src/tx.rs";
const STATEMENTS: &str = "crates/store-postgres/sql/statements.sql";
const ERROR: &str = "crates/store-postgres/src/error.rs";
const TABLES: &str = "crates/store-postgres/migrations/0001_initial.sql";
const BATCHER: &str = "crates/engine/src/batcher.rs";

pub(super) const ROWS: &[Guard] = &[
    guard(
        "a commit checks the versions of records that were only read",
        "reads::a_claim_that_read_an_active_lane_conflicts_with_a_pause",
        SAVE,
        "    versioned(sql, Sql::check, &changes.reads, &mut statements);\n",
        "",
    ),
    guard(
        "a rejection is given after its reads are checked: the store",
        "reads::a_rejection_based_on_a_stale_lane_conflicts",
        SAVE,
        "    versioned(sql, Sql::check, &changes.reads, &mut statements);\n",
        "",
    ),
    guard(
        "a rejection is given after its reads are checked: core",
        "reads::a_rejection_based_on_a_stale_lane_conflicts",
        "crates/core/src/world/undo_log.rs",
        "        self.undo(self.start());\n        self.keep_reads();\n",
        "        self.undo(self.start());\n",
    ),
    guard(
        "an empty answer is given after its reads are checked",
        "reads::an_empty_claim_based_on_a_stale_lane_conflicts",
        SAVE,
        "    versioned(sql, Sql::check, &changes.reads, &mut statements);\n",
        "",
    ),
    guard(
        "a wrong number of rows is an error",
        "reads::a_deleted_task_stays_deleted",
        SQL,
        "THEN 1 ELSE 0 END) FROM ({counted})",
        "THEN 1 ELSE 1 END) FROM ({counted})",
    ),
    guard(
        "an update conflicts with a changed version",
        "reads::two_writers_of_one_record_are_both_counted",
        SQL,
        "AND t.version = k.expected",
        "",
    ),
    guard(
        "the first version of a record is a time",
        "reads::a_recreated_task_is_not_overwritten",
        "crates/core/src/world/change.rs",
        "encode(&record, None, Version(self.now.micros()))",
        "encode(&record, None, Version(1))",
    ),
    guard(
        "an insert of an existing key conflicts",
        "reads::an_insert_never_overwrites",
        SQL,
        "SELECT {names} FROM {rows}\")",
        "SELECT {names} FROM {rows} ON CONFLICT DO NOTHING\")",
    ),
    guard(
        "a unique violation is a conflict",
        "reads::an_insert_never_overwrites",
        ERROR,
        "        SqlState::UNIQUE_VIOLATION,\n",
        "",
    ),
    guard(
        "an insert conflicts with a concurrent delete of its key",
        "reads::an_insert_conflicts_with_a_key_deleted_meanwhile",
        SAVE,
        "changes.inserts.iter().map(|row| Some(row.key.hash64())).collect()",
        "Vec::new()",
    ),
    guard(
        "a delete records its key",
        "reads::an_insert_conflicts_with_a_key_deleted_meanwhile",
        SAVE,
        "add(\"record_deletion\", vec![at(), Param::Ints(deleted)]);",
        "let _: Vec<Option<i64>> = deleted;",
    ),
    guard(
        "concurrent writers of a contended record wait for each other",
        "reads::the_last_two_completions_in_a_lane_are_both_counted",
        SQL,
        " FOR UPDATE OF t{how}\"#",
        "{how:.0}\"#",
    ),
    guard(
        "the end of the last child checks that its parent does not wait",
        "family::a_parent_that_starts_to_wait_concurrently_is_not_missed",
        SAVE,
        "    versioned(sql, Sql::check, &changes.reads, &mut statements);\n",
        "",
    ),
    guard(
        "the end of the last child and its parent's wait conflict",
        "family::the_last_two_children_wake_their_parent_once_without_locks",
        SAVE,
        "    versioned(sql, Sql::check, &changes.reads, &mut statements);\n",
        "",
    ),
    guard(
        "the end of the last child resumes its parent",
        "family::the_last_two_children_wake_their_parent_once",
        "crates/core/src/primitive/family.rs",
        "let was_last = children.open == 0;",
        "let was_last = false;",
    ),
    guard(
        "one transaction at a time writes the log",
        "log::blocked_commits_wait_for_their_sequence_numbers",
        STATEMENTS,
        "SELECT pg_advisory_xact_lock($1)",
        "SELECT $1::bigint",
    ),
    guard(
        "log readers depend on sequence numbers alone",
        "log::an_open_transaction_does_not_block_the_log",
        STATEMENTS,
        "WHERE seq > $1 ORDER BY",
        "WHERE seq > $1 AND xmin::text::bigint < \
         pg_snapshot_xmin(pg_current_snapshot())::text::bigint ORDER BY",
    ),
    guard(
        "a trimmed log stores its last sequence number",
        "log::the_sequence_of_a_fully_trimmed_log_continues",
        SAVE,
        "add(\"record_trim\", vec![Param::Int(number(through))]);",
        "",
    ),
    guard(
        "a committed batch without an answer is not repeated",
        "outcomes::a_commit_with_a_lost_response_took_effect",
        BATCHER,
        "Ok(committed) => return Some(committed),",
        "Ok(_) => return Some(false),",
    ),
    guard(
        "a batch that was not committed is repeated",
        "outcomes::a_commit_that_did_not_arrive_took_no_effect",
        BATCHER,
        "Ok(committed) => return Some(committed),",
        "Ok(_) => return Some(true),",
    ),
    guard(
        "a transaction id from before a crash proves nothing",
        "outcomes::a_transaction_id_reused_after_a_crash_proves_nothing",
        STATEMENTS,
        "WHEN $2 = (",
        "WHEN $2 = $2 OR $2 = (",
    ),
    guard(
        "a transaction id lost in a crash is reported as not committed",
        "outcomes::a_commit_lost_in_a_crash_took_no_effect",
        STATEMENTS,
        "WHEN $2 = (",
        "WHEN $2 = $2 OR $2 = (",
    ),
    guard(
        "a commit from before a crash is found",
        "outcomes::a_commit_with_a_response_lost_in_a_crash_took_effect",
        STATEMENTS,
        ") THEN 'committed'\n",
        ") THEN NULL\n",
    ),
    guard(
        "a batch is split around a command that the store refuses",
        "refusals::a_refused_command_fails_alone",
        BATCHER,
        "StoreError::Refused(_) if jobs.len() > 1",
        "StoreError::Refused(_) if false",
    ),
    guard(
        "a command that times out fails alone",
        "sessions::a_slow_command_fails_alone",
        ERROR,
        "| (\"57014\", _)",
        "",
    ),
    guard(
        "a command that takes very long fails alone",
        "sessions::a_very_slow_command_fails_alone",
        BATCHER,
        "turn.one_by_one |= begun_at.elapsed() >= SLOW_CONFLICT;",
        "if turn.begun_at.elapsed() >= CONTENTION_DEADLINE { \
         return Disposition::Answer(jobs, error.into()) }",
    ),
    guard(
        "commands without a locked record are found in time",
        "nodes::many_locked_rows_block_only_commands_that_need_them",
        BATCHER,
        "(LOCK_WAIT_BUDGET / jobs).clamp(SHORTEST_WAIT, LONGEST_WAIT)",
        "(LOCK_WAIT_BUDGET / jobs).max(LONGEST_WAIT / 5)",
    ),
    guard(
        "a deferred command is not starved",
        "nodes::deferred_jobs_are_not_starved_by_other_commits",
        BATCHER,
        "hand.deferred.then_some(LONGEST_WAIT)",
        "hand.deferred.then_some(SHORTEST_WAIT)",
    ),
    guard(
        "a command that needs a locked record is deferred",
        "nodes::a_locked_row_blocks_only_commands_that_need_it",
        BATCHER,
        "if long && (jobs.len() <= 1",
        "if false && (jobs.len() <= 1",
    ),
    guard(
        "a constraint violation is refused",
        "refusals::a_refused_command_fails_alone",
        ERROR,
        "\"22\" | \"23\" | \"54\"",
        "\"22\" | \"54\"",
    ),
    guard(
        "a route fits an index",
        "refusals::everything_within_the_limits_can_be_stored",
        "crates/core/src/limits.rs",
        "range(\"route in bytes\", 0, 1_536)",
        "range(\"route in bytes\", 0, 2_560)",
    ),
    guard(
        "a text with a NUL is rejected",
        "refusals::no_command_passes_a_nul_to_the_store",
        "crates/core/src/limits.rs",
        "} else if text.contains('\\0') {",
        "} else if false {",
    ),
    guard(
        "a load waits for a contended record",
        "claims::claims_of_a_limited_lane_are_serialized",
        SQL,
        " FOR UPDATE OF t{how}\"#",
        "{how:.0}\"#",
    ),
    guard(
        "a claim skips tasks that another claim has picked",
        "claims::concurrent_claims_lease_different_tasks",
        SQL,
        "\" FOR UPDATE SKIP LOCKED\"",
        "\"\"",
    ),
    guard(
        "a scan is trusted only as far as it went",
        "claims::a_scan_covers_only_the_loaded_range",
        "crates/core/src/world/scan.rs",
        "!inside || !reach.covers(position) ||",
        "!inside ||",
    ),
    guard(
        "a claim reads a queue until the others interleave",
        "claims::heads_of_many_queues_are_merged_in_order",
        "crates/core/src/command/claim.rs",
        "if !shares.iter().zip(&taken).any(short) {",
        "if true {",
    ),
    guard(
        "a claim takes tasks of higher priority first",
        "claims::an_urgent_task_goes_before_the_backlog_of_another_node",
        "crates/core/src/task/record.rs",
        "-i64::from(self.priority)",
        "0",
    ),
    guard(
        "a rollback wakes claims that skipped its locked rows",
        "claims::a_released_task_is_found",
        TX,
        "self.locks.then(",
        "false.then(",
    ),
    guard(
        "a commit wakes claims that skipped the rows it left ready",
        "claims::a_scanned_but_not_leased_task_is_found",
        TX,
        "Notification::with_left(&changes)",
        "Notification::of(&changes)",
    ),
    guard(
        "an idle transaction is ended",
        "nodes::a_stopped_node_loses_its_locks",
        STATEMENTS,
        "set_config('idle_in_transaction_session_timeout', $1, true)",
        "1",
    ),
    guard(
        "a plan has no sequential scan",
        "sessions::a_batch_sets_its_timeouts_and_planner_settings",
        STATEMENTS,
        "set_config('enable_seqscan', 'off', true)",
        "1",
    ),
    guard(
        "a statement planned on empty tables is planned again",
        "plans::plans_made_on_analyzed_empty_tables_are_replaced",
        "crates/store-postgres/src/pipeline.rs",
        "        self.prepare && (used",
        "        false && self.prepare && (used",
    ),
    guard(
        "a row before the start of a scan lowers the scan hint",
        "claims::an_urgent_task_goes_before_the_backlog_of_another_node",
        "crates/store/src/scan_hints.rs",
        "start.min(position.clone())",
        "start.clone()",
    ),
    guard(
        "a committed row lowers the scan hint",
        "claims::concurrent_batches_lose_no_wake",
        TX,
        "shared.hints.lower(&notification.lowest);",
        "",
    ),
    guard(
        "a lookup by key does not use the index by state",
        "plans::every_key_lookup_uses_the_primary_key",
        TABLES,
        "(tenant, state, id)\nWHERE state IS NOT NULL;",
        "(tenant, state, id);",
    ),
    guard(
        "a list by state has an index",
        "plans::a_list_reads_only_what_it_returns",
        TABLES,
        "CREATE INDEX task_state ON task (tenant, state, id)\nWHERE state IS NOT NULL;",
        "",
    ),
    guard(
        "a statement has a timeout",
        "sessions::a_batch_sets_its_timeouts_and_planner_settings",
        STATEMENTS,
        "set_config('statement_timeout', $1, true)",
        "1",
    ),
    guard(
        "a lock wait has a timeout",
        "sessions::a_batch_sets_its_timeouts_and_planner_settings",
        STATEMENTS,
        "set_config('lock_timeout', ($1::bigint / 5)::text, true)",
        "1",
    ),
    guard(
        "a commit is durable",
        "sessions::a_commit_is_durable_even_if_the_server_default_is_not",
        STATEMENTS,
        "WHEN 'off' THEN 'on'",
        "WHEN 'off' THEN 'off'",
    ),
    guard(
        "a read without an answer times out",
        "sessions::a_list_that_waits_for_a_lock_times_out",
        STORE,
        "self.options.in_time(session.all(&statements)).await else",
        "Ok::<_, StoreError>(session.all(&statements).await) else",
    ),
];
