use std::collections::BTreeMap;

use windlass_core::{Change, LogEvent, TaskId, Tenant, Timestamp, WorkerId};
use windlass_store::Store;

use crate::bench::options::BenchError;
use crate::bench::report::Progress;

/// The events of the tasks of one tenant: which worker claimed and completed them, and whether any
/// was completed twice by its fences.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    tasks: BTreeMap<TaskId, Entry>,
    pub(crate) workers: BTreeMap<WorkerId, Share>,
    pub(crate) claims: u64,
    /// Released claims, and claims whose lease expired.
    pub(crate) released: u64,
    pub(crate) expired: u64,
    /// The maximum number of attempts of a task.
    pub(crate) most_attempts: u32,
    first_claim: Option<Timestamp>,
    last_completion: Option<Timestamp>,
}

/// The counters of one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) claims: u64,
    pub(crate) completions: u64,
}

#[derive(Debug, Default)]
struct Entry {
    /// The last epoch and its worker.
    claim: Option<(u64, WorkerId)>,
    completions: u32,
    /// Whether it was completed under an epoch other than the last, or an epoch was reused.
    fence_broken: bool,
}

const PAGE: usize = 10_000;

impl Ledger {
    /// Reads the log after `after` to its end.
    pub(crate) async fn read(
        store: &dyn Store,
        tenant: &Tenant,
        mut after: u64,
        json: bool,
    ) -> Result<Self, BenchError> {
        let last = store.describe().await?.last_seq;
        let progress = Progress::new("checking", last.saturating_sub(after), json);
        let mut ledger = Self::default();
        loop {
            let page = store.events(after, PAGE).await?;
            let Some(end) = page.last() else { return Ok(ledger) };
            progress.add(end.seq - after);
            after = end.seq;
            page.iter().filter(|logged| logged.tenant == *tenant).for_each(|it| ledger.note(it));
        }
    }

    fn note(&mut self, logged: &LogEvent) {
        let (Some(id), Some(change)) = (&logged.task, logged.change()) else { return };
        let entry = self.tasks.entry(id.clone()).or_default();
        match change {
            Change::Claimed { epoch, worker, attempt } => {
                entry.fence_broken |= entry.claim.as_ref().is_some_and(|(last, _)| *last >= epoch);
                self.workers.entry(worker.clone()).or_default().claims += 1;
                entry.claim = Some((epoch, worker));
                self.claims += 1;
                self.most_attempts = self.most_attempts.max(attempt.unwrap_or_default());
                self.first_claim.get_or_insert(logged.at);
            }
            Change::Completed { epoch } => {
                entry.completions += 1;
                match &entry.claim {
                    Some((last, worker)) if *last == epoch => {
                        self.workers.entry(worker.clone()).or_default().completions += 1;
                    }
                    _ => entry.fence_broken = true,
                }
                self.last_completion = self.last_completion.max(Some(logged.at));
            }
            Change::Released { .. } => self.released += 1,
            Change::LeaseLost { .. } => self.expired += 1,
            _ => {}
        }
    }

    /// Fails unless `tasks` tasks were completed once each under the fence of their last claim, and
    /// every claim is accounted for.
    pub(crate) fn check(&self, tasks: u64) -> Result<(), BenchError> {
        let completed_once =
            self.tasks.values().filter(|task| task.completions == 1 && !task.fence_broken);
        let completed_once = completed_once.count() as u64;
        let claims_accounted = tasks + self.released + self.expired;
        if completed_once == tasks
            && self.tasks.len() as u64 == tasks
            && self.claims == claims_accounted
        {
            return Ok(());
        }
        Err(BenchError::Ledger { completed_once, tasks, claims: self.claims, claims_accounted })
    }

    /// From the first claim to the last completion, by the clock of the store.
    pub(crate) fn seconds(&self) -> f64 {
        match (self.first_claim, self.last_completion) {
            (Some(first), Some(last)) => (last.micros() - first.micros()) as f64 / 1e6,
            _ => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use windlass_core::{Event, Kind, LaneName};

    use super::*;

    /// Each row is a task, its change, and the epoch: `a claimed 1`.
    fn ledger(lines: &[(&str, &str, u64)]) -> Ledger {
        let mut ledger = Ledger::default();
        for (seq, (id, change, epoch)) in (1..).zip(lines) {
            let (worker, attempt) = (WorkerId::new("w"), Some(1));
            let change = match *change {
                "claimed" => Change::Claimed { epoch: *epoch, worker, attempt },
                "completed" => Change::Completed { epoch: *epoch },
                "released" => Change::Released { epoch: *epoch },
                other => unreachable!("{other}"),
            };
            let (at, task) = (Timestamp::from_micros(0), Some(((*id).into(), Kind::new("k"))));
            let (tenant, lane) = (Tenant::default(), LaneName::default());
            let labels = BTreeMap::new();
            ledger.note(&LogEvent::new(seq, &Event { at, tenant, lane, task, labels, change }));
        }
        ledger
    }

    #[test]
    fn a_task_that_runs_twice_is_detected() {
        let one = [("a", "claimed", 1), ("a", "completed", 1)];
        let again = [("b", "claimed", 1), ("b", "released", 1), ("b", "claimed", 2)];
        for (lines, good) in [
            (one.to_vec(), true),
            ([&one[..], &again, &[("b", "completed", 2)]].concat(), true),
            ([&one[..], &again].concat(), false),
            ([&one[..], &again, &[("b", "completed", 1)]].concat(), false),
            ([&one[..], &[("a", "completed", 1)]].concat(), false),
            ([&one[..], &[("a", "claimed", 1)]].concat(), false),
            ([&one[..], &[("b", "claimed", 1), ("b", "claimed", 2)]].concat(), false),
        ] {
            let tasks = if lines.iter().any(|(id, ..)| *id == "b") { 2 } else { 1 };
            assert_eq!(ledger(&lines).check(tasks).is_ok(), good, "{lines:?}");
        }
        let share = ledger(&one).workers[&WorkerId::new("w")];
        assert_eq!(share, Share { claims: 1, completions: 1 });
    }
}
