//! The tasks of the demo, and their expected outcomes.

use std::collections::BTreeSet;

use serde_json::json;
use windlass::command::{Delay, IdempotencyWindow, NewTask};
use windlass::{Payload, RetryPolicy, TaskId, limits};
use windlass_engine::Engine;

/// The lane of the stalled worker.
pub(crate) const INVOICES: &str = "invoices";

pub(crate) const RESIZE: &str = "resize";
pub(crate) const RENDER: &str = "render";
pub(crate) const EMAIL: &str = "email";
pub(crate) const IMPORT: &str = "import";
pub(crate) const SYNC: &str = "sync";
pub(crate) const INVOICE: &str = "invoice";
pub(crate) const CHARGE: &str = "charge";
pub(crate) const REPORT: &str = "report";

/// Long tasks, which run last: some worker is busy whenever one is to be killed.
const RENDERS: u64 = 4;
const RENDER_MS: u64 = 1_000;
const HOUR_MS: u64 = 3_600_000;
/// The attempts of the task that always fails.
pub(crate) const SYNC_ATTEMPTS: u32 = 2;
/// The tasks that occur once each.
const SINGLE: u64 = 4;

/// The tasks of a demo.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) tasks: Vec<NewTask>,
    /// Requested twice.
    pub(crate) charge: NewTask,
    /// Cancelled before it starts.
    pub(crate) report: NewTask,
    /// A worker stalls on it.
    pub(crate) invoice: NewTask,
    /// Retried until its attempts are used up; it always fails.
    pub(crate) hopeless: TaskId,
    /// Tasks whose first attempt fails and is retried.
    pub(crate) failing: BTreeSet<TaskId>,
    /// How many tasks end as failed.
    pub(crate) broken: usize,
}

impl Plan {
    pub(crate) fn of(count: u64) -> Self {
        let plain = count.saturating_sub(SINGLE + RENDERS);
        let mut tasks: Vec<NewTask> = (0..plain).map(ordinary).collect();
        tasks.extend((0..RENDERS).map(|_| NewTask { priority: -1, ..work(RENDER, RENDER_MS) }));
        let mut sync = work(SYNC, 20);
        sync.policy.retry = Some(RetryPolicy::fixed(SYNC_ATTEMPTS, 300));
        let hopeless = sync.id.clone();
        tasks.push(sync);
        let of = |kinds: &'static [&str]| {
            tasks.iter().filter(|task| kinds.contains(&task.kind.as_str()))
        };
        let failing = of(&[EMAIL, SYNC]).map(|task| task.id.clone()).collect();
        let broken = of(&[IMPORT, SYNC]).count();
        let key = IdempotencyWindow { key: "order-7".into(), window_ms: limits::DEFAULT_WINDOW_MS };
        Self {
            tasks,
            charge: NewTask { idempotency: Some(key), ..work(CHARGE, 20) },
            report: NewTask { delay: Delay::For { ms: HOUR_MS }, ..work(REPORT, 20) },
            invoice: NewTask { lane: INVOICES.into(), ..work(INVOICE, 20) },
            hopeless,
            failing,
            broken,
        }
    }

    /// The number of tasks in all.
    pub(crate) fn count(&self) -> usize {
        self.tasks.len() + 3
    }
}

/// Most are resized images, every seventh is an email to a server that is down at first, and one in
/// fifty can never be imported.
fn ordinary(n: u64) -> NewTask {
    let ms = 20 + 7 * (n % 10);
    match n {
        _ if n % 50 == 10 => work(IMPORT, ms),
        _ if n % 7 == 3 => {
            let mut email = work(EMAIL, ms);
            email.policy.retry = Some(RetryPolicy::fixed(5, 300));
            email
        }
        _ => work(RESIZE, ms),
    }
}

fn work(kind: &str, ms: u64) -> NewTask {
    let payload = Some(Payload::json(json!({ "ms": ms }).to_string()));
    NewTask { payload, ..NewTask::new(Engine::new_id(), kind) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_has_the_requested_count_and_every_kind() {
        for count in [20, 300, 1_000] {
            let plan = Plan::of(count);
            assert_eq!(plan.count() as u64, count);
            for kind in [RESIZE, RENDER, EMAIL, IMPORT, SYNC] {
                assert!(plan.tasks.iter().any(|task| task.kind.as_str() == kind), "{kind}");
            }
            assert!(plan.broken > 1 && plan.failing.len() > 1);
            assert!(plan.failing.contains(&plan.hopeless));
        }
    }
}
