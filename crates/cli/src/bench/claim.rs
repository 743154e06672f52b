use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use windlass_core::command::{Claim, Delay, LimitLane, NewTask, QuotaScope, Release, SetQuota};
use windlass_core::{Command, LaneName, LimitKey, SESSIONS, TagFilter, Tenant, WorkerCapabilities};
use windlass_engine::Engine;
use windlass_store::Store;

use crate::bench::bench_store::{BenchStore, fill, own_tenant};
use crate::bench::fleet::Fleet;
use crate::bench::load::count;
use crate::bench::options::{BenchError, Common};
use crate::bench::report::{Report, percentile};
use crate::output::say;

/// Measure the cost of a claim from a backlog.
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

/// The shape of the backlog as the claim sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shape {
    /// All in the one lane that is claimed from.
    OneLane,
    /// Spread over 100 lanes; the claim names one of them.
    OneOfHundred,
    /// Spread over 100 lanes; the claim names all of them.
    AllOfHundred,
    /// Spread over 100 lanes with 20 routes each; the claim names one lane and takes all routes.
    RoutesOfLane,
    /// Spread over 100 lanes with 20 routes each; the claim names all lanes and takes all routes.
    RoutesOfHundred,
    /// Tasks of higher priority that need a capability the worker lacks.
    Incapable,
    /// Tasks delayed until tomorrow.
    Delayed,
    /// Tasks in a lane whose concurrency limit is reached; the claim names it first.
    FullLane,
    /// Tasks of higher priority with one concurrency key, of which one task runs.
    BusyKey,
    /// Tasks in a lane whose quota is exceeded; the claim names it first.
    SpentQuota,
    /// Tasks of higher priority in one session, which another worker owns.
    BusySession,
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
            Shape::BusyKey => "busy-key",
            Shape::SpentQuota => "spent-quota",
            Shape::BusySession => "busy-session",
        })
    }
}

const LANES: u64 = 100;
const ROUTES: u64 = 20;
const DAY_MS: u64 = 24 * 3_600 * 1_000;
/// The number of engines that create a backlog together.
const FILLERS: u32 = 2;
/// The first claims discover the routes of a lane.
const WARM_UP: u32 = 20;
/// Claimable tasks beside a backlog that is not claimable.
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
            Shape::Delayed => task.delay = Delay::For { ms: DAY_MS },
            Shape::FullLane | Shape::SpentQuota => task.lane = lane(0),
            Shape::BusyKey | Shape::BusySession => {
                let name = "busy".to_owned();
                let session = self == Shape::BusySession;
                task.limit_key = Some(if session {
                    LimitKey::Session(name)
                } else {
                    LimitKey::Concurrency(name)
                });
                task.priority = 10;
            }
        }
    }

    fn claimable(self) -> bool {
        match self {
            Shape::OneLane
            | Shape::OneOfHundred
            | Shape::AllOfHundred
            | Shape::RoutesOfLane
            | Shape::RoutesOfHundred => true,
            Shape::Incapable
            | Shape::Delayed
            | Shape::FullLane
            | Shape::BusyKey
            | Shape::SpentQuota
            | Shape::BusySession => false,
        }
    }

    /// The command that prevents the backlog from running.
    fn limit(self, tenant: &Tenant) -> Option<Command> {
        let (tenant, limit) = (tenant.clone(), Some(1));
        match self {
            Shape::FullLane => Some(LimitLane { tenant, lane: lane(0), limit }.into()),
            Shape::SpentQuota => {
                let scope = QuotaScope::Lane(lane(0));
                Some(SetQuota { tenant, scope, limit, rate: None }.into())
            }
            _ => None,
        }
    }

    /// The claim of the one task of the backlog that may run; its lease is held.
    fn first(self, tenant: &Tenant) -> Option<Claim> {
        let lanes = match self {
            Shape::FullLane | Shape::SpentQuota => vec![lane(0)],
            Shape::BusyKey | Shape::BusySession => vec![LaneName::default()],
            _ => return None,
        };
        let worker = "other".into();
        Some(Claim { lanes, worker, lease_ms: DAY_MS, ..self.claim(tenant) })
    }

    fn claim(self, tenant: &Tenant) -> Claim {
        let lanes = match self {
            Shape::OneLane
            | Shape::Incapable
            | Shape::Delayed
            | Shape::BusyKey
            | Shape::BusySession => vec![LaneName::default()],
            Shape::OneOfHundred | Shape::RoutesOfLane => vec![lane(7)],
            Shape::AllOfHundred | Shape::RoutesOfHundred => (0..LANES).map(lane).collect(),
            Shape::FullLane | Shape::SpentQuota => vec![lane(0), LaneName::default()],
        };
        let mut capabilities =
            WorkerCapabilities { tags: TagFilter::Any, ..WorkerCapabilities::default() };
        if self == Shape::BusySession {
            capabilities.names.insert(SESSIONS.to_owned());
        }
        Claim { tenant: tenant.clone(), lanes, capabilities, ..Claim::new("bench") }
    }
}

