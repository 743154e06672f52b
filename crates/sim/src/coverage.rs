use std::collections::BTreeMap;
use std::fmt;

use windlass_core::command::IfAbsent;
use windlass_core::{Change, Command, LogEvent, Outcome, ResumeCause};
use windlass_engine::Error;

use crate::model::ORPHANED;

/// A notable event that no answer shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoverageEvent {
    HandlerStarted,
    Crash,
    /// A crash between a commit and its answer.
    CrashAfterCommit,
    Stop,
    /// A process was stopped between two steps of a batch.
    StopInBatch,
    Drain,
    ClockSet,
    /// A client disconnected before its answer.
    Left,
    /// A repeated settle got the first answer.
    SettleRepeated,
    /// A lane reached its limit.
    LaneFull,
    /// A client received `OutcomeUnknown` for its command.
    OutcomeUnknown,
    /// Two nodes counted the same children concurrently, and one had to retry.
    FamilyRaced,
    /// A lease ended before its expiry, because its worker was declared dead.
    WorkerDied,
    /// A lease ended before its expiry, because its worker reported that it does not hold it.
    LeaseNotHeld,
    /// An owner took longer than the in-flight time of its request.
    ReleasedByTime,
    /// A conflicting request arrived while the key was in flight.
    ConflictInFlight,
    ConflictAnswered,
    /// A duplicate waited, and received the first response.
    WaitedForAnswer,
    LookupFound,
    LookupNoRecord,
    LookupAmbiguous,
    /// A call was repeated by a caller that could not know of the first one.
    CalledLate,
    /// A call was repeated under the same idempotency key.
    ThreadedAgain,
    /// A workflow was replayed: the worker of the turn did not cache it.
    WorkflowReplayed,
    /// The worker that cached it before has crashed.
    ReplayedAfterCrash,
    /// The worker that cached it before still does, and may yet write.
    InMemoryTwice,
    /// The losing branches of a select were cancelled.
    SelectLost,
    /// A cancelled workflow cleaned up first.
    CleanedUp,
    ContinuedAsNew,
    WorkflowCompleted,
    WorkflowFailed,
    WorkflowCancelled,
    /// Unread messages were carried over to the next execution.
    CarriedOver,
    /// Two nodes admitted a task by the same limit concurrently, and one had to retry.
    LimitRaced,
}

/// How often each event happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage(BTreeMap<(&'static str, &'static str), u64>);

