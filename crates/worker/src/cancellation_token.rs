use std::sync::Arc;

use tokio::sync::watch;

/// A cancellation token. All clones share it.
#[derive(Clone, Debug)]
pub(crate) struct CancellationToken(Arc<watch::Sender<bool>>);

impl Default for CancellationToken {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl CancellationToken {
    pub(crate) fn cancel(&self) {
        self.0.send_replace(true);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }

    pub(crate) async fn cancelled(&self) {
        let mut receiver = self.0.subscribe();
        receiver.wait_for(|cancelled| *cancelled).await.expect("this token is a sender");
    }
}
