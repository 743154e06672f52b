use tokio::sync::oneshot;

/// The test's end of a commit that is held: see [`crate::FaultStore::pause_commit`]. Dropping it
/// lets the commit go on.
#[derive(Debug)]
pub struct Pause {
    reached: Option<oneshot::Receiver<()>>,
    release: oneshot::Sender<()>,
}

/// The store's end.
#[derive(Debug)]
pub(super) struct Hold {
    reached: oneshot::Sender<()>,
    release: oneshot::Receiver<()>,
}

pub(super) fn pair() -> (Pause, Hold) {
    let (reached, arrival) = oneshot::channel();
    let (release, departure) = oneshot::channel();
    (Pause { reached: Some(arrival), release }, Hold { reached, release: departure })
}

impl Pause {
    /// Waits until the commit is held. The batch is decided by then, and nothing of it is written.
    pub async fn reached(&mut self) {
        if let Some(reached) = self.reached.take() {
            reached.await.expect("a held commit is reached before its store goes");
        }
    }

    /// Lets the commit go on.
    pub fn release(self) {
        // A commit whose caller was cancelled meanwhile is nobody to be told.
        let _ = self.release.send(());
    }
}

impl Hold {
    pub(super) async fn wait(self) {
        // A test that dropped its end, or does not wait for the arrival, holds nothing up.
        let _ = self.reached.send(());
        let _ = self.release.await;
    }
}
