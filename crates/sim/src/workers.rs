//! Worker records in scripts, grants to workers, and revoked leases.

use windlass_core::command::{
    Claim, ClaimGranted, DeregisterWorker, Grant, RegisterWorker, Revoke,
};
use windlass_core::{Command, SESSIONS, Tenant, WorkerCapabilities, WorkerId};

use crate::client::Client;
use crate::generate::Writer;
use crate::scenario::ask;
use crate::script::{Action, CAPABILITY, LANES, Operation, exactly};

const NAMES: [&str; 2] = ["ann", "ben"];

/// Long enough to be ended by the death of the worker.
const LEASE_MS: u64 = 20_000;

fn name(worker: u8) -> WorkerId {
    NAMES[usize::from(worker) % NAMES.len()].into()
}

fn capabilities() -> WorkerCapabilities {
    let capabilities = [CAPABILITY, SESSIONS].map(ToOwned::to_owned).into();
    WorkerCapabilities { names: capabilities, ..WorkerCapabilities::default() }
}

/// The claim of these workers, always the same.
pub(crate) fn claim(worker: &WorkerId, limit: u32) -> Claim {
    Claim {
        lanes: LANES.iter().copied().map(Into::into).collect(),
        capabilities: capabilities(),
        lease_ms: LEASE_MS,
        limit,
        registered: true,
        ..Claim::new(worker.clone())
    }
}

impl Client<'_> {
    pub(crate) fn of_workers(&self, operation: &Operation) -> Option<Command> {
        let tenant = Tenant::default();
        Some(match *operation {
            Operation::RegisterWorker { worker, heartbeat_interval_ms } => {
                let (id, capabilities) = (name(worker), capabilities());
                let lanes = LANES.iter().copied().map(Into::into).collect();
                RegisterWorker {
                    tenant,
                    id,
                    lanes,
                    capabilities,
                    heartbeat_interval_ms,
                    held: None,
                }
                .into()
            }
            Operation::DeregisterWorker { worker } => {
                DeregisterWorker { tenant, id: name(worker) }.into()
            }
            Operation::ClaimAs { worker, limit } => claim(&name(worker), limit).into(),
            Operation::Grant { task, worker, ttl_ms } => {
                Grant { task: self.key(task, 0), worker: name(worker), ttl_ms }.into()
            }
            Operation::ClaimGranted { task, worker } => {
                let (task, worker, lease_ms) = (self.key(task, 0), name(worker), LEASE_MS);
                let consume = ClaimGranted { task, ..ClaimGranted::new("", worker) };
                ClaimGranted { lease_ms, registered: true, ..consume }.into()
            }
            Operation::Revoke { task } => {
                Revoke { task: self.key(task, 0), reason: crate::model::OPERATOR.into() }.into()
            }
            _ => return None,
        })
    }
}

impl Writer {
    pub(crate) fn about_workers(&mut self) -> Operation {
        let (worker, task) = (self.small(), self.some_task());
        match self.random.below(12) {
            0..3 => self.register(worker),
            3 => Operation::DeregisterWorker { worker },
            4..7 => Operation::ClaimAs { worker, limit: 1 + u32::from(self.variant()) },
            7 | 8 => self.grant(task, worker),
            9 => Operation::ClaimGranted { task, worker },
            _ => Operation::Revoke { task },
        }
    }

    /// A random task, under one of its ids.
    fn some_task(&mut self) -> u8 {
        let task = usize::from(self.small()) % self.tasks.len();
        exactly(task, usize::from(self.small()) % self.tasks[task].ids.len())
    }

    fn register(&mut self, worker: u8) -> Operation {
        Operation::RegisterWorker {
            worker,
            heartbeat_interval_ms: *self.random.pick(&[100, 400, 2_000]),
        }
    }

    fn grant(&mut self, task: u8, worker: u8) -> Operation {
        Operation::Grant { task, worker, ttl_ms: *self.random.pick(&[100, 700, 3_000]) }
    }

    /// Recreates a task without leasing it.
    fn make(&mut self, node: u8, task: u8) {
        let lanes = (0..3).map(|lane| {
            let state = windlass_core::LaneState::Active;
            Operation::SetLaneState { lane, state }
        });
        let mut operations: Vec<Operation> = lanes.collect();
        operations.push(Operation::DeleteTask { task, id: 0 });
        operations.push(Operation::Create { task, id: 0, variant: 0 });
        self.then(Action::Ask { node, also: None, disconnect_after: None, operations }, 4);
    }

    /// A task is granted to one worker, which claims it while it is granted to another, revoked,
    /// or its grant expires.
    pub(crate) fn plan_grant(&mut self) {
        let (node, task, worker) = (self.small(), self.some_task(), self.small());
        let rival = node.wrapping_add(1);
        self.make(rival, task);
        let grant = self.grant(task, worker);
        self.then(ask(rival, grant), 12);
        if self.random.percent(30) {
            let ms = *self.random.pick(&[100, 700]);
            self.then(Action::Advance { ms }, 0);
        }
        let mut meeting = vec![Operation::ClaimGranted { task, worker }];
        let others = [
            self.claim(),
            Operation::ClaimAs { worker, limit: 2 },
            self.grant(task, worker.wrapping_add(1)),
            Operation::ClaimGranted { task, worker: worker.wrapping_add(1) },
            Operation::Revoke { task },
            Operation::Cancel { task, id: 0 },
            Operation::Sweep,
        ];
        for _ in 0..2 {
            meeting.push(*self.random.pick(&others));
        }
        let first = meeting.swap_remove(usize::from(self.small()) % meeting.len());
        self.meet(node, first, &meeting);
        if self.random.percent(50) {
            let end = self.end(task);
            self.meet(node, Operation::Revoke { task }, &[end]);
        }
    }

    /// A worker claims a task and sends no heartbeat for a while. Its next heartbeat races with
    /// the sweep that declares it dead, and other workers claim its tasks.
    pub(crate) fn plan_death(&mut self) {
        let (node, task, worker) = (self.small(), self.some_task(), self.small());
        let (rival, heartbeat_interval_ms) = (node.wrapping_add(1), *self.random.pick(&[100, 400]));
        self.make(rival, task);
        let register = Operation::RegisterWorker { worker, heartbeat_interval_ms };
        self.then(ask(rival, register), 8);
        self.then(ask(rival, Operation::ClaimAs { worker, limit: 3 }), 16);
        for _ in 0..1 + self.random.below(4) {
            let ms = heartbeat_interval_ms * *self.random.pick(&[1, 1, 2, 3]);
            self.then(Action::Advance { ms }, 4);
            if self.random.percent(30) {
                self.then(ask(rival, register), 8);
            }
        }
        let mut meeting = vec![Operation::Sweep, register];
        if self.random.percent(50) {
            meeting.push(self.end(task));
        }
        if self.random.percent(50) {
            meeting.push(self.claim());
        }
        let first = meeting.swap_remove(usize::from(self.small()) % meeting.len());
        self.meet(node, first, &meeting);
    }
}
