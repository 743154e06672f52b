use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::task::Waker;

use windlass_core::command::NewTask;
use windlass_core::{
    HistoryPayload, Payload, RecordedCommand, StepOutcome, TaskId, Timestamp, WorkflowInput,
};

use super::execution_start::ExecutionStart;
use super::local::Local;
use super::nondeterminism::{Deviation, ReplayStep};
use super::planned_command::PlannedCommand;
use super::replay_cursor::ReplayCursor;
use super::state::State;
use super::turn_part::Entry;
use super::unread_signal::{Mail, UnreadSignal};

/// How many signals and detached starts are remembered: as many as one commit can have.
const MAX_SENT: usize = 1_400;

/// The state that workflow code shares with the instance that polls it.
#[derive(Debug)]
pub(super) struct ReplayState {
    id: TaskId,
    pub(super) now: Timestamp,
    pub(super) attempt: u32,
    seed: u64,
    drawn: u64,
    next_step: u64,
    open: BTreeMap<u64, Open>,
    /// How many open steps are local activities.
    locals: usize,
    /// Local activities that are not running yet.
    work: BTreeMap<u64, Local>,
    pub(super) mail: Mail,
    /// The steps of the latest signals and detached starts, which no future awaits. The next turn
    /// gets their rejections.
    sent: BTreeSet<u64>,
    cancel: Option<String>,
    /// The wakers of futures that wait for cancellation.
    listeners: BTreeMap<u64, Waker>,
    next_listener: u64,
    pub(super) state: State,
    patches: BTreeMap<String, bool>,
    /// Commands that are in no row yet.
    pub(super) entries: Vec<Entry>,
    /// The turn that is replayed.
    cursor: Option<ReplayCursor>,
    /// The input of the next execution, and the version of its code if that changes.
    pub(super) next: Option<(Option<Payload>, Option<String>)>,
}

/// A step to schedule.
pub(super) enum Plan {
    Activity(Box<NewTask>),
    Child(Box<NewTask>),
    Timer(Until),
    Local(Local),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Until {
    After(u64),
    At(Timestamp),
}

/// A step that has not ended, or whose outcome the code has not read.
#[derive(Debug)]
struct Open {
    kind: Kind,
    waker: Option<Waker>,
    outcome: Option<StepOutcome>,
}

#[derive(Debug)]
pub(super) enum Kind {
    Activity(String),
    Child(String, TaskId),
    Timer(Timestamp),
    Local(String),
}

/// What an input woke, to be handled outside of the lock.
#[derive(Debug, Default)]
pub(super) struct WakeSet {
    pub(super) wakers: Vec<Waker>,
    /// A local activity that need not run, to be dropped.
    pub(super) unstarted: Option<Local>,
}

impl ReplayState {
    pub(super) fn new(begin: &ExecutionStart) -> Self {
        let mut mail = Mail::default();
        for unread in &begin.carried {
            mail.deliver(unread.clone());
        }
        let values = begin.values.iter().map(|(key, value)| (key.clone(), value.0.clone()));
        Self {
            id: begin.id.clone(),
            now: Timestamp::default(),
            attempt: 1,
            seed: begin.seed,
            drawn: 0,
            next_step: begin.first_step,
            open: BTreeMap::new(),
            locals: 0,
            work: BTreeMap::new(),
            mail,
            sent: BTreeSet::new(),
            cancel: None,
            listeners: BTreeMap::new(),
            next_listener: 0,
            state: State::of(values.collect()),
            patches: BTreeMap::new(),
            entries: Vec::new(),
            cursor: None,
            next: None,
        }
    }

    pub(super) fn next_step(&self) -> u64 {
        self.next_step
    }

    pub(super) fn cancel(&self) -> Option<&String> {
        self.cancel.as_ref()
    }

    pub(super) fn is_replaying(&self) -> bool {
        self.cursor.is_some()
    }

