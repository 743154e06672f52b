use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::command::{Outcome, Transition};
use crate::concurrency_limit::{ConcurrencyLimit, LimitKey, LimitKind};
use crate::event::{Change, Event};
use crate::lane::Lane;
use crate::limits;
use crate::name::{LaneName, Tenant};
use crate::primitive::{rebalance_limit, wake_starved};
use crate::rate::Rate;
use crate::rejection::Rejection;
use crate::world::{Halt, World};

/// Sets how many tasks may run at once, and how many may start per time window. Without either, the
/// quota is removed: keys and sessions then run one task at a time, lanes and tenants any number.
///
/// Narrower limits apply from the next claim; running tasks continue. The quota of a lane or a
/// tenant counts tasks claimed after it was set.
#[derive(Clone, Debug)]
pub struct SetQuota {
    pub tenant: Tenant,
    pub scope: QuotaScope,
    pub limit: Option<u32>,
    pub rate: Option<Rate>,
}

/// The scope of a quota.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuotaScope {
    Lane(LaneName),
    Tenant,
    Concurrency(String),
    Session(String),
}

impl QuotaScope {
    pub const fn kind(&self) -> LimitKind {
        match self {
            QuotaScope::Lane(_) => LimitKind::Lane,
            QuotaScope::Tenant => LimitKind::Tenant,
            QuotaScope::Concurrency(_) => LimitKind::Concurrency,
            QuotaScope::Session(_) => LimitKind::Session,
        }
    }

    /// Its name within its kind; empty for a tenant.
    pub fn name(&self) -> &str {
        match self {
            QuotaScope::Lane(name) => name.as_str(),
            QuotaScope::Tenant => "",
            QuotaScope::Concurrency(name) | QuotaScope::Session(name) => name,
        }
    }

    fn limit_key(&self) -> Option<LimitKey> {
        match self {
            QuotaScope::Concurrency(name) => Some(LimitKey::Concurrency(name.clone())),
            QuotaScope::Session(name) => Some(LimitKey::Session(name.clone())),
            QuotaScope::Lane(_) | QuotaScope::Tenant => None,
        }
    }

    fn check(&self) -> Result<(), Rejection> {
        match self {
            QuotaScope::Lane(name) => limits::LANE.check(name.as_str()),
            QuotaScope::Tenant => Ok(()),
            QuotaScope::Concurrency(_) | QuotaScope::Session(_) => {
                self.limit_key().map_or(Ok(()), |key| key.check())
            }
        }
    }
}

