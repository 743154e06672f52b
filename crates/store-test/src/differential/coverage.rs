use std::collections::BTreeMap;
use std::fmt;

use windlass_core::command::{Created, SentMessage};
use windlass_core::{Command, Outcome, Settled};

use crate::runner::CommandResult;

/// The reached results, by command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    pub seeds: u64,
    pub steps: u64,
    /// (command, result code), and how often.
    pub pairs: BTreeMap<(&'static str, &'static str), u64>,
}

impl Coverage {
    pub(super) fn note(&mut self, command: &Command, result: &CommandResult) {
        *self.pairs.entry((command.name(), code(result))).or_default() += 1;
    }

    /// The required pairs that were not reached. The default seeds reach all of them.
    pub fn missing(&self) -> Vec<(&'static str, &'static str)> {
        let required = REQUIRED
            .iter()
            .flat_map(|(name, codes)| codes.split_whitespace().map(move |code| (*name, code)));
        required.filter(|pair| !self.pairs.contains_key(pair)).collect()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} seeds, {} steps, {} pairs:", self.seeds, self.steps, self.pairs.len())?;
        for ((command, code), count) in &self.pairs {
            writeln!(f, "{count:>8} {command} {code}")?;
        }
        Ok(())
    }
}

/// A code for the result of a command.
fn code(result: &CommandResult) -> &'static str {
    let outcome = match result {
        Ok(outcome) => outcome,
        Err(rejection) => return rejection.code(),
    };
    match outcome {
        Outcome::Created(created) => created_code(created),
        Outcome::Claimed(tasks) if tasks.is_empty() => "claimed_none",
        Outcome::Claimed(tasks) if tasks.len() == 1 => "claimed_one",
        Outcome::Claimed(_) => "claimed_several",
        Outcome::Renewed { .. } => "renewed",
        Outcome::Begun(_) => "begun",
        Outcome::ProgressReported => "progressed",
        Outcome::Settled(Settled::Completed) => "completed",
        Outcome::Settled(Settled::RetryAt(_)) => "retry_at",
        Outcome::Settled(Settled::Failed) => "failed",
        Outcome::Settled(Settled::SnoozedUntil(_)) => "snoozed_until",
        Outcome::Settled(Settled::Released) => "released",
        Outcome::Settled(Settled::Cancelled) | Outcome::Cancelled => "cancelled",
        Outcome::Settled(Settled::Suspended) => "suspended",
        Outcome::Settled(Settled::WaitingChildren) => "waiting_children",
        Outcome::Settled(Settled::ContinuedAsNew) => "continued_as_new",
        Outcome::PriorityChanged => "priority_changed",
        Outcome::Replayed { .. } => "replayed",
        Outcome::TaskDeleted => "deleted",
        Outcome::LaneChanged => "lane_changed",
        Outcome::Swept { swept: 0, .. } => "swept_none",
        Outcome::Swept { .. } => "swept",
        Outcome::Trimmed { trimmed: 0, .. } => "trimmed_none",
        Outcome::Trimmed { more: false, .. } => "trimmed",
        Outcome::Trimmed { more: true, .. } => "trimmed_a_page",
        Outcome::NodeRegistered { joined: true, .. } => "joined",
        Outcome::NodeRegistered { joined: false, .. } => "beaten",
        Outcome::NodeDeregistered => "left",
        Outcome::ChildrenDone(counts) if counts.total() == 0 => "no_children",
        Outcome::ChildrenDone(_) => "children_done",
        Outcome::QuotaSet => "quota_set",
        Outcome::SessionReleased { .. } => "session_released",
        Outcome::SessionsRenewed { renewed: 0 } => "renewed_none",
        Outcome::SessionsRenewed { .. } => "renewed",
        Outcome::WorkerRegistered { lost: 1.., .. } => "not_held",
        Outcome::WorkerRegistered { joined: true, .. } => "joined",
        Outcome::WorkerRegistered { joined: false, .. } => "beaten",
        Outcome::WorkerDeregistered => "retired",
        Outcome::Granted { .. } => "granted",
        Outcome::Revoked => "revoked",
        Outcome::SubscriptionCursorAt(_) => "bookmark_at",
        Outcome::SubscriptionDeleted { existed: true } => "dropped",
        Outcome::SubscriptionDeleted { existed: false } => "dropped_none",
        Outcome::Sent(sent) => sent_code(sent),
        Outcome::WaitpointCreated(_) => "waitpoint_created",
        Outcome::Suspended { waitpoints } if waitpoints.is_empty() => "suspended",
        Outcome::Suspended { .. } => "suspended_with_waitpoints",
        Outcome::AlreadySatisfied(_) => "already_satisfied",
        Outcome::Resumed => "resumed",
        Outcome::Consumed { consumed: 0 } => "consumed_none",
        Outcome::Consumed { .. } => "consumed",
        Outcome::SigningKeyRotated { unchanged: true } => "known",
        Outcome::SigningKeyRotated { unchanged: false } => "rotated",
        Outcome::Admitted { .. } => "admitted",
        Outcome::RequestCompleted(_) => "answered",
        Outcome::RequestReleased => "released",
        Outcome::EffectClaimed { existed: false, .. } => "claimed",
        Outcome::EffectClaimed { result: None, .. } => "claimed_before",
        Outcome::EffectClaimed { .. } => "settled_before",
        Outcome::EffectSettled => "settled",
        Outcome::TurnCommitted { lease_kept: Some(_), .. } => "lease_kept",
        Outcome::TurnCommitted { .. } => "turned",
        Outcome::Pruned { .. } => "pruned",
        Outcome::StickyCleared { .. } => "sticky_cleared",
        Outcome::Spent => "spent",
    }
}

