//! The workflow and its activities.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::RetryPolicy;
use windlass_engine::{EffectError, Engine, Error, ExternalCall, ExternalService, Lookup};
use windlass_worker::workflow::{Activity, StepError, Workflow, WorkflowDefinition};
use windlass_worker::{Context, Failure, Worker, WorkerHandle};

use crate::bank::{Bank, Payment};
use crate::line::Line;
use crate::plan::{self, Block};
use crate::stage::Stage;

pub(crate) const CHAIN: &str = "chain";
const PLAIN: &str = "plain";
const PAYS: &str = "pays";
const SLOTS: usize = 8;
const LEASE: Duration = Duration::from_secs(1);
const BEAT: Duration = Duration::from_millis(300);
const NAP: Duration = Duration::from_millis(20);
/// Far longer than an activity takes, including all killed processes.
const NEVER: Duration = Duration::from_secs(3_600);
/// More than the number of kills.
const ATTEMPTS: u32 = 100;

#[derive(Clone, Debug)]
pub(crate) struct Chain {
    pub(crate) bank: SlowBank,
    pub(crate) stage: Arc<Stage>,
    pub(crate) process: u32,
}

/// A bank whose answers are delayed, so that many callers are killed while they wait.
#[derive(Clone, Debug)]
pub(crate) struct SlowBank(pub(crate) Bank);

impl ExternalService for SlowBank {
    type Request = Payment;
    type Response = String;
    type Error = String;

    async fn invoke(&self, call: &ExternalCall, payment: &Payment) -> Result<String, String> {
        let answer = self.0.invoke(call, payment).await;
        tokio::time::sleep(Duration::from_millis(payment.cents % 40)).await;
        answer
    }

    async fn lookup(&self, call: &ExternalCall) -> Lookup<String> {
        self.0.lookup(call).await
    }
}

/// Reports that a process runs a step, until it is dropped.
struct Here<'c>(&'c Chain, u32);

impl<'c> Here<'c> {
    fn enter(chain: &'c Chain, step: u32) -> Self {
        chain.stage.say(&Line::Began { process: chain.process, step });
        Self(chain, step)
    }
}

impl Drop for Here<'_> {
    fn drop(&mut self) {
        self.0.stage.say(&Line::Left { process: self.0.process, step: self.1 });
    }
}

impl Chain {
    pub(crate) fn work(&self, engine: &Engine) -> Result<WorkerHandle, Error> {
        let (plain, pays) = (self.clone(), self.clone());
        Worker::new(engine.clone(), format!("kill-workflow {}", self.process))
            .concurrency(SLOTS)
            .lease(LEASE)
            .heartbeat_interval(BEAT)
            .workflow_definition(self.workflow_definition())
            .handler(PLAIN, move |_: Context, step: u32| {
                let chain = plain.clone();
                async move {
                    let _here = Here::enter(&chain, step);
                    take_time(step).await;
                    Ok(plan::worth(step))
                }
            })
            .handler(PAYS, move |context: Context, step: u32| {
                let chain = pays.clone();
                async move {
                    let _here = Here::enter(&chain, step);
                    Ok::<_, Failure>(chain.pay(&context, step).await?)
                }
            })
            .start()
    }

    async fn pay(&self, context: &Context, step: u32) -> Result<u64, EffectError> {
        let payment = payment(plan::order(step), step);
        let receipt = context.effect("bank").run(&self.bank, &payment).await?;
        Ok(worth_of(&receipt, &payment))
    }

    pub(crate) fn workflow_definition(&self) -> WorkflowDefinition {
        let bank = self.bank.clone();
        WorkflowDefinition::named(CHAIN, move |ctx: Workflow, steps: u32| {
            let bank = bank.clone();
            async move {
                let mut sum = 0;
                for block in plan::blocks(steps) {
                    sum += run(&ctx, &bank, block).await?;
                }
                Ok::<_, StepError>(sum)
            }
        })
    }
}

async fn run(ctx: &Workflow, bank: &SlowBank, block: Block) -> Result<u64, StepError> {
    let one = |step| activity(ctx, step);
    match block {
        Block::One(step) => one(step).await,
        Block::Fan(steps) => {
            let worth = ctx.join(steps.into_iter().map(one).collect::<Vec<_>>()).await;
            worth.into_iter().sum()
        }
        Block::Nap(step) => {
            ctx.sleep(NAP).await?;
            one(step).await
        }
        Block::Timed(step) => ctx.timeout(NEVER, one(step)).await?,
        Block::Call(step) => {
            let payment = || payment(plan::turn_order(step), step);
            let again = RetryPolicy::fixed(ATTEMPTS, 10);
            let receipt = ctx.effect("bank").retry(again).run(bank.clone(), payment()).await?;
            Ok(worth_of(&receipt, &payment()) + one(step).await?)
        }
    }
}

fn activity(ctx: &Workflow, step: u32) -> Activity<u64> {
    let name = if plan::pays(step) { PAYS } else { PLAIN };
    ctx.activity_named(name, &step).retry(RetryPolicy::fixed(ATTEMPTS, 1))
}

/// Some activities take longer than a lease.
async fn take_time(step: u32) {
    let ms = if step % 125 == 7 { 1_200 } else { u64::from(step * 13 % 30) };
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

fn payment(order: String, step: u32) -> Payment {
    Payment { order, cents: plan::worth(step) }
}

/// The value of a payment; zero if the receipt is for another one.
fn worth_of(receipt: &str, payment: &Payment) -> u64 {
    let is_for_it = receipt.ends_with(&format!(" for {}", payment.order));
    if is_for_it { payment.cents } else { 0 }
}
