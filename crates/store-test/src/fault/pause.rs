use tokio::sync::oneshot;

/// The test's end of a held commit: see [`crate::FaultStore::pause_commit`]. Dropping it releases
/// the commit.
#[derive(Debug)]
pub struct Pause {
    reached: Option<oneshot::Receiver<()>>,
    release: oneshot::Sender<()>,
}

/// The store's end of a held commit.
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
    /// Waits until the commit is held. The batch is decided by then, and nothing is written.
    pub async fn reached(&mut self) {
        if let Some(reached) = self.reached.take() {
            reached.await.expect("the commit is held before its store is dropped");
        }
    }

    /// Releases the commit.
    pub fn release(self) {
        // The caller of the commit may have been cancelled.
        let _ = self.release.send(());
    }
}

impl Hold {
    pub(super) async fn wait(self) {
        // A test that dropped its end, or does not wait for the hold, blocks nothing.
        let _ = self.reached.send(());
        let _ = self.release.await;
    }
}