    /// A random number that is the same in every replay.
    pub(super) fn draw(&mut self) -> u64 {
        const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;
        self.drawn += 1;
        let mut bits = self.seed.wrapping_add(self.drawn.wrapping_mul(STRIDE));
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    pub(super) fn next_number(&mut self) -> u64 {
        let step = self.next_step;
        self.next_step += 1;
        step
    }

    /// The id of a step that was given none.
    pub(super) fn derived_id(&self, step: u64) -> TaskId {
        TaskId::from(format!("{}/{step}", self.id))
    }

    pub(super) fn schedule(&mut self, plan: Plan) -> u64 {
        let step = self.next_number();
        let kind = match plan {
            Plan::Activity(mut task) => {
                task.id = self.derived_id(step);
                task.parent = Some(self.id.clone());
                self.schedule_activity(step, task)
            }
            Plan::Child(mut task) => {
                task.parent = Some(self.id.clone());
                self.schedule_child(step, task)
            }
            Plan::Timer(until) => {
                let at = match until {
                    Until::After(ms) => self.now.plus_ms(ms),
                    Until::At(at) => at,
                };
                self.record(
                    RecordedCommand::Timer { step, until: at },
                    Some(PlannedCommand::Timer { step, at }),
                );
                Kind::Timer(at)
            }
            Plan::Local(local) => {
                let name = local.name().to_owned();
                self.record(RecordedCommand::LocalActivity { step, name: name.clone() }, None);
                self.work.insert(step, local.at(step));
                self.locals += 1;
                Kind::Local(name)
            }
        };
        self.open.insert(step, Open { kind, waker: None, outcome: None });
        step
    }

    fn schedule_activity(&mut self, step: u64, task: Box<NewTask>) -> Kind {
        let name = task.kind.to_string();
        let input = task.payload.clone().map(HistoryPayload);
        let made = RecordedCommand::Activity { step, name: name.clone(), input };
        self.record(made, Some(PlannedCommand::Activity { step, task }));
        Kind::Activity(name)
    }

    fn schedule_child(&mut self, step: u64, mut task: Box<NewTask>) -> Kind {
        if task.id.as_str().is_empty() {
            task.id = self.derived_id(step);
        }
        let (name, id) = (task.kind.to_string(), task.id.clone());
        let made = RecordedCommand::Child { step, name: name.clone(), id: id.clone() };
        self.record(made, Some(PlannedCommand::Child { step, task }));
        Kind::Child(name, id)
    }

    /// Starts a detached workflow and returns its id.
    pub(super) fn start_detached(&mut self, mut task: Box<NewTask>) -> TaskId {
        let step = self.next_number();
        if task.id.as_str().is_empty() {
            task.id = self.derived_id(step);
        }
        let (name, id) = (task.kind.to_string(), task.id.clone());
        let made = RecordedCommand::StartDetached { step, name, id: id.clone() };
        self.sends(step);
        self.record(made, Some(PlannedCommand::Start { step, task }));
        id
    }

    pub(super) fn signal(
        &mut self,
        to: TaskId,
        name: String,
        payload: Option<Payload>,
        buffer_ms: Option<u64>,
    ) {
        let step = self.next_number();
        let made = RecordedCommand::Signal { step, to: to.clone(), name: name.clone() };
        self.sends(step);
        self.record(made, Some(PlannedCommand::Signal { step, to, name, payload, buffer_ms }));
    }

    pub(super) fn wait(&mut self, name: &str) -> u64 {
        let step = self.next_number();
        self.record(RecordedCommand::WaitSignal { step, name: name.to_owned() }, None);
        self.mail.wait(name, step);
        step
    }

    /// The outcome of a step, returned once. Without one, registers the waker.
    pub(super) fn outcome(&mut self, step: u64, waker: &Waker) -> Option<StepOutcome> {
        let open = self.open.get_mut(&step)?;
        if open.outcome.is_none() {
            open.waker = Some(waker.clone());
            return None;
        }
        self.open.remove(&step)?.outcome
    }

    /// Cancels a step that has not ended.
    pub(super) fn cancel_step(&mut self, step: u64) -> Option<Local> {
        let open = self.open.remove(&step)?;
        if open.outcome.is_some() {
            return None;
        }
        let command = match open.kind {
            Kind::Activity(_) => Some(PlannedCommand::CancelActivity { step }),
            Kind::Child(_, id) => Some(PlannedCommand::CancelChild { step, id }),
            Kind::Timer(_) => Some(PlannedCommand::CancelTimer { step }),
            Kind::Local(_) => {
                self.locals -= 1;
                None
            }
        };
        self.record(RecordedCommand::Cancel { step }, command);
        self.work.remove(&step)
    }

    /// Delivers an input. An input for a step that is not open is ignored.
    pub(super) fn deliver(&mut self, input: WorkflowInput) -> WakeSet {
        match input {
            WorkflowInput::StepCompletion { step, outcome } => self.report(step, outcome),
            WorkflowInput::Message { name, source, payload } => {
                let wakers = self.mail.deliver(UnreadSignal { name, source, payload });
                WakeSet { wakers, unstarted: None }
            }
            WorkflowInput::Cancel { reason } => {
                self.cancel.get_or_insert(reason);
                let open = self.open.values().filter_map(|open| open.waker.clone());
                let waits = self.mail.waits().filter_map(|(_, waker)| waker.cloned());
                let listeners = self.listeners.values().cloned();
                let wakers = open.chain(waits).chain(listeners).collect();
                WakeSet { wakers, unstarted: None }
            }
        }
    }

    fn sends(&mut self, step: u64) {
        self.sent.insert(step);
        if self.sent.len() > MAX_SENT {
            self.sent.pop_first();
        }
    }

    fn report(&mut self, step: u64, outcome: StepOutcome) -> WakeSet {
        if let (true, StepOutcome::Failed { reason, .. }) = (self.sent.remove(&step), &outcome) {
            tracing::warn!(workflow = %self.id, step, %reason, "signal or detached start rejected");
        }
        let Some(open) = self.open.get_mut(&step).filter(|open| open.outcome.is_none()) else {
            return WakeSet::default();
        };
        open.outcome = Some(outcome);
        if matches!(open.kind, Kind::Local(_)) {
            self.locals -= 1;
        }
        let wakers = open.waker.take().into_iter().collect();
        WakeSet { wakers, unstarted: self.work.remove(&step) }
    }

    /// Registers a waker for the cancellation of the workflow.
    pub(super) fn listen(&mut self, listener: Option<u64>, waker: &Waker) -> u64 {
        let listener = listener.unwrap_or(self.next_listener);
        self.next_listener = self.next_listener.max(listener + 1);
        self.listeners.insert(listener, waker.clone());
        listener
    }

    pub(super) fn unlisten(&mut self, listener: u64) {
        self.listeners.remove(&listener);
    }

    /// Whether the code takes the branch of a change. The first answer is final.
    pub(super) fn patched(&mut self, id: &str) -> bool {
        if let Some(&is_patched) = self.patches.get(id) {
            return is_patched;
        }
        let patched = self.cursor.as_ref().is_none_or(|cursor| cursor.is_patched(id));
        self.patches.insert(id.to_owned(), patched);
        if patched {
            self.record(RecordedCommand::Patch { id: id.to_owned() }, None);
        }
        patched
    }

    fn record(&mut self, made: RecordedCommand, command: Option<PlannedCommand>) {
        if let Some(cursor) = &mut self.cursor {
            for id in cursor.follow(&made) {
                self.patches.insert(id.clone(), true);
                self.entries.push(Entry { made: RecordedCommand::Patch { id }, command: None });
            }
        }
        self.entries.push(Entry { made, command });
    }

    pub(super) fn begin_replay(&mut self, cursor: ReplayCursor) {
        self.cursor = Some(cursor);
    }

    /// The position of the replay, and the command expected there.
    pub(super) fn expected(&self) -> (usize, ReplayStep) {
        self.cursor.as_ref().map_or((0, ReplayStep::Nothing), ReplayCursor::next)
    }

    /// Ends the replay of a turn. Commands that are in no row yet stay.
    pub(super) fn end_replay(&mut self) -> Result<(), Deviation> {
        let Some(cursor) = self.cursor.take() else { return Ok(()) };
        let followed = cursor.end(&self.entries)?;
        self.entries.drain(..followed);
        if self.entries.is_empty() {
            self.state.commands();
        }
        Ok(())
    }

    /// The local activities to start within this turn.
    pub(super) fn take_work(&mut self) -> Vec<Local> {
        std::mem::take(&mut self.work).into_values().collect()
    }

    pub(super) fn runs_local(&self) -> bool {
        self.locals > 0
    }

    /// What the code awaits.
    pub(super) fn waits(&self) -> impl Iterator<Item = Awaited<'_>> {
        let is_awaited = |open: &Open| open.outcome.is_none() && open.waker.is_some();
        let steps = self.open.iter().filter(move |(_, open)| is_awaited(open));
        let steps = steps.map(|(step, open)| Awaited::Step(*step, &open.kind));
        let named = self.mail.waits().filter(|(_, waker)| waker.is_some());
        let messages = named.map(|(name, _)| Awaited::Message(name));
        steps.chain(messages).chain(self.listeners.keys().map(|_| Awaited::Cancel))
    }

