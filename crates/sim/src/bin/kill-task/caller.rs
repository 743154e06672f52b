//! Callers that submit commands directly: they create, claim, begin, settle, and retry.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::command::{
    Begin, Claim, Complete, Create, Fail, IdempotencyWindow, NewTask, Release, Renew,
};
use windlass_core::{
    Command, FailureClass, Fence, LaneName, Outcome, Payload, PayloadKey, Retry, RetryPolicy,
    Settled, TaskKey, Tenant,
};
use windlass_engine::{ClaimedTask, Engine, Error, TaskInput};

use crate::line::{Act, How, Line, Plan, TaskSpec};
use crate::stage::Stage;

pub(crate) const LEASE: Duration = Duration::from_millis(150);
pub(crate) const KIND: &str = "work";
/// The lanes of the callers, and of the worker.
pub(crate) const LANES: [&str; 2] = ["callers", "worker"];

const BACKOFF_MS: u64 = 20;
const DAY_MS: u64 = 24 * 3_600 * 1_000;
/// The delay before a retry after a store error.
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) engine: Engine,
    pub(crate) stage: Arc<Stage>,
}

/// A rejection.
struct Rejected(&'static str);

impl Caller {
    /// Retries until there is an answer.
    async fn ask(&self, command: Command) -> Result<Outcome, Rejected> {
        loop {
            match self.engine.submit(command.clone()).await {
                Ok(outcome) => return Ok(outcome),
                Err(Error::Rejected(rejection)) => return Err(Rejected(rejection.code())),
                Err(Error::Overloaded | Error::OutcomeUnknown | Error::Store(_)) => {
                    tokio::time::sleep(PAUSE).await;
                }
                Err(Error::ShuttingDown) => std::future::pending().await,
                Err(error) => self.stage.fail(format!("{command:?} failed: {error}")),
            }
        }
    }

    pub(crate) async fn create(&self, spec: TaskSpec) {
        self.stage.say(&Line::CreateRequested(spec.clone()));
        self.stage.reach("create.asked");
        let answer = self.ask(Create::one(new_task(&spec)).into()).await;
        self.stage.reach("create.answered");
        let created = match answer {
            Ok(Outcome::Created(mut created)) => created.pop().expect("one task, one answer"),
            Ok(other) => self.stage.fail(format!("unexpected answer to {spec:?}: {other:?}")),
            Err(Rejected(code)) => self.stage.fail(format!("{spec:?} was rejected: {code}")),
        };
        if created.duplicate {
            self.stage.make_room();
        }
        let (stored_id, duplicate) = (created.id.to_string(), created.duplicate);
        self.stage.say(&Line::Created { spec, stored_id, duplicate });
    }

    pub(crate) async fn settle(&self, act: &Act) {
        self.stage.say(&Line::SettleRequested(act.clone()));
        self.stage.reach("settle.asked");
        let answer = self.ask(command(act)).await;
        self.stage.reach("settle.answered");
        match answer {
            Ok(Outcome::Settled(answer)) => self.settled(act, answer),
            Ok(other) => self.stage.fail(format!("unexpected answer to {act:?}: {other:?}")),
            Err(Rejected(code)) => {
                self.stage.say(&Line::Rejected { act: act.clone(), code: code.to_owned() });
            }
        }
    }

    fn settled(&self, act: &Act, answer: Settled) {
        self.stage.say(&Line::Settled { act: act.clone(), answer: Some(answer) });
    }

    /// Claims and settles one task after the other.
    pub(crate) async fn work(self) {
        loop {
            let claim = Claim {
                lanes: vec![LANES[0].into()],
                lease_ms: lease_ms(),
                limit: 2,
                begin: false,
                ..Claim::new("caller")
            };
            match self.engine.claim(claim, LEASE).await {
                Ok(claimed) => {
                    for claimed in claimed {
                        self.attempt(claimed).await;
                    }
                }
                Err(Error::Store(_) | Error::OutcomeUnknown) => tokio::time::sleep(PAUSE).await,
                Err(Error::ShuttingDown) => return,
                Err(error) => self.stage.fail(format!("a claim failed: {error}")),
            }
        }
    }

    async fn attempt(&self, claimed: ClaimedTask) {
        self.stage.reach("claim.answered");
        let fence = claimed.task.fence();
        let begun = match self.ask(Begin { fence: fence.clone() }.into()).await {
            Ok(Outcome::Begun(run)) => run,
            Ok(other) => self.stage.fail(format!("unexpected outcome of a begin: {other:?}")),
            // The lease has expired.
            Err(Rejected(_)) => return,
        };
        let (id, epoch, attempt) = (claimed.task.id.to_string(), fence.epoch, begun.number);
        self.stage.say(&Line::Began { id: id.clone(), epoch, attempt });
        self.stage.reach("begin.answered");
        let plan = self.plan(&claimed).await;
        if plan == Plan::CompleteSlowly {
            tokio::time::sleep(LEASE / 4).await;
            // If the renewal is rejected, so is the settle.
            let _ = self.ask(Renew { fence, lease_ms: lease_ms() }.into()).await;
        }
        let how = match plan {
            Plan::ReleaseFirst if claimed.task.claims == 1 => How::Release,
            plan => end(plan, attempt),
        };
        let act = Act { id, epoch, how };
        if plan == Plan::Stall {
            self.stage.make_room();
            tokio::spawn(self.clone().stall(act));
        } else {
            self.settle(&act).await;
            if act.ends() {
                self.stage.make_room();
                self.settle(&act).await;
            }
        }
    }

    /// Settles a task that another worker leases by then: it must have no effect.
    async fn stall(self, act: Act) {
        tokio::time::sleep(LEASE * 3 / 2).await;
        self.settle(&act).await;
    }

    async fn plan(&self, claimed: &ClaimedTask) -> Plan {
        let payload = match &claimed.input {
            TaskInput::Inline(payload) => payload.clone(),
            TaskInput::None => self.stage.fail(format!("{:?} has no payload", claimed.task)),
            TaskInput::ByKey(key) => self.fetch(key).await,
        };
        match serde_json::from_slice(&payload.bytes) {
            Ok(plan) => plan,
            Err(error) => self.stage.fail(format!("{payload:?} does not decode: {error}")),
        }
    }

    async fn fetch(&self, key: &PayloadKey) -> Payload {
        loop {
            match self.engine.payload(key).await {
                Ok(Some(payload)) => return payload,
                Ok(None) => self.stage.fail(format!("{key:?} does not exist")),
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }
}

/// How an attempt ends.
pub(crate) fn end(plan: Plan, attempt: u32) -> How {
    match plan {
        Plan::Complete | Plan::CompleteSlowly | Plan::ReleaseFirst | Plan::Stall => How::Complete,
        Plan::CompleteSecond if attempt > 1 => How::Complete,
        Plan::CompleteSecond | Plan::FailAlways => How::Fail,
        Plan::NonRetryable => How::NonRetryable,
    }
}

fn lease_ms() -> u64 {
    u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX)
}

fn new_task(spec: &TaskSpec) -> NewTask {
    let plan = serde_json::to_string(&spec.plan).expect("a plan is serializable");
    let window_ms = DAY_MS;
    let mut new = NewTask::new(spec.id.as_str(), KIND);
    new.lane = LaneName::new(&spec.lane);
    new.payload = Some(Payload::json(plan));
    new.policy.retry = Some(RetryPolicy::fixed(spec.max_attempts, BACKOFF_MS));
    new.idempotency = spec.key.clone().map(|key| IdempotencyWindow { key: key.into(), window_ms });
    new
}

/// The command of an act: the same that a worker submits for its handler's result.
fn command(act: &Act) -> Command {
    let task = TaskKey { tenant: Tenant::default(), id: act.id.as_str().into() };
    let fence = Fence { task, epoch: act.epoch };
    let fail = |class, retry| Fail { fence: fence.clone(), class, reason: act.mark(), retry };
    match act.how {
        How::Complete => {
            let result = Some(Payload::json(format!("\"{}\"", act.mark())));
            Complete { fence, result }.into()
        }
        How::Fail => fail(FailureClass::Transient, Retry::Policy).into(),
        How::NonRetryable => fail(FailureClass::Permanent, Retry::Never).into(),
        How::Release => Release { fence }.into(),
    }
}
