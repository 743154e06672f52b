use std::sync::Arc;

use async_trait::async_trait;
use tempfile::TempDir;
use windlass_store::{ManualClock, Store};
use windlass_store_sqlite::{Options, SqliteStore};
use windlass_store_test::differential::{self, DEFAULT_SEEDS};
use windlass_store_test::{Factory, conformance, every_fault, time_order};

/// A folder with a file for each place.
struct Files(TempDir);

#[async_trait]
impl Factory for Files {
    async fn open(&self, place: &str, clock: Arc<ManualClock>) -> Arc<dyn Store> {
        let path = self.0.path().join(format!("{place}.db"));
        Arc::new(SqliteStore::open_with(path, Options { clock, ..Options::default() }).unwrap())
    }
}

#[tokio::test]
async fn sqlite_conforms() {
    conformance::run(&Files(tempfile::tempdir().unwrap())).await;
}

/// Batches are serial: the times of the whole log are in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sqlite_keeps_the_times_of_its_log_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let open = || -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(folder.path().join("time.db")).unwrap())
    };
    let order = time_order::run(&[open(), open()]).await;
    assert!(order.entries > 500 && order.falls == 0, "{order:?}");
}

#[tokio::test]
async fn sqlite_matches_the_reference_tables() {
    let files = Files(tempfile::tempdir().unwrap());
    let run =
        differential::run(differential::seeds(DEFAULT_SEEDS, 50), &[("sqlite", &files)]).await;
    run.unwrap_or_else(|divergence| panic!("{divergence}"));
}

#[tokio::test]
async fn sqlite_reaches_the_same_result_under_every_fault() {
    assert!(every_fault::run(&Files(tempfile::tempdir().unwrap())).await > 70);
}