impl ClaimCost {
    pub(crate) async fn run(self) -> Result<(), BenchError> {
        let shapes = if self.shape.is_empty() { Shape::value_variants() } else { &self.shape };
        let mut report = Report::default();
        report.set("bench", "claim");
        let mut rows = Vec::new();
        let (mut worst, mut worst_interleaved) = (1_f64, 1_f64);
        for &shape in shapes {
            let mut smallest: Option<(Backlog, Duration)> = None;
            for &waiting in &self.waiting {
                let backlog = self.make(shape, waiting).await?;
                let interleaved = smallest.as_ref().map(|(smallest, _)| smallest);
                let mut cost = self.time(&backlog, interleaved).await?;
                let p50 = percentile(&mut cost.own, 50);
                let alone = smallest.as_ref().map_or(p50, |(_, p50)| *p50);
                let row = Row::new(&backlog, &mut cost, alone);
                worst = worst.max(row.ratio);
                worst_interleaved = worst_interleaved.max(row.ratio_interleaved.unwrap_or(1.0));
                if !self.common.json {
                    say(&row.line());
                }
                report.number(&format!("{shape}.{waiting}.p50_ms"), row.p50_ms);
                rows.push(row.json());
                report.set("durability", backlog.store.describe().await?.durability);
                match smallest {
                    Some(_) => backlog.end().await?,
                    None => smallest = Some((backlog, p50)),
                }
            }
            if let Some((backlog, _)) = smallest {
                backlog.end().await?;
            }
        }
        report.set("claims", rows);
        report.number("worst_ratio", worst);
        report.number("worst_ratio_interleaved", worst_interleaved);
        if self.common.json {
            report.print(true);
        }
        Ok(())
    }

    async fn make(&self, shape: Shape, waiting: u64) -> Result<Backlog, BenchError> {
        let bench_store = self.common.bench_store()?;
        let (engine, store) = bench_store.start(self.common.config()).await?;
        let tenant = own_tenant();
        let expiry_ms = bench_store.expiry_ms();
        let make = move |n, task: &mut NewTask| {
            shape.make(n, task);
            task.deadline_ms = expiry_ms;
        };
        self.fill(&bench_store, &engine, &tenant, waiting, make).await?;
        let free = if shape.claimable() { 0 } else { FREE };
        let expire = move |_, task: &mut NewTask| task.deadline_ms = expiry_ms;
        fill(std::slice::from_ref(&engine), &tenant, free, true, expire).await?;
        if let Some(limit) = shape.limit(&tenant) {
            engine.submit(limit).await?;
        }
        if let Some(first) = shape.first(&tenant) {
            let claimed = engine.claim(first, Duration::ZERO).await?.len();
            if claimed != 1 {
                return Err(BenchError::Claimed(claimed));
            }
        }
        Ok(Backlog { _bench_store: bench_store, engine, store, tenant, shape, waiting, free })
    }

    /// Times claims from a backlog, alternating with claims from the smallest one, so that other
    /// load on the machine affects both alike.
    async fn time(
        &self,
        backlog: &Backlog,
        interleaved: Option<&Backlog>,
    ) -> Result<Cost, BenchError> {
        let mut cost = Cost::default();
        for n in 0..self.claims + WARM_UP {
            let own = backlog.claim_once().await?;
            let other = match interleaved {
                Some(interleaved) => Some(interleaved.claim_once().await?),
                None => None,
            };
            if n >= WARM_UP {
                cost.own.push(own);
                cost.interleaved.extend(other);
            }
        }
        Ok(cost)
    }
}