fn sent_code(sent: &[SentMessage]) -> &'static str {
    if sent.iter().any(|sent| sent.resumed) {
        return "sent_and_resumed";
    }
    match sent.iter().any(|sent| sent.duplicate) {
        true => "sent_before",
        false => "sent",
    }
}

fn created_code(created: &[Created]) -> &'static str {
    let duplicates = created.iter().filter(|created| created.duplicate).count();
    match (duplicates, created.len()) {
        (0, 1) => "created",
        (0, _) => "created_several",
        (some, all) if some == all => "duplicate",
        _ => "duplicate_in_part",
    }
}

/// What the default seeds must reach: commands, and the codes of their results.
pub const REQUIRED: &[(&str, &str)] = &[
    (
        "Create",
        "conflict created created_several duplicate duplicate_in_part invalid lane_closed \
         quarantined too_many_routes",
    ),
    ("Claim", "claimed_none claimed_one claimed_several invalid"),
    (
        "Renew",
        "already_terminal invalid lease_expired not_leased renewed stale_fence task_not_found",
    ),
    ("Begin", "already_terminal begun lease_expired not_leased stale_fence task_not_found"),
    (
        "ReportProgress",
        "already_terminal invalid lease_expired not_leased progressed stale_fence \
         task_not_found",
    ),
    (
        "Complete",
        "already_settled already_terminal completed invalid lease_expired not_leased \
         stale_fence task_not_found",
    ),
    (
        "Fail",
        "already_settled already_terminal failed invalid lease_expired not_leased quarantined \
         retry_at stale_fence task_not_found",
    ),
    (
        "Snooze",
        "already_settled already_terminal snoozed_until invalid lease_expired not_leased \
         stale_fence task_not_found",
    ),
    (
        "Release",
        "already_settled already_terminal lease_expired not_leased released stale_fence \
         task_not_found",
    ),
    (
        "CancelHeld",
        "already_settled already_terminal cancelled invalid lease_expired not_leased \
         stale_fence task_not_found",
    ),
    ("Cancel", "already_terminal cancelled invalid quarantined task_not_found"),
    ("ChangePriority", "already_terminal invalid priority_changed task_not_found"),
    ("Replay", "execution_mismatch not_terminal replayed replays_exhausted task_not_found"),
    ("DeleteTask", "deleted not_terminal task_not_found"),
    ("SetLaneState", "invalid lane_changed lane_not_found"),
    ("LimitLane", "invalid lane_changed lane_not_found"),
    ("Sweep", "invalid swept swept_none"),
    ("TrimLog", "invalid trimmed trimmed_a_page trimmed_none"),
    ("HeartbeatNode", "beaten invalid joined"),
    ("DeregisterNode", "invalid left"),
    ("Create", "parent_not_found parent_terminal"),
    ("DeleteTask", "children_open"),
    (
        "WaitChildren",
        "already_settled already_terminal children_done lease_expired no_children not_leased \
         stale_fence task_not_found waiting_children",
    ),
    ("SetQuota", "invalid lane_not_found quota_set"),
    ("ReleaseSession", "invalid session_released"),
    ("RegisterWorker", "beaten invalid joined not_held"),
    ("DeregisterWorker", "invalid retired"),
    (
        "Grant",
        "already_terminal granted granted_to_other invalid lane_paused not_waiting \
         task_not_found",
    ),
    (
        "ClaimGranted",
        "already_terminal claimed_one invalid lane_full lane_paused not_granted task_not_found",
    ),
    ("Revoke", "already_terminal invalid not_leased revoked task_not_found"),
    ("MoveSubscriptionCursor", "bookmark_at invalid"),
    ("DeleteSubscription", "dropped dropped_none invalid"),
    (
        "SendMessages",
        "already_terminal conflict invalid quarantined sent sent_and_resumed sent_before \
         task_not_found",
    ),
    (
        "CompleteWaitpoint",
        "already_terminal sent sent_and_resumed token_expired token_invalid waitpoint_completed",
    ),
    (
        "CreateWaitpoint",
        "already_terminal conflict invalid lease_expired no_signing_key not_leased stale_fence \
         task_not_found waitpoint_created",
    ),
    (
        "Suspend",
        "already_satisfied already_settled already_terminal invalid lease_expired \
         no_signing_key not_begun not_leased stale_fence suspended suspended_with_waitpoints \
         task_not_found waitpoint_not_found",
    ),
    ("Resume", "already_terminal invalid not_suspended resumed task_not_found"),
    (
        "ConsumeMessages",
        "already_terminal consumed consumed_none invalid lease_expired not_leased stale_fence \
         task_not_found",
    ),
    ("RotateSigningKey", "conflict invalid known rotated"),
    (
        "Admit",
        "admitted answered idempotency_conflict idempotency_expired idempotency_in_flight \
         invalid rate_limited",
    ),
    ("CompleteRequest", "already_settled answered invalid request_lost"),
    ("ReleaseRequest", "already_settled invalid released"),
    (
        "ClaimEffect",
        "claimed claimed_before conflict invalid not_begun request_lost settled_before \
         stale_fence",
    ),
    ("SettleEffect", "already_settled effect_not_claimed request_lost settled stale_fence"),
    ("Spend", "conflict invalid rate_limited spent"),
    ("AbandonTurn", "not_a_workflow released stale_fence task_not_found"),
    ("DropActivity", "already_terminal cancelled stale_fence task_not_found"),
    ("RenewSessions", "invalid renewed_none"),
    (
        "CommitTurn",
        "already_settled already_terminal invalid lease_expired lease_kept not_a_workflow \
         not_leased stale_fence task_not_found turn_mismatch turned",
    ),
    ("ClearSticky", "sticky_cleared"),
    ("RequestCancel", "already_terminal cancelled invalid task_not_found"),
    ("PruneExecutions", "not_a_workflow pruned task_not_found"),
];
