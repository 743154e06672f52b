//! Whether the tests on Postgres bite: switches off one rule at a time, and runs the test that is
//! there for it.

use std::process::Stdio;

use crate::bite::{Bite, Place};
use crate::cargo::Cargo;
use crate::table::{row, table};

/// A rule, and the test that must fail without it.
struct Guard {
    bite: Bite,
    test: &'static str,
}

const fn guard(
    rule: &'static str,
    test: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
) -> Guard {
    Guard { bite: Bite { rule, file, from, to }, test }
}

const SAVE: &str = "crates/store-postgres/src/save.rs";
const SQL: &str = "crates/store-postgres/src/sql.rs";
const STORE: &str = "crates/store-postgres/src/store.rs";
const TX: &str = "crates/store-postgres/src/tx.rs";
const STATEMENTS: &str = "crates/store-postgres/sql/statements.sql";
const ERROR: &str = "crates/store-postgres/src/error.rs";
const TABLES: &str = "crates/store-postgres/migrations/0001_tables.sql";
const BATCHER: &str = "crates/engine/src/batcher.rs";

const GUARDS: &[Guard] = &[
    guard(
        "what was only read is checked at the commit",
        "reads::a_claim_that_read_a_lane_unpaused_does_not_outlive_the_pause",
        SAVE,
        "    versioned(sql, Sql::check, &changes.reads, &mut requests);\n",
        "",
    ),
    guard(
        "a rejection counts once its reads are checked: the store",
        "reads::a_rejection_that_was_read_off_an_old_lane_is_not_given",
        SAVE,
        "    versioned(sql, Sql::check, &changes.reads, &mut requests);\n",
        "",
    ),
    guard(
        "a rejection counts once its reads are checked: core",
        "reads::a_rejection_that_was_read_off_an_old_lane_is_not_given",
        "crates/core/src/world/draft.rs",
        "        self.undo(self.start());\n        self.keep_reads();\n",
        "        self.undo(self.start());\n",
    ),
    guard(
        "an empty answer counts once its reads are checked",
        "reads::an_empty_answer_that_was_read_off_an_old_lane_is_not_given",
        SAVE,
        "    versioned(sql, Sql::check, &changes.reads, &mut requests);\n",
        "",
    ),
    guard(
        "a wrong number of rows is an error",
        "reads::a_task_that_was_reaped_stays_so",
        SQL,
        "THEN 1 ELSE 0 END) FROM ({counted})",
        "THEN 1 ELSE 1 END) FROM ({counted})",
    ),
    guard(
        "an update is of the version that was read",
        "reads::two_that_write_one_record_are_both_counted",
        SQL,
        "AND t.version = k.expected",
        "",
    ),
    guard(
        "first versions are times",
        "reads::a_task_that_was_made_again_is_another_one",
        "crates/core/src/world/change.rs",
        "Version(self.now.micros())",
        "Version(1)",
    ),
    guard(
        "an insert is an insert",
        "reads::an_insert_is_an_insert",
        SQL,
        "SELECT {names} FROM {rows}\")",
        "SELECT {names} FROM {rows} ON CONFLICT DO NOTHING\")",
    ),
    guard(
        "a key that is there already is a conflict",
        "reads::an_insert_is_an_insert",
        ERROR,
        "        SqlState::UNIQUE_VIOLATION,\n",
        "",
    ),
    guard(
        "who makes a key makes sure that it was not deleted meanwhile",
        "reads::a_key_that_came_and_went_is_not_taken_for_one_that_never_was",
        SAVE,
        "changes.inserts.iter().map(|row| Some(row.key.mark())).collect()",
        "Vec::new()",
    ),
    guard(
        "who deletes leaves word of what",
        "reads::a_key_that_came_and_went_is_not_taken_for_one_that_never_was",
        SAVE,
        "add(\"note_deletion\", vec![at(), Param::Ints(gone)]);",
        "let _: Vec<Option<i64>> = gone;",
    ),
    guard(
        "the last two of something wait for each other",
        "reads::the_last_two_to_leave_a_lane_are_both_counted",
        SQL,
        " FOR UPDATE OF t{how}\"#",
        "{how:.0}\"#",
    ),
    guard(
        "who ends the last child has checked that its parent does not wait",
        "family::a_parent_that_begins_to_wait_meanwhile_is_not_overlooked",
        SAVE,
        "    versioned(sql, Sql::check, &changes.reads, &mut requests);\n",
        "",
    ),
    guard(
        "who ends the last child and who waits for it see each other",
        "family::the_last_two_children_wake_their_parent_once_without_locks",
        SAVE,
        "    versioned(sql, Sql::check, &changes.reads, &mut requests);\n",
        "",
    ),
    guard(
        "the last child wakes its parent",
        "family::the_last_two_children_wake_their_parent_once",
        "crates/core/src/primitive/family.rs",
        "let was_last = children.open == 0;",
        "let was_last = false;",
    ),
    guard(
        "the log is written by one at a time",
        "log::late_commits_wait_for_their_numbers",
        STATEMENTS,
        "SELECT pg_advisory_xact_lock($1)",
        "SELECT $1::bigint",
    ),
    guard(
        "readers of the log go by its numbers alone",
        "log::an_open_transaction_does_not_stall_the_log",
        STATEMENTS,
        "WHERE seq > $1 ORDER BY",
        "WHERE seq > $1 AND xmin::text::bigint < \
         pg_snapshot_xmin(pg_current_snapshot())::text::bigint ORDER BY",
    ),
    guard(
        "what the log has forgotten is remembered",
        "log::the_numbers_of_an_emptied_log_go_on",
        SAVE,
        "add(\"note_trim\", vec![Param::Int(number(through))]);",
        "",
    ),
    guard(
        "a lost commit that took effect is not made again",
        "outcomes::a_commit_whose_answer_is_lost_took_effect",
        BATCHER,
        "Ok(committed) => return Some(committed),",
        "Ok(_) => return Some(false),",
    ),
    guard(
        "a lost commit that did not take effect is made again",
        "outcomes::a_commit_that_is_lost_on_its_way_did_not_take_effect",
        BATCHER,
        "Ok(committed) => return Some(committed),",
        "Ok(_) => return Some(true),",
    ),
    guard(
        "a number from before a crash proves nothing",
        "outcomes::a_number_that_is_given_again_after_a_crash_proves_nothing",
        STATEMENTS,
        "WHEN $2 = (",
        "WHEN $2 = $2 OR $2 = (",
    ),
    guard(
        "a number that a crash has lost is known to be",
        "outcomes::a_commit_that_is_lost_with_the_server_did_not_take_effect",
        STATEMENTS,
        "WHEN $2 = (",
        "WHEN $2 = $2 OR $2 = (",
    ),
    guard(
        "what was committed before a crash is found",
        "outcomes::a_commit_whose_answer_is_lost_with_the_server_took_effect",
        STATEMENTS,
        ") THEN 'committed'\n",
        ") THEN NULL\n",
    ),
    guard(
        "a batch is split around what the store refuses",
        "refusals::a_bad_command_stands_alone",
        BATCHER,
        "StoreError::Refused(_) if jobs.len() > 1",
        "StoreError::Refused(_) if false",
    ),
    guard(
        "a command that takes too long is the answer of nobody else",
        "sessions::a_command_that_takes_too_long_stands_alone",
        ERROR,
        "| (\"57014\", _)",
        "",
    ),
    guard(
        "however long it takes",
        "sessions::a_command_that_takes_very_long_stands_alone",
        BATCHER,
        "turn.one_by_one |= begun_at.elapsed() >= LONG;",
        "if turn.begun_at.elapsed() >= LONGEST { return Verdict::Answer(jobs, error.into()) }",
    ),
    guard(
        "who needs nothing that somebody holds is found in time",
        "nodes::many_rows_that_somebody_holds_stop_nobody_else",
        BATCHER,
        "(HURRY / jobs).clamp(SHORTEST_WAIT, LONGEST_WAIT)",
        "(HURRY / jobs).max(LONGEST_WAIT / 5)",
    ),
    guard(
        "what was put aside is not kept out",
        "nodes::what_was_put_aside_is_not_kept_out_by_others_who_commit",
        BATCHER,
        "hand.aside.then_some(LONGEST_WAIT)",
        "hand.aside.then_some(SHORTEST_WAIT)",
    ),
    guard(
        "what needs a record that somebody holds is put aside",
        "nodes::a_row_that_somebody_holds_stops_nobody_else",
        BATCHER,
        "if long && (jobs.len() <= 1",
        "if false && (jobs.len() <= 1",
    ),
    guard(
        "what breaks a rule of the database is refused",
        "refusals::a_bad_command_stands_alone",
        ERROR,
        "\"22\" | \"23\" | \"54\"",
        "\"22\" | \"54\"",
    ),
    guard(
        "a route fits an index",
        "refusals::what_is_within_the_limits_can_be_stored",
        "crates/core/src/limits.rs",
        "range(\"route in bytes\", 0, 1_536)",
        "range(\"route in bytes\", 0, 2_560)",
    ),
    guard(
        "a text has no NUL",
        "refusals::no_text_of_a_command_brings_a_nul_to_the_store",
        "crates/core/src/limits.rs",
        "} else if text.contains('\\0') {",
        "} else if false {",
    ),
    guard(
        "a contended record is waited for",
        "claims::claims_of_a_limited_lane_wait_for_each_other",
        SQL,
        " FOR UPDATE OF t{how}\"#",
        "{how:.0}\"#",
    ),
    guard(
        "a claim passes over what another one has picked",
        "claims::two_claims_side_by_side_take_different_tasks",
        SQL,
        "\" FOR UPDATE SKIP LOCKED\"",
        "\"\"",
    ),
    guard(
        "a scan is trusted only as far as it went",
        "claims::a_scan_is_trusted_only_as_far_as_it_went",
        "crates/core/src/world/scan.rs",
        "!inside || !reach.covers(position) ||",
        "!inside ||",
    ),
    guard(
        "a queue is read on until the others come in between",
        "claims::heads_of_many_queues_are_merged_in_order",
        "crates/core/src/command/claim.rs",
        "if !shares.iter().zip(&taken).any(short) {",
        "if true {",
    ),
    guard(
        "what is urgent goes first",
        "claims::what_is_urgent_goes_before_the_backlog_of_another_node",
        "crates/core/src/task/record.rs",
        "-i64::from(self.priority)",
        "0",
    ),
    guard(
        "who lets go wakes those who passed by",
        "claims::what_is_let_go_is_found",
        TX,
        "self.locks.then(",
        "false.then(",
    ),
    guard(
        "who looked and left wakes those who passed by",
        "claims::what_was_looked_at_and_left_is_found",
        TX,
        "Notice::with_left(&changes)",
        "Notice::of(&changes)",
    ),
    guard(
        "a transaction that idles is ended",
        "nodes::a_stopped_node_holds_nothing",
        STATEMENTS,
        "set_config('idle_in_transaction_session_timeout', $1, true)",
        "1",
    ),
    guard(
        "a plan reads no table from end to end",
        "sessions::a_batch_is_impatient_and_keeps_its_plans",
        STATEMENTS,
        "set_config('enable_seqscan', 'off', true)",
        "1",
    ),
    guard(
        "what was planned for nothing is planned again",
        "plans::what_was_planned_on_tables_known_to_be_empty_is_planned_again",
        "crates/store-postgres/src/flight.rs",
        "        self.prepare && (used",
        "        false && self.prepare && (used",
    ),
    guard(
        "what is put before the start of a scan lowers it",
        "claims::what_is_urgent_goes_before_the_backlog_of_another_node",
        "crates/store/src/starts.rs",
        "start.min(position.clone())",
        "start.clone()",
    ),
    guard(
        "what was put somewhere is known when it can be seen",
        "claims::batches_side_by_side_lose_no_wake",
        TX,
        "shared.starts.lower(&word.lowest);",
        "",
    ),
    guard(
        "a list by state has an index",
        "plans::a_list_reads_what_it_shows",
        TABLES,
        "CREATE INDEX task_state ON task (tenant, state, id)\nWHERE state IS NOT NULL;",
        "",
    ),
    guard(
        "a statement has its time",
        "sessions::a_batch_is_impatient_and_keeps_its_plans",
        STATEMENTS,
        "set_config('statement_timeout', $1, true)",
        "1",
    ),
    guard(
        "a lock is waited for only so long",
        "sessions::a_batch_is_impatient_and_keeps_its_plans",
        STATEMENTS,
        "set_config('lock_timeout', ($1::bigint / 5)::text, true)",
        "1",
    ),
    guard(
        "a commit is on disk",
        "sessions::a_commit_is_on_disk_also_where_the_server_does_not_care",
        STATEMENTS,
        "WHEN 'off' THEN 'on'",
        "WHEN 'off' THEN 'off'",
    ),
    guard(
        "a read that is not answered is given up",
        "sessions::a_list_does_not_wait_for_ever",
        STORE,
        "self.options.in_time(session.all(&requests)).await else",
        "Ok::<_, StoreError>(session.all(&requests).await) else",
    ),
];

