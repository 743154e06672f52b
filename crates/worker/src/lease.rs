use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use windlass_core::command::{Release, Renew};
use windlass_core::{Command, Fence, Lifecycle, Outcome, Rejection};
use windlass_engine::{Engine, Error};

use crate::pause::Pause;
use crate::pulse::{Heard, PATIENCE};
use crate::settlement::Answer;
use crate::worker::Worker;

/// How soon to look again after a look: where anything may have happened, it may again and again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The most time a handler has to end by itself once it is told to stop.
const LONGEST_LAST_WORDS: Duration = Duration::from_secs(1);

/// The right to act on a task, by this worker's own clock: counted from before it was asked for,
/// so that it is over here before it is over in the store.
#[derive(Debug)]
pub(crate) struct Lease {
    engine: Engine,
    fence: Fence,
    length: Duration,
    renewed: watch::Sender<Instant>,
    deadline: Deadline,
}

/// Until when a lease may be counted on: as long as it was renewed for, and as long as the worker
/// was heard of, since the leases of one that was not end before their time.
#[derive(Clone, Debug)]
pub(crate) struct Deadline {
    renewed: watch::Receiver<Instant>,
    heard: watch::Receiver<Instant>,
}

impl Deadline {
    pub(crate) fn at(&self) -> Instant {
        (*self.renewed.borrow()).min(*self.heard.borrow())
    }
}

/// Why a lease is not renewed again.
#[derive(Debug)]
pub(crate) enum Ending {
    /// It is held, and so close to its end that the handler must stop.
    Near,
    Over,
    Lost(Rejection),
}

impl Lease {
    pub(crate) fn new(worker: &Worker, fence: Fence, asked: Instant, heard: Heard) -> Self {
        let (engine, length) = (worker.engine.clone(), worker.lease_length());
        let renewed = watch::Sender::new(asked + length);
        let deadline = Deadline { renewed: renewed.subscribe(), heard };
        Self { engine, fence, length, renewed, deadline }
    }

    pub(crate) fn fence(&self) -> Fence {
        self.fence.clone()
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.deadline.at()
    }

    pub(crate) fn watch(&self) -> Deadline {
        self.deadline.clone()
    }

    /// How long a handler has to end by itself once it is told to stop.
    pub(crate) fn last_words(&self) -> Duration {
        LONGEST_LAST_WORDS.min(self.length / 6)
    }

    /// Keeps the lease until the handler must stop.
    pub(crate) async fn keep(&self) -> Ending {
        tokio::select! {
            ending = self.renew_in_time() => ending,
            rejection = self.taken_away() => Ending::Lost(rejection),
        }
    }

