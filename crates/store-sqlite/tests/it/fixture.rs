use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use windlass_core::command::{Create, NewTask};
use windlass_core::{
    ChangeSet, Command, Decided, Hints, Outcome, Payload, Rejection, StoredRow, Table, World,
    decide,
};
use windlass_store::{Failpoints, Fault, Query, Store, StoreError, Tx};
use windlass_store_sqlite::{Options, SqliteStore};

/// A temporary folder with one database.
pub(crate) struct Place {
    folder: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("windlass.db")
    }

    pub(crate) fn open(&self) -> SqliteStore {
        SqliteStore::open(self.path()).unwrap()
    }

    pub(crate) fn open_with(&self, options: Options) -> SqliteStore {
        SqliteStore::open_with(self.path(), options).unwrap()
    }

    /// A plain connection, as an operator or another program would use.
    pub(crate) fn raw(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path()).unwrap()
    }
}

/// Planned faults: each fires once, when its step is reached.
#[derive(Clone, Default)]
pub(crate) struct Faults(Arc<Mutex<Vec<(&'static str, Fault)>>>);

impl Faults {
    pub(crate) fn plan(&self, step: &'static str, fault: Fault) {
        self.0.lock().unwrap().push((step, fault));
    }

    pub(crate) fn options(&self) -> Options {
        let planned = self.0.clone();
        let failpoints = Failpoints::new(move |step| {
            let mut planned = planned.lock().unwrap();
            let at = planned.iter().position(|(name, _)| *name == step)?;
            Some(planned.remove(at).1)
        });
        Options { failpoints, ..Options::default() }
    }
}

pub(crate) fn create(id: &str) -> Command {
    let task = NewTask { payload: Some(Payload::json("{}")), ..NewTask::new(id, "email") };
    Create::one(task).into()
}

type CommandResult = Result<Outcome, Rejection>;

/// Decides one command in its own batch, without committing it.
pub(crate) async fn prepare(
    store: &SqliteStore,
    command: &Command,
) -> Result<(Box<dyn Tx>, CommandResult, Arc<ChangeSet>), StoreError> {
    let mut tx = store.begin().await?;
    let mut world = World::new(tx.now(), Hints::default());
    loop {
        if let Decided::Ready(outcome) = decide(&mut world, command) {
            return Ok((tx, outcome, Arc::new(world.finish().0)));
        }
        let wanted = Arc::new(world.take_load_request().expect("a parked command needs a record"));
        let loaded = tx.load(wanted.clone()).await?;
        world.absorb(&wanted, loaded);
    }
}

pub(crate) async fn execute(
    store: &SqliteStore,
    command: &Command,
) -> Result<CommandResult, StoreError> {
    let (tx, outcome, changes) = prepare(store, command).await?;
    tx.commit(changes).await?;
    Ok(outcome)
}

/// Runs a command that must succeed.
pub(crate) async fn must(store: &SqliteStore, command: impl Into<Command>) -> Outcome {
    execute(store, &command.into()).await.unwrap().unwrap()
}

pub(crate) async fn rows(store: &SqliteStore, table: Table) -> Vec<StoredRow> {
    store.query(&Query::all(table, 10_000)).await.unwrap()
}

/// The ids of the stored tasks.
pub(crate) async fn ids(store: &SqliteStore) -> Vec<String> {
    let id = |row: StoredRow| match &row.key.values[1] {
        windlass_core::Value::Text(id) => id.to_string(),
        other => panic!("an id is not a text: {other:?}"),
    };
    rows(store, Table::Task).await.into_iter().map(id).collect()
}

pub(crate) async fn seqs(store: &SqliteStore) -> Vec<u64> {
    store.events(0, 10_000).await.unwrap().into_iter().map(|logged| logged.seq).collect()
}
