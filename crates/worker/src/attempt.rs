use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::Instrument as _;
use windlass_core::command::{Complete, Delay, Release};
use windlass_core::{Payload, PayloadKey};
use windlass_engine::{Claimed, Engine, Input};

use crate::context::Context;
use crate::failure::Failure;
use crate::handler::Handled;
use crate::lease::Lease;
use crate::pause::Pause;
use crate::token::Token;
use crate::worker::Worker;

/// How long a task of an unknown kind is put off.
const UNKNOWN_KIND_MS: u64 = 10_000;

/// One run of a handler under one lease.
#[derive(Debug)]
pub(crate) struct Attempt {
    worker: Arc<Worker>,
    claimed: Claimed,
    lease: Lease,
    token: Token,
}

impl Attempt {
    pub(crate) fn new(worker: Arc<Worker>, claimed: Claimed, asked: Instant) -> Self {
        let (engine, fence) = (worker.engine.clone(), claimed.task.fence());
        let lease = Lease::new(engine, fence, asked, worker.lease_length());
        Self { worker, claimed, lease, token: Token::default() }
    }

    /// Runs the handler until it ends, the lease is lost, or `interrupting` says to give it back.
    pub(crate) async fn run(self, home: &Handle, interrupting: Token) {
        let task = &self.claimed.task;
        if Instant::now() >= self.lease.deadline() {
            return tracing::warn!(task = %task.id, "a claim took as long as its lease");
        }
        if !self.worker.handlers.contains_key(&task.kind) {
            return self.put_off().await;
        }
        tracing::debug!(task = %task.id, epoch = task.epoch, "an attempt starts");
        // In a set, the handler does not outlive this attempt, however that ends.
        let mut handler = JoinSet::new();
        let span = tracing::info_span!(
            "attempt", task = %task.id, kind = %task.kind, attempt = task.attempts
        );
        handler.spawn_on(self.handle().instrument(span), home);
        tokio::select! {
            biased;
            Some(ended) = handler.join_next() => self.settle(ended).await,
            still_held = self.lease.keep() => {
                if still_held {
                    self.give_back(&mut handler).await;
                } else {
                    self.stop(&mut handler).await;
                }
            }
            () = interrupting.cancelled() => self.give_back(&mut handler).await,
        }
    }

    fn handle(&self) -> impl Future<Output = Handled> + Send + 'static {
        let (worker, claimed) = (self.worker.clone(), self.claimed.clone());
        let (token, deadline) = (self.token.clone(), self.lease.watch());
        let until = self.lease.deadline();
        async move {
            // A handler may block its thread. What that thread was about to run next goes first:
            // where the engine has no threads of its own, that may be a heartbeat.
            tokio::task::yield_now().await;
            let Claimed { task, input } = claimed;
            let handler = worker.handlers.get(&task.kind).expect("run has looked for it");
            let payload = match input {
                Input::None => None,
                Input::Here(payload) => Some(payload),
                Input::Elsewhere(key) => Some(fetch(&worker.engine, &key, until).await?),
            };
            let engine = worker.engine.clone();
            handler.call(Context::new(engine, task, payload, token, deadline)).await
        }
    }

    async fn settle(self, ended: Result<Handled, JoinError>) {
        let handled = match ended {
            Ok(handled) => handled,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => Err(Failure::transient(panic_reason(&*panic))),
                // The runtime is at its end: nobody is left to settle anything.
                Err(_) => return,
            },
        };
        let fence = self.lease.fence();
        let command = match handled {
            Ok(result) => Complete { fence, result }.into(),
            Err(failure) => failure.into_command(fence).into(),
        };
        self.lease.settle(command).await;
    }

    /// Leaves a task to a worker that knows its kind.
    async fn put_off(self) {
        let (task, kind) = (&self.claimed.task.id, &self.claimed.task.kind);
        tracing::warn!(%task, %kind, "a task of a kind without a handler is put off");
        let fence = self.lease.fence();
        self.lease.settle(Delay { fence, delay_ms: UNKNOWN_KIND_MS }.into()).await;
    }

    /// Stops the handler and releases its task. Work that is done by then is kept.
    async fn give_back(self, handler: &mut JoinSet<Handled>) {
        match timeout_at(self.lease.deadline(), self.stop(handler)).await {
            Ok(Some(Ok(Ok(result)))) => self.settle(Ok(Ok(result))).await,
            Ok(_) => {
                let fence = self.lease.fence();
                self.lease.settle(Release { fence }.into()).await;
            }
            // A handler that blocks its thread may still act: only its lease's end is safe.
            Err(_) => tracing::warn!(task = %self.claimed.task.id, "a handler does not stop"),
        }
    }

    /// Tells the handler to stop, and drops it if it does not. Says how it ended if it did.
    async fn stop(&self, handler: &mut JoinSet<Handled>) -> Option<Result<Handled, JoinError>> {
        self.token.cancel();
        let ended = timeout(self.lease.last_words(), handler.join_next()).await;
        handler.shutdown().await;
        ended.ok().flatten()
    }
}

/// Gets a payload that was too large to come along, for as long as the first lease lasts.
async fn fetch(engine: &Engine, key: &PayloadKey, until: Instant) -> Result<Payload, Failure> {
    let mut pause = Pause::default();
    loop {
        let error = match timeout_at(until, engine.payload(key)).await {
            Ok(Ok(Some(payload))) => return Ok(payload),
            Ok(Ok(None)) => return Err(Failure::permanent("the payload is not in the store")),
            Ok(Err(error)) => error,
            Err(_) => return Err(Failure::transient("the payload could not be read in time")),
        };
        let pause = pause.next();
        if Instant::now() + pause >= until {
            return Err(Failure::transient(format!("the payload could not be read: {error}")));
        }
        tracing::warn!(task = %key.task, %error, "reading a payload failed and is tried again");
        sleep(pause).await;
    }
}

fn panic_reason(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the handler panicked: {}", text.unwrap_or("without a message"))
}
