use std::time::{Duration, Instant};

use windlass_core::command::{Claim, Complete, Create};
use windlass_core::{Command, PublicState, Tenant};
use windlass_engine::{Engine, Error, TaskFilter};
use windlass_store::StoreError;

use crate::bench::bench_store::some_task;
use crate::bench::fleet::Fleet;
use crate::bench::options::BenchError;
use crate::bench::report::Progress;

/// The first commits of a database grow its files, which is not to be measured.
const WARM_UP: u64 = 20;

/// How long a claim waits. Every caller creates a task before it claims one, so this is a stall.
const STALL: Duration = Duration::from_secs(20);

/// Concurrent callers, each: create a task, claim one, complete it.
#[derive(Debug)]
pub(crate) struct Load<'l> {
    pub(crate) fleet: &'l Fleet,
    pub(crate) tenant: Tenant,
    pub(crate) callers: u32,
    pub(crate) seconds: u64,
    pub(crate) json: bool,
}

/// The results of the callers.
#[derive(Debug, Default)]
pub(crate) struct Cycles {
    pub(crate) latencies: Vec<Duration>,
    /// How many cycles were finished in each second.
    pub(crate) each_second: Vec<u64>,
    /// Claims that returned no task.
    pub(crate) stalls: u64,
    /// Conflicts returned to the caller after all internal retries; the caller retried.
    pub(crate) conflict_errors: u64,
}

impl Load<'_> {
    pub(crate) async fn warm_up(&self) -> Result<(), BenchError> {
        let warm_up = |engine: Engine, tenant: Tenant| async move {
            let mut cycles = Cycles::default();
            for _ in 0..WARM_UP {
                cycle(&engine, &tenant, &mut cycles).await?;
            }
            Ok::<_, Error>(())
        };
        let engines = self.fleet.engines().iter();
        let all = engines.map(|engine| tokio::spawn(warm_up(engine.clone(), self.tenant.clone())));
        for one in all.collect::<Vec<_>>() {
            one.await??;
        }
        Ok(())
    }

    /// Runs for the set time, plus the last cycle of every caller.
    pub(crate) async fn run(&self) -> Result<Cycles, BenchError> {
        let load_started = Instant::now();
        let length = Duration::from_secs(self.seconds);
        let call =
            |n| call(self.fleet.of_caller(n).clone(), self.tenant.clone(), load_started, length);
        let callers: Vec<_> = (0..self.callers).map(|n| tokio::spawn(call(n))).collect();
        let progress = Progress::new("seconds", self.seconds, self.json);
        for _ in 0..self.seconds {
            tokio::time::sleep(Duration::from_secs(1)).await;
            progress.add(1);
        }
        let mut all = Cycles::default();
        for caller in callers {
            all.add(caller.await??);
        }
        Ok(all)
    }

    /// Fails unless the store has as many completed tasks as there were cycles.
    pub(crate) async fn check(&self, cycles: &Cycles) -> Result<(), BenchError> {
        let warm_up = WARM_UP * self.fleet.engines().len() as u64;
        let expected = cycles.latencies.len() as u64 + warm_up;
        completed(self.fleet.first(), &self.tenant, expected).await.map(drop)
    }
}

impl Cycles {
    fn add(&mut self, other: Self) {
        self.latencies.extend(other.latencies);
        self.stalls += other.stalls;
        self.conflict_errors += other.conflict_errors;
        let seconds = self.each_second.len().max(other.each_second.len());
        self.each_second.resize(seconds, 0);
        for (all, one) in self.each_second.iter_mut().zip(other.each_second) {
            *all += one;
        }
    }

    fn finished(&mut self, load_started: Instant, started: Instant) {
        self.latencies.push(started.elapsed());
        let second = load_started.elapsed().as_secs() as usize;
        self.each_second.resize(self.each_second.len().max(second + 1), 0);
        self.each_second[second] += 1;
    }
}

