use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;
use windlass_core::{Outcome, Payload, PayloadKey, Task};
use windlass_store::Store;

use crate::claim_wait::ClaimWait;
use crate::command_queue::{CommandQueue, Submission};
use crate::error::Error;
use crate::release_on_drop::{CarriesLeases, ReleaseOnDrop};

/// A leased task with its payload, as delivered to a worker.
#[derive(Clone, Debug)]
pub struct ClaimedTask {
    pub task: Arc<Task>,
    pub input: TaskInput,
    /// Start of the batch that granted the lease, on this process's monotonic clock. The lease
    /// starts no earlier on the store's clock.
    pub leased_from: Instant,
}

/// The payload of a claimed task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskInput {
    /// The task was created without a payload.
    None,
    Inline(Payload),
    /// Exceeds the byte limit of the claim; fetch it with [`crate::Engine::payload`].
    ByKey(PayloadKey),
}

pub(crate) type CommandResult = Result<Outcome, Error>;

/// The results of one caller's commands, in submission order.
#[derive(Debug)]
pub struct CommandResults {
    pub results: Vec<Result<Outcome, Error>>,
    /// Start of the batch that decided the commands, on this process's monotonic clock. Leases
    /// granted or renewed by it start no earlier on the store's clock.
    pub batch_began: Instant,
}

/// The channel for the results of a job.
#[derive(Debug)]
pub(crate) enum Reply {
    /// One result for each command of the job, in order.
    Plain(oneshot::Sender<ReleaseOnDrop<CommandResults>>),
    /// The single claim of the job, with payloads. A claim with a `wait` gets an empty result only
    /// after the wait is over.
    Claim {
        sender: ClaimSender,
        wait: Option<ClaimWait>,
    },
    Discard,
}

type ClaimSender = oneshot::Sender<ReleaseOnDrop<Result<Vec<ClaimedTask>, Error>>>;

impl Reply {
    /// Whether the caller has dropped its receiver.
    pub(crate) fn is_closed(&self) -> bool {
        match self {
            Reply::Plain(sender) => sender.is_closed(),
            Reply::Claim { sender, .. } => sender.is_closed(),
            Reply::Discard => false,
        }
    }
}

/// Sends the results of a committed batch to the callers.
#[derive(Clone, Debug)]
pub(crate) struct Replier {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) queue: Arc<CommandQueue>,
    pub(crate) claim_bytes: u64,
}

type ClaimReply = (ClaimSender, Vec<Arc<Task>>);

impl Replier {
    /// Replies immediately where no payload is needed. Claims are replies once their payloads are
    /// read, concurrently with the next batch.
    pub(crate) fn reply(&self, replies: Vec<(Reply, Vec<CommandResult>)>, batch_began: Instant) {
        let mut claims: Vec<ClaimReply> = Vec::new();
        for (reply, results) in replies {
            match reply {
                Reply::Discard => {}
                // If the caller has left, the dropped `ReleaseOnDrop` releases its leases.
                Reply::Plain(sender) => {
                    drop(
                        sender.send(self.release_on_drop(CommandResults { results, batch_began })),
                    );
                }
                Reply::Claim { sender, .. } => match results.into_iter().next() {
                    Some(Ok(Outcome::Claimed(tasks))) => claims.push((sender, tasks)),
                    Some(Err(error)) => drop(sender.send(self.release_on_drop(Err(error)))),
                    Some(Ok(_)) | None => unreachable!("unexpected outcome of a claim"),
                },
            }
        }
        let is_inline = |task: &Arc<Task>| task.input_bytes.is_some() && needs_input(task);
        if claims.iter().any(|(_, tasks)| tasks.iter().any(is_inline)) {
            let replier = self.clone();
            tokio::spawn(async move { replier.reply_with_payloads(claims, batch_began).await });
        } else {
            for (sender, tasks) in claims {
                let bare = |task: Arc<Task>| {
                    let input = task.input_key().map_or(TaskInput::None, TaskInput::ByKey);
                    ClaimedTask { task, input, leased_from: batch_began }
                };
                let claimed = tasks.into_iter().map(bare).collect();
                drop(sender.send(self.release_on_drop(Ok(claimed))));
            }
        }
    }

    async fn reply_with_payloads(&self, claims: Vec<ClaimReply>, batch_began: Instant) {
        let mut keys = Vec::new();
        let mut plans = Vec::new();
        for (sender, tasks) in claims {
            let mut left = self.claim_bytes;
            let mut plan = Vec::with_capacity(tasks.len());
            for (nth, task) in tasks.into_iter().enumerate() {
                let bytes = task.input_bytes.unwrap_or(0);
                let fits = needs_input(&task) && (bytes <= left || nth == 0);
                left = left.saturating_sub(bytes);
                let key = task.input_key();
                if fits {
                    keys.extend(key.clone());
                }
                plan.push((task, key, fits));
            }
            plans.push((sender, plan));
        }
        let mut found: VecDeque<Option<Payload>> = match self.store.payloads(&keys).await {
            Ok(payloads) => payloads.into(),
            Err(error) => {
                tracing::warn!(%error, "reading payloads failed: workers fetch them");
                keys.iter().map(|_| None).collect()
            }
        };
        for (sender, plan) in plans {
            let claimed = plan.into_iter().map(|(task, key, fits)| {
                let input = match key {
                    None => TaskInput::None,
                    Some(key) if fits => match found.pop_front().flatten() {
                        Some(payload) => TaskInput::Inline(payload),
                        None => TaskInput::ByKey(key),
                    },
                    Some(key) => TaskInput::ByKey(key),
                };
                ClaimedTask { task, input, leased_from: batch_began }
            });
            let claimed = claimed.collect();
            drop(sender.send(self.release_on_drop(Ok(claimed))));
        }
    }

    fn release_on_drop<T: CarriesLeases>(&self, result: T) -> ReleaseOnDrop<T> {
        ReleaseOnDrop::new(result, self.queue.clone())
    }

    /// Fails every command of a job with `error`.
    pub(crate) fn fail(&self, job: Submission, error: &Error) {
        match job.reply {
            Reply::Plain(sender) => {
                let results = job.commands.iter().map(|_| Err(error.clone())).collect();
                let results = CommandResults { results, batch_began: Instant::now() };
                drop(sender.send(self.release_on_drop(results)));
            }
            Reply::Claim { sender, .. } => {
                drop(sender.send(self.release_on_drop(Err(error.clone()))));
            }
            Reply::Discard => {}
        }
    }
}

/// After its first turn a workflow is usually cached with its input; other workers fetch it.
fn needs_input(task: &Task) -> bool {
    task.workflow.as_ref().is_none_or(|workflow| workflow.turns == 0)
}
