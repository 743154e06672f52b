use std::collections::BTreeMap;

use windlass_core::{
    AfterTurn, Change, Lifecycle, LogEvent, PublicState, Task, TaskKey, Timestamp,
};

/// The tasks of a log, reconstructed from its entries alone. It detects entries that do not follow
/// from earlier ones, and records that do not match the log.
#[derive(Debug, Default)]
pub struct LogFold {
    tasks: BTreeMap<TaskKey, Folded>,
}

/// A task as reconstructed from the log.
#[derive(Clone, Debug)]
struct Folded {
    phase: Phase,
    /// The time of its last entry.
    at: Timestamp,
    /// The epoch of its last lease.
    epoch: Option<u64>,
    /// None if the last entry does not show whether an attempt was counted.
    attempts: Option<u32>,
    execution: u32,
    /// The lease that expired last; its holder may still settle it late.
    lost: Option<u64>,
    /// Whether its record was seen and has a retention.
    is_retained: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Absent,
    /// Open and not leased. Includes workflows that wait for a message.
    Ready,
    Held {
        epoch: u64,
    },
    /// A turn has ended its lease: an entry with its result follows in the same commit.
    TurnEnds {
        epoch: u64,
    },
    Suspended,
    WaitingChildren,
    Ended(PublicState),
}

impl Default for Folded {
    fn default() -> Self {
        Self {
            phase: Phase::Absent,
            at: Timestamp::default(),
            epoch: None,
            attempts: Some(0),
            execution: 0,
            lost: None,
            is_retained: false,
        }
    }
}

impl LogFold {
    /// Reads the next entry of the log.
    pub fn read(&mut self, entry: &LogEvent) -> Result<(), String> {
        let Some(change) = entry.change() else { return Err(format!("unknown: {}", entry.body)) };
        let Some(id) = &entry.task else { return Ok(()) };
        self.apply(&TaskKey::new(&entry.tenant, id), entry.at, &change)?;
        if let Change::TurnCommitted { activities, .. } = &change {
            for id in activities {
                let key = TaskKey::new(&entry.tenant, id);
                self.apply(&key, entry.at, &Change::Created)?;
            }
        }
        Ok(())
    }

    fn apply(&mut self, key: &TaskKey, at: Timestamp, change: &Change) -> Result<(), String> {
        let known = self.tasks.entry(key.clone()).or_default();
        let before = known.clone();
        let context = || format!("{} {} at {at} after {before:?}", key.id, change.name());
        if at < before.at {
            return Err(format!("time decreases: {}", context()));
        }
        let phase = known.next(change).ok_or_else(context)?;
        if phase == Phase::Absent || *change == Change::Created {
            *known = Folded::default();
        }
        (known.phase, known.at) = (phase, at);
        Ok(())
    }

    /// Compares a record with the log, after a whole commit was read.
    pub fn check(&mut self, key: &TaskKey, record: Option<&Task>) -> Result<(), String> {
        let known = self.tasks.entry(key.clone()).or_default();
        let differs = || format!("{known:?} in the log, but the record is {record:?}");
        let Some(task) = record else {
            // An activity is deleted with its last entry, which ends it.
            let gone = match known.phase {
                Phase::Absent => true,
                Phase::Ended(_) => !known.is_retained,
                _ => false,
            };
            if !gone {
                return Err(differs());
            }
            known.phase = Phase::Absent;
            return Ok(());
        };
        let same = known.is_at(task)
            && known.execution == task.execution
            && known.epoch.is_none_or(|epoch| epoch == task.epoch)
            && known.attempts.is_none_or(|attempts| attempts == task.attempts);
        if !same {
            return Err(differs());
        }
        known.is_retained = task.step.is_none() || task.workflow.is_some();
        Ok(())
    }

    /// The tasks that exist according to the log.
    pub fn present(&self) -> impl Iterator<Item = &TaskKey> {
        let present = |known: &Folded| known.phase != Phase::Absent;
        self.tasks.iter().filter(move |(_, known)| present(known)).map(|(key, _)| key)
    }

    /// The number of entries earlier than a previous one, and the maximum difference.
    pub fn falls(entries: &[LogEvent]) -> (usize, u64) {
        let (mut latest, mut falls, mut most_ms) = (Timestamp::default(), 0, 0);
        for entry in entries {
            if entry.at < latest {
                falls += 1;
                most_ms = most_ms.max(entry.at.ms_until(latest));
            }
            latest = latest.max(entry.at);
        }
        (falls, most_ms)
    }
}

