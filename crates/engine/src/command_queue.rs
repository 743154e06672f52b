use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;
use tokio::time::Instant;
use windlass_core::Command;
use windlass_store::Notification;

use crate::claim_wait::ClaimWait;
use crate::config::Config;
use crate::error::Error;
use crate::reply::Reply;

/// Commands of one caller, decided in order within one batch.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) commands: Vec<Command>,
    pub(crate) reply: Reply,
    /// When a deferred job fails with `store_conflict`; set when it is first deferred.
    pub(crate) contention_deadline: Option<Instant>,
}

impl Submission {
    pub(crate) fn new(commands: Vec<Command>, reply: Reply) -> Self {
        Self { commands, reply, contention_deadline: None }
    }

    /// Whether it is a claim that waits instead of returning an empty result.
    pub(crate) fn waits(&self) -> bool {
        self.wait().is_some()
    }

    /// The wait state of a claim that may wait for a task.
    pub(crate) fn wait(&self) -> Option<&ClaimWait> {
        match &self.reply {
            Reply::Claim { wait, .. } => wait.as_ref(),
            Reply::Plain(_) | Reply::Discard => None,
        }
    }
}

/// The input of the next batch.
#[derive(Debug, Default)]
pub(crate) struct BatchInput {
    pub(crate) jobs: Vec<Submission>,
    pub(crate) notifications: Vec<Notification>,
    pub(crate) exclusive: ExclusiveQueues,
}

/// The queues that only one batcher may drain at a time, until it releases them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExclusiveQueues {
    /// Internal commands of the engine, which run in order.
    internal: bool,
    /// Deferred jobs.
    pub(crate) deferred: bool,
}

/// The bounded command queue of the batchers. Commands that end or renew a lease go first, except
/// that every fourth batch starts with the others, and a batch takes at most one internal command:
/// no queue starves.
///
/// Jobs that met a lock held by another transaction are deferred. One batcher at a time retries
/// them, between regular batches, so that uncontended jobs are not delayed.
#[derive(Debug)]
pub(crate) struct CommandQueue {
    queues: Mutex<Queues>,
    arrived: Notify,
    /// For each batcher: signals a queued notification.
    notified: Vec<Notify>,
    limit: Load,
    batch_commands: usize,
    batch_bytes: usize,
}

#[derive(Debug, Default)]
struct Queues {
    urgent: VecDeque<Submission>,
    normal: VecDeque<Submission>,
    internal: VecDeque<Submission>,
    deferred: VecDeque<Submission>,
    /// Which of the two queues above some batcher holds.
    exclusive: ExclusiveQueues,
    /// The internal command that runs after all others, on shutdown.
    last: Option<Submission>,
    /// For each batcher, the commit notifications of other batchers and nodes.
    notifications: Vec<Vec<Notification>>,
    /// Number of running batchers.
    batchers: usize,
    load: Load,
    batches: u64,
    /// New jobs are rejected; queued jobs are still decided.
    closed: bool,
    /// All batchers have ended.
    done: bool,
}

/// Size of queued work.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    commands: usize,
    rows: usize,
    bytes: usize,
}

impl Load {
    fn of(job: &Submission) -> Self {
        Self {
            commands: job.commands.len(),
            rows: job.commands.iter().map(Command::rows).sum(),
            bytes: job.commands.iter().map(Command::bytes).sum(),
        }
    }

    fn plus(self, other: Load) -> Self {
        Self {
            commands: self.commands + other.commands,
            rows: self.rows + other.rows,
            bytes: self.bytes + other.bytes,
        }
    }

    fn minus(self, other: Load) -> Self {
        Self {
            commands: self.commands - other.commands,
            rows: self.rows - other.rows,
            bytes: self.bytes - other.bytes,
        }
    }

    fn fits(self, limit: Load) -> bool {
        self.commands <= limit.commands && self.rows <= limit.rows && self.bytes <= limit.bytes
    }
}

impl Queues {
    /// The last internal command does not overtake deferred jobs.
    fn next_internal(&mut self) -> Option<Submission> {
        if let Some(job) = self.internal.pop_front() {
            self.load = self.load.minus(Load::of(&job));
            return Some(job);
        }
        self.last.take_if(|_| self.deferred.is_empty() && !self.exclusive.deferred)
    }

    fn next_from_callers(&mut self) -> Option<Submission> {
        // Even batches may serve the deferred queue, so the exception is an odd one.
        let (first, second) = match self.batches % 4 {
            1 => (&mut self.normal, &mut self.urgent),
            _ => (&mut self.urgent, &mut self.normal),
        };
        first.pop_front().or_else(|| second.pop_front())
    }
}

