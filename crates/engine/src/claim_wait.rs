use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const DECIDING: u8 = 0;
const PARKED: u8 = 1;
const OVER: u8 = 2;

/// State of a claim that may wait for a task, shared by the caller and the batcher.
///
/// The caller's timeout bounds only the time the claim is parked. A claim that is being decided at
/// the timeout is answered by that batch; otherwise a batch slower than the timeout would have to
/// release all its leases.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClaimWait(Arc<AtomicU8>);

impl ClaimWait {
    /// Ends the wait. Returns whether the claim was parked: then no reply follows.
    pub(crate) fn end(&self) -> bool {
        self.0.swap(OVER, Ordering::AcqRel) == PARKED
    }

    /// Parks a claim that found nothing. Returns false if its wait is over: then it gets a reply.
    pub(crate) fn park(&self) -> bool {
        self.exchange(DECIDING, PARKED)
    }

    /// Takes a parked claim to decide it again. Returns false if its caller has left.
    pub(crate) fn unpark(&self) -> bool {
        self.exchange(PARKED, DECIDING)
    }

    fn exchange(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_after_its_timeout_is_answered_only_if_a_batch_has_it() {
        let parked = ClaimWait::default();
        assert!(parked.park() && parked.end(), "no batch holds the claim: the caller returns");
        assert!(!parked.unpark());

        let deciding = ClaimWait::default();
        assert!(deciding.park() && deciding.unpark());
        assert!(!deciding.end(), "a batch holds the claim: the caller waits for its reply");
        assert!(!deciding.park(), "nothing was found: the batch replies");
    }
}
