use std::sync::{Mutex, MutexGuard};

use tokio::task::{JoinError, JoinSet};

/// All attempts that a worker runs, in one flat set. No attempt awaits its follow-up work, so that
/// a long chain of attempts retains nothing.
#[derive(Debug)]
pub(crate) struct AttemptSet(Mutex<Option<JoinSet<()>>>);

impl Default for AttemptSet {
    fn default() -> Self {
        Self(Mutex::new(Some(JoinSet::new())))
    }
}

impl AttemptSet {
    fn lock(&self) -> MutexGuard<'_, Option<JoinSet<()>>> {
        self.0.lock().expect("no panic while the attempts are locked")
    }

    /// Starts an attempt, unless all are aborted.
    pub(crate) fn spawn(&self, attempt: impl Future<Output = ()> + Send + 'static) {
        if let Some(attempts) = &mut *self.lock() {
            remove_ended(attempts);
            attempts.spawn(attempt);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().as_ref().is_none_or(JoinSet::is_empty)
    }

    /// Removes the attempts that have ended.
    pub(crate) fn remove_ended(&self) {
        self.lock().iter_mut().for_each(remove_ended);
    }

    /// Waits for all attempts, also for those that start meanwhile.
    pub(crate) async fn wait(&self) {
        loop {
            let mut attempts = self.lock().as_mut().map(std::mem::take).unwrap_or_default();
            if attempts.is_empty() {
                return;
            }
            while let Some(ended) = attempts.join_next().await {
                report(ended);
            }
        }
    }

    /// Aborts all attempts. None starts after this.
    pub(crate) fn abort(&self) {
        let attempts = self.lock().take();
        drop(attempts);
    }
}

fn remove_ended(attempts: &mut JoinSet<()>) {
    while let Some(ended) = attempts.try_join_next() {
        report(ended);
    }
}

fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "attempt panicked before it was settled: this is a bug");
    }
}
