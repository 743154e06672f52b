use serde::Serialize;

use crate::children::ChildCounts;
use crate::concurrency_limit::{ConcurrencyLimit, LimitKey, LimitKind};
use crate::lane::{Lane, LaneLimit, LaneState};
use crate::name::{LaneName, WorkerId};
use crate::rate::Rate;
use crate::task::{FailureClass, Lifecycle, PublicState, Suspension, Task, WorkerCapabilities};
use crate::time::Timestamp;

/// Why a task makes no progress, with the evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Why {
    /// Only tasks ahead of it delay the task: the next free worker claims it.
    Queued,
    /// Neither the task nor its lane blocks it. Whether a worker polls for it is unknown, because
    /// no worker has claimed through this engine.
    Ready {
        capabilities: Vec<String>,
        tag: Option<String>,
    },
    /// The lane is paused or disabled.
    LanePaused {
        lane: LaneName,
        state: LaneState,
    },
    LaneFull {
        lane: LaneName,
        limit: u32,
        running: u32,
    },
    /// Workers poll this lane, but none of them offers all of these capabilities.
    NoCapableWorker {
        missing: Vec<String>,
        tag: Option<String>,
    },
    /// No worker polls this lane.
    NoWorker {
        lane: LaneName,
    },
    Delayed {
        until: Timestamp,
        after: Option<FailureClass>,
    },
    /// The task is blocked by its concurrency limit or rate limit, which has no free slot.
    ConcurrencyLimitReached {
        key: Option<LimitKey>,
        limit: Option<u32>,
        rate: Option<Rate>,
        /// Running tasks, and admitted tasks that are about to run.
        running: u32,
        blocked: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_at: Option<Timestamp>,
    },
    /// A quota of the lane or the tenant is exceeded.
    QuotaExceeded {
        kind: LimitKind,
        limit: Option<u32>,
        rate: Option<Rate>,
        running: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_at: Option<Timestamp>,
    },
    /// Only this worker may claim it.
    Granted {
        worker: WorkerId,
        until: Option<Timestamp>,
    },
    Suspended(Suspension),
    /// `children` are the counts, where known.
    WaitingChildren {
        since: Timestamp,
        children: Option<ChildCounts>,
    },
    Leased {
        worker: WorkerId,
        expires_at: Timestamp,
        attempt: Option<u32>,
    },
    Terminal {
        state: PublicState,
        at: Timestamp,
    },
}

/// The context of a task at the time `now`.
#[derive(Clone, Copy, Debug, Default)]
pub struct WhyContext<'a> {
    pub lane: Option<&'a Lane>,
    /// The concurrency limit of the task, and the quotas of its lane and tenant, in any order.
    pub limits: &'a [ConcurrencyLimit],
    /// The capabilities of the workers that poll the lane.
    pub workers: Option<&'a [WorkerCapabilities]>,
    pub now: Timestamp,
}

/// Explains a task from its record and its context, as far as that is known.
pub fn why(task: &Task, context: &WhyContext<'_>) -> Why {
    match &task.lifecycle {
        Lifecycle::Waiting(_) => why_waiting(task, context),
        Lifecycle::Blocked(_) => why_blocked(task, context),
        Lifecycle::Granted { worker, until, .. } => {
            Why::Granted { worker: worker.clone(), until: *until }
        }
        Lifecycle::Suspended(suspension) => Why::Suspended(suspension.clone()),
        Lifecycle::WaitingChildren { since, .. } => {
            Why::WaitingChildren { since: *since, children: None }
        }
        Lifecycle::Delayed { until, after, .. } => Why::Delayed { until: *until, after: *after },
        Lifecycle::Active(lease) => Why::Leased {
            worker: lease.worker.clone(),
            expires_at: lease.expires_at,
            attempt: lease.attempt.as_ref().map(|attempt| attempt.number),
        },
        ended @ (Lifecycle::Completed { at }
        | Lifecycle::Failed { at, .. }
        | Lifecycle::Cancelled { at, .. }
        | Lifecycle::Expired { at }) => Why::Terminal { state: ended.public(), at: *at },
    }
}

