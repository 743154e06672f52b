use std::pin::Pin;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::attempt::{Attempt, Next, NextTurn};
use crate::attempts::Attempts;
use crate::commit::Followers;
use crate::lease::Granted;
use crate::pulse::Heard;
use crate::running::Stop;
use crate::turn::TurnAttempt;
use crate::worker::Worker;

/// What all attempts of a worker share.
#[derive(Debug)]
pub(crate) struct Team {
    pub(crate) worker: Arc<Worker>,
    /// Where handlers run.
    pub(crate) home: Handle,
    pub(crate) slots: Arc<Semaphore>,
    pub(crate) stop: Stop,
    pub(crate) heard: Heard,
    pub(crate) attempts: Attempts,
}

/// How much is done in one room, each because of the one before it, until the next is anybody's:
/// a workflow that always has something to do keeps nobody else from it.
const MOST_IN_A_ROW: u32 = 32;

/// Room for one attempt. A turn shares its own with the first activity that follows it.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    permit: Arc<OwnedSemaphorePermit>,
    /// How much was done in a row before this.
    followed: u32,
}

impl Slot {
    pub(crate) fn new(permit: OwnedSemaphorePermit) -> Self {
        Self { permit: Arc::new(permit), followed: 0 }
    }

    /// Whether what follows may be leased at once.
    fn may_lead(&self) -> bool {
        self.followed < MOST_IN_A_ROW
    }
}

impl Team {
    /// Whether nothing more is taken on.
    pub(crate) fn is_closing(&self) -> bool {
        self.stop.closing.is_cancelled()
    }

    /// Attends to what was claimed, and to what follows from it here: the activities that a turn
    /// leaves to this worker, and the turn that the last of them calls for.
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

    /// Starts what follows from an attempt, but for the one piece of it that has the same room.
    fn follow(self: &Arc<Self>, next: Next, slot: &Slot) -> Option<Work> {
        let Next { followers, turn } = next;
        if turn.is_some() {
            followers.into_iter().for_each(|more| self.start(more, slot));
            return turn.map(Work::Turns);
        }
        let mut followers = followers?;
        let first = followers.granted.pop()?;
        self.start(followers, slot);
        Some(Work::of(first))
    }

    /// Makes turns of a workflow. Its activities start as soon as they are leased.
    async fn turns(self: &Arc<Self>, turn: NextTurn, slot: &Slot) {
        let (sender, mut followers) = mpsc::unbounded_channel();
        let turns = TurnAttempt::new(self, turn, sender, slot.may_lead());
        let mut turns = std::pin::pin!(turns.run(&self.home, self.stop.interrupting.clone()));
        let mut is_over = false;
        while !is_over {
            tokio::select! {
                // Without chance, so that a simulation of it runs the same way twice.
                biased;
                () = &mut turns => is_over = true,
                Some(more) = followers.recv() => self.start(more, slot),
            }
        }
        while let Ok(more) = followers.try_recv() {
            self.start(more, slot);
        }
    }

    fn start(self: &Arc<Self>, followers: Followers, slot: &Slot) {
        let Followers { granted, mut slots } = followers;
        for granted in granted {
            let own = slots.as_mut().and_then(|slots| slots.split(1));
            let permit = own.map_or_else(|| slot.permit.clone(), Arc::new);
            let slot = Slot { permit, ..slot.clone() };
            self.attempts.spawn(self.clone().attend(granted, slot));
        }
    }
}

/// What is done in one room, one after the other.
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
