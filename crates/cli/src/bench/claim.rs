use std::fmt;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use windlass_core::command::{Claim, LimitLane, NewTask, Release, Start};
use windlass_core::{LaneName, Offer, TagFilter, Tenant};
use windlass_engine::Engine;

use crate::bench::fleet::Fleet;
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
    /// Spread over 100 lanes and 20 routes in each; the claim names one lane and takes all routes.
    RoutesOfLane,
    /// Spread over 100 lanes and 20 routes in each; the claim names all lanes and takes all routes.
    RoutesOfHundred,
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
            Shape::RoutesOfLane => "routes-of-lane",
            Shape::RoutesOfHundred => "routes-of-hundred",
            Shape::Incapable => "incapable",
            Shape::Delayed => "delayed",
            Shape::FullLane => "full-lane",
        })
    }
}

const LANES: u64 = 100;
const ROUTES: u64 = 20;
const DAY_MS: u64 = 24 * 3_600 * 1_000;
/// Engines that make a backlog together.
const FILLERS: u32 = 2;
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
            Shape::RoutesOfLane | Shape::RoutesOfHundred => {
                task.lane = lane(n % LANES);
                task.tag = Some(format!("tag-{}", n / LANES % ROUTES));
            }
            Shape::Incapable => {
                task.capabilities.insert("gpu".into());
                task.priority = 10;
            }
            Shape::Delayed => task.start = Start::After { ms: DAY_MS },
            Shape::FullLane => task.lane = lane(0),
        }
    }

    fn claimable(self) -> bool {
        !matches!(self, Shape::Incapable | Shape::Delayed | Shape::FullLane)
    }

    fn claim(self, tenant: &Tenant) -> Claim {
        let lanes = match self {
            Shape::OneLane | Shape::Incapable | Shape::Delayed => vec![LaneName::default()],
            Shape::OneOfHundred | Shape::RoutesOfLane => vec![lane(7)],
            Shape::AllOfHundred | Shape::RoutesOfHundred => (0..LANES).map(lane).collect(),
            Shape::FullLane => vec![lane(0), LaneName::default()],
        };
        let offer = Offer { tags: TagFilter::Any, ..Offer::default() };
        Claim { tenant: tenant.clone(), lanes, offer, ..Claim::new("bench") }
    }
}

impl ClaimCost {
    pub(crate) async fn run(self) -> Result<(), BenchError> {
        let shapes = if self.shape.is_empty() { Shape::value_variants() } else { &self.shape };
        let mut report = Report::default();
        report.set("bench", "claim");
        let mut rows = Vec::new();
        let mut durability = String::new();
        let mut worst = 1_f64;
        for &shape in shapes {
            let mut smallest = None;
            for &waiting in &self.waiting {
                let (p50, p99, durable) = self.measure(shape, waiting).await?;
                durability = durable;
                let base = *smallest.get_or_insert(p50);
                let ratio = p50.as_secs_f64() / base.as_secs_f64();
                worst = worst.max(ratio);
                if !self.common.json {
                    say(&format!(
                        "{:<17} {waiting:>9} waiting   p50 {:.3} ms   p99 {:.3} ms   {ratio:.2}x",
                        shape.to_string(),
                        p50.as_secs_f64() * 1_000.0,
                        p99.as_secs_f64() * 1_000.0,
                    ));
                }
                rows.push(row(shape, waiting, p50, p99, ratio));
            }
        }
        report.set("claims", rows);
        report.number("worst_ratio", worst);
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
        let make = move |n, task: &mut NewTask| {
            shape.make(n, task);
            task.deadline_ms = expiry_ms;
        };
        self.fill(&place, &engine, &tenant, waiting, make).await?;
        let free = if shape.claimable() { 0 } else { FREE };
        let expire = move |_, task: &mut NewTask| task.deadline_ms = expiry_ms;
        fill(std::slice::from_ref(&engine), &tenant, free, true, expire).await?;
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
        let there: u64 = engine.count_by_state(&tenant).await?.values().sum();
        if there != waiting + free {
            return Err(BenchError::Backlog { there, asked: waiting + free });
        }
        let durability = store.describe().await?.durability;
        engine.shutdown().await?;
        Ok((percentile(&mut latencies, 50), percentile(&mut latencies, 99), durability))
    }
}

impl ClaimCost {
    /// Makes the backlog. Where there is a server, by engines beside the one that is measured: it
    /// can serve more than one at a time.
    async fn fill(
        &self,
        place: &Place,
        engine: &Engine,
        tenant: &Tenant,
        waiting: u64,
        make: impl Fn(u64, &mut NewTask) + Clone + Send + 'static,
    ) -> Result<(), BenchError> {
        let json = self.common.json;
        if !place.has_server() {
            let producers = [engine.clone(), engine.clone()];
            return fill(&producers, tenant, waiting, json, make).await;
        }
        let fleet = Fleet::start(place, &self.common.config(), FILLERS).await?;
        let producers = [fleet.engines(), fleet.engines()].concat();
        fill(&producers, tenant, waiting, json, make).await?;
        fleet.shutdown().await
    }
}

/// Times one claim, and gives the task back so that the backlog stays what it is.
async fn claim_once(engine: &Engine, claim: Claim) -> Result<Duration, BenchError> {
    let started = Instant::now();
    let claimed = engine.claim(claim, Duration::ZERO).await?;
    let took = started.elapsed();
    if claimed.len() != 1 {
        return Err(BenchError::Claimed(claimed.len()));
    }
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
