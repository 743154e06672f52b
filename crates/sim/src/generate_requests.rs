//! Requests, effects and limiters in scripts, and scenarios in which clients on several nodes race
//! for the same key.

use windlass_store_test::Random;

use crate::generate::Writer;
use crate::requests::{Handling, Holder, TERMS};
use crate::scenario::ask;
use crate::script::{Action, Behavior, Operation, Point, ProcessFault, exactly};

/// A handler that makes an external call.
pub(crate) fn call(random: &mut Random) -> Behavior {
    let name = u8::from(random.percent(30));
    Behavior::Call { name, idempotent_provider: random.percent(40) }
}

impl Writer {
    pub(crate) fn about_requests(&mut self) -> Operation {
        let (key, variant) = (self.some_key(), self.variant());
        match self.random.below(24) {
            0..6 => self.send(key, variant),
            6..9 => Operation::Admit { key, variant },
            9..12 => Operation::CompleteRequest { back: self.recent(), says: variant },
            12 => Operation::ReleaseRequest { back: self.recent() },
            13..17 => self.claim_effect(),
            17..21 => self.settle_effect(),
            _ => self.spend(),
        }
    }

    /// Mostly the same key, so that clients race for it.
    fn some_key(&mut self) -> u8 {
        u8::try_from(*self.random.pick(&[0, 0, 0, 0, 1, 2, 3, 4, 5])).unwrap_or(0)
    }

    fn holder(&mut self) -> Holder {
        let back = self.recent();
        if self.random.percent(60) { Holder::Lease(back) } else { Holder::Request(back) }
    }

    fn claim_effect(&mut self) -> Operation {
        let (by, name) = (self.holder(), u8::from(self.random.percent(30)));
        Operation::ClaimEffect { by, name, variant: u8::from(self.random.percent(20)) }
    }

    fn settle_effect(&mut self) -> Operation {
        let (by, name) = (self.holder(), u8::from(self.random.percent(30)));
        Operation::SettleEffect { by, name, says: self.variant() }
    }

    fn spend(&mut self) -> Operation {
        Operation::Spend {
            key: self.small(),
            limiter: self.small(),
            units: u32::try_from(*self.random.pick(&[1, 1, 2, 3])).unwrap_or(1),
            both: self.random.percent(30),
        }
    }

    fn send(&mut self, key: u8, variant: u8) -> Operation {
        let name = u8::from(self.random.percent(20));
        let call = self.random.percent(75).then(|| (name, self.random.percent(35)));
        let behavior = Handling {
            before_ms: *self.random.pick(&[0, 0, 0, 50, 900, 2_500]),
            call,
            after_ms: *self.random.pick(&[0, 0, 0, 50, 900, 2_500]),
            fails: self.random.percent(20),
        };
        Operation::Send { key, variant, behavior }
    }

    /// Plans an effect for the lease that a client is about to get.
    pub(crate) fn plan_call(&mut self) {
        let (by, name, variant) = (Holder::Lease(0), 0, 0);
        self.plans.push_back(Operation::ClaimEffect { by, name, variant });
        if self.random.percent(60) {
            let says = self.variant();
            self.plans.push_back(Operation::SettleEffect { by, name, says });
        }
        if self.random.percent(50) {
            self.plans.push_back(Operation::Release { lease: 0 });
            let claim = self.claim();
            self.plans.push_back(claim);
            self.plans.push_back(Operation::ClaimEffect { by, name, variant });
        }
    }

