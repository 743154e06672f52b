use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};
use windlass_core::command::{MadeWaitpoint, Suspend};
use windlass_core::{Caller, Resumption, WaitpointId};
use windlass_engine::{EffectCall, Error, Received, Suspended};

use crate::context::Context;
use crate::failure::Failure;
use crate::lease::may_pass;
use crate::pause::Pause;
use crate::until::Until;

/// Waiting for the world: people, callbacks, timers.
impl Context {
    /// A waitpoint of this task under a name of its own, with the token that whoever is to answer
    /// needs. Asking again, also in a later attempt, gives the same one, until it has expired
    /// unused or its message was taken out with [`Context::take`]: then it is a fresh one, with a
    /// token of its own. So it is when the task is replayed.
    pub async fn waitpoint(&self, name: &str, expires: Duration) -> Result<MadeWaitpoint, Error> {
        let id = WaitpointId::of_task(&self.key(), self.generation(), name);
        self.engine().create_held_waitpoint(&self.fence(), id, expires).await
    }

    /// A call to somebody else that must not happen twice, however often this task is tried: see
    /// [`EffectCall::run`].
    pub fn effect(&self, provider: impl Into<String>) -> EffectCall {
        self.engine().effect(Caller::Task(self.fence()), provider)
    }

    /// Waits until there is what it asks for. When it is there already, this returns, and
    /// [`Context::signals`] tells what it was. Otherwise the task is suspended and this run ends:
    /// hand the failure on with `?`. The handler is called again when the task goes on, as the same
    /// attempt, with [`Context::resumption`] set: ask for that first where a message is waited for
    /// by its name, or a second one of that name is waited for. A waitpoint stays answered.
    pub async fn suspend(&self, until: impl Into<Until>) -> Result<(), Failure> {
        let Until { condition, reason, timeout } = until.into();
        let suspend = Suspend {
            reason,
            timeout,
            nth: self.next_request(),
            ..Suspend::new(self.fence(), condition)
        };
        match self.ask(suspend).await? {
            Suspended::Waiting(_) => Err(Failure::suspended()),
            Suspended::AlreadySatisfied(resumption) => {
                self.go_on(resumption);
                Ok(())
            }
        }
    }

    /// Asks until there is an answer or the lease is over: a repeat gets the same one.
    async fn ask(&self, suspend: Suspend) -> Result<Suspended, Error> {
        let mut pause = Pause::default();
        loop {
            let answer = self.engine().suspend(suspend.clone());
            match timeout_at(self.lease_deadline(), answer).await {
                Ok(Err(error)) if may_pass(&error) && Instant::now() < self.lease_deadline() => {
                    tracing::warn!(task = %self.id(), %error, "suspending is tried again");
                    sleep(pause.next()).await;
                }
                Ok(answer) => return answer,
                Err(_) => return Err(Error::OutcomeUnknown),
            }
        }
    }

    /// What last let this attempt go on; none in its first run, before it waited for anything.
    pub fn resumption(&self) -> Option<Resumption> {
        self.resumed()
    }

    /// The messages that last let this attempt go on, with what they carry.
    pub async fn signals(&self) -> Result<Vec<Received>, Error> {
        match self.resumption() {
            Some(resumption) => self.engine().received(&self.key(), &resumption.messages).await,
            None => Ok(Vec::new()),
        }
    }

    /// Takes messages out of the mailbox, so that no later attempt sees them again.
    pub async fn take(&self, messages: &[Received]) -> Result<(), Error> {
        let seqs: Vec<u64> = messages.iter().map(|received| received.message.seq).collect();
        if seqs.is_empty() {
            return Ok(());
        }
        self.engine().take_messages(&self.fence(), seqs).await.map(drop)
    }
}
