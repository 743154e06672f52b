use std::sync::Arc;

use crate::admission::Admission;
use crate::children::Children;
use crate::command::{Outcome, Transition};
use crate::concurrency_limit::ConcurrencyLimit;
use crate::effect::Effect;
use crate::execution::Execution;
use crate::keyring::Keyring;
use crate::limiter::Limiter;
use crate::limits;
use crate::mailbox::Message;
use crate::node::Node;
use crate::ready_route::ReadyRoute;
use crate::record::StoredRecord;
use crate::row::Range;
use crate::task::Task;
use crate::time::Timestamp;
use crate::worker::Worker;
use crate::world::{Halt, World};

/// Processes up to `page` due records of each kind, and returns when the next one is due.
#[derive(Clone, Copy, Debug)]
pub struct Sweep {
    pub page: u32,
}

impl Default for Sweep {
    fn default() -> Self {
        Self { page: 256 }
    }
}

/// A record with a due time, at which the sweep processes it.
pub(super) trait Sweepable: StoredRecord {
    /// The most that one sweep processes.
    const MAX_PER_SWEEP: usize = usize::MAX;

    fn due_at(&self) -> Option<Timestamp>;

    /// Requests the rows that its sweep may need, so that a page needs one load.
    fn prefetch(&self, world: &mut World);

    /// Applies the action that is due.
    fn sweep(&self, world: &mut World) -> Result<(), Halt>;
}

/// Sweeps a page of each kind, and finds the next due time of any.
macro_rules! sweep_each {
    ($world:ident, $page:ident, $($pages:ident: $Type:ident),*) => {{
        $(prefetch_page::<$Type>($world, $page);)*
        $(let $pages = due_page::<$Type>($world, $page)?;)*
        $(prefetch_records(&$pages, $world);)*
        let swept = [$(sweep_page(&$pages, $world)),*];
        swept.into_iter().collect::<Result<(), Halt>>()?;
        let next_due = [$(next_due_of::<$Type>($world)?),*].into_iter().flatten().min();
        Outcome::Swept { swept: 0 $(+ $pages.len())*, next_due }
    }};
}

impl Sweep {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::PAGE.check(self.page)?;
        let page = self.page as usize;
        Ok(sweep_each!(
            world,
            page,
            tasks: Task,
            queues: ReadyRoute,
            admissions: Admission,
            nodes: Node,
            messages: Message,
            keyrings: Keyring,
            children: Children,
            limits: ConcurrencyLimit,
            workers: Worker,
            effects: Effect,
            limiters: Limiter,
            executions: Execution
        ))
    }
}

fn prefetch_page<R: Sweepable>(world: &mut World, page: usize) {
    world.prefetch_scan(&due_range::<R>(Some(world.now())), page.min(R::MAX_PER_SWEEP));
}

fn due_page<R: Sweepable>(world: &mut World, page: usize) -> Result<Vec<Arc<R>>, Halt> {
    world.scan::<R>(&due_range::<R>(Some(world.now())), page.min(R::MAX_PER_SWEEP))
}

fn prefetch_records<R: Sweepable>(page: &[Arc<R>], world: &mut World) {
    world.prefetch_scan(&due_range::<R>(None), page.len() + 1);
    page.iter().for_each(|record| record.prefetch(world));
}

/// Each record is read again: the sweep of an earlier one may have changed it.
fn sweep_page<R: Sweepable>(page: &[Arc<R>], world: &mut World) -> Result<(), Halt> {
    let swept = world.for_each_collecting(page, |world, record| {
        let current = world.get::<R>(&R::row_key(record.key()))?;
        let is_due = |at: Timestamp| at <= world.now();
        let due = current.filter(|current| current.due_at().is_some_and(is_due));
        due.map_or(Ok(()), |due| due.sweep(world))
    });
    swept.map(drop)
}

fn next_due_of<R: Sweepable>(world: &mut World) -> Result<Option<Timestamp>, Halt> {
    let next = world.scan::<R>(&due_range::<R>(None), 1)?;
    Ok(next.first().and_then(|next| next.due_at()))
}

