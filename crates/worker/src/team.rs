use std::pin::Pin;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use windlass_engine::{Claimed, Input};

use crate::attempt::Attempt;
use crate::pulse::Heard;
use crate::token::Token;
use crate::turn::{Followers, TurnAttempt};
use crate::worker::Worker;

/// What all attempts of a worker share.
#[derive(Debug)]
pub(crate) struct Team {
    pub(crate) worker: Arc<Worker>,
    /// Where handlers run.
    pub(crate) home: Handle,
    pub(crate) slots: Arc<Semaphore>,
    /// Says that what is not done is to be given back.
    pub(crate) interrupting: Token,
    pub(crate) heard: Heard,
}

/// Room for one attempt. A turn shares its own with the first activity that follows it.
type Slot = Arc<OwnedSemaphorePermit>;

impl Team {
    /// Attends to what was claimed, and to what follows from it here: the activities that a turn
    /// leaves to this worker, and the turn that the last of them calls for.
    pub(crate) fn attend(
        self: Arc<Self>,
        claimed: Claimed,
        asked: Instant,
        slot: Slot,
    ) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            let mut others = JoinSet::new();
            let mut next = Some((claimed, asked));
            while let Some((claimed, asked)) = next.take() {
                if claimed.task.workflow.is_some() {
                    self.turns(claimed, asked, &slot, &mut others).await;
                } else {
                    next = self.attempt(claimed, asked).await;
                }
            }
            drop(slot);
            while let Some(ended) = others.join_next().await {
                report(ended);
            }
        })
    }

    /// Runs a handler. Gives the workflow that goes on with what came of it, if that is leased to
    /// this worker.
    async fn attempt(&self, claimed: Claimed, asked: Instant) -> Option<(Claimed, Instant)> {
        let attempt = Attempt::new(self.worker.clone(), claimed, asked, self.heard.clone());
        let (task, asked) = attempt.run(&self.home, self.interrupting.clone()).await?;
        Some((Claimed { task, input: Input::None }, asked))
    }

    /// Makes turns of a workflow. Its activities start as soon as they are leased.
    async fn turns(
        self: &Arc<Self>,
        claimed: Claimed,
        asked: Instant,
        slot: &Slot,
        others: &mut JoinSet<()>,
    ) {
        let (sender, mut followers) = mpsc::unbounded_channel();
        let turns = TurnAttempt::new(self, claimed.task, asked, sender);
        let mut turns = std::pin::pin!(turns.run(&self.home, self.interrupting.clone()));
        let mut is_over = false;
        while !is_over {
            tokio::select! {
                // Without chance, so that a simulation of it runs the same way twice.
                biased;
                () = &mut turns => is_over = true,
                Some(more) = followers.recv() => self.follow(more, slot, others),
            }
        }
        while let Ok(more) = followers.try_recv() {
            self.follow(more, slot, others);
        }
    }

    fn follow(self: &Arc<Self>, followers: Followers, slot: &Slot, others: &mut JoinSet<()>) {
        let Followers { claimed, mut slots, asked } = followers;
        for claimed in claimed {
            let own = slots.as_mut().and_then(|slots| slots.split(1));
            let slot = own.map_or_else(|| slot.clone(), Arc::new);
            others.spawn(self.clone().attend(claimed, asked, slot));
        }
    }
}

pub(crate) fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "an attempt ended without a settle: this is a bug");
    }
}
