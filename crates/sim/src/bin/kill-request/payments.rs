//! Payments, requested and handled as requests and as tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;
use windlass_core::RetryPolicy;
use windlass_engine::{
    AdmitError, EffectCall, EffectError, Engine, Error, RequestContext, RequestScope,
};
use windlass_worker::{Context, Failure, Worker, WorkerHandle};

use crate::LEASE;
use crate::bank::{Bank, Payment};
use crate::line::{Ask, By, Line};
use crate::stage::Stage;

const KIND: &str = "payment";
const SLOTS: usize = 16;
/// More than the number of kills.
const ATTEMPTS: u32 = 100;
/// On a busy machine a second in flight may be too short, and another process may write all the
/// time. These errors are retried.
const PASSING: &[&str] = &["request_lost", "store_unavailable"];
const TRIES: usize = 20;

#[derive(Clone, Debug)]
pub(crate) struct Payments {
    pub(crate) engine: Engine,
    pub(crate) bank: Bank,
    pub(crate) stage: Arc<Stage>,
    /// Whether held handlers may continue.
    pub(crate) goes: watch::Receiver<bool>,
    pub(crate) runs: Arc<AtomicU64>,
}

impl Payments {
    /// Retries until there is an answer, or a permanent rejection.
    pub(crate) async fn serve(self, ask: Ask) {
        let key = ask.key.clone();
        let mut answered = self.answer(&ask).await;
        for _ in 0..TRIES {
            if !answered.as_ref().is_err_and(|code| PASSING.contains(&code.as_str())) {
                break;
            }
            answered = self.answer(&ask).await;
        }
        self.stage.reach("answered");
        self.stage.say(&match answered {
            Ok((answer, replayed)) => Line::Responded { key, answer, replayed },
            Err(code) => Line::Rejected { key, code },
        });
    }

    /// The answer, and whether it was a replay; or an error code.
    async fn answer(&self, ask: &Ask) -> Result<(String, bool), String> {
        match ask.by {
            By::Request => self.request(ask).await,
            By::Task => self.task(ask).await.map_err(|error| error.code().to_owned()),
        }
    }

    async fn request(&self, ask: &Ask) -> Result<(String, bool), String> {
        let scope = RequestScope::new("customer", KIND);
        let payment = Payment { order: ask.key.clone(), cents: ask.cents };
        let run = |context: RequestContext| self.handle(move || context.effect("bank"), ask);
        match self.engine.admit(&scope, ask.key.as_str(), &payment, run).await {
            Ok(admitted) => Ok((admitted.response, admitted.replayed)),
            Err(AdmitError::Engine(error) | AdmitError::Failed(EffectError::Engine(error))) => {
                Err(error.code().to_owned())
            }
            Err(AdmitError::Failed(failed)) => Err(failed.to_string()),
        }
    }

    async fn task(&self, ask: &Ask) -> Result<(String, bool), Error> {
        let create = self.engine.create(KIND).id(ask.key.as_str()).lane(ask.key.as_str());
        let task = create.payload(ask).retry(RetryPolicy::fixed(ATTEMPTS, 1)).await?;
        Ok((task.result().await?, task.is_duplicate()))
    }

    pub(crate) fn work(&self, lanes: &[String]) -> Result<WorkerHandle, Error> {
        let payments = self.clone();
        Worker::new(self.engine.clone(), format!("kill-request {}", std::process::id()))
            .lanes(lanes.iter().map(String::as_str))
            .concurrency(SLOTS)
            .lease(LEASE)
            .handler(KIND, move |context: Context, ask: Ask| {
                let payments = payments.clone();
                async move {
                    let receipt = payments.handle(|| context.effect("bank"), &ask).await?;
                    Ok::<_, Failure>(receipt)
                }
            })
            .start()
    }

    /// The user's code. No two runs have the same answer, so that a repeated run is visible.
    async fn handle(
        &self,
        effect: impl FnOnce() -> EffectCall,
        ask: &Ask,
    ) -> Result<String, EffectError> {
        self.stage.reach("begun");
        self.stage.say(&Line::Begun { key: ask.key.clone() });
        if ask.holds {
            // A dropped sender releases all handlers.
            let _ = self.goes.clone().wait_for(|goes| *goes).await;
        }
        let payment = Payment { order: ask.key.clone(), cents: ask.cents };
        let receipt = effect().run(&self.bank, &payment).await?;
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        Ok(format!("{receipt}, by process {} in run {run}", std::process::id()))
    }
}
