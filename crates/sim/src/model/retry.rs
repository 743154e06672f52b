//! Failures: whether another attempt follows, and when.

use windlass_core::{FailureClass, OnTimeout, Retry, Settled};

use crate::model::facts::{Content, Facts, State};
use crate::model::lease::ends;
use crate::model::log::Step;
use crate::model::outcome::Fenced;
use crate::model::state::Model;
use crate::script::{BACKOFF_CAP_MS, JITTER_PERCENT, TaskSpec};
use crate::violation::{Breach, Kind, breach};

impl Model {
    /// Records that a holder fails its attempt, and the retry it asks for.
    pub(crate) fn failure_submitted(&mut self, fenced: Fenced, reason: &str, retry: Retry) {
        self.failing.entry(fenced).or_default().push((reason.to_owned(), retry));
    }

    /// Checks a failed attempt: its holder failed it, or it timed out.
    pub(super) fn failed(
        &mut self,
        at: &Step<'_>,
        facts: &mut Facts,
        spec: &TaskSpec,
        (class, reason): (FailureClass, &str),
        answer: Settled,
    ) -> Result<(), Breach> {
        match class {
            FailureClass::Timeout if matches!(facts.state, State::Suspended(_)) => {
                self.timed_out(at, facts, OnTimeout::Fail)?;
                follows(at, facts, spec, class, &[Retry::Policy], &answer)
            }
            FailureClass::Timeout => {
                let over = facts.hold().and_then(|hold| hold.over_at);
                if over.is_none_or(|over| at.at < over) {
                    return breach(Kind::Timeout, format!("its timeout is {over:?}"));
                }
                follows(at, facts, spec, class, &[Retry::Policy], &answer)
            }
            FailureClass::Crash => {
                let epoch = facts.hold().map_or(0, |hold| hold.epoch);
                self.runs_out(at, facts, epoch)?;
                facts.lost_leases += 1;
                if facts.attempts < max_attempts(spec) && facts.lost_leases <= spec.max_lost_leases
                {
                    return breach(Kind::Attempts, "failed with attempts left");
                }
                follows(at, facts, spec, class, &[Retry::Never], &answer)
            }
            FailureClass::Transient | FailureClass::Permanent | FailureClass::Cancelled => {
                let unbegun = facts.hold().is_some_and(|hold| hold.began_at.is_none());
                facts.attempts += u32::from(unbegun);
                let lease = ends(facts, at, spec)?;
                let said = self.failing.get(&(at.id.clone(), lease)).into_iter().flatten();
                let said = said.filter(|(known, _)| known == reason).map(|(_, retry)| *retry);
                let mut operations: Vec<Retry> = said.collect();
                if operations.is_empty() {
                    // The worker failed it, because its handler panicked.
                    operations.push(Retry::Policy);
                }
                follows(at, facts, spec, class, &operations, &answer)?;
                let content = Content::Fail(reason.to_owned());
                self.settled(at, facts, lease, Some(content), answer);
                Ok(())
            }
        }
    }
}

/// Whether a failure has the outcome of one of these retry requests.
fn follows(
    at: &Step<'_>,
    facts: &Facts,
    spec: &TaskSpec,
    class: FailureClass,
    operations: &[Retry],
    answer: &Settled,
) -> Result<(), Breach> {
    let leads_there = |retry: &Retry| match (pause_ms(facts, spec, class, *retry), answer) {
        (None, Settled::Failed) => true,
        (Some((least, most)), Settled::RetryAt(next)) => {
            (at.at.plus_ms(least)..=at.at.plus_ms(most)).contains(next)
        }
        _ => false,
    };
    if operations.iter().any(leads_there) {
        return Ok(());
    }
    let what = format!("{class:?} with {operations:?} after {} attempts", facts.attempts);
    breach(Kind::Retry, format!("{what}, but the outcome is {answer:?}"))
}

/// The shortest and longest backoff to the next attempt; none after the last attempt.
fn pause_ms(
    facts: &Facts,
    spec: &TaskSpec,
    class: FailureClass,
    retry: Retry,
) -> Option<(u64, u64)> {
    if facts.attempts >= max_attempts(spec) {
        return None;
    }
    let passes = matches!(class, FailureClass::Transient | FailureClass::Timeout);
    match retry {
        Retry::Never => None,
        Retry::After { ms } => Some((ms, ms)),
        Retry::Policy => (passes && spec.max_attempts.is_some()).then(|| backoff_ms(facts, spec)),
    }
}

fn backoff_ms(facts: &Facts, spec: &TaskSpec) -> (u64, u64) {
    if !spec.doubling {
        return (spec.backoff_ms, spec.backoff_ms);
    }
    let mut most = spec.backoff_ms.min(BACKOFF_CAP_MS);
    for _ in 1..facts.attempts {
        most = (2 * most).min(BACKOFF_CAP_MS);
    }
    (most - most * u64::from(JITTER_PERCENT) / 100, most)
}

pub(super) fn max_attempts(spec: &TaskSpec) -> u32 {
    spec.max_attempts.unwrap_or(spec.max_lost_leases + 1)
}
