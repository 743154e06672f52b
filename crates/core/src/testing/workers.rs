//! Stages and tables of workers and of durable subscriptions.

use super::{Args, CURSOR_STATES, Stage, WORKER_STATES, check, claim, key, lane, new_task};
use crate::command::{
    Claim, Command, Create, DeregisterWorker, Grant, MoveSubscriptionCursor, RegisterWorker, Sweep,
};
use crate::log::Cursor;
use crate::name::Tenant;
use crate::subscription_cursor::SubscriptionCursor;
use crate::task::WorkerCapabilities;
use crate::time::Timestamp;
use crate::worker::Worker;

/// The registration of the tables: a heartbeat every five seconds.
pub(crate) fn register() -> RegisterWorker {
    RegisterWorker {
        tenant: Tenant::default(),
        id: "w".into(),
        lanes: [lane()].into(),
        capabilities: WorkerCapabilities::default(),
        heartbeat_interval_ms: 5_000,
        held: None,
    }
}

/// The grant of the tables: for ten seconds.
pub(crate) fn grant(id: &str) -> Grant {
    Grant { task: key(id), worker: "w".into(), ttl_ms: 10_000 }
}

impl Stage {
    /// A stage on which worker `w` is in the named state.
    pub(crate) fn with_worker(state: &str) -> Self {
        let mut stage = Self::new();
        if state == "absent" {
            return stage;
        }
        stage.must(register());
        match state {
            "registered" => {}
            "late" => stage.later(12_499),
            "suspect" => stage.later(12_500),
            "missed" => stage.miss_worker(4_999),
            "silent" => stage.miss_worker(5_000),
            "dying" => {
                for n in 0..33 {
                    stage.must(Create::one(new_task(&n.to_string())));
                }
                let claim = Claim { limit: 33, lease_ms: 3_600_000, registered: true, ..claim() };
                stage.must(claim);
                stage.miss_worker(5_000);
                stage.must(Sweep::default());
            }
            "retired" => {
                let tenant = Tenant::default();
                stage.must(DeregisterWorker { tenant, id: "w".into() });
            }
            "dead" => {
                stage.miss_worker(5_000);
                stage.must(Sweep::default());
            }
            other => panic!("no such state: {other}"),
        }
        stage
    }

    /// Worker `w` is silent until it is suspect, and for a time after that.
    pub(crate) fn miss_worker(&mut self, then_ms: u64) {
        self.later(12_500);
        self.must(Sweep::default());
        self.later(then_ms);
    }

    /// A stage on which the subscription `mailer` is in the named state: at 5, in incarnation `a`
    /// of the log or in another one.
    pub(crate) fn with_cursor(state: &str) -> Self {
        let mut stage = Self::new();
        let incarnation = match state {
            "absent" => return stage,
            "there" => "a",
            "another" => "b",
            other => panic!("no such state: {other}"),
        };
        let cursor = Cursor { incarnation: incarnation.into(), seq: 5 };
        let (tenant, name) = (Tenant::default(), "mailer".to_owned());
        stage.must(MoveSubscriptionCursor { tenant, name, cursor });
        stage
    }

    fn cursor_after(&self) -> String {
        match self
            .record::<SubscriptionCursor>(&SubscriptionCursor::key_of(&Tenant::default(), "mailer"))
        {
            None => "absent".into(),
            Some(stored) => format!("{} {}", stored.cursor.incarnation, stored.cursor.seq),
        }
    }

    fn worker_after(&self) -> String {
        match self.record::<Worker>(&Worker::key_of(&Tenant::default(), &"w".into())) {
            None => "absent".into(),
            Some(worker) => {
                let ago = |at: Timestamp| at.ms_until(self.now);
                let missed = if worker.suspect_at.is_some() { " missed" } else { "" };
                let (seen, since) = (ago(worker.seen_at), ago(worker.registered_at));
                format!("seen +{seen} since +{since}{missed}")
            }
        }
    }
}

/// Rows of `cursor state | arguments | state after | outcome | events`.
#[track_caller]
pub(crate) fn check_cursor<C: Into<Command>>(table: &str, command: impl Fn(&Args) -> C) {
    let stage = |state: &str, _: &Args| Stage::with_cursor(state);
    check(table, CURSOR_STATES, stage, command, Stage::cursor_after);
}

/// Rows of `worker state | arguments | state after | outcome | events`.
#[track_caller]
pub(crate) fn check_worker<C: Into<Command>>(table: &str, command: impl Fn(&Args) -> C) {
    check(table, WORKER_STATES, |state, _| Stage::with_worker(state), command, Stage::worker_after);
}