fn why_blocked(task: &Task, context: &WhyContext<'_>) -> Why {
    let own = context.limits.iter().find(|limit| limit.limit_key() == task.limit_key);
    Why::ConcurrencyLimitReached {
        key: task.limit_key.clone(),
        limit: own.and_then(|limit| limit.limit),
        rate: own.and_then(|limit| limit.rate),
        running: own.map_or(0, |limit| limit.running.saturating_add(limit.admitted)),
        blocked: own.map_or(0, |limit| limit.blocked),
        retry_at: own.and_then(|limit| limit.retry_at(context.now)),
    }
}

/// The quota that keeps a task from being claimed, if any.
fn exceeded<'a>(task: &Task, context: &WhyContext<'a>) -> Option<&'a ConcurrencyLimit> {
    context.limits.iter().find(|limit| {
        let counts = match limit.kind {
            LimitKind::Lane => limit.name == task.lane.as_str(),
            LimitKind::Tenant => true,
            LimitKind::Concurrency | LimitKind::Session | LimitKind::Affinity => false,
        };
        counts && limit.configured && limit.available(context.now) == 0
    })
}

fn why_waiting(task: &Task, context: &WhyContext<'_>) -> Why {
    let workers = context.workers;
    if let Some(lane) = context.lane {
        let name = lane.name.clone();
        if !lane.state.leases_tasks() {
            return Why::LanePaused { lane: name, state: lane.state };
        }
        if let Some(LaneLimit { limit: Some(limit), running }) = lane.concurrency
            && running >= limit
        {
            return Why::LaneFull { lane: name, limit, running };
        }
    }
    if let Some(quota) = exceeded(task, context) {
        let ConcurrencyLimit { kind, limit, rate, running, .. } = *quota;
        return Why::QuotaExceeded {
            kind,
            limit,
            rate,
            running,
            retry_at: quota.retry_at(context.now),
        };
    }
    let tag = task.route.tag().map(String::from);
    let Some(workers) = workers else {
        return Why::Ready {
            capabilities: task.route.capabilities().map(String::from).collect(),
            tag,
        };
    };
    if workers.iter().any(|worker| worker.meets(&task.route)) {
        return Why::Queued;
    }
    let fewest = workers.iter().map(|worker| worker.missing(&task.route).collect::<Vec<_>>());
    match fewest.min_by_key(Vec::len) {
        None => Why::NoWorker { lane: task.lane.clone() },
        Some(missing) => {
            Why::NoCapableWorker { missing: missing.into_iter().map(String::from).collect(), tag }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::command::{Claim, Create, NewTask, QuotaScope, SetQuota};
    use crate::name::Tenant;
    use crate::testing::{Stage, claim, lane, new_task};

    fn worker_with(capability: &str) -> WorkerCapabilities {
        WorkerCapabilities {
            names: BTreeSet::from([capability.to_owned()]),
            ..WorkerCapabilities::default()
        }
    }

    fn why_of(stage: &Stage, id: &str, workers: Option<&[WorkerCapabilities]>) -> Why {
        let (lane, limits) = (stage.lane(), stage.limits());
        let context = WhyContext { lane: lane.as_ref(), limits: &limits, workers, now: stage.now };
        why(&stage.task(id).unwrap(), &context)
    }

    #[test]
    fn lanes() {
        let plain = [WorkerCapabilities::default()];
        let plain = Some(&plain[..]);
        let closed = |state| Why::LanePaused { lane: lane(), state };
        for (state, workers, expected) in [
            ("active", plain, Why::Queued),
            ("active", Some(&[][..]), Why::NoWorker { lane: lane() }),
            ("active", None, Why::Ready { capabilities: Vec::new(), tag: None }),
            ("paused", plain, closed(LaneState::Paused)),
            ("paused", None, closed(LaneState::Paused)),
            ("disabled", plain, closed(LaneState::Disabled)),
            ("draining", plain, Why::Queued),
            ("limited", plain, Why::Queued),
        ] {
            let stage = Stage::with_lane(state);
            let found = why_of(&stage, "t", workers);
            assert_eq!(found, expected, "{state}");
        }
    }

    #[test]
    fn a_full_lane() {
        let mut stage = Stage::with_lane("limited");
        stage.must(claim());
        stage.must(Create::one(new_task("u")));
        let found = why_of(&stage, "u", Some(&[WorkerCapabilities::default()]));
        assert_eq!(found, Why::LaneFull { lane: lane(), limit: 1, running: 1 });
    }

    #[test]
    fn no_capable_worker() {
        let mut stage = Stage::new();
        let capabilities = BTreeSet::from(["gpu".to_owned(), "cuda".to_owned()]);
        stage.must(Create::one(NewTask { capabilities, ..new_task("t") }));
        let found =
            why_of(&stage, "t", Some(&[WorkerCapabilities::default(), worker_with("cuda")]));
        let expected = Why::NoCapableWorker { missing: vec!["gpu".to_owned()], tag: None };
        assert_eq!(found, expected);
        let capabilities = vec!["cuda".to_owned(), "gpu".to_owned()];
        let unknown = why_of(&stage, "t", None);
        assert_eq!(unknown, Why::Ready { capabilities, tag: None });
    }

    #[test]
    fn states() {
        for (state, expected) in [
            ("blocked", "concurrency_limit_reached"),
            ("granted", "granted"),
            ("owned", "granted"),
            ("delayed", "delayed"),
            ("claimed", "leased"),
            ("active", "leased"),
            ("completed", "terminal"),
            ("failed", "terminal"),
            ("cancelled", "terminal"),
            ("expired", "terminal"),
            ("waiting_children", "waiting_children"),
        ] {
            let stage = Stage::with_task(state);
            let found = why_of(&stage, "t", None);
            let json = serde_json::to_value(&found).unwrap();
            assert_eq!(json["why"], expected, "{state}");
        }
    }

    #[test]
    fn a_blocked_task_names_its_limit_and_when_to_retry() {
        let mut stage = Stage::with_task("blocked");
        let key = Some(LimitKey::Concurrency("k".into()));
        let (limit, rate, blocked) = (Some(1), None, 1);
        let (running, retry_at) = (1, None);
        let full = Why::ConcurrencyLimitReached {
            key: key.clone(),
            limit,
            rate,
            running,
            blocked,
            retry_at,
        };
        assert_eq!(why_of(&stage, "t", None), full);
        let (limit, rate) = (None, Some(Rate { limit: 1, window_ms: 10_000 }));
        let (tenant, scope) = (Tenant::default(), QuotaScope::Concurrency("k".into()));
        stage.must(SetQuota { tenant, scope, limit, rate });
        stage.must(Claim { lanes: vec!["other".into()], ..claim() });
        let retry_at = stage.limits()[0].due_at;
        assert!(retry_at > Some(stage.now.plus_ms(10_000)), "slices are rounded up");
        let shut = Why::ConcurrencyLimitReached { key, limit, rate, running, blocked, retry_at };
        assert_eq!(why_of(&stage, "t", None), shut);
    }

    #[test]
    fn an_exceeded_quota() {
        for scope in [QuotaScope::Lane(lane()), QuotaScope::Tenant] {
            let mut stage = Stage::with_task("waiting");
            let (kind, limit, rate) = (scope.kind(), Some(1), None);
            stage.must(SetQuota { tenant: Tenant::default(), scope, limit, rate });
            assert_eq!(why_of(&stage, "t", Some(&[WorkerCapabilities::default()])), Why::Queued);
            stage.must(claim());
            stage.must(Create::one(new_task("u")));
            let exceeded = Why::QuotaExceeded { kind, limit, rate, running: 1, retry_at: None };
            assert_eq!(why_of(&stage, "u", Some(&[WorkerCapabilities::default()])), exceeded);
        }
    }
}