/// The tests of one run: how many passed and how many failed.
#[derive(Debug, PartialEq)]
struct Ran {
    passed: u64,
    failed: u64,
}

pub(crate) fn run() -> Result<(), String> {
    let place = Place::new();
    place.copy()?;
    let mut rows = vec![row([&"switched off", &"test", &"fails"])];
    let mut unnoticed = Vec::new();
    for Guard { bite, test } in GUARDS {
        println!("==> without: {}", bite.rule);
        let ran = place.without(bite, || try_out(&place, &[test]))?;
        if ran.passed + ran.failed != 1 {
            return Err(format!("there is no test {test}"));
        }
        let fails = if ran.failed == 1 { "yes" } else { "NO" };
        println!("    {test} fails: {fails}");
        rows.push(row([&bite.rule, test, &fails]));
        if ran.failed == 0 {
            unnoticed.push(bite.rule);
        }
    }
    let whole = whole(&place)?;
    print!("\n{}", table(&rows));
    if whole.failed > 0 {
        return Err(format!("with nothing switched off: {whole:?}"));
    }
    match unnoticed[..] {
        [] => Ok(()),
        _ => Err(format!("no test fails without: {}", unnoticed.join(", "))),
    }
}

/// All these tests with nothing switched off.
fn whole(place: &Place) -> Result<Ran, String> {
    let mut tests: Vec<&str> = GUARDS.iter().map(|guard| guard.test).collect();
    tests.sort_unstable();
    tests.dedup();
    println!("==> without: nothing");
    let ran = try_out(place, &tests)?;
    println!("    {} pass, {} fail", ran.passed, ran.failed);
    Ok(ran)
}