    /// How many activities and children are open.
    pub(super) fn tasks(&self) -> usize {
        let is_task =
            |open: &&Open| matches!(open.kind, Kind::Activity { .. } | Kind::Child { .. });
        self.open.values().filter(|open| open.outcome.is_none()).filter(is_task).count()
    }

    /// Forgets open steps, so that dropping the code cancels nothing. The result must be dropped
    /// outside of the lock.
    pub(super) fn close(&mut self) -> BTreeMap<u64, Local> {
        self.open.clear();
        std::mem::take(&mut self.work)
    }
}

/// Something that code awaits, for display.
pub(super) enum Awaited<'j> {
    Step(u64, &'j Kind),
    Message(&'j str),
    Cancel,
}

impl fmt::Display for Awaited<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Awaited::Step(step, Kind::Activity(name)) => {
                write!(f, "activity `{name}` (step {step})")
            }
            Awaited::Step(step, Kind::Child(name, id)) => {
                write!(f, "child `{name}` ({id}, step {step})")
            }
            Awaited::Step(step, Kind::Timer(at)) => write!(f, "timer until {at} (step {step})"),
            Awaited::Step(step, Kind::Local(name)) => {
                write!(f, "local activity `{name}` (step {step})")
            }
            Awaited::Message(name) => write!(f, "message `{name}`"),
            Awaited::Cancel => f.write_str("its cancellation"),
        }
    }
}
