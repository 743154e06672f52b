use std::sync::Arc;

use windlass_store::{MemoryStore, Store};
use windlass_store_test::differential::{self, DEFAULT_SEEDS};
use windlass_store_test::{MemoryFactory, conformance, every_fault, time_order};

#[tokio::test]
async fn memory_conforms() {
    conformance::run(&MemoryFactory::default()).await;
}

#[tokio::test]
async fn memory_matches_the_reference_tables() {
    let seeds = differential::seeds(DEFAULT_SEEDS, 1);
    let factory = MemoryFactory::default();
    let run = differential::run(seeds.clone(), &[("memory", &factory)]).await;
    let coverage = run.unwrap_or_else(|divergence| panic!("{divergence}"));
    println!("{coverage}");
    if seeds.end >= DEFAULT_SEEDS.end && seeds.start == 0 {
        assert_eq!(coverage.missing(), [], "pairs that are not reached:\n{coverage}");
    }
}

#[tokio::test]
async fn memory_reaches_the_same_result_under_every_fault() {
    assert!(every_fault::run(&MemoryFactory::default()).await > 70);
}

/// Batches of several engines run concurrently in memory as they do on a server.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory_keeps_the_times_of_a_task_in_order() {
    let memory = MemoryStore::new();
    let handles: [Arc<dyn Store>; 2] = [Arc::new(memory.another()), Arc::new(memory.another())];
    let order = time_order::run(&handles).await;
    assert!(order.entries > 500, "{order:?}");
}
