//! Callers that submit commands directly, and retry when there is no answer.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::command::{Claim, Complete, Create, Fail, Renew};
use windlass_core::{Command, FailureClass, Fence, Outcome, Payload, Rejection, Retry, Settled};
use windlass_engine::{ClaimedTask, Engine, Error, TaskInput};

use crate::line::{How, Line, Run};
use crate::node::{LEASE, lease_ms};
use crate::process_log::ProcessLog;
use crate::task_spec::{BY_HAND, Plan, TaskSpec, nth_of};

/// The delay before a retry.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) engine: Engine,
    pub(crate) log: Arc<ProcessLog>,
    /// The name of the caller, unique per life of a process.
    pub(crate) name: String,
}

/// An answer, and whether an earlier submission of the command had no answer.
struct Answered {
    answer: Result<Outcome, Rejection>,
    unsure: bool,
}

impl Caller {
    /// Retries until there is an answer.
    async fn ask(&self, command: Command) -> Answered {
        let mut unsure = false;
        loop {
            match self.engine.submit(command.clone()).await {
                Ok(outcome) => return Answered { answer: Ok(outcome), unsure },
                Err(Error::Rejected(rejection)) => {
                    return Answered { answer: Err(rejection), unsure };
                }
                Err(Error::OutcomeUnknown) => {
                    self.log.write(&Line::Unknown);
                    unsure = true;
                }
                Err(Error::Overloaded | Error::Store(_)) => {}
                Err(Error::ShuttingDown) => std::future::pending().await,
                Err(error) => self.log.fail(format!("{command:?} failed: {error}")),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    pub(crate) async fn create(&self, spec: &TaskSpec) {
        let create = Create::one(spec.new_task(&self.name));
        match self.ask(create.into()).await.answer {
            Ok(Outcome::Created(created)) if created.len() == 1 => {
                let (id, duplicate) = (created[0].id.to_string(), created[0].duplicate);
                self.log.write(&Line::Created { nth: spec.nth, id, duplicate });
            }
            other => self.log.fail(format!("unexpected answer to {spec:?}: {other:?}")),
        }
    }

    /// Claims and settles one task after the other, without checking lease expiry.
    pub(crate) async fn work(self) {
        loop {
            let claim = Claim {
                lanes: vec![BY_HAND.into()],
                lease_ms: lease_ms(),
                ..Claim::new(self.name.as_str())
            };
            match self.engine.claim(claim, LEASE / 4).await {
                Ok(claimed) => {
                    for claimed in claimed {
                        self.attempt(claimed).await;
                    }
                }
                Err(Error::ShuttingDown) => return,
                Err(Error::OutcomeUnknown) => {
                    self.log.write(&Line::Unknown);
                    tokio::time::sleep(PAUSE).await;
                }
                Err(Error::Store(_)) => tokio::time::sleep(PAUSE).await,
                Err(error) => self.log.fail(format!("a claim failed: {error}")),
            }
        }
    }

    async fn attempt(&self, claimed: ClaimedTask) {
        let (fence, attempt) = (claimed.task.fence(), claimed.task.attempts);
        let run = Run { id: claimed.task.id.to_string(), epoch: fence.epoch };
        let worker = self.name.clone();
        self.log.write(&Line::Claimed { run: run.clone(), attempt, worker });
        match self.plan(&claimed).await {
            Plan::FailFirst(times) if attempt <= times => {
                let (class, retry) = (FailureClass::Transient, Retry::Policy);
                let fail = Fail { fence, class, reason: run.to_string(), retry };
                self.settle(&run, How::Fail, fail.into()).await;
            }
            Plan::StallFirst if attempt == 1 => drop(tokio::spawn(self.clone().stall(run, fence))),
            Plan::StallFirst => {
                tokio::time::sleep(LEASE * 3 / 4).await;
                self.complete(&run, fence).await;
            }
            Plan::Slowly => {
                for _ in 0..3 {
                    tokio::time::sleep(LEASE / 2).await;
                    let renew = Renew { fence: fence.clone(), lease_ms: lease_ms() };
                    // Rejected or not: the settle will show.
                    self.ask(renew.into()).await;
                }
                self.complete(&run, fence).await;
            }
            _ => self.complete(&run, fence).await,
        }
    }

    /// Completes a task that another worker leases by then: it must have no effect.
    async fn stall(self, run: Run, fence: Fence) {
        tokio::time::sleep(LEASE * 3 / 2).await;
        self.complete(&run, fence).await;
    }

    /// Completes some tasks twice: the second answer must equal the first.
    async fn complete(&self, run: &Run, fence: Fence) {
        let times = if nth_of(&run.id).is_some_and(|nth| nth.is_multiple_of(8)) { 2 } else { 1 };
        for _ in 0..times {
            let result = Some(Payload::json(format!("\"{run}\"")));
            self.settle(run, How::Complete, Complete { fence: fence.clone(), result }.into()).await;
        }
    }

    async fn settle(&self, run: &Run, how: How, command: Command) {
        let run = run.clone();
        self.log.write(&Line::SettleRequested { run: run.clone(), how });
        let Answered { answer, unsure } = self.ask(command).await;
        let line = match (answer, how) {
            (Ok(Outcome::Settled(Settled::Completed)), How::Complete)
            | (Ok(Outcome::Settled(Settled::RetryAt(_))), How::Fail) => Line::Settled { run, how },
            (Err(rejection), _) => {
                Line::Rejected { run, how, code: rejection.code().to_owned(), unsure }
            }
            (other, _) => self.log.fail(format!("answer to {how:?} of {run}: {other:?}")),
        };
        self.log.write(&line);
    }

    async fn plan(&self, claimed: &ClaimedTask) -> Plan {
        let payload = match &claimed.input {
            TaskInput::Inline(payload) => payload.clone(),
            TaskInput::None => self.log.fail(format!("{:?} has no payload", claimed.task)),
            TaskInput::ByKey(key) => loop {
                match self.engine.payload(key).await {
                    Ok(Some(payload)) => break payload,
                    Ok(None) => self.log.fail(format!("{key:?} does not exist")),
                    Err(_) => tokio::time::sleep(PAUSE).await,
                }
            },
        };
        match serde_json::from_slice(&payload.bytes) {
            Ok(plan) => plan,
            Err(error) => self.log.fail(format!("{payload:?} is not a plan: {error}")),
        }
    }
}