impl Folded {
    /// The next phase, if the change is valid.
    fn next(&mut self, change: &Change) -> Option<Phase> {
        match change {
            Change::Created => (self.phase == Phase::Absent).then_some(Phase::Ready),
            Change::Claimed { epoch, attempt, .. } => self.claim(*epoch, *attempt),
            Change::Begun { epoch, attempt } => {
                self.count(*attempt)?;
                self.held(*epoch)
            }
            Change::Renewed { epoch, .. } | Change::Progressed { epoch, .. } => self.held(*epoch),
            Change::Released { epoch } => {
                self.attempts = None;
                self.held(*epoch).map(|_| Phase::Ready)
            }
            Change::LeaseLost { epoch, .. } => {
                self.lost = Some(*epoch);
                self.held(*epoch).map(|_| Phase::Ready)
            }
            Change::RetryScheduled { .. } | Change::Snoozed { .. } => {
                self.attempts = None;
                let late = self.phase == Phase::Ready && self.lost.take().is_some();
                // A suspension may fail by its timeout.
                let held = self.phase == Phase::Suspended || self.any_lease().is_some();
                (held || late).then_some(Phase::Ready)
            }
            Change::Revoked { .. } => {
                self.attempts = None;
                (self.phase == Phase::Ready || self.any_lease().is_some()).then_some(Phase::Ready)
            }
            Change::Suspended { epoch, .. } => self.held(*epoch).map(|_| Phase::Suspended),
            Change::WaitingChildren { epoch, .. } => {
                // Begins an attempt if none has begun.
                self.attempts = None;
                self.held(*epoch).map(|_| Phase::WaitingChildren)
            }
            Change::Resumed { .. } => match self.phase {
                Phase::Suspended | Phase::WaitingChildren => Some(Phase::Ready),
                // The condition was already satisfied: the lease continues.
                held @ Phase::Held { .. } => Some(held),
                _ => None,
            },
            Change::TurnCommitted { epoch, next, .. } => {
                let held = self.held(*epoch)?;
                Some(match next {
                    AfterTurn::KeepsLease => held,
                    AfterTurn::Waits => Phase::Ready,
                    AfterTurn::ContinuesAsNew | AfterTurn::Ends => {
                        Phase::TurnEnds { epoch: *epoch }
                    }
                })
            }
            Change::Deleted => matches!(self.phase, Phase::Ended(_)).then_some(Phase::Absent),
            Change::Replayed { execution } => {
                matches!(self.phase, Phase::Ended(_)).then(|| self.start_over(*execution))?
            }
            Change::ContinuedAsNew { execution } => {
                self.is_open().then(|| self.start_over(*execution))?
            }
            Change::Completed { epoch } => self.complete(*epoch),
            Change::Failed { .. } => self.end(PublicState::Failed),
            Change::Cancelled { .. } => self.end(PublicState::Cancelled),
            Change::Expired => self.end(PublicState::Expired),
            other => self.stay(other),
        }
    }

    fn claim(&mut self, epoch: u64, attempt: Option<u32>) -> Option<Phase> {
        if self.phase != Phase::Ready || self.epoch.is_some_and(|last| epoch != last + 1) {
            return None;
        }
        (self.epoch, self.lost) = (Some(epoch), None);
        match (attempt, self.attempts) {
            // A resumed attempt has the same number.
            (Some(attempt), Some(known)) if attempt == known => {}
            (Some(attempt), _) => self.count(attempt)?,
            (None, _) => {}
        }
        Some(Phase::Held { epoch })
    }

    fn count(&mut self, attempt: u32) -> Option<()> {
        let next = self.attempts.is_none_or(|known| attempt == known + 1);
        self.attempts = Some(attempt);
        next.then_some(())
    }

    fn held(&self, epoch: u64) -> Option<Phase> {
        self.any_lease().filter(|phase| *phase == Phase::Held { epoch })
    }

    fn any_lease(&self) -> Option<Phase> {
        Some(self.phase).filter(|phase| matches!(phase, Phase::Held { .. }))
    }

    /// The next execution: of an ended task, or of a workflow within or after a turn.
    fn start_over(&mut self, execution: u32) -> Option<Phase> {
        if execution <= self.execution {
            return None;
        }
        (self.execution, self.attempts) = (execution, None);
        match self.phase {
            Phase::Ended(_) | Phase::TurnEnds { .. } => Some(Phase::Ready),
            held @ Phase::Held { .. } => Some(held),
            _ => None,
        }
    }

    fn complete(&self, epoch: u64) -> Option<Phase> {
        let ends = self.phase == Phase::TurnEnds { epoch };
        let late = self.phase == Phase::Ready && self.lost == Some(epoch);
        let completed = Phase::Ended(PublicState::Completed);
        (ends || late || self.held(epoch).is_some()).then_some(completed)
    }

