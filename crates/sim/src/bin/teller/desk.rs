//! Where payments are asked for and handled, as requests and as tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;
use windlass_core::{RetryPolicy, TaskKey, Tenant};
use windlass_engine::{AdmitError, EffectCall, EffectError, Engine, Error, Scope};
use windlass_worker::{Context, Failure, Running, Worker};

use crate::LEASE;
use crate::bank::{Bank, Payment};
use crate::line::{Ask, By, Line};
use crate::stage::Stage;

const KIND: &str = "payment";
const SLOTS: usize = 16;
/// More than anybody is killed.
const ATTEMPTS: u32 = 100;

#[derive(Clone, Debug)]
pub(crate) struct Desk {
    pub(crate) engine: Engine,
    pub(crate) bank: Bank,
    pub(crate) stage: Arc<Stage>,
    /// Whether handlers that hold may go on.
    pub(crate) goes: watch::Receiver<bool>,
    pub(crate) runs: Arc<AtomicU64>,
}

impl Desk {
    /// Asks until there is an answer, or a refusal that stays.
    pub(crate) async fn serve(self, ask: Ask) {
        let key = ask.key.clone();
        let answered = match ask.by {
            By::Request => self.request(&ask).await,
            By::Task => self.task(&ask).await.map_err(|error| error.code().to_owned()),
        };
        self.stage.reach("answered");
        self.stage.say(&match answered {
            Ok((answer, replayed)) => Line::Told { key, answer, replayed },
            Err(code) => Line::Refused { key, code },
        });
    }

    async fn request(&self, ask: &Ask) -> Result<(String, bool), String> {
        let scope = Scope::new("customer", KIND);
        let payment = Payment { order: ask.key.clone(), cents: ask.cents };
        for _ in 0..ATTEMPTS {
            let run = |context: windlass_engine::RequestContext| async move {
                self.handle(|| context.effect("bank"), ask).await
            };
            let refused = match self.engine.admit(&scope, ask.key.as_str(), &payment, run).await {
                Ok(admitted) => return Ok((admitted.answer, admitted.replayed)),
                Err(AdmitError::Refused(error)) => error,
                Err(AdmitError::Failed(EffectError::Refused(error))) => error,
                Err(AdmitError::Failed(failed)) => return Err(failed.to_string()),
            };
            // On a machine that is busy a second may be too short. Whoever was late is through with
            // it, and asks again.
            if refused.code() != "request_released" {
                return Err(refused.code().to_owned());
            }
        }
        Err("always too late".to_owned())
    }

    async fn task(&self, ask: &Ask) -> Result<(String, bool), Error> {
        let create = self.engine.create(KIND).id(ask.key.as_str()).lane(ask.key.as_str());
        let task = create.payload(ask).retry(RetryPolicy::fixed(ATTEMPTS, 1)).await?;
        let key = TaskKey { tenant: Tenant::default(), id: ask.key.as_str().into() };
        let answer = self.engine.handle(key).result().await?;
        Ok((answer, task.is_duplicate()))
    }

    pub(crate) fn work(&self, lanes: &[String]) -> Result<Running, Error> {
        let desk = self.clone();
        Worker::new(self.engine.clone(), format!("teller {}", std::process::id()))
            .lanes(lanes.iter().map(String::as_str))
            .concurrency(SLOTS)
            .lease(LEASE)
            .handler(KIND, move |context: Context, ask: Ask| {
                let desk = desk.clone();
                async move { Ok::<_, Failure>(desk.handle(|| context.effect("bank"), &ask).await?) }
            })
            .start()
    }

    /// The user's code. No two runs have the same answer, so that a repeated one shows.
    async fn handle(
        &self,
        effect: impl FnOnce() -> EffectCall,
        ask: &Ask,
    ) -> Result<String, EffectError> {
        self.stage.reach("begun");
        self.stage.say(&Line::Begun { key: ask.key.clone() });
        if ask.holds {
            // Who speaks no more lets everybody go.
            let _ = self.goes.clone().wait_for(|goes| *goes).await;
        }
        let payment = Payment { order: ask.key.clone(), cents: ask.cents };
        let receipt = effect().run(&self.bank, &payment).await?;
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        Ok(format!("{receipt}, by process {} in run {run}", std::process::id()))
    }
}
