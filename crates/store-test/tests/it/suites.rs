use windlass_store_test::differential::{self, DEFAULT_SEEDS};
use windlass_store_test::{MemoryFactory, conformance, mishap};

#[tokio::test]
async fn memory_conforms() {
    conformance::run(&MemoryFactory::default()).await;
}

#[tokio::test]
async fn memory_does_what_the_shelf_does() {
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
async fn memory_comes_to_the_same_end_through_every_mishap() {
    assert!(mishap::run(&MemoryFactory::default()).await > 70);
}
