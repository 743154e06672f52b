use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const DECIDING: u8 = 0;
const PARKED: u8 = 1;
const OVER: u8 = 2;

/// Where a claim stands that may wait for a task. Shared by its caller and the batcher.
///
/// The caller's patience bounds how long the claim is parked, never the batch that decides it: a
/// claim that is being decided when the time is over is answered by that batch. Otherwise a batch
/// that takes longer than the wait would have all its leases thrown away.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClaimWait(Arc<AtomicU8>);

impl ClaimWait {
    /// Ends the wait. Returns whether the claim was parked: then no answer will come.
    pub(crate) fn end(&self) -> bool {
        self.0.swap(OVER, Ordering::AcqRel) == PARKED
    }

    /// Parks a claim that found nothing. Returns false if its time is over: then it is answered.
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
    fn a_claim_whose_time_is_over_is_answered_by_whoever_has_it() {
        let parked = ClaimWait::default();
        assert!(parked.park() && parked.end(), "no batch has it: its caller leaves");
        assert!(!parked.unpark());

        let deciding = ClaimWait::default();
        assert!(deciding.park() && deciding.unpark());
        assert!(!deciding.end(), "a batch has it: its caller waits for the answer");
        assert!(!deciding.park(), "nothing was found: the batch says so");
    }
}
