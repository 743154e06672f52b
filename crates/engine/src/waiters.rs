use windlass_core::{Command, Wake};

use crate::claim_wait::ClaimWait;
use crate::command_queue::Submission;

/// Parked claims that found nothing, in order of arrival.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    claims: Vec<Submission>,
    /// Length at which claims of departed callers are removed.
    prune_at: usize,
}

impl Waiters {
    /// Parks a claim. Returns it if its caller has left.
    #[must_use]
    pub(crate) fn add(&mut self, job: Submission) -> Option<Submission> {
        if !job.wait().is_some_and(ClaimWait::park) {
            return Some(job);
        }
        self.claims.push(job);
        if self.claims.len() > self.prune_at {
            self.claims.retain(|job| !job.reply.is_closed());
            self.prune_at = 2 * self.claims.len() + 16;
        }
        None
    }

    /// Takes the claims to wake: for each ready task the first matching claim, and all matching
    /// claims for the wake of a whole lane.
    pub(crate) fn take<'w>(&mut self, wakes: impl Iterator<Item = &'w Wake>) -> Vec<Submission> {
        let mut woken = Vec::new();
        if self.claims.is_empty() {
            return woken;
        }
        self.claims.retain(|job| !job.reply.is_closed());
        for wake in wakes {
            match wake.route {
                Some(_) => woken.extend(self.take_first(wake)),
                None => {
                    let matched = self.claims.extract_if(.., |job| matches_claim(wake, job));
                    woken.extend(unparked(matched));
                }
            }
        }
        woken
    }

    /// Takes the first matching claim whose caller still waits.
    fn take_first(&mut self, wake: &Wake) -> Option<Submission> {
        loop {
            let first = self.claims.iter().position(|job| matches_claim(wake, job))?;
            if let Some(job) = unparked([self.claims.remove(first)]).next() {
                return Some(job);
            }
        }
    }

    /// Whether one of these wakes matches a parked claim.
    pub(crate) fn match_any(&self, wakes: &[Wake]) -> bool {
        self.claims.iter().any(|job| wakes.iter().any(|wake| matches_claim(wake, job)))
    }

    /// Takes every claim that matches one of these wakes.
    pub(crate) fn take_matching(&mut self, wakes: &[Wake]) -> Vec<Submission> {
        let matching = |job: &mut Submission| wakes.iter().any(|wake| matches_claim(wake, job));
        unparked(self.claims.extract_if(.., matching)).collect()
    }

    /// Parks claims again at the front. Returns those whose caller has left.
    #[must_use]
    pub(crate) fn restore(&mut self, jobs: Vec<Submission>) -> Vec<Submission> {
        let parks = |job: &Submission| job.wait().is_some_and(ClaimWait::park);
        let (parked, over): (Vec<Submission>, _) = jobs.into_iter().partition(parks);
        self.claims.splice(..0, parked);
        over
    }

    pub(crate) fn take_all(&mut self) -> Vec<Submission> {
        unparked(std::mem::take(&mut self.claims)).collect()
    }
}

/// The claims whose callers still wait.
fn unparked(jobs: impl IntoIterator<Item = Submission>) -> impl Iterator<Item = Submission> {
    jobs.into_iter().filter(|job| job.wait().is_some_and(ClaimWait::unpark))
}

/// Whether a waiting claim may find a task after this wake.
pub(crate) fn matches_claim(wake: &Wake, job: &Submission) -> bool {
    let [Command::Claim(claim)] = &job.commands[..] else { unreachable!("only claims wait") };
    wake.tenant == claim.tenant
        && claim.lanes.iter().any(|lane| wake.covers_lane(lane))
        && wake.route.as_ref().is_none_or(|route| claim.capabilities.meets(route))
}
