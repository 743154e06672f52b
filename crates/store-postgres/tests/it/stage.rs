//! Helpers of these tests.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::command::{Create, NewTask};
use windlass_core::{
    ChangeSet, Command, Decided, Hints, Outcome, Rejection, TaskKey, Tenant, World, decide,
};
use windlass_engine::{Config, Engine};
use windlass_store::{Store, Tx};
use windlass_store_postgres::{Options, PostgresStore};
use windlass_store_test::execute;
use windlass_store_test::postgres::Server;

pub(crate) async fn open(server: &Server) -> PostgresStore {
    PostgresStore::open(&server.url()).await.unwrap()
}

/// A store with this timeout.
pub(crate) async fn open_impatient(server: &Server, patience: Duration) -> PostgresStore {
    let options = Options { patience, ..Options::default() };
    PostgresStore::open_with(server.url().parse().unwrap(), options).await.unwrap()
}

pub(crate) async fn engine(server: &Server) -> Engine {
    Engine::with_store(open(server).await, Config::default()).await.unwrap()
}

/// An engine that does not poll during a test: it depends on notifications. Without background
/// work, all its batches are those of the test.
pub(crate) async fn patient_engine(server: &Server) -> Engine {
    quiet_engine(open_impatient(server, Duration::from_secs(600)).await).await
}

/// An engine without background work.
pub(crate) async fn quiet_engine(store: PostgresStore) -> Engine {
    Engine::with_store(store, Config { background: false, ..Config::default() }).await.unwrap()
}

/// A batch that is decided but not committed.
pub(crate) struct Prepared {
    pub(crate) tx: Box<dyn Tx>,
    pub(crate) outcome: Result<Outcome, Rejection>,
    pub(crate) changes: Arc<ChangeSet>,
}

/// Decides one command without committing it.
pub(crate) async fn prepare(store: &dyn Store, command: impl Into<Command>) -> Prepared {
    let command = command.into();
    let mut tx = store.begin().await.unwrap();
    let mut world = World::new(tx.now(), Hints::default());
    loop {
        if let Decided::Ready(outcome) = decide(&mut world, &command) {
            return Prepared { tx, outcome, changes: Arc::new(world.finish().0) };
        }
        let wanted = Arc::new(world.take_load_request().unwrap());
        let loaded = tx.load(wanted.clone()).await.unwrap();
        world.absorb(&wanted, loaded);
    }
}

impl Prepared {
    pub(crate) async fn commit(self) -> Result<(), windlass_store::StoreError> {
        self.tx.commit(self.changes).await
    }

    /// The ids of the claimed tasks.
    pub(crate) fn claimed(&self) -> Vec<String> {
        claimed(self.outcome.as_ref().unwrap())
    }
}

pub(crate) fn claimed(outcome: &Outcome) -> Vec<String> {
    match outcome {
        Outcome::Claimed(tasks) => tasks.iter().map(|task| task.id.to_string()).collect(),
        other => panic!("{other:?}"),
    }
}

/// Runs a command that must be accepted, retrying conflicts.
pub(crate) async fn must(store: &dyn Store, command: impl Into<Command>) -> Outcome {
    execute(store, &command.into()).await.unwrap().unwrap()
}

pub(crate) fn create(id: &str) -> Create {
    Create::one(NewTask::new(id, "k"))
}

pub(crate) fn key(id: &str) -> TaskKey {
    TaskKey { tenant: Tenant::default(), id: id.into() }
}
