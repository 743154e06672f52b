use std::sync::Arc;

use async_trait::async_trait;
use windlass_store::{ManualClock, Store};
use windlass_store_postgres::{Options, PostgresStore};
use windlass_store_test::differential::{self, DEFAULT_SEEDS};
use windlass_store_test::postgres::Server;
use windlass_store_test::{Factory, conformance, every_fault};

/// A schema for each place, in one database.
struct Schemas(Server);

#[async_trait]
impl Factory for Schemas {
    async fn open(&self, place: &str, clock: Arc<ManualClock>) -> Arc<dyn Store> {
        let schema = place.replace('-', "_").to_lowercase();
        let schema = schema.chars().rev().take(60).collect::<String>().chars().rev().collect();
        let options = Options { schema, clock: Some(clock), ..Options::default() };
        let config = self.0.url().parse().unwrap();
        Arc::new(PostgresStore::open_with(config, options).await.unwrap())
    }
}

#[tokio::test]
async fn postgres_conforms() {
    conformance::run(&Schemas(Server::start())).await;
}

#[tokio::test]
async fn postgres_matches_the_reference_tables() {
    let schemas = Schemas(Server::start());
    // Each seed takes seconds here: run a fraction of the seeds of other stores.
    let seeds = differential::seeds(0..DEFAULT_SEEDS.end / 8, 400);
    let run = differential::run(seeds, &[("postgres", &schemas)]).await;
    run.unwrap_or_else(|divergence| panic!("{divergence}"));
}

#[tokio::test]
async fn postgres_reaches_the_same_result_under_every_fault() {
    assert!(every_fault::run(&Schemas(Server::start())).await > 70);
}