/// Events that a run of many seeds must have seen: an accepted one for each command, and every
/// rare case.
pub const REQUIRED: &[(&str, &str)] = &[
    ("Create", "ok"),
    ("Create", "duplicate"),
    ("Create", "conflict"),
    ("Create", "lane_closed"),
    ("Claim", "ok"),
    ("Claim", "nothing"),
    ("Begin", "ok"),
    ("Begin", "stale_fence"),
    ("ReportProgress", "ok"),
    ("ReportProgress", "stale_fence"),
    ("Renew", "ok"),
    ("Renew", "stale_fence"),
    ("Renew", "lease_expired"),
    ("Complete", "ok"),
    ("Complete", "stale_fence"),
    ("Complete", "lease_expired"),
    ("Complete", "not_leased"),
    ("Complete", "already_settled"),
    ("Complete", "already_terminal"),
    ("Complete", "task_not_found"),
    ("Complete", "store_unavailable"),
    ("Fail", "ok"),
    ("Fail", "stale_fence"),
    ("Snooze", "ok"),
    ("Release", "ok"),
    ("CancelHeld", "ok"),
    ("Cancel", "ok"),
    ("Cancel", "already_terminal"),
    ("ChangePriority", "ok"),
    ("Replay", "ok"),
    ("Replay", "not_terminal"),
    ("DeleteTask", "ok"),
    ("DeleteTask", "not_terminal"),
    ("SetLaneState", "ok"),
    ("SetLaneState", "lane_not_found"),
    ("LimitLane", "ok"),
    ("Sweep", "ok"),
    ("SendMessages", "ok"),
    ("SendMessages", "duplicate"),
    ("SendMessages", "resumed"),
    ("SendMessages", "conflict"),
    ("SendMessages", "already_terminal"),
    ("SendMessages", "task_not_found"),
    ("Suspend", "ok"),
    ("Suspend", "satisfied"),
    ("Suspend", "stale_fence"),
    ("Suspend", "lease_expired"),
    ("Suspend", "already_settled"),
    ("Resume", "ok"),
    ("Resume", "not_suspended"),
    ("CreateWaitpoint", "ok"),
    ("CreateWaitpoint", "no_signing_key"),
    ("CompleteWaitpoint", "ok"),
    ("CompleteWaitpoint", "waitpoint_completed"),
    ("CompleteWaitpoint", "token_invalid"),
    ("CompleteWaitpoint", "token_expired"),
    ("CompleteWaitpoint", "already_terminal"),
    ("ConsumeMessages", "ok"),
    ("ConsumeMessages", "stale_fence"),
    ("RotateSigningKey", "ok"),
    ("log", "suspended"),
    ("log", "resumed"),
    ("log", "waitpoint_created"),
    ("log", "escalated"),
    ("WaitChildren", "ok"),
    ("WaitChildren", "done"),
    ("WaitChildren", "stale_fence"),
    ("Create", "parent_not_found"),
    ("Create", "parent_terminal"),
    ("DeleteTask", "children_open"),
    ("SetQuota", "ok"),
    ("SetQuota", "lane_not_found"),
    ("ReleaseSession", "ok"),
    ("log", "unblocked"),
    ("log", "blocked_again"),
    ("log", "session_granted"),
    ("log", "grant_released"),
    ("log", "quota_set"),
    ("RegisterWorker", "ok"),
    ("DeregisterWorker", "ok"),
    ("Grant", "ok"),
    ("Grant", "granted_to_other"),
    ("Grant", "not_waiting"),
    ("ClaimGranted", "ok"),
    ("ClaimGranted", "not_granted"),
    ("Revoke", "ok"),
    ("Revoke", "not_leased"),
    ("log", "granted"),
    ("log", "grant_expired"),
    ("log", "revoked"),
    ("log", "waiting_children"),
    ("resumed", "children"),
    ("cancelled", "with_its_parent"),
    ("log", "promoted"),
    ("log", "lease_lost"),
    ("log", "expired"),
    ("log", "retry_scheduled"),
    ("log", "failed"),
    ("log", "renewed"),
    ("log", "replayed"),
    ("log", "continued_as_new"),
    ("log", "deleted"),
    ("Admit", "ok"),
    ("Admit", "answered"),
    ("Admit", "idempotency_conflict"),
    ("Admit", "idempotency_in_flight"),
    ("Admit", "idempotency_expired"),
    ("Admit", "rate_limited"),
    ("CompleteRequest", "answered"),
    ("CompleteRequest", "request_lost"),
    ("CompleteRequest", "already_settled"),
    ("ReleaseRequest", "ok"),
    ("ReleaseRequest", "already_settled"),
    ("ClaimEffect", "ok"),
    ("ClaimEffect", "known"),
    ("ClaimEffect", "conflict"),
    ("ClaimEffect", "stale_fence"),
    ("ClaimEffect", "request_lost"),
    ("SettleEffect", "ok"),
    ("SettleEffect", "effect_not_claimed"),
    ("SettleEffect", "already_settled"),
    ("Spend", "ok"),
    ("Spend", "conflict"),
    ("Spend", "rate_limited"),
    ("request", "first"),
    ("request", "replayed"),
    ("request", "failed"),
    ("request", "request_lost"),
    ("request", "idempotency_conflict"),
    ("request", "idempotency_in_flight"),
    ("request", "idempotency_expired"),
    ("request", "rate_limited"),
    ("log", "effect_claimed"),
    ("log", "effect_settled"),
    ("seen", "ReleasedByTime"),
    ("seen", "ConflictInFlight"),
    ("seen", "ConflictAnswered"),
    ("seen", "WaitedForAnswer"),
    ("seen", "LookupFound"),
    ("seen", "LookupNoRecord"),
    ("seen", "LookupAmbiguous"),
    ("seen", "ThreadedAgain"),
    ("seen", "HandlerStarted"),
    ("seen", "Crash"),
    ("seen", "CrashAfterCommit"),
    ("seen", "Stop"),
    ("seen", "StopInBatch"),
    ("seen", "Drain"),
    ("seen", "ClockSet"),
    ("seen", "Left"),
    ("seen", "SettleRepeated"),
    ("seen", "LaneFull"),
    ("seen", "OutcomeUnknown"),
    ("seen", "FamilyRaced"),
    ("seen", "LimitRaced"),
    ("seen", "WorkerDied"),
    ("seen", "LeaseNotHeld"),
    ("CommitTurn", "ok"),
    ("CommitTurn", "stale_fence"),
    ("CommitTurn", "turn_mismatch"),
    ("RequestCancel", "ok"),
    ("RequestCancel", "already_terminal"),
    ("PruneExecutions", "ok"),
    ("SendMessages with start", "ok"),
    ("SendMessages with start", "resumed"),
    ("SendMessages with buffer", "ok"),
    ("AbandonTurn", "ok"),
    ("AbandonTurn", "stale_fence"),
    ("DropActivity", "ok"),
    ("DropActivity", "stale_fence"),
    ("DropActivity", "not_leased"),
    ("RenewSessions", "ok"),
    ("RenewSessions", "nothing"),
    ("seen", "CarriedOver"),
    ("seen", "WorkflowCancelled"),
    ("seen", "WorkflowFailed"),
    ("seen", "WorkflowCompleted"),
    ("seen", "ContinuedAsNew"),
    ("seen", "CleanedUp"),
    ("seen", "SelectLost"),
    ("seen", "InMemoryTwice"),
    ("seen", "ReplayedAfterCrash"),
    ("seen", "WorkflowReplayed"),
];

