use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use std::{fmt, io};

use windlass_core::ChangeSet;
use windlass_store::{CommitId, StoreError};

use super::pause::Hold;

/// The calls that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    Begin,
    Load,
    Commit,
    Outcome,
    Query,
    Payloads,
    Events,
    Describe,
}

/// The error of a failed call. The call is not forwarded, so nothing changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    Conflict,
    Rejected,
    Unavailable,
    Full,
    Corrupt,
    Incompatible,
    Closed,
}

impl Failure {
    pub fn error(self) -> StoreError {
        let source = || Box::new(io::Error::other("injected by a test"));
        match self {
            Failure::Conflict => StoreError::Conflict,
            Failure::Rejected => StoreError::Rejected(source()),
            Failure::Unavailable => StoreError::Unavailable(source()),
            Failure::Full => StoreError::Full,
            Failure::Corrupt => {
                StoreError::Corrupt { path: PathBuf::from("injected"), source: source() }
            }
            Failure::Incompatible => StoreError::Incompatible { found: 2, supported: 1 },
            Failure::Closed => StoreError::Closed,
        }
    }
}

/// Where a commit is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashPoint {
    /// Nothing is written, and the caller knows: `Unavailable`.
    BeforeCommit,
    /// Nothing is written, and the caller does not know: `OutcomeUnknown`.
    InCommit,
    /// All is written, and the caller does not know: `OutcomeUnknown`. If the store itself rejects
    /// the commit, for example with `Conflict`, its error is returned.
    AfterCommit,
}

/// The fault of one call.
#[derive(Debug)]
pub(super) enum Fault {
    Fail(Failure),
    Crash(CrashPoint),
}

#[derive(Debug)]
struct Planned<T> {
    call: Call,
    /// Counted from the first call of its kind.
    number: u64,
    what: T,
}

/// Which change sets are rejected.
struct Rejected(Box<dyn Fn(&ChangeSet) -> bool + Send>);

impl fmt::Debug for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rejected")
    }
}

#[derive(Debug, Default)]
pub(super) struct Script {
    calls: BTreeMap<Call, u64>,
    faults: Vec<Planned<Fault>>,
    holds: Vec<Planned<Hold>>,
    outage: Option<Failure>,
    slow: Duration,
    rejected: Option<Rejected>,
    /// By commit id: whether its commit took effect.
    truths: BTreeMap<u64, bool>,
    commits: u64,
    rows: u64,
}

impl Script {
    /// Far from the commit ids of the wrapped store.
    const FIRST_TICKET: u64 = 1 << 62;

    pub(super) fn plan(&mut self, call: Call, nth: u64, fault: Fault) {
        let number = self.number(call, nth);
        self.faults.push(Planned { call, number, what: fault });
    }

    pub(super) fn hold(&mut self, nth: u64, hold: Hold) {
        let number = self.number(Call::Commit, nth);
        self.holds.push(Planned { call: Call::Commit, number, what: hold });
    }

    fn number(&self, call: Call, nth: u64) -> u64 {
        assert!(nth > 0, "`nth` starts at one, which is the next call");
        self.calls(call) + nth
    }

    /// Counts a call, and returns its planned hold and fault.
    pub(super) fn enter(&mut self, call: Call) -> (Option<Hold>, Option<Fault>) {
        let count = self.calls.entry(call).or_default();
        *count += 1;
        let number = *count;
        let hold = take(&mut self.holds, call, number);
        let fault = take(&mut self.faults, call, number);
        (hold, fault.or(self.outage.map(Fault::Fail)))
    }

    /// Clears all plans. The outcomes of commits are retained.
    pub(super) fn calm(&mut self) {
        self.faults.clear();
        self.holds.clear();
        self.outage = None;
        self.slow = Duration::ZERO;
        self.rejected = None;
    }

    pub(super) fn set_slow(&mut self, by: Duration) {
        self.slow = by;
    }

    pub(super) fn slow(&self) -> Duration {
        self.slow
    }

    pub(super) fn set_outage(&mut self, outage: Option<Failure>) {
        self.outage = outage;
    }

    pub(super) fn reject(&mut self, rejected: impl Fn(&ChangeSet) -> bool + Send + 'static) {
        self.rejected = Some(Rejected(Box::new(rejected)));
    }

    pub(super) fn rejects(&self, changes: &ChangeSet) -> bool {
        self.rejected.as_ref().is_some_and(|rejected| rejected.0(changes))
    }

    pub(super) fn commit_id(&mut self, committed: bool) -> CommitId {
        let commit_id = Self::FIRST_TICKET + self.truths.len() as u64;
        self.truths.insert(commit_id, committed);
        CommitId::new(commit_id)
    }

    /// The outcome of a commit id; none for one of the wrapped store.
    pub(super) fn truth(&self, commit_id: &CommitId) -> Option<bool> {
        self.truths.get(&commit_id.number).copied()
    }

    pub(super) fn count_commit(&mut self) {
        self.commits += 1;
    }

    pub(super) fn count_rows(&mut self, rows: usize) {
        self.rows += rows as u64;
    }

    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    pub(super) fn commits(&self) -> u64 {
        self.commits
    }

    pub(super) fn calls(&self, call: Call) -> u64 {
        self.calls.get(&call).copied().unwrap_or_default()
    }

    pub(super) fn is_spent(&self) -> bool {
        self.faults.is_empty() && self.holds.is_empty()
    }
}

fn take<T>(planned: &mut Vec<Planned<T>>, call: Call, number: u64) -> Option<T> {
    let at = planned.iter().position(|plan| plan.call == call && plan.number == number)?;
    Some(planned.remove(at).what)
}