impl CommandQueue {
    pub(crate) fn new(config: &Config, batchers: usize) -> Self {
        let notifications = vec![Vec::new(); batchers];
        Self {
            queues: Mutex::new(Queues { notifications, batchers, ..Queues::default() }),
            arrived: Notify::new(),
            notified: (0..batchers).map(|_| Notify::new()).collect(),
            limit: Load {
                commands: config.queue_commands,
                rows: config.queue_rows,
                bytes: config.queue_bytes,
            },
            batch_commands: config.batch_commands.max(1),
            batch_bytes: config.batch_bytes,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().expect("no code panics while holding the queues")
    }

    /// Queues a caller's job, or rejects it immediately.
    pub(crate) fn push(&self, job: Submission) -> Result<(), Error> {
        let load = Load::of(&job);
        let mut queues = self.lock();
        if queues.closed {
            return Err(Error::ShuttingDown);
        }
        if !load.fits(self.limit) {
            return Err(Error::TooLarge);
        }
        let total = queues.load.plus(load);
        if !total.fits(self.limit) {
            return Err(Error::Overloaded);
        }
        queues.load = total;
        if job.commands.iter().all(Command::is_urgent) {
            queues.urgent.push_back(job);
        } else {
            queues.normal.push_back(job);
        }
        drop(queues);
        self.arrived.notify_one();
        Ok(())
    }

    /// Queues an internal command. There are few, so they are not limited.
    pub(crate) fn push_internal(&self, job: Submission) -> Result<(), Error> {
        let mut queues = self.lock();
        if queues.closed {
            return Err(Error::ShuttingDown);
        }
        queues.load = queues.load.plus(Load::of(&job));
        queues.internal.push_back(job);
        drop(queues);
        self.arrived.notify_one();
        Ok(())
    }

    /// Queues releases of leases. They are bounded: each lease was admitted as a claim.
    pub(crate) fn push_release(&self, job: Submission) {
        let mut queues = self.lock();
        if !queues.done {
            queues.load = queues.load.plus(Load::of(&job));
            queues.urgent.push_back(job);
            drop(queues);
            self.arrived.notify_one();
        }
    }

    /// Defers a job that met a lock held by another transaction.
    pub(crate) fn defer(&self, job: Submission) {
        let mut queues = self.lock();
        queues.load = queues.load.plus(Load::of(&job));
        queues.deferred.push_back(job);
        drop(queues);
        self.arrived.notify_one();
    }

    /// Defers jobs of which some met a lock. They are retried before jobs known to conflict.
    pub(crate) fn defer_first(&self, jobs: Vec<Submission>) {
        let mut queues = self.lock();
        for job in jobs.into_iter().rev() {
            queues.load = queues.load.plus(Load::of(&job));
            queues.deferred.push_front(job);
        }
        drop(queues);
        self.arrived.notify_one();
    }

    /// Releases the exclusive queues at the end of a batch.
    pub(crate) fn release(&self, exclusive: ExclusiveQueues) {
        let mut queues = self.lock();
        queues.exclusive.internal &= !exclusive.internal;
        queues.exclusive.deferred &= !exclusive.deferred;
        let more =
            !queues.internal.is_empty() || !queues.deferred.is_empty() || queues.last.is_some();
        drop(queues);
        if more {
            self.arrived.notify_one();
        }
    }

    /// The error for a queued job that was dropped without a reply.
    pub(crate) fn no_reply(&self) -> Error {
        if self.lock().closed { Error::ShuttingDown } else { Error::OutcomeUnknown }
    }

    /// Whether the engine has more than one batcher.
    pub(crate) fn has_others(&self) -> bool {
        self.notified.len() > 1
    }

    /// Notifies every batcher except the sender, if the sender is a batcher.
    pub(crate) fn push_notification(&self, from: Option<usize>, notification: &Notification) {
        let mut queues = self.lock();
        for (batcher, notified) in
            self.notified.iter().enumerate().filter(|(n, _)| Some(*n) != from)
        {
            queues.notifications[batcher].push(notification.clone());
            notified.notify_one();
        }
    }

    /// Rejects further jobs. Queued jobs are still decided, and `last` runs after all other
    /// internal commands.
    pub(crate) fn close(&self, last: Option<Submission>) {
        let mut queues = self.lock();
        if !queues.closed {
            queues.last = last;
        }
        queues.closed = true;
        drop(queues);
        self.notified.iter().for_each(Notify::notify_one);
    }

    /// Called when a batcher ends. The last one drops all queued jobs, which notifies their
    /// callers.
    pub(crate) fn end(&self) {
        let mut queues = self.lock();
        queues.batchers -= 1;
        if queues.batchers == 0 {
            let (batches, notifications) = (queues.batches, vec![Vec::new(); self.notified.len()]);
            *queues =
                Queues { closed: true, done: true, batches, notifications, ..Queues::default() };
        }
    }

    /// The next batch: everything queued, without waiting for more. None once the queue is closed
    /// and empty.
    pub(crate) async fn next(&self, batcher: usize) -> Option<BatchInput> {
        loop {
            let (arrived, notified) = (self.arrived.notified(), self.notified[batcher].notified());
            {
                let mut queues = self.lock();
                queues.batches += 1;
                let (jobs, exclusive) = self.take_next(&mut queues, batcher);
                // Deferred jobs are retried without the notifications.
                let queued =
                    if exclusive.deferred { None } else { queues.notifications.get_mut(batcher) };
                let notifications = queued.map(std::mem::take).unwrap_or_default();
                if !jobs.is_empty() || !notifications.is_empty() {
                    return Some(BatchInput { jobs, notifications, exclusive });
                }
                if queues.closed {
                    return None;
                }
            }
            tokio::select! {
                // Deterministic order, so that simulations are reproducible.
                biased;
                () = arrived => {}
                () = notified => {}
            }
        }
    }

    fn take_next(&self, queues: &mut Queues, batcher: usize) -> (Vec<Submission>, ExclusiveQueues) {
        let from_callers = queues.urgent.len() + queues.normal.len();
        let waiting = from_callers + queues.internal.len() + queues.notifications[batcher].len();
        let serves_deferred = waiting == 0 || queues.batches.is_multiple_of(2);
        if serves_deferred && !queues.deferred.is_empty() && !queues.exclusive.deferred {
            queues.exclusive.deferred = true;
            let jobs = self.take(queues, Vec::new(), |queues| queues.deferred.pop_front());
            return (jobs, ExclusiveQueues { deferred: true, internal: false });
        }
        let internal = if queues.exclusive.internal { None } else { queues.next_internal() };
        let exclusive = ExclusiveQueues { internal: internal.is_some(), deferred: false };
        queues.exclusive.internal |= exclusive.internal;
        (self.take(queues, internal.into_iter().collect(), Queues::next_from_callers), exclusive)
    }

    /// Adds jobs that were queued in the meantime.
    pub(crate) fn fill_up(&self, jobs: &mut Vec<Submission>) {
        *jobs = self.take(&mut self.lock(), std::mem::take(jobs), Queues::next_from_callers);
    }

    fn has_room(&self, taken: Load) -> bool {
        taken.commands < self.batch_commands && taken.bytes <= self.batch_bytes
    }

    /// Moves queued jobs into a batch while it has room.
    fn take(
        &self,
        queues: &mut Queues,
        mut jobs: Vec<Submission>,
        next: impl Fn(&mut Queues) -> Option<Submission>,
    ) -> Vec<Submission> {
        let mut taken = jobs.iter().map(Load::of).fold(Load::default(), Load::plus);
        while self.has_room(taken) {
            let Some(job) = next(queues) else { break };
            let load = Load::of(&job);
            taken = taken.plus(load);
            queues.load = queues.load.minus(load);
            jobs.push(job);
        }
        jobs
    }
}

#[cfg(test)]
mod tests {
    use windlass_core::command::{Create, NewTask, Release};
    use windlass_core::{Fence, TaskKey, Tenant};

