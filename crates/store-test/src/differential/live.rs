use std::sync::Arc;

use windlass_core::{
    Admission, Fence, Lane, LaneName, Lifecycle, Message, Produced, ReferenceTables, RequestKey,
    RequestState, StoredRecord, Task, TaskKey, Tenant, Timestamp, Token, read_row,
};

use crate::random::Random;

pub(super) const TENANTS: &[&str] = &["default", "default", "default", "acme"];
pub(super) const LANES: &[&str] = &["l", "l", "lane-2", "l\u{e4}ne \u{1f6a6}"];
/// The id of an undecodable task, in the seeds that have one.
pub(super) const UNREADABLE: &str = "unreadable";
pub(super) const IDS: &[&str] =
    &["t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "T7", "\u{1f600}", "it's", UNREADABLE];

/// The current records, to generate commands from.
pub(super) struct Live {
    pub(super) now: Timestamp,
    tasks: Vec<Arc<Task>>,
    lanes: Vec<Arc<Lane>>,
    admissions: Vec<Arc<Admission>>,
    messages: Vec<Arc<Message>>,
    /// The issued tokens.
    pub(super) tokens: Vec<Token>,
}

impl Live {
    pub(super) fn of(tables: &ReferenceTables, now: Timestamp, tokens: &[Token]) -> Self {
        let tokens = tokens.to_vec();
        let (tasks, messages) = (records(tables), records(tables));
        let (lanes, admissions) = (records(tables), records(tables));
        Self { now, tasks, lanes, admissions, messages, tokens }
    }

    /// The parent of a task.
    pub(super) fn parent(&self, task: &Task) -> Option<Arc<Task>> {
        let parent = TaskKey::new(&task.tenant, task.parent.as_ref()?);
        self.tasks.iter().find(|known| known.task_key() == parent).cloned()
    }

    /// The sequence numbers of the visible messages of a task.
    pub(super) fn visible(&self, task: &TaskKey) -> Vec<u64> {
        let shown = |message: &&Arc<Message>| {
            message.tenant == task.tenant && message.task == task.id && message.due_at.is_none()
        };
        self.messages.iter().filter(shown).map(|message| message.seq).collect()
    }

    /// An existing task, preferably one that `suits`.
    pub(super) fn task(
        &self,
        random: &mut Random,
        suits: impl Fn(&Task) -> bool,
    ) -> Option<&Arc<Task>> {
        let suitable: Vec<_> = self.tasks.iter().filter(|task| suits(task)).collect();
        if !suitable.is_empty() && random.percent(80) {
            return Some(*random.pick(&suitable));
        }
        if self.tasks.is_empty() { None } else { Some(random.pick(&self.tasks)) }
    }

    pub(super) fn key(&self, random: &mut Random, suits: impl Fn(&Task) -> bool) -> TaskKey {
        match self.task(random, suits) {
            Some(task) if random.percent(95) => task.task_key(),
            _ => allow_weak_keys(random),
        }
    }

    /// A fence, mostly of a current lease; sometimes stale, too high, or of no task.
    pub(super) fn fence(&self, random: &mut Random) -> Fence {
        let held = |task: &Task| matches!(task.lifecycle, Lifecycle::Active(_));
        match self.task(random, held) {
            Some(task) if random.percent(96) => {
                let epoch = match random.below(20) {
                    0 => task.epoch.saturating_sub(1),
                    1 => task.epoch + 1,
                    _ => task.epoch,
                };
                Fence { task: task.task_key(), epoch }
            }
            _ => Fence { task: allow_weak_keys(random), epoch: random.below(3) },
        }
    }

    /// Preferably the fence of a running attempt.
    pub(super) fn running(&self, random: &mut Random) -> Fence {
        let runs = |task: &Task| match &task.lifecycle {
            Lifecycle::Active(lease) => lease.attempt.is_some() && self.now < lease.expires_at,
            _ => false,
        };
        match self.task(random, runs) {
            Some(task) if random.percent(80) => task.fence(),
            _ => self.fence(random),
        }
    }

    /// A request in flight with its owner, if one exists.
    pub(super) fn in_flight(&self, random: &mut Random) -> Option<(RequestKey, String)> {
        let works = |known: &&Arc<Admission>| {
            let state = known.request.as_ref().map(|request| request.state);
            state == Some(RequestState::InFlight) && self.now < known.expires_at
        };
        let working: Vec<_> = self.admissions.iter().filter(works).collect();
        let known = *(!working.is_empty()).then(|| random.pick(&working))?;
        let plain = |name: &str| name.replace("%2F", "/").replace("%25", "%");
        let (principal, account) = known.scope.strip_prefix("request/")?.split_once('/')?;
        let request = RequestKey {
            tenant: known.tenant.clone(),
            principal: plain(principal),
            account: plain(account),
            key: known.key.clone(),
        };
        let Produced::Owner(owner) = &known.produced else { return None };
        Some((request, owner.clone()))
    }

    pub(super) fn lane(&self, random: &mut Random) -> (Tenant, LaneName) {
        if !self.lanes.is_empty() && random.percent(90) {
            let lane = random.pick(&self.lanes);
            return (lane.tenant.clone(), lane.name.clone());
        }
        (Tenant::new(*random.pick(TENANTS)), LaneName::new(*random.pick(LANES)))
    }
}

fn allow_weak_keys(random: &mut Random) -> TaskKey {
    let id = if random.percent(30) { UNREADABLE } else { *random.pick(IDS) };
    TaskKey { tenant: Tenant::new(*random.pick(TENANTS)), id: id.into() }
}

fn records<R: StoredRecord>(tables: &ReferenceTables) -> Vec<Arc<R>> {
    let rows = tables.rows().filter(|row| row.key.table == R::TABLE);
    rows.filter_map(|row| read_row::<R>(row.schema, &row.body)).collect()
}