impl SetQuota {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        self.check()?;
        let (kind, name) = (self.scope.kind(), self.scope.name());
        let key = ConcurrencyLimit::key_of(&self.tenant, kind, name);
        world.prefetch(key.clone());
        let lane = self.lane(world)?;
        let current = world.get::<ConcurrencyLimit>(&key)?;
        let fresh = || ConcurrencyLimit::new(&self.tenant, kind, name);
        let mut quota = current.map_or_else(fresh, |current| (*current).clone());
        let (limit, rate) = (quota.limit.filter(|_| quota.configured), quota.rate);
        if (limit, rate) == (self.limit, self.rate) {
            return Ok(Outcome::QuotaSet);
        }
        quota.set(self.limit, self.rate);
        let has_quota = quota.configured;
        if let Some(lane) = lane.filter(|lane| lane.has_quota != has_quota) {
            world.put::<Lane>(Lane { has_quota, ..lane });
        }
        self.log_change(world);
        match self.scope.limit_key() {
            Some(key) => {
                world.put::<ConcurrencyLimit>(quota);
                rebalance_limit(world, &self.tenant, &key)?;
            }
            None => wake_starved(world, quota)?,
        }
        Ok(Outcome::QuotaSet)
    }

    fn check(&self) -> Result<(), Rejection> {
        limits::TENANT.check(self.tenant.as_str())?;
        self.scope.check()?;
        if let Some(limit) = self.limit {
            limits::QUOTA.check(limit)?;
        }
        if let Some(rate) = self.rate {
            limits::RATE_LIMIT.check(rate.limit)?;
            limits::RATE_WINDOW_MS.check(rate.window_ms)?;
        }
        Ok(())
    }

    /// The lane of the quota, which must exist.
    fn lane(&self, world: &mut World) -> Result<Option<Lane>, Halt> {
        let QuotaScope::Lane(name) = &self.scope else { return Ok(None) };
        let lane = world.get::<Lane>(&Lane::key_of(&self.tenant, name))?;
        Ok(Some((*lane.ok_or(Rejection::LaneNotFound)?).clone()))
    }

    fn log_change(&self, world: &mut World) {
        let (scope, limit, rate) = (self.scope.clone(), self.limit, self.rate);
        let lane = match &scope {
            QuotaScope::Lane(name) => name.clone(),
            QuotaScope::Tenant | QuotaScope::Concurrency(_) | QuotaScope::Session(_) => {
                LaneName::new("")
            }
        };
        let (at, tenant) = (world.now(), self.tenant.clone());
        let change = Change::QuotaSet { scope, limit, rate };
        world.emit(Event { at, tenant, lane, task: None, labels: BTreeMap::new(), change });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Cancel, Claim, Complete, Create, NewTask, Sweep};
    use crate::testing::{Stage, check_lane, check_limit, claim, fence_of, key, lane, new_task};
    use crate::time::Timestamp;

    fn quota(scope: QuotaScope, limit: Option<u32>, rate: Option<(u32, u64)>) -> SetQuota {
        let rate = rate.map(|(limit, window_ms)| Rate { limit, window_ms });
        SetQuota { tenant: Tenant::default(), scope, limit, rate }
    }

    fn of_key(limit: Option<u32>, rate: Option<(u32, u64)>) -> SetQuota {
        quota(QuotaScope::Concurrency("k".into()), limit, rate)
    }

    #[test]
    fn table() {
        check_limit(
            "
            absent  | to=5   | 0+0/5 behind 0   | set       | quota_set
            absent  |        | absent           | set       |
            absent  | rate=2 | 0+0/- 2r behind 0 | set      | quota_set
            absent  | to=9999999 | absent       | ! invalid |
            full    | to=1   | 1+0/1 behind 3   | set       | quota_set
            full    | to=3   | 1+2/3 behind 1   | set       | quota_set unblocked unblocked
            full    | to=9   | 1+3/9 behind 0   | set       | quota_set unblocked unblocked unblocked
            full    | to=0   | 1+0/0 behind 3   | set       | quota_set
            full    | rate=2 | 1+2/- 2r behind 1 | set      | quota_set unblocked unblocked
            full    |        | 1+0/1 behind 3   | set       |
            wide    | to=3   | 1+2/3 behind 1   | set       |
            wide    | to=2   | 1+1/2 behind 2   | set       | quota_set blocked_again
            wide    | to=0   | 1+0/0 behind 3   | set       | quota_set blocked_again blocked_again
            wide    | rate=1 | 1+1/- 1r behind 2 | set      | quota_set blocked_again
            wide    |        | 1+0/1 behind 3   | set       | quota_set blocked_again blocked_again
            rated   | rate=1 | 1+0/- 1r behind 3 | set      |
            rated   | rate=2 | 1+1/- 2r behind 2 | set      | quota_set unblocked
            rated   | to=3   | 1+2/3 behind 1   | set       | quota_set unblocked unblocked
            rated   |        | 1+0/1 behind 3   | set       | quota_set
            ",
            |args| {
                let limit = args.has("to").then(|| args.number("to", 0));
                let rate = args.has("rate").then(|| (args.number("rate", 0), 10_000));
                of_key(limit, rate)
            },
        );
    }

    #[test]
    fn lanes() {
        check_lane(
            "
            absent   | to=5 | absent      | ! lane_not_found |
            active   | to=5 | active      | set | quota_set
            active   |      | active      | set |
            paused   | to=5 | paused      | set | quota_set
            draining | to=5 | draining    | set | quota_set
            disabled | to=5 | disabled    | set | quota_set
            limited  | to=5 | active 0/1  | set | quota_set
            ",
            |args| {
                let limit = args.has("to").then(|| args.number("to", 0));
                quota(QuotaScope::Lane(lane()), limit, None)
            },
        );
    }

    fn taken(stage: &mut Stage, limit: u32) -> usize {
        match stage.must(Claim { limit, ..claim() }) {
            Outcome::Claimed(tasks) => tasks.len(),
            other => panic!("{other:?}"),
        }
    }

    fn with_tasks(count: usize) -> Stage {
        let mut stage = Stage::new();
        for n in 0..count {
            stage.must(Create::one(new_task(&n.to_string())));
        }
        stage
    }

    #[test]
    fn lane_and_tenant_quotas_bound_the_running_tasks() {
        for scope in [QuotaScope::Lane(lane()), QuotaScope::Tenant] {
            let mut stage = with_tasks(5);
            stage.must(quota(scope.clone(), Some(2), None));
            assert_eq!((taken(&mut stage, 10), taken(&mut stage, 10)), (2, 0), "{scope:?}");
            assert_eq!(stage.limits()[0].starved_lanes.len(), 1);
            stage.must(Complete { fence: fence_of("0", 1), result: None });
            assert!(stage.limits()[0].starved_lanes.is_empty(), "they were woken");
            assert_eq!(taken(&mut stage, 10), 1);
            stage.must(quota(scope.clone(), None, None));
            assert_eq!(taken(&mut stage, 10), 2, "a removed quota blocks no claim");
            for id in ["1", "2"] {
                assert_eq!(stage.limits().len(), 1, "its leases are still counted");
                stage.must(Cancel { task: key(id), reason: String::new() });
            }
            assert_eq!(stage.limits(), [], "{scope:?}");
        }
    }

    #[test]
    fn lane_and_tenant_quotas_bound_the_start_rate() {
        for scope in [QuotaScope::Lane(lane()), QuotaScope::Tenant] {
            let mut stage = with_tasks(9);
            stage.must(quota(scope.clone(), None, Some((3, 10_000))));
            assert_eq!((taken(&mut stage, 2), taken(&mut stage, 2)), (2, 1), "{scope:?}");
            stage.later(10_000);
            assert_eq!(taken(&mut stage, 10), 0, "a slice expires as a whole");
            let due_at = stage.limits()[0].due_at.expect("a claim waits for it");
            assert!(stage.now < due_at && due_at <= stage.now.plus_ms(10_000 / 32 + 1));
            stage.now = due_at;
            stage.must(Sweep::default());
            assert_eq!(taken(&mut stage, 10), 3);
        }
    }

    /// However many lanes a quota blocks, all of them are woken when the quota has free slots.
    #[test]
    fn a_quota_wakes_more_lanes_than_it_records() {
        let mut stage = with_tasks(1);
        stage.must(quota(QuotaScope::Tenant, Some(1), None));
        assert_eq!(taken(&mut stage, 1), 1);
        for n in 0..300 {
            let at = LaneName::new(format!("lane{n}"));
            stage.must(Create::one(NewTask { lane: at.clone(), ..new_task(&format!("at{n}")) }));
            stage.must(Claim { lanes: vec![at], ..claim() });
        }
        assert!(stage.limits()[0].starved_lanes.len() <= 256);
        let mut world = World::new(stage.now, crate::world::Hints::default());
        let complete = Complete { fence: fence_of("0", 1), result: None }.into();
        while crate::command::decide(&mut world, &complete) == crate::Decided::Parked {
            let wanted = world.take_load_request().expect("it lacks something");
            let loaded = stage.tables.load(&wanted);
            world.absorb(&wanted, loaded);
        }
        for n in 0..300 {
            let at = LaneName::new(format!("lane{n}"));
            assert!(
                world.wakes_since(0).iter().any(|wake| wake.covers_lane(&at)),
                "{at} is not woken"
            );
        }
    }

    #[test]
    fn a_quota_set_later_does_not_count_earlier_leases() {
        let mut stage = with_tasks(3);
        assert_eq!(taken(&mut stage, 1), 1);
        stage.must(quota(QuotaScope::Tenant, Some(1), None));
        assert_eq!((taken(&mut stage, 5), taken(&mut stage, 5)), (1, 0));
        stage.must(Complete { fence: fence_of("0", 1), result: None });
        assert_eq!(taken(&mut stage, 5), 0, "the other one runs");
    }

    /// A hundred tasks of one key.
    fn with_keyed_tasks() -> Stage {
        let mut stage = Stage::new();
        let keyed = |n: u32| NewTask {
            limit_key: Some(LimitKey::Concurrency("k".into())),
            ..new_task(&format!("{n:04}"))
        };
        let tasks = (0..100).map(keyed).collect();
        stage.must(Create { tenant: Tenant::default(), tasks });
        stage
    }

    /// The admitted tasks of the limit, and when the sweep checks it.
    fn admitted(stage: &Stage) -> (u32, Option<Timestamp>) {
        (stage.limits()[0].admitted, stage.limits()[0].due_at)
    }

    #[test]
    fn a_raised_concurrency_limit_admits_page_by_page() {
        let mut stage = with_keyed_tasks();
        let now = Some(stage.now);
        stage.must(of_key(Some(80), None));
        assert_eq!(admitted(&stage), (33, now), "it has free slots and blocked tasks");
        stage.must(Sweep::default());
        assert_eq!(admitted(&stage), (65, now));
        stage.must(Sweep::default());
        assert_eq!(admitted(&stage), (80, None));
    }

    #[test]
    fn an_admitted_task_does_not_start_above_a_lowered_limit() {
        let mut stage = with_keyed_tasks();
        stage.must(of_key(Some(80), None));
        stage.must(Sweep::default());
        stage.must(Sweep::default());
        for (limit, left) in [(1, 48), (0, 15)] {
            stage.must(of_key(Some(limit), None));
            assert_eq!(admitted(&stage), (left, Some(stage.now)), "limit {limit}");
            assert_eq!(taken(&mut stage, 5), usize::from(limit == 1), "limit {limit}");
        }
        stage.must(Sweep::default());
        assert_eq!(admitted(&stage), (0, None));
    }

    #[test]
    fn bad_input_is_rejected_by_name() {
        for (named, quota) in [
            ("tenant", SetQuota { tenant: "".into(), ..of_key(Some(1), None) }),
            ("concurrency_key", quota(QuotaScope::Concurrency(String::new()), Some(1), None)),
            ("session", quota(QuotaScope::Session("a\n".into()), Some(1), None)),
            ("lane", quota(QuotaScope::Lane("".into()), Some(1), None)),
            ("limit", of_key(Some(1_000_001), None)),
            ("rate", of_key(None, Some((0, 1_000)))),
            ("window_ms", of_key(None, Some((1, 1)))),
            ("window_ms", of_key(None, Some((1, u64::MAX)))),
        ] {
            match Stage::new().run(quota) {
                Err(Rejection::Invalid { field, .. }) => assert_eq!(field, named),
                other => panic!("{named}: {other:?}"),
            }
        }
    }

    /// Whenever tasks start, no window of the rate's length contains too many starts.
    #[test]
    fn the_rate_is_never_exceeded_in_any_window() {
        let mut state: u64 = 7;
        let mut dice = |end: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % end
        };
        for seed in 0..200 {
            let rate = Rate {
                limit: u32::try_from(1 + dice(5)).expect("it is small"),
                window_ms: [100, 101, 999, 5_000][usize::try_from(dice(4)).expect("it is small")],
            };
            let mut quota = ConcurrencyLimit::new(&Tenant::default(), LimitKind::Tenant, "");
            quota.set(None, Some(rate));
            let mut now = Timestamp::from_micros(i64::try_from(dice(1 << 40)).expect("it fits"));
            let mut starts: Vec<Timestamp> = Vec::new();
            for _ in 0..300 {
                now = Timestamp::from_micros(now.micros() + dice(rate.window_ms * 700) as i64);
                let count = quota.available(now).min(u32::try_from(dice(4)).expect("it is small"));
                quota.charge(count, now);
                starts.extend(std::iter::repeat_n(now, count as usize));
                let within = starts.iter().filter(|at| now < at.plus_ms(rate.window_ms)).count();
                assert!(within <= rate.limit as usize, "seed {seed}: {rate:?} at {now:?}");
                assert!(quota.starts.len() <= 34, "{:?}", quota.starts);
                if quota.available(now) == 0 {
                    let retry_at = quota.retry_at(now).expect("time frees it");
                    assert!(quota.available(retry_at) > 0 && now < retry_at);
                    let latest = now.plus_ms(rate.window_ms + rate.window_ms / 32 + 1);
                    assert!(retry_at <= latest, "seed {seed}: too late by more than a slice");
                }
            }
            assert!(starts.len() > 50, "seed {seed}: too few starts");
        }
    }
}