    /// A leased task makes a call and is released or lost; its next holder repeats the call.
    fn plan_called_again(&mut self, node: u8) {
        let task = usize::from(self.small()) % self.tasks.len();
        let lease = exactly(task, 0);
        let (by, name) = (Holder::Lease(lease), 0);
        let claim = Operation::ClaimEffect { by, name, variant: 0 };
        self.lease_of(node, task, 0);
        self.then(ask(node, Operation::Begin { lease }), 8);
        self.then(ask(node, Operation::SettleEffect { by, name, says: 0 }), 8);
        if self.random.percent(50) {
            let settle = Operation::SettleEffect { by, name, says: 0 };
            self.meet(node, claim, &[claim, settle]);
        } else {
            self.then(ask(node, claim), 12);
        }
        for says in [0, 1] {
            if self.random.percent(60) {
                self.then(ask(node, Operation::SettleEffect { by, name, says }), 8);
            }
        }
        self.then(ask(node, Operation::ClaimEffect { by, name, variant: 1 }), 8);
        let lost = self.random.percent(50);
        let end = if lost {
            Action::Advance { ms: 3_000 }
        } else {
            ask(node, Operation::Release { lease })
        };
        self.then(end, 12);
        let lane = u8::try_from(self.tasks[task].lane).unwrap_or(0);
        self.claim_all(node.wrapping_add(1), lane);
        self.then(ask(node, Operation::Begin { lease }), 8);
        self.then(ask(node, claim), 12);
        self.then(ask(node, Operation::SettleEffect { by, name, says: 1 }), 8);
    }

    pub(crate) fn plan_request(&mut self) {
        let (node, key) = (self.small(), self.some_key());
        match self.random.below(13) {
            10..13 => self.plan_called_again(node),
            0..3 => self.plan_storm(node, key),
            3..5 => self.plan_late_owner(node, key),
            5 | 6 => self.plan_expiry(node, key),
            7 | 8 => self.plan_lost_handler(node, key),
            _ => self.plan_long_errand(node, key),
        }
    }

    /// The same request is sent to two nodes at once, with conflicting ones under the same key.
    fn plan_storm(&mut self, node: u8, key: u8) {
        let first = self.send(key, 0);
        let mut others = vec![self.send(key, 0), Operation::Admit { key, variant: 1 }];
        if self.random.percent(60) {
            others.push(self.send(key, 1));
        }
        if self.random.percent(60) {
            others.push(Operation::Admit { key, variant: 0 });
        }
        // Of the same principal, so that its rate limit is reached.
        for more in 1..1 + u8::try_from(self.random.below(3)).unwrap_or(0) {
            let key = key.wrapping_add(2 * more);
            let admit = Operation::Admit { key, variant: 0 };
            others.push(if self.random.percent(50) { admit } else { self.send(key, 0) });
        }
        if self.random.percent(60) {
            self.meet(node, first, &others);
        } else {
            self.then(ask(node, first), 6);
            for other in others {
                self.then(ask(node.wrapping_add(1), other), 4);
            }
        }
        if self.random.percent(70) {
            self.then(Action::Advance { ms: 900 }, 8);
            self.then(Action::Again { node: node.wrapping_add(1), call: 1 }, 8);
        }
    }

    /// An owner exceeds its in-flight time, and completes when another owner is admitted.
    fn plan_late_owner(&mut self, node: u8, key: u8) {
        let rival = node.wrapping_add(1);
        self.then(ask(node, Operation::Admit { key, variant: 0 }), 16);
        if self.random.percent(65) {
            let (by, name, variant) = (Holder::Request(0), 0, 0);
            self.then(ask(node, Operation::ClaimEffect { by, name, variant }), 12);
            let says = self.variant();
            self.then(ask(node, Operation::SettleEffect { by, name, says }), 8);
            self.then(ask(node, Operation::ClaimEffect { by, name, variant: 1 }), 8);
        }
        self.then(ask(rival, Operation::Admit { key, variant: 0 }), 8);
        self.then(Action::Advance { ms: TERMS.in_flight_ms }, 0);
        let says = self.variant();
        let late = Operation::CompleteRequest { back: 0, says };
        let others = [
            Operation::Admit { key, variant: 0 },
            Operation::Sweep,
            Operation::ReleaseRequest { back: 0 },
        ];
        let other = *self.random.pick(&others);
        self.meet(node, late, &[other]);
        self.then(ask(rival, Operation::Admit { key, variant: 0 }), 16);
        self.then(ask(node, Operation::CompleteRequest { back: 1, says: 0 }), 12);
        self.then(ask(node, Operation::CompleteRequest { back: 0, says: 1 }), 16);
        let (says, variant) = (self.small() % 2, self.small() % 2);
        self.then(ask(rival, Operation::CompleteRequest { back: 0, says }), 8);
        self.then(ask(rival, Operation::Admit { key, variant }), 12);
        self.then(ask(node, Operation::ReleaseRequest { back: 0 }), 8);
    }