pub(super) fn due_range<R: StoredRecord>(until: Option<Timestamp>) -> Range {
    let index = R::TABLE.due().expect("only tables with a due index are swept");
    Range { index, prefix: Vec::new(), until: until.map(Into::into) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Begin, Claim, Create, Delay, LimitLane, NewTask};
    use crate::lane::Lane;
    use crate::name::Tenant;
    use crate::task::{FailureClass, Lifecycle, PublicState, Route};
    use crate::testing::{Stage, check_node, check_task, claim, fence, lane, new_task};

    #[test]
    fn table() {
        check_task(
            "
            absent    | | absent          | swept 0 next none       |
            waiting   | | waiting e0 a0   | swept 0 next +3600000   |
            delayed   | | delayed e0 a0   | swept 0 next +10000     |
            granted   | | granted e0 a0   | swept 0 next +10000     |
            ungranted | | waiting e0 a0   | swept 1 next +3590000   | grant_expired
            claimed   | | claimed e1 a0   | swept 0 next +30000     |
            active    | | active e1 a1    | swept 0 next +30000     |
            lease_expired    | | waiting e1 a1   | swept 1 next +3570000   | lease_lost
            completed | | completed e1 a1 | swept 0 next +3600000   |
            failed    | | failed e1 a1    | swept 0 next +3600000   |
            cancelled | | cancelled e1 a1 | swept 0 next +3600000   |
            expired   | | expired e1 a1   | swept 0 next +3599000   |
            waiting_children | | waiting_children e1 a1 | swept 0 next +3600000 |
            blocked   | | blocked e0 a0   | swept 0 next +3600000   |
            owned     | | owned e0 a0     | swept 0 next +60000     |
            suspended | | suspended e1 a1 | swept 0 next +3600000 |
            resumable | | resumable e1 a1 | swept 0 next +3600000 |
            ",
            |_| Sweep::default(),
        );
    }

    #[test]
    fn table_of_nodes() {
        check_node(
            "
            absent     | | absent               | swept 0 next none   |
            registered | | seen +0 up +2000     | swept 0 next +17500 |
            late       | | seen +17499 up +19499 | swept 0 next +1    |
            gone       | | absent               | swept 1 next none   |
            left       | | absent               | swept 0 next none   |
            lost       | | absent               | swept 0 next none   |
            ",
            |_| Sweep::default(),
        );
    }

    fn state(stage: &Stage) -> PublicState {
        stage.task("t").unwrap().lifecycle.public()
    }

    #[test]
    fn each_due_time_of_a_task() {
        type Change = fn(&mut NewTask);
        let rows: [(&str, Change, u64, Option<PublicState>); 9] = [
            ("delayed", |_| {}, 10_000, Some(PublicState::Waiting)),
            ("waiting", |new| new.deadline_ms = Some(5_000), 5_000, Some(PublicState::Expired)),
            ("delayed", |new| new.deadline_ms = Some(5_000), 5_000, Some(PublicState::Expired)),
            ("active", |new| new.deadline_ms = Some(5_000), 5_000, Some(PublicState::Expired)),
            (
                "active",
                |new| new.policy.attempt_timeout_ms = Some(5_000),
                5_000,
                Some(PublicState::Delayed),
            ),
            ("claimed", |_| {}, 30_000, Some(PublicState::Waiting)),
            ("active", |_| {}, 30_000, Some(PublicState::Waiting)),
            ("completed", |new| new.policy.retention_ms = 5_000, 5_000, None),
            ("failed", |new| new.policy.retention_ms = 0, 0, None),
        ];
        for (from, change, after_ms, to) in rows {
            let mut new = new_task("t");
            change(&mut new);
            let mut stage = Stage::with_new_task(from, new);
            if after_ms > 0 {
                stage.later(after_ms - 1);
                stage.must(Sweep::default());
                assert!(stage.task("t").is_some(), "{from} too early");
                stage.later(1);
            }
            stage.must(Sweep::default());
            let found = stage.task("t").map(|task| task.lifecycle.public());
            assert_eq!(found, to, "{from} after {after_ms} ms");
        }
    }

    #[test]
    fn a_crash_spends_an_attempt_only_if_it_has_begun() {
        let mut stage = Stage::with_task("waiting");
        for epoch in 1..=3 {
            stage.must(Claim { begin: false, ..claim() });
            stage.later(30_000);
            stage.must(Sweep::default());
            let task = stage.task("t").unwrap();
            assert_eq!((task.claims, task.attempts, task.lost_leases), (epoch, 0, epoch));
        }
        for attempt in 1..=2 {
            stage.must(claim());
            stage.later(30_000);
            stage.must(Sweep::default());
            assert_eq!(stage.task("t").unwrap().attempts, attempt);
        }
        let Lifecycle::Failed { class, .. } = stage.task("t").unwrap().lifecycle else { panic!() };
        assert_eq!(class, FailureClass::Crash);
    }

    #[test]
    fn lost_leases_are_capped() {
        let mut new = new_task("t");
        new.policy.max_lost_leases = 2;
        let mut stage = Stage::with_new_task("waiting", new);
        for _ in 0..3 {
            assert_eq!(state(&stage), PublicState::Waiting);
            stage.must(Claim { begin: false, ..claim() });
            stage.later(30_000);
            stage.must(Sweep::default());
        }
        assert_eq!(state(&stage), PublicState::Failed);
    }

    #[test]
    fn a_begun_attempt_times_out_although_its_lease_is_renewed() {
        let mut new = new_task("t");
        new.policy.attempt_timeout_ms = Some(40_000);
        let mut stage = Stage::with_new_task("claimed", new);
        stage.later(10_000);
        stage.must(Begin { fence: fence(1) });
        stage.must(crate::command::Renew { fence: fence(1), lease_ms: 600_000 });
        stage.later(39_999);
        stage.must(Sweep::default());
        assert_eq!(state(&stage), PublicState::Active);
        stage.later(1);
        stage.must(Sweep::default());
        assert_eq!(state(&stage), PublicState::Delayed);
    }

    #[test]
    fn a_lost_lease_frees_its_place_in_the_lane_limit() {
        let mut stage = Stage::with_lane("limited");
        stage.must(claim());
        assert_eq!(stage.lane().unwrap().concurrency.unwrap().running, 1);
        stage.later(30_000);
        stage.must(Sweep::default());
        assert_eq!(stage.lane().unwrap().concurrency.unwrap().running, 0);
    }

    #[test]
    fn a_lane_limit_set_later_does_not_count_earlier_leases() {
        let mut stage = Stage::with_task("active");
        let tenant = Tenant::default();
        stage.must(LimitLane { tenant, lane: lane(), limit: Some(1) });
        stage.later(30_000);
        stage.must(Sweep::default());
        assert_eq!(stage.lane().unwrap().concurrency.unwrap().running, 0);
    }

    #[test]
    fn pages_are_bounded_and_return_the_next_due_time() {
        let mut stage = Stage::new();
        for n in 0..5 {
            let delay = Delay::For { ms: 1_000 + n };
            stage.must(Create::one(NewTask { delay, ..new_task(&n.to_string()) }));
        }
        stage.later(1_003);
        let sweep = Sweep { page: 3 };
        let now = Some(stage.now);
        assert_eq!(stage.must(sweep), Outcome::Swept { swept: 3, next_due: now });
        let last = Some(stage.now.plus_ms(1));
        assert_eq!(stage.must(sweep), Outcome::Swept { swept: 1, next_due: last });
        assert_eq!(stage.must(sweep), Outcome::Swept { swept: 0, next_due: last });
        assert_eq!(stage.run(Sweep { page: 0 }).unwrap_err().code(), "invalid");
    }

    #[test]
    fn an_unreadable_lane_blocks_no_other_lane() {
        let mut stage = Stage::with_lane("limited");
        stage.must(claim());
        let elsewhere = NewTask { lane: "other".into(), ..new_task("u") };
        stage.must(Create::one(NewTask { delay: Delay::For { ms: 1_000 }, ..elsewhere }));
        stage.garble(&Lane::key_of(&Tenant::default(), &lane()));
        stage.later(30_000);
        let swept = stage.must(Sweep::default());
        let later = Some(stage.now.plus_ms(60_000));
        assert_eq!(swept, Outcome::Swept { swept: 2, next_due: later });
        assert_eq!(state(&stage), PublicState::Active, "it waits for a newer version");
        let lanes = vec![lane(), "other".into()];
        let Outcome::Claimed(tasks) = stage.must(Claim { lanes, ..claim() }) else { panic!() };
        assert_eq!(tasks[0].id.as_str(), "u");
    }

    #[test]
    fn an_empty_ready_route_is_deleted_in_two_steps() {
        let line = ReadyRoute::key_of(&Tenant::default(), &lane(), &Route::default());
        let queues =
            |stage: &Stage| stage.record::<Lane>(&Lane::key_of(&Tenant::default(), &lane()));
        let mut stage = Stage::with_task("waiting");
        let swept = |stage: &mut Stage, ms| {
            stage.later(ms);
            stage.must(Sweep::default());
            let queue = stage.record::<ReadyRoute>(&line)?;
            assert!(queue.due_at > stage.now, "it is due again, but not at once");
            Some(queue.closing)
        };
        assert_eq!(swept(&mut stage, 3_600_000), Some(false), "a task waits in it");
        stage.must(crate::command::Cancel { task: crate::testing::key("t"), reason: "".into() });
        assert_eq!(swept(&mut stage, 3_600_000), Some(true), "it is empty");
        stage.must(Create::one(new_task("u")));
        assert_eq!(stage.record::<ReadyRoute>(&line).map(|queue| queue.closing), Some(false));
        stage.must(claim());
        stage.must(crate::command::Cancel { task: crate::testing::key("u"), reason: "".into() });
        assert_eq!(swept(&mut stage, 3_600_000), Some(true));
        assert_eq!(queues(&stage).unwrap().ready_routes, 1);
        assert_eq!(swept(&mut stage, 60_000), None, "empty twice");
        assert_eq!(queues(&stage).unwrap().ready_routes, 0);
        stage.must(Create::one(new_task("v")));
        assert_eq!(queues(&stage).unwrap().ready_routes, 1);
    }
}
