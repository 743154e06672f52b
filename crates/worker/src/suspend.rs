use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};
use windlass_core::command::{CreatedWaitpoint, Suspend};
use windlass_core::{EffectOwner, Resumption, WaitpointId};
use windlass_engine::{EffectCall, Error, ReceivedMessage, SuspendResult};

use crate::context::Context;
use crate::failure::Failure;
use crate::lease::is_retryable_under_lease;
use crate::retry_delay::RetryDelay;
use crate::wait_for::WaitFor;

/// Waiting for people, callbacks and timers.
impl Context {
    /// Creates a waitpoint of this task with this name, and the token that completes it. A repeated
    /// call, also in a later attempt, returns the same waitpoint, until it has expired unused or
    /// its message was consumed with [`Context::consume`]; then the call creates another one with a
    /// different token. So does a replay of the task.
    pub async fn waitpoint(
        &self,
        name: &str,
        expires: Duration,
    ) -> Result<CreatedWaitpoint, Error> {
        let id = WaitpointId::of_task(&self.key(), self.execution(), name);
        self.engine().create_held_waitpoint(&self.fence(), id, expires).await
    }

    /// An external call that must not happen twice, however many attempts the task takes: see
    /// [`EffectCall::run`].
    pub fn effect(&self, provider: impl Into<String>) -> EffectCall {
        self.engine().effect(EffectOwner::Task(self.fence()), provider)
    }

    /// Waits until a condition holds. If it holds already, this returns, and
    /// [`Context::resuming_signals`] has the messages. Otherwise the task is suspended and this run
    /// ends: pass the failure on with `?`. When the task resumes, its handler is called again, as
    /// the same attempt, with [`Context::resumption`] set. Check that before waiting for a message
    /// by name, or the handler waits for a second message of that name. A waitpoint stays
    /// completed.
    pub async fn suspend(&self, until: impl Into<WaitFor>) -> Result<(), Failure> {
        let WaitFor { condition, reason, timeout } = until.into();
        let suspend = Suspend {
            reason,
            timeout,
            nth: self.next_request(),
            ..Suspend::new(self.fence(), condition)
        };
        match self.ask(suspend).await? {
            SuspendResult::Waiting(_) => Err(Failure::suspended()),
            SuspendResult::AlreadySatisfied(resumption) => {
                self.set_resumed(resumption);
                Ok(())
            }
        }
    }

    /// Retries until there is a response or the lease expires. Suspend requests are idempotent.
    async fn ask(&self, suspend: Suspend) -> Result<SuspendResult, Error> {
        let mut pause = RetryDelay::default();
        loop {
            let suspended = self.engine().suspend(suspend.clone());
            match timeout_at(self.lease_deadline(), suspended).await {
                Ok(Err(error))
                    if is_retryable_under_lease(&error)
                        && Instant::now() < self.lease_deadline() =>
                {
                    tracing::warn!(task = %self.id(), %error, "suspend failed and is retried");
                    sleep(pause.next()).await;
                }
                Ok(result) => return result,
                Err(_) => return Err(Error::OutcomeUnknown),
            }
        }
    }

    /// What last resumed this attempt; none before its first wait.
    pub fn resumption(&self) -> Option<Resumption> {
        self.resumed()
    }

    /// The messages that last resumed this attempt, with their payloads.
    pub async fn resuming_signals(&self) -> Result<Vec<ReceivedMessage>, Error> {
        match self.resumption() {
            Some(resumption) => {
                self.engine().messages_by_seq(&self.key(), &resumption.messages).await
            }
            None => Ok(Vec::new()),
        }
    }

    /// Consumes messages, so that no later attempt sees them again.
    pub async fn consume(&self, messages: &[ReceivedMessage]) -> Result<(), Error> {
        let seqs: Vec<u64> = messages.iter().map(|received| received.message.seq).collect();
        if seqs.is_empty() {
            return Ok(());
        }
        self.engine().consume_messages(&self.fence(), seqs).await.map(drop)
    }
}
