//! Sessions of activities: affinities, each with a lock that its owner renews.

use std::time::Duration;

use duroxide::providers::ProviderError;
use windlass_core::command::{ReleaseSession, RenewSessions};
use windlass_core::{ConcurrencyLimit, LimitKind, Outcome, limits};

use crate::error::{failed, unexpected};
use crate::provider::{WindlassProvider, ms};

/// A lock duration, clamped to the limits of a session lock.
pub(crate) fn lock_ms(lock: Duration) -> u64 {
    let limit = limits::SESSION_IDLE_MS;
    let end = |end: i64| u64::try_from(end).unwrap_or(u64::MAX);
    ms(lock).clamp(end(limit.min), end(limit.max))
}

impl WindlassProvider {
    pub(crate) async fn renew_sessions(
        &self,
        owner_ids: &[&str],
        extend_for: Duration,
        idle_timeout: Duration,
    ) -> Result<usize, ProviderError> {
        const OPERATION: &str = "renew_session_lock";
        if owner_ids.is_empty() {
            return Ok(0);
        }
        let renew = RenewSessions {
            tenant: self.tenant.clone(),
            workers: owner_ids.iter().map(|owner| (*owner).into()).collect(),
            lock_ms: lock_ms(extend_for),
            idle_ms: ms(idle_timeout),
        };
        match self.engine.submit(renew).await.map_err(failed(OPERATION))? {
            Outcome::SessionsRenewed { renewed } => Ok(renewed),
            other => Err(unexpected(OPERATION, &other)),
        }
    }

    /// Releases sessions whose lock has expired and that have no tasks.
    pub(crate) async fn release_orphaned_sessions(&self) -> Result<usize, ProviderError> {
        const OPERATION: &str = "cleanup_orphaned_sessions";
        let (now, mut released, mut after) = (self.engine.now(), 0, None);
        let is_orphan = |limit: &ConcurrencyLimit| {
            limit.owner.as_ref().is_some_and(|owner| owner.expires_at < now) && limit.is_empty()
        };
        loop {
            let kind = Some(LimitKind::Affinity);
            let page =
                self.engine.concurrency_limits(&self.tenant, kind, after.as_deref(), 1_000).await;
            let page = page.map_err(failed(OPERATION))?;
            for limit in page.iter().filter(|limit| is_orphan(limit)) {
                let (tenant, session) = (self.tenant.clone(), limit.name.clone());
                let release = ReleaseSession { tenant, session, affinity: true };
                self.engine.submit(release).await.map_err(failed(OPERATION))?;
                released += 1;
            }
            match page.last() {
                Some(last) => after = Some(last.clone()),
                None => return Ok(released),
            }
        }
    }
}