/// The name under which a command is counted: sends differ by what they do if their task does
/// not exist.
fn name_of(command: &Command) -> &'static str {
    let Command::SendMessages(send) = command else { return command.name() };
    let any = |is: fn(&IfAbsent) -> bool| send.messages.iter().any(|each| is(&each.if_absent));
    if any(|if_absent| matches!(if_absent, IfAbsent::Start(_))) {
        "SendMessages with start"
    } else if any(|if_absent| matches!(if_absent, IfAbsent::Buffer { .. })) {
        "SendMessages with buffer"
    } else {
        command.name()
    }
}

impl Coverage {
    pub(crate) fn count(&mut self, event: CoverageEvent) {
        let name = match event {
            CoverageEvent::HandlerStarted => "HandlerStarted",
            CoverageEvent::Crash => "Crash",
            CoverageEvent::CrashAfterCommit => "CrashAfterCommit",
            CoverageEvent::Stop => "Stop",
            CoverageEvent::StopInBatch => "StopInBatch",
            CoverageEvent::Drain => "Drain",
            CoverageEvent::ClockSet => "ClockSet",
            CoverageEvent::Left => "Left",
            CoverageEvent::SettleRepeated => "SettleRepeated",
            CoverageEvent::LaneFull => "LaneFull",
            CoverageEvent::OutcomeUnknown => "OutcomeUnknown",
            CoverageEvent::FamilyRaced => "FamilyRaced",
            CoverageEvent::LimitRaced => "LimitRaced",
            CoverageEvent::WorkerDied => "WorkerDied",
            CoverageEvent::LeaseNotHeld => "LeaseNotHeld",
            CoverageEvent::ReleasedByTime => "ReleasedByTime",
            CoverageEvent::ConflictInFlight => "ConflictInFlight",
            CoverageEvent::ConflictAnswered => "ConflictAnswered",
            CoverageEvent::WaitedForAnswer => "WaitedForAnswer",
            CoverageEvent::LookupFound => "LookupFound",
            CoverageEvent::LookupNoRecord => "LookupNoRecord",
            CoverageEvent::LookupAmbiguous => "LookupAmbiguous",
            CoverageEvent::CalledLate => "CalledLate",
            CoverageEvent::ThreadedAgain => "ThreadedAgain",
            CoverageEvent::CarriedOver => "CarriedOver",
            CoverageEvent::WorkflowCancelled => "WorkflowCancelled",
            CoverageEvent::WorkflowFailed => "WorkflowFailed",
            CoverageEvent::WorkflowCompleted => "WorkflowCompleted",
            CoverageEvent::ContinuedAsNew => "ContinuedAsNew",
            CoverageEvent::CleanedUp => "CleanedUp",
            CoverageEvent::SelectLost => "SelectLost",
            CoverageEvent::InMemoryTwice => "InMemoryTwice",
            CoverageEvent::ReplayedAfterCrash => "ReplayedAfterCrash",
            CoverageEvent::WorkflowReplayed => "WorkflowReplayed",
        };
        self.add("seen", name, 1);
    }

