use std::sync::Arc;

use windlass_engine::{Config, Engine, Stats};
use windlass_store::{RoundTripStats, Store};

use crate::bench::bench_store::BenchStore;
use crate::bench::options::BenchError;

/// Engines on one store, each with its own store handle, like nodes.
#[derive(Debug)]
pub(crate) struct Fleet {
    engines: Vec<Engine>,
    stores: Vec<Arc<dyn Store>>,
}

/// The counters of a fleet since its start.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) stats: Stats,
    pub(crate) commits: u64,
    pub(crate) round_trips: Option<RoundTripStats>,
    pub(crate) durability: String,
}

impl Fleet {
    pub(crate) async fn start(
        bench_store: &BenchStore,
        config: &Config,
        engines: u32,
    ) -> Result<Self, BenchError> {
        if engines > 1 && !bench_store.is_shared() {
            return Err(BenchError::NotShared);
        }
        let mut fleet = Self { engines: Vec::new(), stores: Vec::new() };
        for _ in 0..engines {
            let (engine, store) = bench_store.start(config.clone()).await?;
            fleet.engines.push(engine);
            fleet.stores.push(store);
        }
        Ok(fleet)
    }

    pub(crate) fn first(&self) -> &Engine {
        &self.engines[0]
    }

    /// The engine of the n-th caller, round robin.
    pub(crate) fn of_caller(&self, n: u32) -> &Engine {
        &self.engines[n as usize % self.engines.len()]
    }

    pub(crate) fn engines(&self) -> &[Engine] {
        &self.engines
    }

    pub(crate) async fn read(&self) -> Result<Reading, BenchError> {
        let mut reading = Reading {
            stats: Stats::default(),
            commits: 0,
            round_trips: None,
            durability: String::new(),
        };
        for (engine, store) in self.engines.iter().zip(&self.stores) {
            let description = store.describe().await?;
            add(&mut reading.stats, engine.stats());
            reading.commits += description.commits;
            reading.round_trips = sum(reading.round_trips, description.round_trips);
            reading.durability = description.durability;
        }
        Ok(reading)
    }

    pub(crate) async fn shutdown(&self) -> Result<(), BenchError> {
        for engine in &self.engines {
            engine.shutdown().await?;
        }
        Ok(())
    }
}

fn add(all: &mut Stats, one: Stats) {
    all.batches += one.batches;
    all.commands += one.commands;
    all.rounds += one.rounds;
    all.conflicts += one.conflicts;
    all.splits += one.splits;
    all.sweeps += one.sweeps;
}

fn sum(all: Option<RoundTripStats>, one: Option<RoundTripStats>) -> Option<RoundTripStats> {
    let all = all.unwrap_or_default();
    one.map(|one| RoundTripStats {
        statements: all.statements + one.statements,
        round_trips: all.round_trips + one.round_trips,
    })
}
