use windlass_core::{Command, Wake};

use crate::claim_wait::ClaimWait;
use crate::inbox::Job;

/// Claims that found nothing and wait for something to become ready, the longest waiting first.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    claims: Vec<Job>,
    /// At this length those whose caller has left are cleared away.
    crowded: usize,
}

impl Waiters {
    /// Parks a claim. Gives it back if its caller does not wait for a task any longer.
    #[must_use]
    pub(crate) fn add(&mut self, job: Job) -> Option<Job> {
        if !job.wait().is_some_and(ClaimWait::park) {
            return Some(job);
        }
        self.claims.push(job);
        if self.claims.len() > self.crowded {
            self.claims.retain(|job| !job.reply.is_closed());
            self.crowded = 2 * self.claims.len() + 16;
        }
        None
    }

    /// Takes out the claims that these wakes concern: for each task that became ready the first
    /// claim that can serve it, and everybody where a whole lane may have opened.
    pub(crate) fn take<'w>(&mut self, wakes: impl Iterator<Item = &'w Wake>) -> Vec<Job> {
        let mut woken = Vec::new();
        if self.claims.is_empty() {
            return woken;
        }
        self.claims.retain(|job| !job.reply.is_closed());
        for wake in wakes {
            match wake.route {
                Some(_) => woken.extend(self.take_first(wake)),
                None => {
                    let called = self.claims.extract_if(.., |job| concerns(wake, job));
                    woken.extend(unparked(called));
                }
            }
        }
        woken
    }

    /// Takes out the first claim that this wake concerns and whose caller is there.
    fn take_first(&mut self, wake: &Wake) -> Option<Job> {
        loop {
            let first = self.claims.iter().position(|job| concerns(wake, job))?;
            if let Some(job) = unparked([self.claims.remove(first)]).next() {
                return Some(job);
            }
        }
    }

    /// Whether one of these wakes concerns anybody who waits.
    pub(crate) fn concern(&self, wakes: &[Wake]) -> bool {
        self.claims.iter().any(|job| wakes.iter().any(|wake| concerns(wake, job)))
    }

    /// Takes out every claim that one of these wakes concerns.
    pub(crate) fn take_concerned(&mut self, wakes: &[Wake]) -> Vec<Job> {
        let concerned = |job: &mut Job| wakes.iter().any(|wake| concerns(wake, job));
        unparked(self.claims.extract_if(.., concerned)).collect()
    }

    /// Puts claims back in front, as if they had not been taken. Gives those back whose callers do
    /// not wait for a task any longer.
    #[must_use]
    pub(crate) fn restore(&mut self, jobs: Vec<Job>) -> Vec<Job> {
        let parks = |job: &Job| job.wait().is_some_and(ClaimWait::park);
        let (parked, over): (Vec<Job>, _) = jobs.into_iter().partition(parks);
        self.claims.splice(..0, parked);
        over
    }

    pub(crate) fn take_all(&mut self) -> Vec<Job> {
        unparked(std::mem::take(&mut self.claims)).collect()
    }
}

/// Those of the claims whose callers still wait for them.
fn unparked(jobs: impl IntoIterator<Item = Job>) -> impl Iterator<Item = Job> {
    jobs.into_iter().filter(|job| job.wait().is_some_and(ClaimWait::unpark))
}

/// Whether a claim that waits may find something where this wake comes from.
pub(crate) fn concerns(wake: &Wake, job: &Job) -> bool {
    let [Command::Claim(claim)] = &job.commands[..] else { unreachable!("only claims wait") };
    wake.tenant == claim.tenant
        && claim.lanes.iter().any(|lane| wake.is_from(lane))
        && wake.route.as_ref().is_none_or(|route| claim.offer.meets(route))
}