    pub(crate) fn answered(&mut self, command: &Command, answer: &Result<Outcome, Error>) {
        let code = match answer {
            Ok(Outcome::Created(created)) if created.iter().all(|each| each.duplicate) => {
                "duplicate"
            }
            Ok(Outcome::Claimed(tasks)) if tasks.is_empty() => "nothing",
            Ok(Outcome::Sent(sent)) if sent.iter().all(|each| each.duplicate) => "duplicate",
            Ok(Outcome::Sent(sent)) if sent.iter().any(|each| each.resumed) => "resumed",
            Ok(Outcome::AlreadySatisfied(_)) => "satisfied",
            Ok(Outcome::Consumed { consumed: 0 } | Outcome::SessionsRenewed { renewed: 0 }) => {
                "nothing"
            }
            Ok(Outcome::ChildrenDone(_)) => "done",
            Ok(Outcome::RequestCompleted(_)) => "answered",
            Ok(Outcome::EffectClaimed { existed: true, .. }) => "known",
            Ok(_) => "ok",
            Err(error) => error.code(),
        };
        self.add(name_of(command), code, 1);
        if matches!(answer, Err(Error::OutcomeUnknown)) {
            self.count(CoverageEvent::OutcomeUnknown);
        }
    }

    /// Counts a sent request by its result.
    pub(crate) fn sent(&mut self, code: &'static str) {
        self.add("request", code, 1);
    }

    pub(crate) fn logged(&mut self, entry: &LogEvent) {
        if let Some(change) = entry.change() {
            self.add("log", change.name(), 1);
            match &change {
                Change::Resumed { cause: ResumeCause::Children, .. } => {
                    self.add("resumed", "children", 1);
                }
                Change::Cancelled { reason } if reason == ORPHANED => {
                    self.add("cancelled", "with_its_parent", 1);
                }
                _ => {}
            }
        }
    }

    fn add(&mut self, what: &'static str, how: &'static str, times: u64) {
        *self.0.entry((what, how)).or_default() += times;
    }

    /// Adds the counts of another run.
    pub fn merge(&mut self, other: &Coverage) {
        for ((what, how), times) in &other.0 {
            self.add(what, how, *times);
        }
    }

    /// The entries of [`REQUIRED`] that have not happened.
    pub fn missing(&self) -> Vec<(&'static str, &'static str)> {
        REQUIRED.iter().copied().filter(|pair| !self.0.contains_key(pair)).collect()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((what, how), times) in &self.0 {
            writeln!(f, "{what:<15} {how:<20} {times:>9}")?;
        }
        Ok(())
    }
}