    use super::*;

    fn normal() -> Submission {
        Submission::new(vec![Create::one(NewTask::new("t", "k")).into()], Reply::Discard)
    }

    fn urgent() -> Submission {
        let task = TaskKey { tenant: Tenant::default(), id: "t".into() };
        Submission::new(vec![Release { fence: Fence { task, epoch: 1 } }.into()], Reply::Discard)
    }

    fn queue(queue_commands: usize, batch_commands: usize) -> CommandQueue {
        CommandQueue::new(&Config { queue_commands, batch_commands, ..Config::default() }, 1)
    }

    #[test]
    fn deferred_jobs_count_toward_the_queue_limits() {
        let queue = queue(3, 2);
        (0..3).for_each(|_| queue.defer(normal()));
        assert!(matches!(queue.push(normal()), Err(Error::Overloaded)));
        let (jobs, exclusive) = queue.take_next(&mut queue.lock(), 0);
        assert!((exclusive.deferred, jobs.len()) == (true, 2), "at most one batch");
        queue.push(normal()).unwrap();
    }

    #[tokio::test]
    async fn no_queue_starves() {
        let queue = queue(100, 1);
        queue.push(normal()).unwrap();
        let mut batches = [0; 3];
        while batches[2] == 0 {
            queue.push_release(urgent());
            queue.defer(normal());
            let BatchInput { jobs, exclusive, .. } = queue.next(0).await.unwrap();
            let from_caller = !jobs[0].commands[0].is_urgent();
            batches[if exclusive.deferred { 0 } else { 1 + usize::from(from_caller) }] += 1;
            queue.release(exclusive);
            assert!(batches.iter().sum::<i32>() < 20, "{batches:?}");
        }
    }
}
