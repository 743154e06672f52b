use std::fmt;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use windlass_core::command::{Claim, LimitLane, NewTask, Release, Start};
use windlass_core::{LaneName, Tenant};
use windlass_engine::{Engine, Error};

use crate::bench::options::{BenchError, Common};
use crate::bench::place::{Place, fill, own_tenant};
use crate::bench::report::{Report, percentile};
use crate::output::say;

/// What a claim costs against a backlog.
#[derive(Debug, Args)]
pub(crate) struct ClaimCost {
    #[command(flatten)]
    common: Common,
    /// Backlog sizes to compare, smallest first.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 1_000_000])]
    waiting: Vec<u64>,
    /// Backlog shapes [default: all of them]
    #[arg(long, value_delimiter = ',')]
    shape: Vec<Shape>,
    /// How many claims are timed for each.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    claims: u32,
}

/// What the backlog looks like to the claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shape {
    /// All in the one lane that is claimed from.
    OneLane,
    /// Spread over 100 lanes; the claim names one of them.
    OneOfHundred,
    /// Spread over 100 lanes; the claim names all of them.
    AllOfHundred,
    /// They need a capability that the worker lacks, and have the higher priority.
    Incapable,
    /// They are delayed until tomorrow.
    Delayed,
    /// They wait in a lane whose limit is reached; the claim names it first.
    FullLane,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Shape::OneLane => "one-lane",
            Shape::OneOfHundred => "one-of-hundred",
            Shape::AllOfHundred => "all-of-hundred",
            Shape::Incapable => "incapable",
            Shape::Delayed => "delayed",
            Shape::FullLane => "full-lane",
        })
    }
}

const LANES: u64 = 100;
const DAY_MS: u64 = 24 * 3_600 * 1_000;
/// Claimable tasks beside a backlog that is not.
const FREE: u64 = 100;

fn lane(n: u64) -> LaneName {
    LaneName::new(format!("lane-{n}"))
}

impl Shape {
    fn make(self, n: u64, task: &mut NewTask) {
        match self {
            Shape::OneLane => {}
            Shape::OneOfHundred | Shape::AllOfHundred => task.lane = lane(n % LANES),
            Shape::Incapable => {
                task.capabilities.insert("gpu".into());
                task.priority = 10;
            }
            Shape::Delayed => task.start = Start::After { ms: DAY_MS },
            Shape::FullLane => task.lane = lane(0),
        }
    }

    fn claimable(self) -> bool {
        matches!(self, Shape::OneLane | Shape::OneOfHundred | Shape::AllOfHundred)
    }

    fn claim(self, tenant: &Tenant) -> Claim {
        let lanes = match self {
            Shape::OneLane | Shape::Incapable | Shape::Delayed => vec![LaneName::default()],
            Shape::OneOfHundred => vec![lane(7)],
            Shape::AllOfHundred => (0..LANES).map(lane).collect(),
            Shape::FullLane => vec![lane(0), LaneName::default()],
        };
        Claim { tenant: tenant.clone(), lanes, ..Claim::new("bench") }
    }
}

impl ClaimCost {
    pub(crate) async fn run(self) -> Result<(), BenchError> {
        let shapes = if self.shape.is_empty() { Shape::value_variants() } else { &self.shape };
        let mut report = Report::default();
        report.set("bench", "claim");
        let mut rows = Vec::new();
        let mut durability = String::new();
        for &shape in shapes {
            let mut smallest = None;
            for &waiting in &self.waiting {
                let (p50, p99, durable) = self.measure(shape, waiting).await?;
                durability = durable;
                let base = *smallest.get_or_insert(p50);
                let ratio = p50.as_secs_f64() / base.as_secs_f64();
                if !self.common.json {
                    say(&format!(
                        "{:<15} {waiting:>9} waiting   p50 {:.3} ms   p99 {:.3} ms   {ratio:.2}x",
                        shape.to_string(),
                        p50.as_secs_f64() * 1_000.0,
                        p99.as_secs_f64() * 1_000.0,
                    ));
                }
                rows.push(row(shape, waiting, p50, p99, ratio));
            }
        }
        report.set("claims", rows);
        report.set("durability", durability);
        if self.common.json {
            report.print(true);
        }
        Ok(())
    }

    async fn measure(
        &self,
        shape: Shape,
        waiting: u64,
    ) -> Result<(Duration, Duration, String), BenchError> {
        let place = Place::of(self.common.store.clone())?;
        let (engine, store) = place.start(self.common.config()).await?;
        let tenant = own_tenant();
        let expiry_ms = place.expiry_ms();
        let make = |n, task: &mut NewTask| {
            shape.make(n, task);
            task.deadline_ms = expiry_ms;
        };
        fill(&engine, &tenant, waiting, self.common.json, make).await?;
        if !shape.claimable() {
            fill(&engine, &tenant, FREE, true, |_, task| task.deadline_ms = expiry_ms).await?;
        }
        if shape == Shape::FullLane {
            let limit = LimitLane { tenant: tenant.clone(), lane: lane(0), limit: Some(1) };
            engine.submit(limit).await?;
            let lanes = vec![lane(0)];
            let first = Claim { lanes, lease_ms: DAY_MS, ..shape.claim(&tenant) };
            engine.claim(first, Duration::ZERO).await?;
        }
        let mut latencies = Vec::new();
        for n in 0..self.claims + 20 {
            let took = claim_once(&engine, shape.claim(&tenant)).await?;
            if n >= 20 {
                latencies.push(took);
            }
        }
        let durability = store.describe().await?.durability;
        engine.shutdown().await?;
        Ok((percentile(&mut latencies, 50), percentile(&mut latencies, 99), durability))
    }
}

/// Times one claim, and gives the task back so that the backlog stays what it is.
async fn claim_once(engine: &Engine, claim: Claim) -> Result<Duration, Error> {
    let started = Instant::now();
    let claimed = engine.claim(claim, Duration::ZERO).await?;
    let took = started.elapsed();
    for claimed in claimed {
        engine.submit(Release { fence: claimed.task.fence() }).await?;
    }
    Ok(took)
}

fn row(shape: Shape, waiting: u64, p50: Duration, p99: Duration, ratio: f64) -> Value {
    json!({
        "shape": shape.to_string(),
        "waiting": waiting,
        "p50_ms": p50.as_secs_f64() * 1_000.0,
        "p99_ms": p99.as_secs_f64() * 1_000.0,
        "ratio": ratio,
    })
}
