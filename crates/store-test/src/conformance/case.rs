use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use windlass_store::StoreError;

use super::ground::Ground;
use super::{
    change, family, foreign, gates, handle, log, mail, payload, query, requests, scan, text, time,
    workers, workflows,
};
use crate::factory::Factory;

/// A case that takes this long waits for something that will not come.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a store did that it must not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong(pub String);

pub type Verdict = Result<(), Wrong>;

impl From<StoreError> for Wrong {
    fn from(error: StoreError) -> Self {
        Self(format!("the store answered: {error}"))
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A named thing that every store does.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub name: &'static str,
    check: for<'g> fn(&'g Ground<'g>) -> Pin<Box<dyn Future<Output = Verdict> + Send + 'g>>,
}

impl Case {
    pub async fn run(&self, factory: &dyn Factory) -> Verdict {
        let _name = Named(self.name);
        let check = async { (self.check)(&Ground::open(factory, self.name).await).await };
        match tokio::time::timeout(PATIENCE, Box::pin(check)).await {
            Ok(verdict) => verdict,
            Err(_) => Err(Wrong("it waits for ever".into())),
        }
    }
}

/// Names the case when a store panics in it.
struct Named(&'static str);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("panicked in the conformance case {}", self.0);
        }
    }
}

/// Runs every case and says what came of each.
pub async fn verdicts(factory: &dyn Factory) -> Vec<(&'static str, Verdict)> {
    let mut verdicts = Vec::with_capacity(CASES.len());
    for case in CASES {
        verdicts.push((case.name, case.run(factory).await));
    }
    verdicts
}

/// Runs every case.
///
/// # Panics
///
/// If a case fails, with the names of all that do.
pub async fn run(factory: &dyn Factory) {
    let failed = verdicts(factory).await.into_iter();
    let failed = failed.filter_map(|(name, verdict)| Some(format!("{name}: {}", verdict.err()?)));
    let failed: Vec<String> = failed.collect();
    assert!(failed.is_empty(), "cases that fail:\n{}", failed.join("\n"));
}

macro_rules! cases {
    ($($module:ident::{$($name:ident),* $(,)?})*) => {
        /// Every case, by the name that a failure is reported under.
        pub const CASES: &[Case] = &[$($(
            Case { name: stringify!($name), check: |ground| Box::pin($module::$name(ground)) },
        )*)*];
    };
}

cases! {
    change::{
        an_insert_is_an_insert,
        an_update_checks_its_version,
        a_delete_checks_its_version,
        a_read_checks_its_version,
        reads_alone_write_nothing,
        a_change_set_is_all_or_nothing,
        one_bad_row_among_many_spoils_all,
        a_wide_change_set_is_stored,
        commits_that_write_are_counted,
        a_dropped_transaction_leaves_no_trace,
    }
    scan::{
        a_load_finds_what_is_there,
        a_wide_load_is_answered,
        a_scan_follows_its_index,
        scans_keep_to_their_ranges,
        pages_join_without_a_seam,
        an_update_moves_a_row_in_its_indexes,
    }
    log::{
        events_come_in_the_order_of_their_commits,
        events_come_in_pages,
        every_change_reads_back,
        a_trim_forgets_the_oldest,
        numbers_are_never_used_again,
        the_head_of_the_log_is_loaded,
    }
    payload::{
        payloads_come_in_the_order_of_their_keys,
        dropped_payloads_are_gone,
        a_payload_is_written_over,
        a_large_payload_survives,
    }
    query::{
        a_query_finds_one_key,
        a_query_follows_the_keys,
        a_query_keeps_to_its_filter,
        queries_join_without_a_seam,
        counts_tell_rows_apart,
    }
    text::{
        texts_survive,
        texts_are_ordered_by_their_bytes,
        extreme_numbers_survive,
        a_long_body_survives,
    }
    time::{
        time_is_that_of_the_clock,
        time_never_falls,
        time_rises_with_every_commit,
    }
    handle::{
        handles_share_their_records,
        records_outlive_their_handles,
        a_stale_change_set_conflicts_across_handles,
        handles_take_turns,
        a_notice_reaches_the_other_handle,
        handles_have_one_incarnation,
    }
    foreign::{
        fields_of_a_newer_version_are_kept,
        a_task_of_a_newer_version_can_be_worked_on,
        what_cannot_be_read_is_kept_aside,
        what_cannot_be_read_is_not_swept_away,
    }
    family::{
        the_last_child_wakes_its_parent,
        the_last_two_children_wake_their_parent_once,
        a_wait_off_an_old_count_conflicts,
        children_are_cancelled_page_by_page,
        children_are_listed_by_their_parent,
    }
    gates::{
        a_key_lets_one_through_at_a_time,
        a_wider_key_lets_more_through,
        a_rate_opens_when_its_window_has_passed,
        quotas_count_what_is_claimed,
        a_session_stays_with_its_owner,
        an_affinity_has_a_lock,
        handles_race_at_a_key,
    }
    workers::{
        a_task_is_kept_for_a_worker,
        what_a_dead_worker_holds_is_freed_early,
        what_a_worker_does_not_hold_is_freed,
        a_lease_is_revoked,
        a_subscriber_keeps_its_place,
        labels_are_in_the_log,
    }
    workflows::{
        a_step_ends_and_its_workflow_goes_on,
        a_workflow_starts_over,
        an_activity_ends_with_the_turn_it_calls_for,
        a_message_waits_for_its_workflow,
    }
    requests::{
        a_request_is_answered_once,
        a_call_is_claimed_before_it_is_made,
        handles_race_for_what_is_left,
    }
    mail::{
        a_message_lets_a_suspended_task_go_on,
        what_is_there_already_lets_the_lease_stay,
        each_timeout_ends_a_suspension_its_way,
        a_timer_is_a_message_of_later,
        a_token_opens_its_waitpoint_once,
        a_key_ends_with_its_grace,
        a_mailbox_goes_with_its_task,
        no_message_falls_between_suspending_and_posting,
    }
}
