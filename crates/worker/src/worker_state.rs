use std::pin::Pin;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::attempt::{Attempt, Continuation, NextTurn};
use crate::attempts::Attempts;
use crate::commit::EagerActivities;
use crate::lease::Granted;
use crate::turn::TurnAttempt;
use crate::worker::Worker;
use crate::worker_handle::Stop;
use crate::worker_heartbeat::Heard;

/// The state that all attempts of a worker share.
#[derive(Debug)]
pub(crate) struct WorkerState {
    pub(crate) worker: Arc<Worker>,
    /// Where handlers run.
    pub(crate) home: Handle,
    pub(crate) slots: Arc<Semaphore>,
    pub(crate) stop: Stop,
    pub(crate) heard: Heard,
    pub(crate) attempts: Attempts,
}

/// How many attempts may follow each other in one slot without a claim. The limit keeps a busy
/// workflow from starving other tasks.
const MOST_IN_A_ROW: u32 = 32;

/// A slot for one attempt. A turn shares its slot with the first activity that follows it.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    permit: Arc<OwnedSemaphorePermit>,
    /// How many attempts followed each other in this slot.
    followed: u32,
}

impl Slot {
    pub(crate) fn new(permit: OwnedSemaphorePermit) -> Self {
        Self { permit: Arc::new(permit), followed: 0 }
    }

    /// Whether follow-up work may be leased without a claim.
    fn may_lead(&self) -> bool {
        self.followed < MOST_IN_A_ROW
    }
}

impl WorkerState {
    /// Whether the worker has stopped claiming.
    pub(crate) fn is_closing(&self) -> bool {
        self.stop.closing.is_cancelled()
    }

    /// Runs a claimed task and its follow-up work on this worker: the eager activities of a turn,
    /// and the turn that follows the last of them.
    pub(crate) fn attend(
        self: Arc<Self>,
        granted: Granted,
        mut slot: Slot,
    ) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            let mut work = Some(Work::of(granted));
            while let Some(next) = work.take() {
                slot.followed += 1;
                match next {
                    Work::Turns(turn) => self.turns(turn, &slot).await,
                    Work::Attempt(granted) => {
                        let attempt = Attempt::new(&self, granted, slot.may_lead());
                        let next = attempt.run(&self.home, self.stop.interrupting.clone()).await;
                        work = self.follow(next, &slot);
                    }
                }
            }
        })
    }

    /// Starts the follow-up work of an attempt. Returns the one item that runs in the same slot.
    fn follow(self: &Arc<Self>, next: Continuation, slot: &Slot) -> Option<Work> {
        let Continuation { followers, turn } = next;
        if turn.is_some() {
            followers.into_iter().for_each(|more| self.start(more, slot));
            return turn.map(Work::Turns);
        }
        let mut followers = followers?;
        let first = followers.granted.pop()?;
        self.start(followers, slot);
        Some(Work::of(first))
    }

    /// Runs turns of a workflow. Its activities start as soon as they are leased.
    async fn turns(self: &Arc<Self>, turn: NextTurn, slot: &Slot) {
        let (sender, mut followers) = mpsc::unbounded_channel();
        let turns = TurnAttempt::new(self, turn, sender, slot.may_lead());
        let mut turns = std::pin::pin!(turns.run(&self.home, self.stop.interrupting.clone()));
        let mut is_over = false;
        while !is_over {
            tokio::select! {
                // Biased, so that simulations are deterministic.
                biased;
                () = &mut turns => is_over = true,
                Some(more) = followers.recv() => self.start(more, slot),
            }
        }
        while let Ok(more) = followers.try_recv() {
            self.start(more, slot);
        }
    }

    fn start(self: &Arc<Self>, followers: EagerActivities, slot: &Slot) {
        let EagerActivities { granted, mut slots } = followers;
        for granted in granted {
            let own = slots.as_mut().and_then(|slots| slots.split(1));
            let permit = own.map_or_else(|| slot.permit.clone(), Arc::new);
            let slot = Slot { permit, ..slot.clone() };
            self.attempts.spawn(self.clone().attend(granted, slot));
        }
    }
}

/// The work of one slot, one item after the other.
enum Work {
    Attempt(Granted),
    Turns(NextTurn),
}

impl Work {
    fn of(granted: Granted) -> Self {
        if granted.claimed.task.workflow.is_none() {
            return Work::Attempt(granted);
        }
        Work::Turns(NextTurn { granted, begun: None })
    }
}
