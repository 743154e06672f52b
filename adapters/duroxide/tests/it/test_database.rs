//! The stores of the suite: each provider has its own.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use duroxide::provider_validations::ProviderFactory;
use duroxide::providers::Provider;
use tempfile::TempDir;
use windlass_core::{Lifecycle, TaskKey, Tenant};
use windlass_duroxide::WindlassProvider;
use windlass_engine::{Config, Engine};
use windlass_store::Store;
use windlass_store_postgres::PostgresStore;
use windlass_store_sqlite::SqliteStore;
use windlass_store_test::postgres::Server;

/// A kind of store.
#[derive(Clone)]
pub(crate) enum TestDatabase {
    Sqlite(Arc<TempDir>),
    Postgres(Arc<Server>),
}

impl TestDatabase {
    pub(crate) fn sqlite() -> Self {
        TestDatabase::Sqlite(Arc::new(
            tempfile::tempdir().expect("a temporary directory is created"),
        ))
    }

    pub(crate) fn postgres() -> Self {
        TestDatabase::Postgres(Arc::new(Server::start_with(&["max_connections=400"])))
    }

    async fn open(&self, place: &str) -> Arc<dyn Store> {
        match self {
            TestDatabase::Sqlite(folder) => {
                let path = folder.path().join(format!("{place}.db"));
                Arc::new(SqliteStore::open(path).expect("the file is created"))
            }
            TestDatabase::Postgres(server) => {
                let url = format!("{}&schema={place}&connections=4", server.url());
                Arc::new(PostgresStore::open(&url).await.expect("the server answers"))
            }
        }
    }

    /// Corrupts the history of an instance, which only direct access to the database can do.
    fn corrupt(&self, place: &str, instance: &str) {
        let what = format!("task = 'i/{instance}' AND slot LIKE 'turn/%'");
        match self {
            TestDatabase::Sqlite(folder) => {
                let path = folder.path().join(format!("{place}.db"));
                let database = rusqlite::Connection::open(path).expect("the file exists");
                database.busy_timeout(Duration::from_secs(10)).expect("the timeout is set");
                let update =
                    format!("UPDATE payload SET bytes = CAST('{{{{{{' AS BLOB) WHERE {what}");
                database.execute(&update, []).expect("the file is writable");
            }
            TestDatabase::Postgres(server) => {
                let bytes = "convert_to('{{{', 'UTF8')";
                server.sql(&format!("UPDATE {place}.payload SET bytes = {bytes} WHERE {what}"));
            }
        }
    }
}

/// Creates providers for the suite, with access to their stores.
pub(crate) struct Factory {
    database: TestDatabase,
    made: Mutex<Vec<(String, Engine)>>,
}

impl Factory {
    pub(crate) fn new(database: TestDatabase) -> Self {
        Self { database, made: Mutex::default() }
    }

    fn last(&self) -> (String, Engine) {
        let made = self.made.lock().expect("no code panics under this lock");
        made.last().expect("a provider was created").clone()
    }

    pub(crate) async fn close(&self) {
        let made = std::mem::take(&mut *self.made.lock().expect("no code panics under this lock"));
        for (_, engine) in made {
            engine.shutdown().await.expect("the engine stops");
        }
    }
}

#[async_trait]
impl ProviderFactory for Factory {
    async fn create_provider(&self) -> Arc<dyn Provider> {
        let place = format!("place_{}", Engine::new_id().as_str().replace('-', "_"));
        let store = self.database.open(&place).await;
        let engine = Engine::with_shared_store(store, Config::default()).await.expect("it starts");
        self.made.lock().expect("no code panics under this lock").push((place, engine.clone()));
        Arc::new(WindlassProvider::new(engine))
    }

    fn lock_timeout(&self) -> Duration {
        Duration::from_millis(1_500)
    }

    async fn corrupt_instance_history(&self, instance: &str) {
        self.database.corrupt(&self.last().0, instance);
    }

    async fn get_max_attempt_count(&self, instance: &str) -> u32 {
        let engine = self.last().1;
        let key = TaskKey::new(&Tenant::new("duroxide"), &format!("i/{instance}").into());
        let task = engine.task(&key).await.expect("the task is readable").expect("the task exists");
        let received = match &task.lifecycle {
            Lifecycle::Active(lease) => lease.in_flight.clone(),
            _ => Vec::new(),
        };
        let messages = engine.messages(&key, 0, 1_000).await.expect("the messages are readable");
        let attempts = messages.iter().map(|one| {
            let is_leased = received.contains(&one.message.seq);
            one.message.delivery_count + u32::from(is_leased)
        });
        attempts.max().unwrap_or(0)
    }
}