/// A backlog, and an engine to claim from it.
struct Backlog {
    _bench_store: BenchStore,
    engine: Engine,
    store: Arc<dyn Store>,
    tenant: Tenant,
    shape: Shape,
    waiting: u64,
    free: u64,
}

impl Backlog {
    /// Times one claim, and releases the task so that the backlog stays unchanged.
    async fn claim_once(&self) -> Result<Duration, BenchError> {
        let claim = self.shape.claim(&self.tenant);
        let started = Instant::now();
        let claimed = self.engine.claim(claim, Duration::ZERO).await?;
        let took = started.elapsed();
        if claimed.len() != 1 {
            return Err(BenchError::Claimed(claimed.len()));
        }
        for claimed in claimed {
            self.engine.submit(Release { fence: claimed.task.fence() }).await?;
        }
        Ok(took)
    }

    /// Fails unless the backlog is complete.
    async fn end(self) -> Result<(), BenchError> {
        let there = count(&self.engine, &self.tenant, None).await?;
        let expected = self.waiting + self.free;
        self.engine.shutdown().await?;
        if there == expected { Ok(()) } else { Err(BenchError::Backlog { there, expected }) }
    }
}

/// The times of claims, from a backlog and alternately from the smallest one.
#[derive(Default)]
struct Cost {
    own: Vec<Duration>,
    interleaved: Vec<Duration>,
}

/// The figures of one backlog.
struct Row {
    shape: String,
    waiting: u64,
    p50_ms: f64,
    p99_ms: f64,
    /// Relative to the smallest backlog, measured alone.
    ratio: f64,
    /// Relative to the smallest backlog, measured alternately.
    ratio_interleaved: Option<f64>,
}

impl Row {
    fn new(backlog: &Backlog, cost: &mut Cost, alone: Duration) -> Self {
        let (p50, p99) = (percentile(&mut cost.own, 50), percentile(&mut cost.own, 99));
        let interleaved = percentile(&mut cost.interleaved, 50);
        let ratio = |base: Duration| p50.as_secs_f64() / base.as_secs_f64();
        Self {
            shape: backlog.shape.to_string(),
            waiting: backlog.waiting,
            p50_ms: p50.as_secs_f64() * 1_000.0,
            p99_ms: p99.as_secs_f64() * 1_000.0,
            ratio: ratio(alone),
            ratio_interleaved: (!interleaved.is_zero()).then(|| ratio(interleaved)),
        }
    }

    fn line(&self) -> String {
        let Self { shape, waiting, p50_ms, p99_ms, ratio, .. } = self;
        let interleaved = self.ratio_interleaved.map(|ratio| format!("   interleaved {ratio:.2}x"));
        format!(
            "{shape:<17} {waiting:>9} waiting   p50 {p50_ms:.3} ms   p99 {p99_ms:.3} ms   \
             {ratio:.2}x{}",
            interleaved.unwrap_or_default()
        )
    }

    fn json(&self) -> Value {
        json!({
            "shape": self.shape,
            "waiting": self.waiting,
            "p50_ms": self.p50_ms,
            "p99_ms": self.p99_ms,
            "ratio": self.ratio,
            "ratio_interleaved": self.ratio_interleaved,
        })
    }
}

impl ClaimCost {
    /// Creates the backlog. With a server, by more engines than the measured one: a server can
    /// serve several at a time.
    async fn fill(
        &self,
        bench_store: &BenchStore,
        engine: &Engine,
        tenant: &Tenant,
        waiting: u64,
        make: impl Fn(u64, &mut NewTask) + Clone + Send + 'static,
    ) -> Result<(), BenchError> {
        let json = self.common.json;
        if !bench_store.has_server() {
            let producers = [engine.clone(), engine.clone()];
            return fill(&producers, tenant, waiting, json, make).await;
        }
        let fleet = Fleet::start(bench_store, &self.common.config(), FILLERS).await?;
        let producers = [fleet.engines(), fleet.engines()].concat();
        fill(&producers, tenant, waiting, json, make).await?;
        fleet.shutdown().await
    }
}
