//! The state of every task and lease, and the number of leases of each lane, computed from the log
//! event by event. It is a separate model, and shares no code with the engine.

use std::collections::BTreeMap;

use crate::line::Run;
use crate::task_spec::MOST_ATTEMPTS;
use crate::view::Event;

#[derive(Clone, Debug, Default)]
pub(crate) struct LogState {
    pub(crate) tasks: BTreeMap<String, TaskRecord>,
    pub(crate) runs: BTreeMap<Run, LeaseRecord>,
    pub(crate) lanes: BTreeMap<String, LaneLoad>,
    /// Log events that cannot follow those before them.
    pub(crate) broken: Vec<String>,
    /// Log events after which a lane had more leases than its limit.
    pub(crate) over_limit: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Waiting,
    Delayed,
    Active { begun: bool },
    Completed,
    Failed,
}

impl State {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Delayed => "delayed",
            State::Active { .. } => "active",
            State::Completed => "completed",
            State::Failed => "failed",
        }
    }
}

/// The state of a task after the events read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskRecord {
    pub(crate) state: State,
    /// Of its last lease; zero before the first.
    pub(crate) epoch: u64,
    pub(crate) claims: u32,
    pub(crate) attempts: u32,
}

/// One lease from its claim to its end.
#[derive(Clone, Debug)]
pub(crate) struct LeaseRecord {
    pub(crate) worker: String,
    pub(crate) attempt: Option<u32>,
    /// The name of the log event that ended it.
    pub(crate) end: Option<String>,
}

/// The leases of a lane.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LaneLoad {
    pub(crate) limit: Option<u32>,
    pub(crate) leased: u32,
    pub(crate) most: u32,
}

impl LogState {
    pub(crate) fn of(events: &[Event]) -> Self {
        let mut state = Self::default();
        for event in events {
            if let Err(what) = state.follow(event) {
                let Event { seq, task, name, body, .. } = event;
                state.broken.push(format!("log event {seq}, {name} of {task}: {what} ({body})"));
            }
        }
        state
    }

    /// How many leases ended this way.
    pub(crate) fn ended(&self, name: &str) -> usize {
        self.runs.values().filter(|lease| lease.end.as_deref() == Some(name)).count()
    }

    pub(crate) fn end_of(&self, run: &Run) -> Option<&str> {
        self.runs.get(run)?.end.as_deref()
    }

    fn follow(&mut self, event: &Event) -> Result<(), String> {
        if event.task.is_empty() {
            return self.follow_lane(event);
        }
        if event.name == "created" {
            let task = TaskRecord { state: State::Waiting, epoch: 0, claims: 0, attempts: 0 };
            let known = self.tasks.insert(event.task.clone(), task);
            return known.map_or(Ok(()), |_| Err("it exists already".into()));
        }
        let Some(mut task) = self.tasks.get(&event.task).copied() else {
            return Err("it was never created".into());
        };
        let was_active = matches!(task.state, State::Active { .. });
        let followed = task.follow(event);
        let is_active = matches!(task.state, State::Active { .. });
        self.tasks.insert(event.task.clone(), task);
        let run = Run { id: event.task.clone(), epoch: task.epoch };
        if event.name == "claimed" {
            let worker = event.said.worker.clone().unwrap_or_default();
            let lease = LeaseRecord { worker, attempt: event.said.attempt, end: None };
            self.runs.insert(run, lease);
        } else if was_active && !is_active {
            let end = Some(event.name.clone());
            self.runs.entry(run).and_modify(|lease| lease.end = end);
        }
        self.count(event, was_active, is_active);
        followed
    }

    fn follow_lane(&mut self, event: &Event) -> Result<(), String> {
        if event.name != "lane_limited" {
            return Err("unexpected lane event".into());
        }
        self.lanes.entry(event.lane.clone()).or_default().limit = event.said.limit;
        Ok(())
    }

    fn count(&mut self, event: &Event, was_active: bool, is_active: bool) {
        let load = self.lanes.entry(event.lane.clone()).or_default();
        load.leased = load.leased + u32::from(is_active) - u32::from(was_active);
        load.most = load.most.max(load.leased);
        if load.limit.is_some_and(|limit| load.leased > limit) {
            self.over_limit.push(format!("log event {}, lane {}: {load:?}", event.seq, event.lane));
        }
    }
}

impl TaskRecord {
    /// Applies the log event, and returns an error if it cannot follow this state.
    fn follow(&mut self, event: &Event) -> Result<(), String> {
        let before = *self;
        let said = &event.said;
        let same_epoch = said.epoch.is_none_or(|epoch| epoch == self.epoch);
        let active = matches!(self.state, State::Active { .. }) && same_epoch;
        let begun = self.state == State::Active { begun: true } && same_epoch;
        let fits = match event.name.as_str() {
            "claimed" => {
                let epoch = said.epoch.unwrap_or(0);
                let rises = if before.claims == 0 { epoch > 0 } else { epoch == before.epoch + 1 };
                (self.epoch, self.claims) = (epoch, before.claims + 1);
                self.state = State::Active { begun: said.attempt.is_some() };
                self.attempts += u32::from(said.attempt.is_some());
                let counted = said.attempt.is_none_or(|attempt| attempt == self.attempts);
                before.state == State::Waiting && rises && counted
            }
            "renewed" => active,
            "completed" => self.moves(State::Completed, begun),
            "failed" => self.moves(State::Failed, begun),
            "retry_scheduled" => self.moves(State::Delayed, begun),
            "promoted" => self.moves(State::Waiting, before.state == State::Delayed),
            "lease_lost" => self.moves(State::Waiting, active),
            "released" => {
                self.attempts -= u32::from(before.state == State::Active { begun: true });
                self.moves(State::Waiting, active)
            }
            _ => false,
        };
        if self.attempts > MOST_ATTEMPTS {
            return Err(format!("more than {MOST_ATTEMPTS} attempts"));
        }
        if fits { Ok(()) } else { Err(format!("it was {before:?}")) }
    }

    fn moves(&mut self, state: State, fits: bool) -> bool {
        self.state = state;
        fits
    }
}
