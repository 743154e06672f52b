use std::time::{Duration, Instant};

use windlass::command::{Cancel, Claim, Complete, Create, NewTask, Outcome};
use windlass::{
    Engine, Error, Fence, Lifecycle, PublicState, Subscription, TaskFilter, TaskId, TaskKey, Tenant,
};

use crate::demo::error::DemoError;
use crate::demo::history::History;
use crate::demo::plan::{INVOICES, Plan};
use crate::demo::printer::{Printer, seconds};
use crate::demo::tally::{KilledWorker, RepeatedRequest, StalledWorker};
use crate::demo::worker::LEASE;
use crate::demo::worker_processes::WorkerProcesses;
use crate::output::counted;

/// The name of the stalled worker.
const STALLED: &str = "stalled-worker";
const BULK: usize = 500;
/// How long the log may be silent before the worker processes are checked.
const SILENCE: Duration = Duration::from_millis(500);
/// How long to wait for the next task to end.
const LONGEST: Duration = Duration::from_secs(60);

/// A running demo.
#[derive(Debug)]
pub(crate) struct DemoRun<'a> {
    engine: &'a Engine,
    workers: &'a mut WorkerProcesses,
    printer: &'a Printer,
    history: History,
}

/// A timeout that restarts with every task that ends.
#[derive(Debug)]
struct ProgressTimeout {
    ended: usize,
    since: Instant,
}

impl ProgressTimeout {
    fn is_expired(&mut self, ended: usize, now: Instant) -> bool {
        if ended > self.ended {
            *self = Self { ended, since: now };
        }
        now.duration_since(self.since) > LONGEST
    }
}

/// The actions of the demo, and their events.
#[derive(Debug)]
pub(crate) struct DemoRecord {
    pub(crate) requests: usize,
    pub(crate) repeated: RepeatedRequest,
    pub(crate) killed: KilledWorker,
    pub(crate) stalled: StalledWorker,
    pub(crate) history: History,
}

impl<'a> DemoRun<'a> {
    pub(crate) fn new(
        engine: &'a Engine,
        workers: &'a mut WorkerProcesses,
        printer: &'a Printer,
    ) -> Self {
        Self { engine, workers, printer, history: History::default() }
    }

    pub(crate) async fn run(mut self, plan: &Plan) -> Result<DemoRecord, DemoError> {
        let mut log = self.engine.subscribe(None).await?;
        let (requests, repeated) = self.request_all(plan).await?;
        let stalled = self.stall().await?;
        for _ in 0..2 {
            self.workers.start_worker()?;
        }
        let names = self.workers.processes().map(|m| format!("{} (pid {})", m.name, m.pid));
        self.printer.print(&format!("Started {}.", names.collect::<Vec<_>>().join(" and ")))?;
        let killed = self.watch(&mut log, plan).await?;
        let stalled = self.write_late(stalled).await?;
        self.workers.finish().await?;
        loop {
            let page = log.read().await?;
            if page.is_empty() {
                break;
            }
            page.iter().for_each(|entry| self.history.note(entry));
        }
        Ok(DemoRecord { requests, repeated, killed, stalled, history: self.history })
    }

    /// Requests all tasks, and one of them twice; cancels one.
    async fn request_all(&self, plan: &Plan) -> Result<(usize, RepeatedRequest), DemoError> {
        let mut requests = 0;
        let singles = [plan.report.clone(), plan.invoice.clone()];
        let all: Vec<NewTask> = plan.tasks.iter().cloned().chain(singles).collect();
        for tasks in all.chunks(BULK) {
            requests += tasks.len();
            let tenant = Tenant::default();
            self.engine.submit(Create { tenant, tasks: tasks.to_vec() }).await?;
        }
        let task = TaskKey::new(&Tenant::default(), &plan.report.id);
        self.engine.submit(Cancel { task, reason: "it is obsolete".into() }).await?;
        let (first, _) = self.request(plan.charge.clone()).await?;
        // A caller that missed the response retries with a new task id.
        let again = NewTask { id: windlass_engine::Engine::new_id(), ..plan.charge.clone() };
        let (second, duplicate) = self.request(again).await?;
        requests += 2;
        self.printer.print(&format!(
            "Requested {requests} tasks. One was sent twice with the same key and was {}. One was \
             cancelled.",
            if duplicate { "answered with the first" } else { "created twice" },
        ))?;
        Ok((requests, RepeatedRequest { first, second, duplicate }))
    }

    async fn request(&self, task: NewTask) -> Result<(TaskId, bool), DemoError> {
        match self.engine.submit(Create::one(task)).await? {
            Outcome::Created(mut created) => {
                let created = created.pop().expect("one task has one result");
                Ok((created.id, created.duplicate))
            }
            other => unreachable!("unexpected outcome of a create: {other:?}"),
        }
    }

