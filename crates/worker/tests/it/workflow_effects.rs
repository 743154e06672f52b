//! External calls of workflows: each is made once, whatever happens to the turn.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use windlass_core::RetryPolicy;
use windlass_engine::{ExternalCall, ExternalService, Lookup};
use windlass_worker::workflow::testing::WorkflowTest;
use windlass_worker::workflow::{StepError, Workflow, WorkflowDefinition};
use windlass_worker::{Failure, Worker};

use crate::stage::Stage;

/// An external service with a log of its calls.
#[derive(Debug, Default)]
struct Bank {
    /// The bookings, by the id of the call.
    booked: Mutex<BTreeMap<String, u32>>,
    log: Mutex<Vec<&'static str>>,
    /// How the next calls misbehave, the last entry first.
    moods: Mutex<Vec<Mood>>,
    reached: Notify,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mood {
    /// Books it, and never responds.
    Silent,
    /// Books it, and returns an error.
    Liar,
    /// Gives an ambiguous answer to a lookup.
    Vague,
}

impl Bank {
    fn with(moods: &[Mood]) -> Arc<Self> {
        let bank = Self::default();
        *bank.moods.lock().unwrap() = moods.to_vec();
        Arc::new(bank)
    }

    fn mood(&self) -> Option<Mood> {
        self.moods.lock().unwrap().pop()
    }

    fn log(&self) -> String {
        self.log.lock().unwrap().join(" ")
    }
}

impl ExternalService for Bank {
    type Request = u32;
    type Response = u32;
    type Error = String;

    async fn invoke(&self, call: &ExternalCall, amount: &u32) -> Result<u32, String> {
        self.log.lock().unwrap().push("call");
        let before = self.booked.lock().unwrap().insert(call.request_id.clone(), *amount);
        assert_eq!(before, None, "booked twice");
        match self.mood() {
            Some(Mood::Silent) => {
                self.reached.notify_one();
                pending().await
            }
            Some(Mood::Liar) => Err("out of order".into()),
            _ => Ok(amount + 1),
        }
    }

    async fn lookup(&self, call: &ExternalCall) -> Lookup<u32> {
        self.log.lock().unwrap().push("lookup");
        if self.mood() == Some(Mood::Vague) {
            return Lookup::Ambiguous("ask later".into());
        }
        let booked = self.booked.lock().unwrap().get(&call.request_id).copied();
        booked.map_or(Lookup::NotFound, |amount| Lookup::Found(amount + 1))
    }
}

/// Pays twice, and may be blocked in between.
fn payer(bank: &Arc<Bank>, held: &Arc<Mutex<bool>>) -> WorkflowDefinition {
    let (bank, held) = (bank.clone(), held.clone());
    WorkflowDefinition::named("pays", move |ctx: Workflow, n: u32| {
        let (bank, held) = (bank.clone(), held.clone());
        async move {
            let first = ctx.effect("bank").run(bank.clone(), n).await?;
            let point = bank.clone();
            let held_up = move || async move {
                if std::mem::take(&mut *held.lock().unwrap()) {
                    point.reached.notify_one();
                    pending::<()>().await;
                }
                Ok::<_, Failure>(())
            };
            ctx.local_activity("point", held_up).await?;
            let second = ctx.effect("bank").run(bank, first).await?;
            Ok::<_, StepError>(second)
        }
    })
}

/// The worker dies in the middle of the turn: before the response of the call, or after it and
/// before the turn is committed. Another worker retries the turn.
#[tokio::test(start_paused = true)]
async fn a_retried_turn_does_not_repeat_its_external_calls() {
    let rows = [
        (vec![Mood::Silent], false, "call lookup call"),
        (vec![], true, "call call"),
        (vec![Mood::Silent], true, "call lookup call"),
    ];
    for (moods, hold, log) in rows {
        let stage = Stage::new().await;
        let (bank, held) = (Bank::with(&moods), Arc::new(Mutex::new(hold)));
        let deaths = moods.len() + usize::from(hold);
        let handle = stage.other.start_workflow_named::<u32>("pays", &5).id("pays").await.unwrap();
        for death in 0..deaths {
            let worker = Worker::new(stage.engine.clone(), format!("w{death}"));
            let running = worker.workflow_definition(payer(&bank, &held)).start().unwrap();
            bank.reached.notified().await;
            drop(running);
        }
        let last = Worker::new(stage.engine.clone(), "last");
        let last = last.workflow_definition(payer(&bank, &held)).start().unwrap();
        assert_eq!(handle.result().await.unwrap(), 7);
        assert_eq!(bank.log(), log);
        assert_eq!(bank.booked.lock().unwrap().len(), 2);
        assert_eq!(handle.history().await.unwrap().len(), 1, "it was one turn");
        last.drain(Duration::from_secs(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_call_is_looked_up_before_it_is_retried() {
    // The last comes first: it is booked and returns an error; then the lookup is ambiguous.
    let bank = Bank::with(&[Mood::Vague, Mood::Liar]);
    let shared = bank.clone();
    let program = WorkflowDefinition::named("insists", move |ctx: Workflow, n: u32| {
        let bank = shared.clone();
        async move {
            let retry = RetryPolicy::fixed(5, 1_000);
            ctx.effect("bank").retry(retry).run(bank, n).await
        }
    });
    let stage = Stage::new().await;
    let running = stage.worker().workflow_definition(program).start().unwrap();
    let handle = stage.other.start_workflow_named::<u32>("insists", &5).await.unwrap();
    assert_eq!(handle.result().await.unwrap(), 6);
    assert_eq!(bank.log(), "call lookup lookup");
    running.drain(Duration::from_secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn a_name_makes_two_steps_one_call() {
    let bank = Bank::with(&[Mood::Liar]);
    let shared = bank.clone();
    let program = WorkflowDefinition::named("named", move |ctx: Workflow, n: u32| {
        let bank = shared.clone();
        async move {
            let charge = || ctx.effect("bank").name("charge");
            let failed = charge().run(bank.clone(), n).await.unwrap_err();
            ctx.sleep(Duration::from_secs(60)).await?;
            let other = charge().run(bank.clone(), n + 1).await.unwrap_err();
            let paid = charge().run(bank, n).await?;
            Ok::<_, StepError>(format!("{failed}; {other}; {paid}"))
        }
    });
    let stage = Stage::new().await;
    let running = stage.worker().workflow_definition(program).start().unwrap();
    let handle = stage.other.start_workflow_named::<String>("named", &5).await.unwrap();
    let said = handle.result().await.unwrap();
    let rows: Vec<&str> = said.split("; ").collect();
    assert_eq!(rows[0], "`effect bank` failed (transient): bank failed: out of order");
    assert!(rows[1].contains("used before for a different request"), "{said}");
    assert_eq!((rows[2], bank.log().as_str()), ("6", "call lookup"));
    running.drain(Duration::from_secs(10)).await;
}

#[tokio::test]
async fn a_workflow_test_calls_the_service_directly() {
    async fn pays(ctx: Workflow, n: u32) -> Result<u32, Failure> {
        let long = ctx.effect("x".repeat(200)).run(Bank::default(), n).await.unwrap_err();
        assert!(long.to_string().contains("longer than"), "{long}");
        Ok(ctx.effect("bank").run(Bank::default(), n).await?)
    }
    let tested = WorkflowTest::new(pays, &5).run().await.unwrap();
    assert_eq!(tested.result, Ok(6));
}
