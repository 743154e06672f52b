//! A small model of a task: the state that its log events give.

use windlass_core::{Change, PublicState};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Past {
    pub(crate) epoch: u64,
    pub(crate) attempts: u32,
    pub(crate) state: PublicState,
}

/// Applies the log events in order; reports one that cannot follow those before it.
pub(crate) fn follow(first_epoch: u64, history: &[(i64, Change)]) -> Result<Past, String> {
    let [(_, Change::Created), rest @ ..] = history else {
        return Err("it does not start with its creation".into());
    };
    let mut past = Past { epoch: first_epoch, attempts: 0, state: PublicState::Waiting };
    let mut begun = false;
    for (seq, change) in rest {
        let epoch = epoch_of(change).unwrap_or(past.epoch);
        let active = past.state == PublicState::Active && epoch == past.epoch;
        let (fits, state) = match change {
            Change::Claimed { attempt, .. } => {
                let fits = past.state == PublicState::Waiting && epoch == past.epoch + 1;
                past.epoch = epoch;
                begun = attempt.is_some();
                past.attempts += u32::from(begun);
                (fits && attempt.is_none_or(|it| it == past.attempts), PublicState::Active)
            }
            Change::Begun { attempt, .. } => {
                past.attempts += 1;
                let fits = active && !begun && *attempt == past.attempts;
                begun = true;
                (fits, PublicState::Active)
            }
            Change::Renewed { .. } => (active, PublicState::Active),
            Change::Completed { .. } => (active && begun, PublicState::Completed),
            Change::Failed { .. } => (active && begun, PublicState::Failed),
            Change::RetryScheduled { .. } => (active && begun, PublicState::Delayed),
            Change::Promoted => (past.state == PublicState::Delayed, PublicState::Waiting),
            Change::LeaseLost { .. } => (active, PublicState::Waiting),
            Change::Released { .. } => {
                past.attempts -= u32::from(begun);
                (active, PublicState::Waiting)
            }
            _ => (false, past.state),
        };
        if !fits {
            return Err(format!("log event {seq} cannot follow those before it"));
        }
        past.state = state;
    }
    Ok(past)
}

fn epoch_of(change: &Change) -> Option<u64> {
    match change {
        Change::Claimed { epoch, .. }
        | Change::Begun { epoch, .. }
        | Change::Renewed { epoch, .. }
        | Change::Completed { epoch }
        | Change::Released { epoch }
        | Change::LeaseLost { epoch, .. } => Some(*epoch),
        _ => None,
    }
}
