//! Runs a script of commands with every fault at every call; each run must reach the same result.

use std::sync::Arc;

use windlass_core::command::{
    Claim, Complete, Create, Fail, IdempotencyWindow, NewTask, Replay, Sweep,
};
use windlass_core::{
    Command, FailureClass, Hints, Outcome, Payload, Retry, RetryPolicy, Task, TaskKey, Tenant,
};
use windlass_store::{ManualClock, Store, StoreError};

use crate::factory::Factory;
use crate::fault::{Call, CrashPoint, Failure, FaultStore};
use crate::fixture::START;
use crate::runner::{CommandResult, Order, attempt};
use crate::snapshot::Snapshot;

/// Attempts of the test client; no run needs nearly as many.
const MOST_TRIES: usize = 50;

/// A fault, and the kind of call that it affects.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Fails(Call, Failure),
    Crashes(CrashPoint),
}

const FAULTS: &[Fault] = &[
    Fault::Fails(Call::Begin, Failure::Unavailable),
    Fault::Fails(Call::Begin, Failure::Full),
    Fault::Fails(Call::Load, Failure::Unavailable),
    Fault::Fails(Call::Load, Failure::Conflict),
    Fault::Fails(Call::Commit, Failure::Unavailable),
    Fault::Fails(Call::Commit, Failure::Full),
    Fault::Fails(Call::Commit, Failure::Conflict),
    Fault::Crashes(CrashPoint::BeforeCommit),
    Fault::Crashes(CrashPoint::InCommit),
    Fault::Crashes(CrashPoint::AfterCommit),
];

/// Runs the script once without faults, then once for every fault at every call, and compares
/// results and contents. Returns the number of runs.
///
/// # Panics
///
/// If a run reaches a different result than the first.
pub async fn run(factory: &dyn Factory) -> usize {
    let calm = Trial::open(factory, "calm").await;
    let expected = calm.play().await;
    let calls = |call| calm.store.calls(call);
    let mut runs = 1;
    for &fault in FAULTS {
        let of = match fault {
            Fault::Fails(call, _) => call,
            Fault::Crashes(_) => Call::Commit,
        };
        for nth in 1..=calls(of) {
            let trial = Trial::open(factory, &format!("fault-{runs}")).await;
            match fault {
                Fault::Fails(call, failure) => trial.store.fail(call, nth, failure),
                Fault::Crashes(point) => trial.store.crash(nth, point),
            }
            let (answers, snapshot) = trial.play().await;
            assert!(trial.store.is_spent(), "{fault:?} at {nth} did not occur");
            assert_eq!(answers, expected.0, "{fault:?} at {nth}");
            let difference = snapshot.difference(&expected.1);
            assert_eq!(difference, None, "{fault:?} at {nth}");
            runs += 1;
        }
    }
    runs
}

struct Trial {
    /// The store without faults, for inspection.
    inner: Arc<dyn Store>,
    store: FaultStore,
    clock: Arc<ManualClock>,
}

impl Trial {
    async fn open(factory: &dyn Factory, place: &str) -> Self {
        let clock = Arc::new(ManualClock::at(START));
        let inner = factory.open(place, clock.clone()).await;
        Self { store: FaultStore::new(inner.clone()), inner, clock }
    }

    /// Plays the script like a retrying client: commands that the store failed are retried, and
    /// unknown outcomes are looked up first.
    async fn play(&self) -> (Vec<CommandResult>, Snapshot) {
        let mut answers = Vec::new();
        let bulk = Create { tenant: Tenant::default(), tasks: vec![task("a"), task("b")] };
        answers.push(self.ask(&bulk.into()).await);
        let claim = Claim { limit: 2, ..Claim::new("w") }.into();
        let claimed = self.ask(&claim).await;
        let tasks = leased(&claimed);
        answers.push(claimed);
        for command in settles(&tasks) {
            answers.push(self.ask(&command).await);
        }
        self.clock.advance_ms(60_000);
        for command in [Sweep::default().into(), Claim::new("w").into(), replay("a")] {
            answers.push(self.ask(&command).await);
        }
        let snapshot = Snapshot::of(&*self.inner).await.expect("the inner store does not fail");
        (answers, snapshot)
    }

    async fn ask(&self, command: &Command) -> CommandResult {
        let commands = std::slice::from_ref(command);
        for _ in 0..MOST_TRIES {
            match attempt(&self.store, commands, Order::Strict, &Hints::default()).await {
                Ok((mut batch, commit_id)) => {
                    let took_effect = match commit_id {
                        None => true,
                        Some(commit_id) => {
                            self.store.outcome(&commit_id).await.expect("it is known")
                        }
                    };
                    if took_effect {
                        return batch.answers.remove(0);
                    }
                }
                Err(StoreError::Unavailable(_) | StoreError::Full | StoreError::Conflict) => {}
                Err(other) => panic!("{command:?} met {other}"),
            }
        }
        panic!("{command:?} was attempted {MOST_TRIES} times")
    }
}

fn task(id: &str) -> NewTask {
    let mut new = NewTask::new(id, "k");
    new.payload = Some(Payload::json(format!("{id:?}")));
    new.policy.retry = Some(RetryPolicy::fixed(3, 60_000));
    new.idempotency =
        Some(IdempotencyWindow { key: format!("key-{id}").into(), window_ms: 3_600_000 });
    new
}

fn leased(answer: &CommandResult) -> Vec<Arc<Task>> {
    match answer {
        Ok(Outcome::Claimed(tasks)) => tasks.clone(),
        other => panic!("unexpected outcome of a claim: {other:?}"),
    }
}

fn settles(tasks: &[Arc<Task>]) -> [Command; 2] {
    let [first, second] = tasks else { panic!("two tasks wait, {} were claimed", tasks.len()) };
    let (class, retry) = (FailureClass::Transient, Retry::Policy);
    [
        Complete { fence: first.fence(), result: Some(Payload::json("1")) }.into(),
        Fail { fence: second.fence(), class, reason: "busy".into(), retry }.into(),
    ]
}

fn replay(id: &str) -> Command {
    Replay { task: TaskKey::new(&Tenant::default(), &id.into()), execution: 0 }.into()
}
