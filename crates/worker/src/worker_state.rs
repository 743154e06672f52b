use std::pin::Pin;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::attempt::{Attempt, Continuation, NextTurn};
use crate::attempt_set::AttemptSet;
use crate::lease::Granted;
use crate::turn_attempt::TurnAttempt;
use crate::turn_commit::EagerActivities;
use crate::worker::Worker;
use crate::worker_handle::StopSignals;
use crate::worker_heartbeat::AliveUntil;

/// The state that all attempts of a worker share.
#[derive(Debug)]
pub(crate) struct WorkerState {
    pub(crate) worker: Arc<Worker>,
    /// The runtime of handlers.
    pub(crate) runtime: Handle,
    pub(crate) slots: Arc<Semaphore>,
    pub(crate) stop: StopSignals,
    pub(crate) alive_until: AliveUntil,
    pub(crate) attempts: AttemptSet,
}

/// How many attempts may follow each other under one permit without a claim. The limit keeps a busy
/// workflow from starving other tasks.
const MAX_CHAIN: u32 = 32;

/// The right to run one attempt, out of the concurrency of the worker. A turn shares its permit
/// with the first activity that follows it.
#[derive(Clone, Debug)]
pub(crate) struct Permit {
    slot: Arc<OwnedSemaphorePermit>,
    /// How many attempts followed each other under this permit.
    chained: u32,
}

impl Permit {
    pub(crate) fn new(slot: OwnedSemaphorePermit) -> Self {
        Self { slot: Arc::new(slot), chained: 0 }
    }

    /// Whether follow-up work may be leased without a claim.
    fn may_chain(&self) -> bool {
        self.chained < MAX_CHAIN
    }
}

impl WorkerState {
    /// Whether the worker has stopped claiming.
    pub(crate) fn is_closing(&self) -> bool {
        self.stop.closing.is_cancelled()
    }

    /// Runs a claimed task and its follow-up work on this worker: the eager activities of a turn,
    /// and the turn that follows the last of them.
    pub(crate) fn run_task(
        self: Arc<Self>,
        granted: Granted,
        mut permit: Permit,
    ) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            let mut work = Some(Work::of(granted));
            while let Some(next) = work.take() {
                permit.chained += 1;
                match next {
                    Work::Turns(turn) => self.turns(turn, &permit).await,
                    Work::Attempt(granted) => {
                        let attempt = Attempt::new(&self, granted, permit.may_chain());
                        let next = attempt.run(&self.runtime, self.stop.interrupting.clone()).await;
                        work = self.start_continuation(next, &permit);
                    }
                }
            }
        })
    }

    /// Starts the follow-up work of an attempt. Returns the item that runs under the same permit.
    fn start_continuation(self: &Arc<Self>, next: Continuation, permit: &Permit) -> Option<Work> {
        let Continuation { eager_activities, turn } = next;
        if turn.is_some() {
            eager_activities.into_iter().for_each(|more| self.start(more, permit));
            return turn.map(Work::Turns);
        }
        let mut eager_activities = eager_activities?;
        let first = eager_activities.granted.pop()?;
        self.start(eager_activities, permit);
        Some(Work::of(first))
    }

    /// Runs turns of a workflow. Its activities start as soon as they are leased.
    async fn turns(self: &Arc<Self>, turn: NextTurn, permit: &Permit) {
        let (sender, mut eager_activities) = mpsc::unbounded_channel();
        let turns = TurnAttempt::new(self, turn, sender, permit.may_chain());
        let mut turns = std::pin::pin!(turns.run(&self.runtime, self.stop.interrupting.clone()));
        let mut is_over = false;
        while !is_over {
            tokio::select! {
                // Biased, so that simulations are deterministic.
                biased;
                () = &mut turns => is_over = true,
                Some(more) = eager_activities.recv() => self.start(more, permit),
            }
        }
        while let Ok(more) = eager_activities.try_recv() {
            self.start(more, permit);
        }
    }

    fn start(self: &Arc<Self>, eager_activities: EagerActivities, permit: &Permit) {
        let EagerActivities { granted, mut slots } = eager_activities;
        for granted in granted {
            let own = slots.as_mut().and_then(|slots| slots.split(1));
            let slot = own.map_or_else(|| permit.slot.clone(), Arc::new);
            let permit = Permit { slot, ..permit.clone() };
            self.attempts.spawn(self.clone().run_task(granted, permit));
        }
    }
}

/// The work under one permit, one item after the other.
enum Work {
    Attempt(Granted),
    Turns(NextTurn),
}

impl Work {
    fn of(granted: Granted) -> Self {
        if granted.claimed.task.workflow.is_none() {
            return Work::Attempt(granted);
        }
        Work::Turns(NextTurn { granted, in_progress: None })
    }
}
