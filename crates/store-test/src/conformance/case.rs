use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use windlass_store::StoreError;

use super::context::Context;
use super::{
    change, children, concurrency_limits, handle, log, messages, newer_version, payload, query,
    requests, scan, text, time, workers, workflows,
};
use crate::factory::Factory;

/// Timeout of a case.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A violation of the store contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong(pub String);

pub type Verdict = Result<(), Wrong>;

impl From<StoreError> for Wrong {
    fn from(error: StoreError) -> Self {
        Self(format!("the store failed: {error}"))
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A named requirement on every store.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub name: &'static str,
    check: for<'g> fn(&'g Context<'g>) -> Pin<Box<dyn Future<Output = Verdict> + Send + 'g>>,
}

impl Case {
    pub async fn run(&self, factory: &dyn Factory) -> Verdict {
        let _name = Named(self.name);
        let check = async { (self.check)(&Context::open(factory, self.name).await).await };
        match tokio::time::timeout(TIMEOUT, Box::pin(check)).await {
            Ok(verdict) => verdict,
            Err(_) => Err(Wrong("the case timed out".into())),
        }
    }
}

/// Prints the name of the case if a store panics in it.
struct Named(&'static str);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("panicked in the conformance case {}", self.0);
        }
    }
}

/// Runs every case and returns the verdicts.
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
        /// Every case, with the name that a failure is reported under.
        pub const CASES: &[Case] = &[$($(
            Case { name: stringify!($name), check: |context| Box::pin($module::$name(context)) },
        )*)*];
    };
}

cases! {
    change::{
        an_insert_never_overwrites,
        an_update_checks_its_version,
        a_delete_checks_its_version,
        a_read_checks_its_version,
        reads_alone_write_nothing,
        a_change_set_is_all_or_nothing,
        one_conflicting_row_fails_the_change_set,
        a_wide_change_set_is_stored,
        commits_that_write_are_counted,
        a_dropped_transaction_leaves_no_trace,
    }
    scan::{
        a_load_finds_existing_rows,
        a_wide_load_is_served,
        a_scan_follows_its_index,
        scans_keep_to_their_ranges,
        pages_join_without_a_seam,
        an_update_moves_a_row_in_its_indexes,
    }
    log::{
        events_come_in_the_order_of_their_commits,
        events_come_in_pages,
        every_change_round_trips,
        a_trim_forgets_the_oldest,
        numbers_are_never_used_again,
        the_head_of_the_log_is_loaded,
    }
    payload::{
        payloads_come_in_the_order_of_their_keys,
        dropped_payloads_are_gone,
        a_payload_is_overwritten,
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
        time_follows_the_clock,
        time_never_falls,
        time_rises_with_every_commit,
    }
    handle::{
        handles_share_their_records,
        records_outlive_their_handles,
        a_stale_change_set_conflicts_across_handles,
        handles_share_the_work,
        a_notice_reaches_the_other_handle,
        handles_have_one_incarnation,
    }
    newer_version::{
        fields_of_a_newer_version_are_preserved,
        a_task_of_a_newer_version_can_be_worked_on,
        an_undecodable_row_is_quarantined,
        an_undecodable_row_is_not_swept,
    }
    children::{
        the_last_child_wakes_its_parent,
        the_last_two_children_wake_their_parent_once,
        a_wait_based_on_a_stale_count_conflicts,
        children_are_cancelled_page_by_page,
        children_are_listed_by_their_parent,
    }
    concurrency_limits::{
        a_concurrency_key_admits_one_task_at_a_time,
        a_higher_key_limit_admits_more_tasks,
        a_rate_limit_admits_tasks_after_its_window,
        quotas_count_what_is_claimed,
        a_session_stays_with_its_owner,
        an_affinity_has_a_lock,
        handles_race_for_a_concurrency_key,
    }
    workers::{
        a_task_is_granted_to_a_worker,
        leases_of_a_dead_worker_end_early,
        leases_missing_from_a_heartbeat_end,
        a_lease_is_revoked,
        a_durable_subscription_keeps_its_cursor,
        labels_are_in_the_log,
    }
    workflows::{
        a_step_completes_and_its_workflow_resumes,
        a_workflow_continues_as_new,
        an_activity_completes_with_the_next_turn,
        a_message_is_buffered_for_its_workflow,
    }
    requests::{
        a_request_is_completed_once,
        a_call_is_claimed_before_it_is_made,
        handles_race_for_a_rate_limit,
    }
    messages::{
        a_message_resumes_a_suspended_task,
        a_satisfied_condition_keeps_the_lease,
        each_timeout_action_ends_a_suspension,
        a_timer_is_a_delayed_message,
        a_token_completes_its_waitpoint_once,
        a_signing_key_expires_after_its_grace,
        a_mailbox_is_deleted_with_its_task,
        no_message_is_lost_between_suspend_and_send,
    }
}
