use windlass::{
    Change, Engine, Error, FailureClass, LogEvent, PublicState, Suspension, Task, TaskFilter,
    Timestamp, WaitpointId, WaitpointState, Why, WorkerId,
};

use crate::log::LogView;

/// How many lease holders of a full lane are named.
const HOLDERS: usize = 3;

/// Facts about a task beyond its record and its lane.
#[derive(Debug)]
pub(super) struct Evidence {
    pub(super) now: Timestamp,
    /// The number of ready tasks in its lane.
    pub(super) ready: u64,
    /// The last claim from its lane.
    pub(super) last_claim: Option<Claim>,
    /// When its lane entered its state.
    pub(super) lane_since: Option<Timestamp>,
    /// Some of the workers that hold leases of its lane.
    pub(super) holders: Vec<WorkerId>,
    /// The failure that its backoff follows.
    pub(super) failure: Option<(FailureClass, String)>,
    /// Expired waitpoints among those it waits for.
    pub(super) expired: Vec<WaitpointId>,
}

#[derive(Debug)]
pub(super) struct Claim {
    pub(super) worker: WorkerId,
    pub(super) at: Timestamp,
}

impl Evidence {
    pub(super) fn none(now: Timestamp) -> Self {
        Self {
            now,
            ready: 0,
            last_claim: None,
            lane_since: None,
            holders: Vec::new(),
            failure: None,
            expired: Vec::new(),
        }
    }

    pub(super) async fn gather(
        engine: &Engine,
        task: &Task,
        why: &Why,
        now: Timestamp,
    ) -> Result<Self, Error> {
        let mut found = Self::none(now);
        let log = LogView::open(engine).await?;
        match why {
            Why::Ready { .. }
            | Why::Queued
            | Why::NoWorker { .. }
            | Why::NoCapableWorker { .. } => {
                let ready = engine.count_ready(&task.tenant).await?;
                found.ready = ready.get(&task.lane).copied().unwrap_or(0);
                let claim = log.latest_in(task, "claimed").await?;
                found.last_claim = claim.as_ref().and_then(claim_of);
            }
            Why::LanePaused { .. } => {
                let change = log.latest_in(task, "lane_state_changed").await?;
                found.lane_since = change.map(|entry| entry.at);
            }
            Why::LaneFull { .. } => found.holders = holders(engine, task).await?,
            Why::Delayed { after: Some(_), .. } => {
                let failure = log.latest_of(task, "retry_scheduled").await?;
                found.failure = failure.as_ref().and_then(failure_of);
            }
            Why::Suspended(suspension) => {
                found.expired = expired(engine, task, suspension, now).await?;
            }
            Why::Delayed { after: None, .. }
            | Why::ConcurrencyLimitReached { .. }
            | Why::QuotaExceeded { .. }
            | Why::Granted { .. }
            | Why::WaitingChildren { .. }
            | Why::Leased { .. }
            | Why::Terminal { .. } => {}
        }
        Ok(found)
    }
}

fn claim_of(entry: &LogEvent) -> Option<Claim> {
    match entry.change()? {
        Change::Claimed { worker, .. } => Some(Claim { worker, at: entry.at }),
        _ => None,
    }
}

fn failure_of(entry: &LogEvent) -> Option<(FailureClass, String)> {
    match entry.change()? {
        Change::RetryScheduled { class, reason, .. } => Some((class, reason)),
        _ => None,
    }
}

async fn expired(
    engine: &Engine,
    task: &Task,
    suspension: &Suspension,
    now: Timestamp,
) -> Result<Vec<WaitpointId>, Error> {
    let most = windlass::limits::WAITPOINTS_PER_TASK as usize;
    let mut waitpoints = engine.waitpoints(&task.tenant, Some(&task.id), None, most).await?;
    let awaited = suspension.condition.waitpoints();
    waitpoints.retain(|waitpoint| awaited.contains(&waitpoint.id) && waitpoint.expires_at <= now);
    waitpoints.retain(|waitpoint| !matches!(waitpoint.state, WaitpointState::Completed { .. }));
    Ok(waitpoints.iter().map(|waitpoint| waitpoint.id.clone()).collect())
}

async fn holders(engine: &Engine, task: &Task) -> Result<Vec<WorkerId>, Error> {
    let state = Some(PublicState::Active);
    let filter = TaskFilter { state, lane: Some(task.lane.clone()), ..TaskFilter::default() };
    let held = engine.tasks(&task.tenant, &filter, None, HOLDERS).await?;
    let worker = |task: &Task| match &task.lifecycle {
        windlass::Lifecycle::Active(lease) => Some(lease.worker.clone()),
        _ => None,
    };
    let mut workers: Vec<WorkerId> = held.iter().filter_map(|task| worker(task)).collect();
    workers.dedup();
    Ok(workers)
}