async fn call(
    engine: Engine,
    tenant: Tenant,
    load_started: Instant,
    length: Duration,
) -> Result<Cycles, Error> {
    let mut cycles = Cycles::default();
    while load_started.elapsed() < length {
        let started = Instant::now();
        if cycle(&engine, &tenant, &mut cycles).await? {
            cycles.finished(load_started, started);
        }
    }
    Ok(cycles)
}

/// Runs one cycle and returns whether a task was claimed.
async fn cycle(engine: &Engine, tenant: &Tenant, cycles: &mut Cycles) -> Result<bool, Error> {
    let create = Create { tenant: tenant.clone(), tasks: vec![some_task()] };
    submit(engine, create.into(), cycles).await?;
    let claim = Claim { tenant: tenant.clone(), ..Claim::new("bench") };
    let claimed = loop {
        match engine.claim(claim.clone(), STALL).await {
            Err(error) if is_conflict(&error) => cycles.conflict_errors += 1,
            result => break result?,
        }
    };
    let Some(claimed) = claimed.into_iter().next() else {
        cycles.stalls += 1;
        return Ok(false);
    };
    let complete = Complete { fence: claimed.task.fence(), result: None };
    submit(engine, complete.into(), cycles).await?;
    Ok(true)
}

/// Submits until there is no conflict.
async fn submit(engine: &Engine, command: Command, cycles: &mut Cycles) -> Result<(), Error> {
    loop {
        match engine.submit(command.clone()).await {
            Err(error) if is_conflict(&error) => cycles.conflict_errors += 1,
            result => return result.map(drop),
        }
    }
}

fn is_conflict(error: &Error) -> bool {
    matches!(error, Error::Store(error) if matches!(**error, StoreError::Conflict))
}

/// Counts the completed tasks in the store; fails unless they are as many as expected.
pub(crate) async fn completed(
    engine: &Engine,
    tenant: &Tenant,
    expected: u64,
) -> Result<u64, BenchError> {
    let completed = count(engine, tenant, Some(PublicState::Completed)).await?;
    if completed == expected {
        Ok(completed)
    } else {
        Err(BenchError::NotDrained { completed, expected })
    }
}

/// Counts tasks page by page: counting a million at once exceeds the statement timeout.
pub(crate) async fn count(
    engine: &Engine,
    tenant: &Tenant,
    state: Option<PublicState>,
) -> Result<u64, BenchError> {
    const PAGE: usize = 1_000;
    let filter = TaskFilter { state, ..TaskFilter::default() };
    let (mut count, mut after) = (0, None);
    loop {
        let page = engine.tasks(tenant, &filter, after.as_ref(), PAGE).await?;
        count += page.len() as u64;
        match page.last() {
            Some(last) if page.len() == PAGE => after = Some(last.id.clone()),
            _ => return Ok(count),
        }
    }
}

#[cfg(test)]
mod tests {
    use windlass_engine::Config;
    use windlass_store::MemoryStore;

    use super::*;
    use crate::bench::bench_store::{fill, own_tenant};

    #[tokio::test]
    async fn completions_are_counted_in_the_store() {
        let engine = Engine::with_store(MemoryStore::new(), Config::default()).await.unwrap();
        let tenant = own_tenant();
        fill(std::slice::from_ref(&engine), &tenant, 3, true, |_, _| {}).await.unwrap();
        let claim = Claim { tenant: tenant.clone(), limit: 2, ..Claim::new("w") };
        for claimed in engine.claim(claim, Duration::ZERO).await.unwrap() {
            let complete = Complete { fence: claimed.task.fence(), result: None };
            engine.submit(complete).await.unwrap();
        }
        assert_eq!(completed(&engine, &tenant, 2).await.unwrap(), 2);
        let rejection = completed(&engine, &tenant, 3).await.unwrap_err();
        assert_eq!(rejection.to_string(), "2 of 3 tasks are completed in the store");
    }
}