    /// A request is answered; it is repeated until its response expires, and after that.
    fn plan_expiry(&mut self, node: u8, key: u8) {
        let rival = node.wrapping_add(1);
        self.then(Action::Advance { ms: 2_000 }, 4);
        self.then(ask(node, Operation::Admit { key, variant: 0 }), 16);
        self.then(ask(node, Operation::CompleteRequest { back: 0, says: 0 }), 16);
        for other in [self.send(key, 0), Operation::Admit { key, variant: 1 }] {
            self.then(ask(rival, other), 12);
        }
        let back = *self.random.pick(&[0, 0, 1_000]);
        self.then(Action::Advance { ms: TERMS.replay_ms - back }, 4);
        let ask_again = [Operation::Admit { key, variant: self.variant() }, self.send(key, 0)];
        if self.random.percent(50) {
            self.meet(node, Operation::Sweep, &ask_again);
        }
        for other in ask_again {
            self.then(ask(rival, other), 12);
        }
        self.then(ask(node, Operation::CompleteRequest { back: 0, says: 0 }), 12);
        if self.random.percent(60) {
            self.then(Action::Advance { ms: TERMS.tombstone_ms }, 4);
            self.then(ask(rival, Operation::Admit { key, variant: 1 }), 12);
            self.then(ask(rival, Operation::CompleteRequest { back: 0, says: 1 }), 12);
        }
    }

    /// The process that handles a request crashes or stops, and the request is sent elsewhere.
    fn plan_lost_handler(&mut self, node: u8, key: u8) {
        let rival = node.wrapping_add(1);
        let idempotent_provider = self.random.percent(35);
        let (before_ms, call, after_ms) = (0, Some((0, idempotent_provider)), 900);
        let handling = Handling { before_ms, call, after_ms, fails: false };
        let first = Operation::Send { key, variant: 0, behavior: handling };
        let rounds = u8::try_from(self.random.below(40)).unwrap_or(0);
        let point = *self.random.pick(&[Point::Decided, Point::Committed]);
        let fault = *self.random.pick(&[ProcessFault::Crash, ProcessFault::Stop]);
        if self.random.percent(40) {
            self.then(ask(node, first), rounds);
            self.then(Action::Trap { node, point, fault }, 20);
        } else {
            self.then(ask(node, first), rounds);
            let ms = *self.random.pick(&[50, 300, 1_200]);
            self.then(Action::Advance { ms }, 4);
            let ends = [Action::Crash { node }, Action::Pause { node }, Action::Leave { call: 0 }];
            let end = self.random.pick(&ends).clone();
            self.then(end, 2);
        }
        for _ in 0..3 {
            let ms = *self.random.pick(&[900, TERMS.in_flight_ms]);
            self.then(Action::Advance { ms }, 4);
            let hasty = Handling { after_ms: 0, ..handling };
            self.then(ask(rival, Operation::Send { key, variant: 0, behavior: hasty }), 30);
        }
        self.then(Action::Restart { node }, 4);
        self.then(Action::Resume { node }, 20);
    }

    /// A call is repeated just before its record would be deleted.
    fn plan_long_errand(&mut self, node: u8, key: u8) {
        let handling = Handling { before_ms: 0, call: Some((0, false)), after_ms: 0, fails: true };
        let try_it = Operation::Send { key, variant: 0, behavior: handling };
        self.then(Action::Advance { ms: 2_000 }, 4);
        self.then(ask(node, try_it), 30);
        self.then(Action::Advance { ms: 5_000 }, 8);
        let retained_ms = TERMS.replay_ms + TERMS.tombstone_ms;
        self.then(Action::Advance { ms: retained_ms - 8_000 }, 4);
        self.then(ask(node, try_it), 30);
        self.then(Action::Advance { ms: 5_000 }, 20);
        self.then(ask(node, Operation::Sweep), 8);
        self.then(ask(node, try_it), 30);
    }
}