    fn end(&mut self, state: PublicState) -> Option<Phase> {
        self.attempts = None;
        self.is_open().then_some(Phase::Ended(state))
    }

    /// Changes that do not change the phase.
    fn stay(&self, change: &Change) -> Option<Phase> {
        let stays = match change {
            Change::Promoted
            | Change::Unblocked
            | Change::BlockedAgain
            | Change::SessionGranted { .. }
            | Change::GrantReleased { .. }
            | Change::Granted { .. }
            | Change::GrantExpired { .. } => self.phase == Phase::Ready,
            Change::Escalated => self.phase == Phase::Suspended,
            _ => self.is_open(),
        };
        stays.then_some(self.phase)
    }

    fn is_open(&self) -> bool {
        !matches!(self.phase, Phase::Absent | Phase::Ended(_))
    }

    fn is_at(&self, task: &Task) -> bool {
        let lease = matches!(task.lifecycle, Lifecycle::Active(_)).then_some(task.epoch);
        match (self.phase, task.lifecycle.public()) {
            (Phase::Held { epoch }, _) => lease == Some(epoch),
            (Phase::Ended(ended), state) => ended == state,
            (Phase::Suspended, PublicState::Suspended) => true,
            (Phase::WaitingChildren, PublicState::WaitingChildren) => true,
            (Phase::Ready, PublicState::Suspended) => task.workflow.is_some(),
            (
                Phase::Ready,
                PublicState::Waiting
                | PublicState::Resumable
                | PublicState::Blocked
                | PublicState::Delayed,
            ) => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use windlass_core::Tenant;

    use super::*;

    fn entry(body: &str) -> LogEvent {
        let change: Change = serde_json::from_str(body).expect("the body is a change");
        LogEvent {
            seq: 1,
            at: Timestamp::from_millis(1),
            tenant: Tenant::default(),
            lane: "mail".into(),
            task: Some("t".into()),
            kind: Some("send".into()),
            category: change.category().as_str().into(),
            name: change.name().into(),
            body: body.into(),
        }
    }

    const CLAIMED: &str = r#"{"event":"claimed","epoch":5,"worker":"w","attempt":1}"#;
    const AGAIN: &str = r#"{"event":"claimed","epoch":6,"worker":"w","attempt":1}"#;
    const WAITS: &str = r#"{"event":"turn_committed","epoch":5,"turn":0,"next":"waits"}"#;
    const KEEPS: &str = r#"{"event":"turn_committed","epoch":5,"turn":0,"next":"keeps_lease"}"#;
    const CREATED: &str = r#"{"event":"created"}"#;

    fn reads(bodies: &[&str]) -> bool {
        let mut fold = LogFold::default();
        bodies.iter().all(|body| fold.read(&entry(body)).is_ok())
    }

    #[test]
    fn a_lease_ends_before_the_next_begins() {
        assert!(reads(&[CREATED, CLAIMED, WAITS, AGAIN]));
        assert!(!reads(&[CREATED, CLAIMED, AGAIN]));
        assert!(!reads(&[CREATED, CLAIMED, KEEPS, AGAIN]));
        assert!(!reads(&[CLAIMED]));
        assert!(!reads(&[CREATED, CREATED]));
        assert!(!reads(&[CREATED, CLAIMED, WAITS, WAITS]));
    }

    #[test]
    fn an_ended_task_is_replayed_and_an_open_workflow_continues_as_new() {
        const REPLAYED: &str = r#"{"event":"replayed","execution":1}"#;
        const CONTINUED: &str = r#"{"event":"continued_as_new","execution":1}"#;
        const OVER: &str =
            r#"{"event":"turn_committed","epoch":5,"turn":0,"next":"continues_as_new"}"#;
        const ENDED: &str = r#"{"event":"completed","epoch":5}"#;
        assert!(reads(&[CREATED, CLAIMED, OVER, CONTINUED, AGAIN]));
        assert!(!reads(&[CREATED, CLAIMED, OVER, REPLAYED]));
        assert!(reads(&[CREATED, CLAIMED, ENDED, REPLAYED, AGAIN]));
        assert!(!reads(&[CREATED, CLAIMED, ENDED, CONTINUED]));
    }

    #[test]
    fn the_time_of_a_task_does_not_decrease() {
        let mut fold = LogFold::default();
        fold.read(&entry(CREATED)).unwrap();
        let early = LogEvent { at: Timestamp::default(), ..entry(CLAIMED) };
        assert!(fold.read(&early).unwrap_err().starts_with("time decreases"));
    }
}
