use windlass_store_test::Random;

use crate::external_runtime::operation::ExternalOperation;
use crate::script::{Action, Operation, Step};
use crate::workflow::strike;

/// Writes steps about workflows of the external runtime, from a separate random source: the rest
/// of a script does not depend on it.
pub(crate) struct ExternalRuntimeWriter {
    random: Random,
    /// The chance of another step, in percent.
    often: u64,
}

impl ExternalRuntimeWriter {
    /// Whether a script has such workflows. Two of three have none.
    pub(crate) fn has_any(seed: u64) -> bool {
        seed % 3 == 1
    }

    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed.rotate_left(24) ^ seed);
        let often = if Self::has_any(seed) { *random.pick(&[15, 30, 45]) } else { 0 };
        Self { random, often }
    }

    /// The next steps, if any.
    pub(crate) fn steps(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        while self.random.percent(self.often) {
            match self.random.below(20) {
                0..6 => {
                    let send = self.send();
                    steps.push(self.step(vec![send], &[0, 2, 8]));
                }
                6..11 => self.turn(&mut steps),
                11..16 => self.work(&mut steps),
                16 => self.late(&mut steps),
                17 => strike(&mut self.random, &mut steps),
                _ => {
                    let action = Action::Advance { ms: *self.random.pick(&[20, 300, 1_500]) };
                    steps.push(Step { action, rounds: 8 });
                }
            }
        }
        steps
    }

    fn step(&mut self, operations: Vec<ExternalOperation>, rounds: &[u8]) -> Step {
        let operations = operations.into_iter().map(Operation::OfExternalRuntime).collect();
        let node = self.number(12);
        let also = self.random.percent(12).then(|| self.number(12));
        let disconnect_after = self.random.percent(4).then(|| self.number(12));
        let action = Action::Ask { node, also, disconnect_after, operations };
        Step { action, rounds: *self.random.pick(rounds) }
    }

    fn number(&mut self, end: u64) -> u8 {
        u8::try_from(self.random.below(end)).unwrap_or(0)
    }

    fn send(&mut self) -> ExternalOperation {
        ExternalOperation::Send {
            to: self.number(3),
            absent: self.number(4),
            after_ms: *self.random.pick(&[0, 0, 0, 40, 900]),
        }
    }

    fn lease(&mut self) -> u8 {
        *self.random.pick(&[0, 0, 0, 1, 2])
    }

    /// A way to end the turn of a lease.
    fn end(&mut self, lease: u8) -> ExternalOperation {
        let delay_ms = *self.random.pick(&[0, 0, 300, 2_000]);
        match self.random.below(10) {
            0..6 => ExternalOperation::Turn {
                lease,
                whole: self.random.percent(70),
                works: self.number(4),
                to: self.random.percent(30).then(|| self.number(3)),
                next: self.random.percent(15),
            },
            6..9 => ExternalOperation::Decline { lease, delay_ms, counts: self.random.percent(60) },
            _ => ExternalOperation::Release { lease },
        }
    }

    /// A client receives messages, and ends the turn.
    fn turn(&mut self, steps: &mut Vec<Step>) {
        let receive = ExternalOperation::Receive {
            limit: *self.random.pick(&[1, 1, 2]),
            lease_ms: *self.random.pick(&[100, 400, 3_000]),
        };
        steps.push(self.step(vec![receive], &[8, 16]));
        if self.random.percent(30) {
            let send = self.send();
            steps.push(self.step(vec![send], &[0, 4]));
        }
        if self.random.percent(80) {
            let lease = self.lease();
            let end = self.end(lease);
            // The client that returns it may claim it again immediately.
            let operations = if self.random.percent(20) { vec![end, receive] } else { vec![end] };
            steps.push(self.step(operations, &[2, 8]));
        }
        if self.random.percent(15) {
            let lease = self.lease();
            let end = self.end(lease);
            steps.push(self.step(vec![end], &[2, 8]));
        }
    }

    /// A client claims activities, and completes them or not.
    fn work(&mut self, steps: &mut Vec<Step>) {
        let (worker, lock_ms) = (self.number(3), *self.random.pick(&[200, 1_000, 4_000]));
        let lease_ms = *self.random.pick(&[100, 600, 3_000]);
        let limit = *self.random.pick(&[1, 1, 3]);
        let work = ExternalOperation::Work { worker, limit, lease_ms, lock_ms };
        steps.push(self.step(vec![work], &[8, 16]));
        for _ in 0..self.random.below(3) {
            let lease = self.lease();
            let operation = match self.random.below(12) {
                0..4 => ExternalOperation::Complete { lease },
                4..6 => ExternalOperation::Discard { lease },
                6 | 7 => ExternalOperation::Renew { lease },
                8 => ExternalOperation::ForgetLock { lock: self.number(2) },
                _ => {
                    let idle_ms = *self.random.pick(&[100, 1_000, 60_000]);
                    ExternalOperation::RenewLocks { worker: self.number(3), lock_ms, idle_ms }
                }
            };
            steps.push(self.step(vec![operation], &[2, 8]));
        }
    }

    /// A client settles a lease after its expiry, when other clients may hold the task.
    fn late(&mut self, steps: &mut Vec<Step>) {
        let action = Action::Advance { ms: *self.random.pick(&[150, 700, 3_500]) };
        steps.push(Step { action, rounds: 4 });
        let lease = self.lease();
        let end = match self.random.below(3) {
            0 => ExternalOperation::Discard { lease },
            1 => ExternalOperation::Complete { lease },
            _ => self.end(lease),
        };
        steps.push(self.step(vec![end], &[2, 8]));
    }
}
