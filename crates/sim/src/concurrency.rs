//! Concurrency limits, quotas and sessions in scripts: which tasks have them, and what operators
//! do.

use windlass_core::command::{QuotaScope, ReleaseSession, SetQuota};
use windlass_core::{Command, LaneState, LimitKey, Rate, Tenant};
use windlass_store_test::Random;

use crate::generate::Writer;
use crate::scenario::ask;
use crate::script::{Action, LANES, Operation, TaskSpec, exactly};

const KEYS: [&str; 2] = ["k", "m"];
const SESSIONS: [&str; 2] = ["s", "z"];

/// Gives a percentage of the tasks a concurrency key or a session.
pub(crate) fn assign_keys(random: &mut Random, percent: u64, tasks: &mut [TaskSpec]) {
    for task in tasks {
        let key = |name: usize| LimitKey::Concurrency(KEYS[name].to_owned());
        let session = |name: usize| LimitKey::Session(SESSIONS[name].to_owned());
        let keys = [key(0), key(0), key(1), session(0), session(0), session(1)];
        let limit_key = random.pick(&keys).clone();
        task.limit_key = random.percent(percent).then_some(limit_key);
    }
}

fn scope(number: u8) -> QuotaScope {
    match usize::from(number) % 8 {
        key @ (0 | 1) => QuotaScope::Concurrency(KEYS[key].to_owned()),
        session @ (2 | 3) => QuotaScope::Session(SESSIONS[session - 2].to_owned()),
        lane @ 4..7 => QuotaScope::Lane(LANES[lane - 4].into()),
        _ => QuotaScope::Tenant,
    }
}

/// The command of an operator about limits.
pub(crate) fn command(operation: &Operation) -> Option<Command> {
    let tenant = Tenant::default();
    Some(match *operation {
        Operation::SetQuota { scope: number, limit, rate } => {
            let rate = rate.map(|(limit, window_ms)| Rate { limit, window_ms });
            SetQuota { tenant, scope: scope(number), limit, rate }.into()
        }
        Operation::ReleaseSession { session } => {
            let session = SESSIONS[usize::from(session) % SESSIONS.len()].to_owned();
            ReleaseSession { tenant, session, affinity: false }.into()
        }
        _ => return None,
    })
}

impl Writer {
    pub(crate) fn limit_operation(&mut self) -> Operation {
        if self.random.percent(12) {
            return Operation::ReleaseSession { session: self.small() };
        }
        let scope = self.small();
        self.quota(scope)
    }

    fn quota(&mut self, scope: u8) -> Operation {
        let limits = [None, None, Some(0), Some(1), Some(1), Some(2), Some(3)];
        let rates = [None, None, None, Some((1, 300)), Some((2, 1_000)), Some((3, 5_000))];
        let (limit, rate) = (*self.random.pick(&limits), *self.random.pick(&rates));
        Operation::SetQuota { scope, limit, rate }
    }

    /// Two tasks of one limit: the first one runs, and its end races with another admission. Or
    /// its worker is lost, and another worker claims the session.
    pub(crate) fn plan_limit_race(&mut self) {
        let gated = (0..self.tasks.len()).filter(|task| self.tasks[*task].limit_key.is_some());
        let gated: Vec<usize> = gated.collect();
        if gated.is_empty() {
            return self.plan_race();
        }
        let (node, first) = (self.small(), *self.random.pick(&gated));
        let rival = node.wrapping_add(1);
        self.lease_of(rival, first, 0);
        let of_key = |task: &&usize| self.tasks[**task].limit_key == self.tasks[first].limit_key;
        let others: Vec<usize> = gated.iter().filter(of_key).copied().collect();
        let mut operations = Vec::new();
        for other in others {
            for id in 0..self.tasks[other].ids.len().min(3) {
                operations.push(Operation::Create { task: exactly(other, id), id: 0, variant: 0 });
            }
        }
        let late = operations.pop();
        self.then(Action::Ask { node: rival, also: None, disconnect_after: None, operations }, 20);
        let held = exactly(first, 0);
        let lane = u8::try_from(self.tasks[first].lane).unwrap_or(0);
        let scope = match &self.tasks[first].limit_key {
            Some(LimitKey::Session(name)) => 2 + u8::from(name != SESSIONS[0]),
            Some(LimitKey::Concurrency(name)) => u8::from(name != KEYS[0]),
            Some(LimitKey::Affinity(_)) | None => 7,
        };
        let lost = self.random.percent(30);
        if lost {
            let ms = *self.random.pick(&[400, 3_000]);
            self.then(Action::Advance { ms }, 0);
        }
        let mut meeting = vec![if lost { Operation::Sweep } else { self.end(held) }];
        meeting.extend(late);
        if self.random.percent(60) {
            meeting.push(self.claim());
        }
        if self.random.percent(25) {
            meeting.push(self.quota(scope));
        }
        let begun = meeting.swap_remove(usize::from(self.small()) % meeting.len());
        self.meet(node, begun, &meeting);
        self.then(ask(rival, Operation::SetLaneState { lane, state: LaneState::Active }), 4);
        self.claim_all(rival, lane);
        if self.random.percent(40) {
            // The same worker again: it owns the session, if there is one.
            self.then(Action::Again { node: rival, call: 0 }, 16);
        }
    }
}
