use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use windlass_core::command::{Release, Renew};
use windlass_core::{Command, Fence, Lifecycle, Outcome, Rejection, Task};
use windlass_engine::{Answers, Claimed, Engine, Error, Input};

use crate::lease_registry::{HeldLease, PendingRequest};
use crate::pause::Pause;
use crate::pulse::PATIENCE;
use crate::settlement::Answer;
use crate::team::Team;
use crate::token::Token;

/// How soon to look again after a look: where anything may have happened, it may again and again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The most time a handler has to end by itself once it is told to stop.
const LONGEST_LAST_WORDS: Duration = Duration::from_secs(1);

/// The right to act on a task, by this worker's own clock: counted from the start of the batch that
/// granted it, so that it is over here before it is over in the store.
#[derive(Debug)]
pub(crate) struct Lease {
    engine: Engine,
    fence: Fence,
    length: Duration,
    renewed: watch::Sender<Instant>,
    deadline: Deadline,
    /// Set when the grace of a drain is over.
    interrupting: Token,
    /// Heartbeats report the lease as held for as long as this is here.
    _held: HeldLease,
}

/// A task that was leased to this worker.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) claimed: Claimed,
    pub(crate) held: HeldLease,
}

impl Granted {
    pub(crate) fn new(claimed: Claimed, request: &PendingRequest) -> Self {
        let held = request.granted(&claimed.task.fence());
        Self { claimed, held }
    }

    /// A workflow whose lease came with the end of one of its activities.
    pub(crate) fn workflow(
        task: Arc<Task>,
        leased_from: Instant,
        request: &PendingRequest,
    ) -> Self {
        let input = task.input_key().map_or(Input::None, Input::Elsewhere);
        Self::new(Claimed { task, input, leased_from }, request)
    }
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
    pub(crate) fn new(team: &Team, fence: Fence, from: Instant, held: HeldLease) -> Self {
        let (engine, length) = (team.worker.engine.clone(), team.worker.lease_length());
        let renewed = watch::Sender::new(from + length);
        let deadline = Deadline { renewed: renewed.subscribe(), heard: team.heard.clone() };
        let interrupting = team.stop.interrupting.clone();
        Self { engine, fence, length, renewed, deadline, interrupting, _held: held }
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
            // Without chance, so that a simulation of it runs the same way twice.
            biased;
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
                Ok(Ok(from)) => {
                    self.renewed.send_replace(from + self.length);
                    next = from + self.length / 3;
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

    /// Renews the lease. Returns from when it counts.
    async fn renew(&self) -> Result<Instant, Error> {
        let lease_ms = u64::try_from(self.length.as_millis()).unwrap_or(u64::MAX);
        let renew = Renew { fence: self.fence.clone(), lease_ms };
        let answers = self.engine.submit_timed(vec![renew.into()]).await?;
        answers.each.into_iter().collect::<Result<Vec<Outcome>, Error>>()?;
        Ok(answers.batch_began)
    }

    /// Ends the lease with a command that is safe to repeat. Asks until there is an answer or the
    /// lease is over.
    pub(crate) async fn settle(&self, command: Command) -> Result<Outcome, Answer> {
        self.settle_timed(command).await.map(|(outcome, _)| outcome)
    }

    /// As [`Lease::settle`], with when the batch began that settled it: leases that it granted
    /// count from there.
    pub(crate) async fn settle_timed(
        &self,
        command: Command,
    ) -> Result<(Outcome, Instant), Answer> {
        self.settle_first(vec![command]).await.map(|settled| (settled.first, settled.batch_began))
    }

    /// As [`Lease::settle`], with another command in the same commit, whose answer comes along.
    pub(crate) async fn settle_with(
        &self,
        command: Command,
        other: Command,
    ) -> Result<SettledWith, Answer> {
        self.settle_first(vec![command, other]).await
    }

    async fn settle_first(&self, commands: Vec<Command>) -> Result<SettledWith, Answer> {
        let task = &self.fence.task.id;
        let command = commands[0].name();
        let mut pause = Pause::default();
        while Instant::now() < self.deadline() {
            let answer = async {
                let Answers { each, batch_began } =
                    self.engine.submit_timed(commands.clone()).await?;
                let mut each = each.into_iter();
                let first = each.next().unwrap_or(Err(Error::OutcomeUnknown))?;
                Ok(SettledWith { first, second: each.next(), batch_began })
            };
            // A settle that was sent before the deadline counts if its batch began in time: its
            // answer is worth waiting for, as no code acts under the lease meanwhile.
            match timeout_at(self.deadline() + PATIENCE, answer).await {
                Ok(Ok(settled)) => {
                    tracing::debug!(
                        %task, epoch = self.fence.epoch, command, "an attempt is settled"
                    );
                    return Ok(settled);
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

    /// Releases a lease that this worker stopped acting under, because it could not renew it or
    /// send heartbeats. In the store the lease may last for much longer. Retries until the store
    /// has answered, the lease has expired there too, or the worker ends; a lease that is not
    /// released by then is not held, and a heartbeat reports that.
    pub(crate) async fn give_up(&self) {
        let ending = async {
            self.interrupting.cancelled().await;
            sleep(PATIENCE).await;
        };
        let task = &self.fence.task.id;
        tokio::select! {
            biased;
            () = self.release() => {}
            () = sleep_until(*self.renewed.borrow()) => {
                tracing::debug!(%task, "a lease expired before it could be released");
            }
            () = ending => tracing::warn!(%task, "a lease could not be released in time"),
        }
    }

    async fn release(&self) {
        let task = &self.fence.task.id;
        let mut pause = Pause::default();
        loop {
            match self.engine.submit(Release { fence: self.fence.clone() }).await {
                Ok(_) => return tracing::debug!(%task, "a lease is released"),
                Err(Error::Rejected(rejection)) => {
                    return tracing::debug!(%task, %rejection, "there is no lease to release");
                }
                Err(error) if may_pass(&error) => {
                    tracing::warn!(%task, %error, "releasing a lease failed and is retried");
                    sleep(pause.next()).await;
                }
                Err(error) => return tracing::warn!(%task, %error, "a lease is not released"),
            }
        }
    }
}

/// What settled a lease, with the answer to the command that was sent along.
#[derive(Debug)]
pub(crate) struct SettledWith {
    pub(crate) first: Outcome,
    pub(crate) second: Option<Result<Outcome, Error>>,
    /// Leases that it granted count from here.
    pub(crate) batch_began: Instant,
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
