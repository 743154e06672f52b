//! Affinities: one worker at a time holds the lock of each affinity, receives its new tasks, and
//! holds the lock only for the time it asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use windlass_core::{Command, ConcurrencyLimit, Lifecycle, LimitKey, Owner, Task, Timestamp};

use crate::model::external_runtime::{Changed, ExternalRuntime, Pair, only};
use crate::violation::{Breach, Kind, breach};

#[derive(Debug, Default)]
pub(super) struct Locks {
    pub(super) limits: BTreeMap<String, Arc<ConcurrencyLimit>>,
    /// By worker, the lock durations it asked for: by claims, and by renewals.
    claiming: BTreeMap<String, BTreeSet<u64>>,
    renewing: BTreeMap<String, BTreeSet<u64>>,
}

impl Locks {
    pub(super) fn submitted(&mut self, command: &Command) {
        match command {
            Command::Claim(claim) => {
                let lengths = self.claiming.entry(claim.worker.to_string()).or_default();
                lengths.insert(claim.session_idle_ms);
            }
            Command::RenewSessions(renew) => {
                for worker in &renew.workers {
                    let lengths = self.renewing.entry(worker.to_string()).or_default();
                    lengths.insert(renew.lock_ms);
                }
            }
            _ => {}
        }
    }

    fn is_requested(
        requested: &BTreeMap<String, BTreeSet<u64>>,
        owner: &Owner,
        now: Timestamp,
    ) -> bool {
        let lengths = requested.get(owner.worker.as_str());
        lengths.is_some_and(|lengths| lengths.iter().any(|ms| now.plus_ms(*ms) == owner.expires_at))
    }
}

/// The affinity of a task.
fn bound(task: &Task) -> Option<&str> {
    match &task.limit_key {
        Some(LimitKey::Affinity(name)) => Some(name),
        _ => None,
    }
}

impl ExternalRuntime {
    pub(super) fn check_locks(&self, changed: &Changed) -> Result<(), Breach> {
        for (name, pair) in &changed.limits {
            self.check_owner(name, pair, changed)?;
            self.check_counts(name, pair.1.as_deref(), changed)?;
        }
        for (id, pair) in &changed.tasks {
            let Some((lease, _)) = only(pair, false) else { continue };
            let Some(name) = pair.1.as_deref().and_then(bound) else { continue };
            let limit = changed.limits.get(name).and_then(|(_, after)| after.as_ref());
            let owner = limit.and_then(|limit| limit.owner.as_ref());
            let is_owned = owner.is_some_and(|owner| owner.worker == lease.worker);
            if !is_owned {
                let what = format!("{} leased {id}, but {owner:?} holds the lock", lease.worker);
                return breach(Kind::ConcurrencyLimit, what);
            }
        }
        Ok(())
    }

    /// Checks that a lock changes owner only after its expiry, and lasts as requested.
    fn check_owner(
        &self,
        name: &str,
        (before, after): &Pair<ConcurrencyLimit>,
        changed: &Changed,
    ) -> Result<(), Breach> {
        let owner = |limit: &Option<Arc<ConcurrencyLimit>>| {
            limit.as_ref().and_then(|limit| limit.owner.clone())
        };
        let (was, is) = (owner(before), owner(after));
        let same =
            |was: &Owner, is: &Owner| (&was.worker, was.expires_at) == (&is.worker, is.expires_at);
        // A batch with an earlier time may commit after one that released the lock.
        let is_free = was.as_ref().is_none_or(|was| was.expires_at <= self.latest);
        let Locks { claiming, renewing, .. } = &self.locks;
        let just = match (&was, &is) {
            (Some(was), Some(is)) if same(was, is) => true,
            (_, None) => is_free,
            (was, Some(is)) => {
                let stays = was.as_ref().is_some_and(|was| was.worker == is.worker);
                let is_renewed = Locks::is_requested(renewing, is, changed.now);
                // The same commit may grant a lock and renew it.
                let is_granted = Locks::is_requested(claiming, is, changed.now) || is_renewed;
                let takes = changed.has_leased(name, is) && is_granted;
                let lasts = was.as_ref().is_some_and(|was| changed.now < was.expires_at);
                let renews = stays && lasts && is_renewed;
                takes && (stays || is_free) || renews
            }
        };
        match just {
            true => Ok(()),
            false => breach(Kind::ConcurrencyLimit, format!("{name} moved from {was:?} to {is:?}")),
        }
    }

    /// Checks that the record counts the tasks of its affinity.
    fn check_counts(
        &self,
        name: &str,
        limit: Option<&ConcurrencyLimit>,
        changed: &Changed,
    ) -> Result<(), Breach> {
        let before = self.tasks.iter().filter(|(id, _)| !changed.tasks.contains_key(*id));
        let after = changed.tasks.values().filter_map(|(_, after)| after.as_ref());
        let all = before.map(|(_, task)| task).chain(after);
        let here = all.filter(|task| bound(task) == Some(name));
        let (running, others): (Vec<_>, Vec<_>) =
            here.partition(|task| matches!(task.lifecycle, Lifecycle::Active(_)));
        let counted = limit.map_or((0, 0), |limit| {
            (u64::from(limit.running), limit.blocked + u64::from(limit.admitted))
        });
        let there = (running.len() as u64, others.len() as u64);
        match counted == there {
            true => Ok(()),
            false => breach(Kind::ConcurrencyLimit, format!("{name}: {there:?}, not {limit:?}")),
        }
    }
}

impl Changed {
    /// Whether the owner of a lock leased a task of its affinity.
    fn has_leased(&self, name: &str, owner: &Owner) -> bool {
        self.tasks.values().any(|pair| {
            let is_bound = pair.1.as_deref().and_then(bound) == Some(name);
            is_bound && only(pair, false).is_some_and(|(lease, _)| lease.worker == owner.worker)
        })
    }
}