    /// Waits until somebody else has taken the task away. Word of that comes with the commit.
    async fn taken_away(&self) -> Rejection {
        let holding = self.engine.holding(&self.fence.task);
        loop {
            holding.disturbed().await;
            if let Some(rejection) = self.look().await {
                tracing::warn!(task = %self.fence.task.id, %rejection, "a lease was taken away");
                return rejection;
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Why the lease is this worker's no more, if the store says so.
    async fn look(&self) -> Option<Rejection> {
        match self.engine.task(&self.fence.task).await {
            Ok(None) => Some(Rejection::TaskNotFound),
            Ok(Some(task)) if task.epoch != self.fence.epoch => {
                Some(Rejection::Stale { current: task.epoch })
            }
            Ok(Some(task)) => match &task.lifecycle {
                Lifecycle::Active(_) => None,
                ended if ended.ended_at().is_some() => {
                    Some(Rejection::Ended { state: ended.public() })
                }
                _ => Some(Rejection::NotLeased),
            },
            // The next renewal tells.
            Err(_) => None,
        }
    }

    /// Renews the lease again and again, until the handler must stop.
    async fn renew_in_time(&self) -> Ending {
        let task = &self.fence.task.id;
        let last_moment = || self.deadline() - self.last_words();
        let mut next = *self.renewed.borrow() - self.length + self.length / 3;
        let mut pause = Pause::default();
        loop {
            sleep_until(next.min(last_moment())).await;
            let asked = Instant::now();
            if asked >= last_moment() {
                tracing::warn!(%task, "a lease runs out unrenewed");
                return if asked < self.deadline() { Ending::Near } else { Ending::Over };
            }
            if asked < next {
                // The worker was heard of meanwhile.
                continue;
            }
            match timeout_at(last_moment(), self.renew()).await {
                Ok(Ok(())) => {
                    self.renewed.send_replace(asked + self.length);
                    next = asked + self.length / 3;
                    pause = Pause::default();
                }
                Ok(Err(Error::Rejected(rejection))) if ends_lease(&rejection) => {
                    tracing::warn!(%task, %rejection, "a lease is lost");
                    return Ending::Lost(rejection);
                }
                Ok(Err(error)) => {
                    tracing::warn!(%task, %error, "a renewal failed");
                    next = Instant::now() + pause.next();
                }
                // The last moment has come, which the next round finds.
                Err(_) => {}
            }
        }
    }

    async fn renew(&self) -> Result<(), Error> {
        let lease_ms = u64::try_from(self.length.as_millis()).unwrap_or(u64::MAX);
        self.engine.submit(Renew { fence: self.fence.clone(), lease_ms }).await.map(drop)
    }

    /// Ends the lease with a command that is safe to repeat. Asks until there is an answer or the
    /// lease is over.
    pub(crate) async fn settle(&self, command: Command) -> Result<Outcome, Answer> {
        self.settle_first(vec![command]).await.map(|(outcome, _)| outcome)
    }

    /// As [`Lease::settle`], with another command in the same commit, whose answer comes along.
    pub(crate) async fn settle_with(
        &self,
        command: Command,
        other: Command,
    ) -> Result<(Outcome, Result<Outcome, Error>), Answer> {
        let (outcome, mut others) = self.settle_first(vec![command, other]).await?;
        Ok((outcome, others.pop().unwrap_or(Err(Error::OutcomeUnknown))))
    }

    async fn settle_first(
        &self,
        commands: Vec<Command>,
    ) -> Result<(Outcome, Vec<Result<Outcome, Error>>), Answer> {
        let task = &self.fence.task.id;
        let command = commands[0].name();
        let mut pause = Pause::default();
        while Instant::now() < self.deadline() {
            let answer = async {
                let mut answers = self.engine.submit_many(commands.clone()).await?;
                let others = answers.split_off(1);
                let first = answers.pop().expect("a command, an answer")?;
                Ok((first, others))
            };
            match timeout_at(self.deadline(), answer).await {
                Ok(Ok(answers)) => {
                    tracing::debug!(
                        %task, epoch = self.fence.epoch, command, "an attempt is settled"
                    );
                    return Ok(answers);
                }
                Ok(Err(error)) if may_pass(&error) => {
                    tracing::warn!(%task, %error, "a settle failed and is tried again");
                    sleep(pause.next()).await;
                }
                Ok(Err(error)) => {
                    // What was done ahead of others may find itself overtaken.
                    if matches!(commands[0], Command::Advance(_)) {
                        tracing::debug!(%task, %error, "a turn that was made ahead is refused");
                    } else {
                        tracing::warn!(%task, %error, "a settle was refused");
                    }
                    return Err(Answer::Refused(error));
                }
                Err(_) => break,
            }
        }
        tracing::warn!(%task, "a lease was over before it could be settled");
        self.give_up().await;
        Err(Answer::LeaseOver)
    }

    /// Gives back, once nobody works on it, a task whose lease is over by this worker's clock: the
    /// store may go by it for long after, when the worker was only not heard of for a while.
    pub(crate) async fn give_up(&self) {
        let task = &self.fence.task.id;
        let release = Release { fence: self.fence.clone() };
        match timeout(PATIENCE, self.engine.submit(release)).await {
            Ok(Ok(_)) => tracing::debug!(%task, "a lease was given up"),
            Ok(Err(Error::Rejected(rejection))) => {
                tracing::debug!(%task, %rejection, "there was no lease to give up");
            }
            Ok(Err(error)) => tracing::warn!(%task, %error, "a lease could not be given up"),
            Err(_) => tracing::warn!(%task, "a lease could not be given up in time"),
        }
    }
}

fn ends_lease(rejection: &Rejection) -> bool {
    matches!(
        rejection,
        Rejection::Stale { .. }
            | Rejection::Ended { .. }
            | Rejection::LeaseExpired
            | Rejection::NotLeased
            | Rejection::TaskNotFound
    )
}

pub(crate) fn may_pass(error: &Error) -> bool {
    matches!(error, Error::Overloaded | Error::OutcomeUnknown | Error::Store(_))
}