    /// Claims a task and sends no heartbeat until the lease has expired.
    async fn stall(&self) -> Result<Fence, DemoError> {
        let lease_ms = u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX);
        let claim = Claim { lanes: vec![INVOICES.into()], lease_ms, ..Claim::new(STALLED) };
        let claimed = self.engine.claim(claim, Duration::ZERO).await?;
        let fence = claimed.first().map(|claimed| claimed.task.fence());
        let fence = fence.ok_or(DemoError::NoStalledWorker)?;
        let id = &fence.task.id;
        self.printer.print(&format!("A worker claimed {id} and stalls: no heartbeat from it."))?;
        Ok(fence)
    }

    /// Follows the log until every task has ended. On the way, a worker is killed.
    async fn watch(
        &mut self,
        log: &mut Subscription,
        plan: &Plan,
    ) -> Result<KilledWorker, DemoError> {
        let tasks = plan.count();
        let mut timeout = ProgressTimeout { ended: 0, since: Instant::now() };
        let mut killed: Option<(KilledWorker, Instant)> = None;
        let mut recovered = false;
        loop {
            let ended = self.history.ended();
            self.printer.progress(ended);
            if killed.is_none() && ended >= tasks / 3 {
                killed = self.kill(&plan.hopeless).await?.map(|killed| (killed, Instant::now()));
            }
            if let Some((killed, at)) = &killed
                && !recovered
                && killed.held.iter().all(|fence| self.history.recovered(fence))
            {
                recovered = true;
                self.print_recovery(killed, at.elapsed())?;
            }
            if ended == tasks {
                return killed.map(|(killed, _)| killed).ok_or(DemoError::NoBusyWorker);
            }
            if timeout.is_expired(ended, Instant::now()) {
                let (seconds, open) = (LONGEST.as_secs(), tasks - ended);
                return Err(DemoError::TooSlow { seconds, open, tasks });
            }
            self.workers.check()?;
            if let Ok(page) = tokio::time::timeout(SILENCE, log.next()).await {
                page?.iter().for_each(|entry| self.history.note(entry));
            }
        }
    }

    /// Kills a worker that holds leases, if any: it is stopped first, so that it dies with exactly
    /// these leases. A worker that runs the hopeless task is skipped: after its last attempt that
    /// task is not claimed again.
    async fn kill(&mut self, hopeless: &TaskId) -> Result<Option<KilledWorker>, DemoError> {
        let mut found = None;
        for process in self.workers.processes() {
            process.freeze()?;
            let held = self.held_by(&process.name).await?;
            if !held.is_empty() && held.iter().all(|fence| fence.task.id != *hopeless) {
                found = Some(KilledWorker { worker: process.name.clone(), pid: process.pid, held });
                break;
            }
            process.thaw()?;
        }
        let Some(killed) = found else { return Ok(None) };
        self.workers.kill(&killed.worker).await?;
        let next = self.workers.start_worker()?;
        let KilledWorker { worker, pid, held } = &killed;
        self.printer.print(&format!(
            "kill -9 {pid}: {worker} died holding {}. Started {} (pid {}).",
            counted(held.len() as u64, "lease"),
            next.name,
            next.pid,
        ))?;
        Ok(Some(killed))
    }

    async fn held_by(&self, worker: &str) -> Result<Vec<Fence>, DemoError> {
        let filter = TaskFilter { state: Some(PublicState::Active), ..TaskFilter::default() };
        let active = self.engine.tasks(&Tenant::default(), &filter, None, 1_000).await?;
        let held = active.iter().filter(|task| {
            matches!(&task.lifecycle, Lifecycle::Active(lease) if lease.worker.as_str() == worker)
        });
        Ok(held.map(|task| task.fence()).collect())
    }

    fn print_recovery(&self, killed: &KilledWorker, after: Duration) -> Result<(), DemoError> {
        self.printer.print(&format!(
            "{} after the kill its leases expired, and its {} were leased under the next epoch.",
            seconds(after),
            counted(killed.held.len() as u64, "task"),
        ))
    }

    /// The stalled worker resumes and reports its result.
    async fn write_late(&self, fence: Fence) -> Result<StalledWorker, DemoError> {
        let late = Complete { fence: fence.clone(), result: None };
        let (code, message) = match self.engine.submit(late).await {
            Err(Error::Rejected(rejection)) => (rejection.code().into(), rejection.to_string()),
            Err(error) => return Err(error.into()),
            Ok(_) => ("accepted".into(), "the write was accepted".into()),
        };
        self.printer.print(&format!(
            "The stalled worker resumed and completed {} under its old epoch: {code}, {message}.",
            fence.task.id
        ))?;
        Ok(StalledWorker { worker: STALLED.into(), fence, code, message })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_restarts_with_progress() {
        let started = Instant::now();
        let mut timeout = ProgressTimeout { ended: 0, since: started };
        let after = |seconds| started + Duration::from_secs(seconds);
        for (seconds, ended, expected) in [
            (60, 0, false),
            (61, 1, false),
            (121, 1, false),
            (122, 1, true),
            (123, 2, false),
            (184, 2, true),
        ] {
            assert_eq!(timeout.is_expired(ended, after(seconds)), expected, "{seconds} s");
        }
    }
}