/// Builds the copy as it is and runs these tests of it.
fn try_out(place: &Place, tests: &[&str]) -> Result<Ran, String> {
    const BUILD: &str = "test --quiet --package windlass-store-postgres --test it --no-run";
    const RUN: &str = "test --quiet --package windlass-store-postgres --test it -- --exact";
    let mut build = place.command(Cargo::new(BUILD));
    let built = build.status().map_err(|error| format!("cannot run cargo: {error}"))?;
    if !built.success() {
        return Err("the build failed".into());
    }
    let mut run = place.command(Cargo::new(RUN));
    // A test that fails has more to say than whether it does.
    let output = run.args(tests).stderr(Stdio::null()).output();
    let output = output.map_err(|error| format!("cannot run {run:?}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ran::read(&text).ok_or_else(|| format!("{run:?} ended early: {}", output.status))
}

impl Ran {
    /// Reads `test result: ok. 3 passed; 0 failed; ...`.
    fn read(text: &str) -> Option<Self> {
        let line = text.lines().find(|line| line.starts_with("test result: "))?;
        let count = |what: &str| {
            let before = line.split(what).next()?;
            before.trim_end().rsplit(' ').next()?.parse().ok()
        };
        Some(Self { passed: count(" passed")?, failed: count(" failed")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    #[test]
    fn every_patch_fits_and_every_test_is_there() {
        for Guard { bite, test } in GUARDS {
            let text = tree::read(bite.file).unwrap();
            assert_ne!(bite.patch(&text).unwrap(), text);
            let (file, name) = test.split_once("::").unwrap();
            let path = format!("crates/store-postgres/tests/it/{file}.rs");
            assert!(tree::read(&path).unwrap().contains(&format!("fn {name}()")), "{test}");
        }
    }

    #[test]
    fn what_the_tests_say_is_read() {
        let text = "\nrunning 1 test\nF\ntest result: FAILED. 0 passed; 1 failed; 0 ignored\n";
        assert_eq!(Ran::read(text), Some(Ran { passed: 0, failed: 1 }));
        let text = "test result: ok. 31 passed; 0 failed; 0 ignored; 0 measured; 4 filtered out\n";
        assert_eq!(Ran::read(text), Some(Ran { passed: 31, failed: 0 }));
        assert_eq!(Ran::read("error: no such thing"), None);
    }
}
