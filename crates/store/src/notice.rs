use std::collections::BTreeMap;

use tokio::sync::broadcast;
use windlass_core::{Timestamp, Wake};

/// Word of a change that somebody else made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// These lanes may have something, so many tasks each, and something may be due by then.
    Changed { wakes: BTreeMap<Wake, u32>, next_due: Option<Timestamp> },
    /// Anything may have changed.
    Anything,
}

/// The notices for one listener.
#[derive(Debug)]
pub struct Notices {
    receiver: broadcast::Receiver<(u64, Notice)>,
    own: u64,
}

impl Notices {
    /// Leaves out what the handle `own` did itself.
    pub fn new(receiver: broadcast::Receiver<(u64, Notice)>, own: u64) -> Self {
        Self { receiver, own }
    }

    /// The next notice; none once the store is gone. A listener that fell behind is told
    /// [`Notice::Anything`].
    pub async fn next(&mut self) -> Option<Notice> {
        loop {
            match self.receiver.recv().await {
                Ok((origin, _)) if origin == self.own => {}
                Ok((_, notice)) => return Some(notice),
                Err(broadcast::error::RecvError::Lagged(_)) => return Some(Notice::Anything),
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}
