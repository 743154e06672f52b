use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use tracing::dispatcher::with_default;
use tracing::{Dispatch, Span};
use windlass_core::{
    FailureClass, HistoryPayload, Payload, RecordedCommand, Timestamp, TurnRecord, WorkflowInput,
};

use super::context::Workflow;
use super::definition::{Code, WorkflowDefinition};
use super::error::TurnFailure;
use super::execution_start::ExecutionStart;
use super::local::{Local, panic_text};
use super::nondeterminism::{Deviation, Nondeterminism, ReplayStep};
use super::planned_command::PlannedCommand;
use super::replay_cursor::ReplayCursor;
use super::turn_part::{BYTES_PER_ROW, COMMANDS_PER_ROW, TurnPart, input_bytes, parts};
use super::unread_signal::UnreadSignal;
use crate::failure::{Failure, fitting};
use crate::handler::Handled;

/// How often code may be polled before it blocks.
const MAX_POLLS: u32 = 100_000;
/// How many waits of a workflow are described.
const MAX_WAITS_SHOWN: usize = 8;

/// One execution of a workflow, as live code.
///
/// It is built by [`Instance::begin`] and [`Instance::replay`] for each row of its history, and
/// continues with [`Instance::turn`]. After an error it has to be built again.
pub struct Instance {
    workflow: Workflow,
    /// None once it has ended.
    code: Option<Code>,
    woken: Arc<Woken>,
    begun: bool,
    ended: Option<ExecutionState>,
    /// How many rows were replayed or written.
    rows: u64,
    /// The rows of the last turn, not replayed yet: only the next row shows whether it belongs to
    /// the same turn.
    held: Option<Held>,
    /// The turn in progress.
    arrived: Vec<WorkflowInput>,
    arrived_bytes: usize,
    delivered: usize,
    parts: Vec<TurnPart>,
    broken: Option<TurnFailure>,
}

struct Held {
    at: Timestamp,
    arrived: Vec<WorkflowInput>,
    made: Vec<RecordedCommand>,
    /// The number of commands in each of its rows.
    lengths: Vec<usize>,
}

/// The progress of a turn.
#[derive(Debug)]
pub enum TurnProgress {
    /// Local activities are in progress: start these as well, and pass the outcomes to
    /// [`Instance::resume`].
    Local(Vec<Local>),
    Finished(CompletedTurn),
}

/// A turn to be committed.
#[derive(Debug)]
pub struct CompletedTurn {
    /// To be committed one after the other under one lease; empty if there was nothing to do.
    pub parts: Vec<TurnPart>,
    /// How many inputs were delivered. The rest arrived after the end of the code.
    pub delivered: usize,
    pub state: ExecutionState,
    /// Local activities are left that did not fit into its row: the next turn follows at once,
    /// with or without inputs. Their outcomes are inputs of that turn.
    pub has_more: bool,
}

/// The state of a workflow after a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecutionState {
    /// It waits: the number of waits, and descriptions of the first ones.
    Waiting {
        count: usize,
        first: Vec<String>,
    },
    Completed(Option<Payload>),
    Failed(Failure),
    Cancelled {
        reason: String,
    },
    /// The next execution, except for its seed and values.
    ContinueAsNew {
        input: Option<Payload>,
        /// The version of the code; none for the same one.
        version: Option<String>,
        carried: Vec<UnreadSignal>,
        first_step: u64,
    },
}

impl ExecutionState {
    pub fn has_ended(&self) -> bool {
        !matches!(self, ExecutionState::Waiting { .. })
    }

    pub fn continues_as_new(&self) -> bool {
        matches!(self, ExecutionState::ContinueAsNew { .. })
    }
}

/// The waker of the code: records that it was woken.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

impl Instance {
    pub fn begin(definition: &WorkflowDefinition, begin: ExecutionStart) -> Self {
        let workflow = Workflow::new(begin);
        let input = workflow.begin().input.clone().map(|input| input.0);
        let code = definition.begin(workflow.clone(), input);
        Self {
            workflow,
            code: Some(code),
            woken: Arc::new(Woken(AtomicBool::new(false))),
            begun: false,
            ended: None,
            rows: 0,
            held: None,
            arrived: Vec::new(),
            arrived_bytes: 0,
            delivered: 0,
            parts: Vec::new(),
            broken: None,
        }
    }

    /// Sets the attempt of the next turn, for [`Info`](super::Info).
    pub fn set_attempt(&mut self, attempt: u32) {
        self.workflow.replay_state().attempt = attempt;
    }

    /// How many activities and children are open.
    pub fn tasks(&self) -> usize {
        self.workflow.replay_state().tasks()
    }

    /// The number of its next step.
    pub fn next_step(&self) -> u64 {
        self.workflow.replay_state().next_step()
    }

    /// The current values, for the next execution.
    pub fn values(&self) -> BTreeMap<String, HistoryPayload> {
        self.workflow.replay_state().state.all()
    }

    /// How many rows its history has.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Replays a row of history. The row is held back until the next one, which may be the rest of
    /// the same turn; [`Instance::catch_up`] and [`Instance::turn`] replay the last one.
    pub fn replay(&mut self, row: &TurnRecord) -> Result<(), Nondeterminism> {
        if let Some(held) = &mut self.held
            && row.inputs.is_empty()
        {
            held.made.extend(row.commands.iter().cloned());
            held.lengths.push(row.commands.len());
            return Ok(());
        }
        self.catch_up()?;
        self.held = Some(Held {
            at: row.at,
            arrived: row.inputs.clone(),
            made: row.commands.clone(),
            lengths: vec![row.commands.len()],
        });
        Ok(())
    }

    /// Replays the rows that are held back.
    pub fn catch_up(&mut self) -> Result<(), Nondeterminism> {
        if let Some(TurnFailure::Nondeterminism(found)) = &self.broken {
            return Err(found.clone());
        }
        let Some(held) = self.held.take() else { return Ok(()) };
        let (first_row, lengths) = (self.rows, held.lengths.clone());
        self.rows += lengths.len() as u64;
        let replayed = self.replay_held(held).map_err(|deviation| {
            let Deviation { position, expected, found } = deviation;
            let (turn, position) = located(first_row, &lengths, position);
            Nondeterminism { turn, position, expected, found }
        });
        replayed.inspect_err(|found| self.fail(found.clone().into()))
    }

    fn replay_held(&mut self, held: Held) -> Result<(), Deviation> {
        if let Some(more) = self.workflow.replay_state().entries.first() {
            let found = ReplayStep::made(&more.made);
            return Err(Deviation { position: 0, expected: ReplayStep::Nothing, found });
        }
        if self.ended.is_some() {
            let found = self.failure().map_or(ReplayStep::End, ReplayStep::Failure);
            return Err(Deviation { position: 0, expected: ReplayStep::More, found });
        }
        let last_row = held.lengths.last().copied().unwrap_or_default();
        {
            let mut replay_state = self.workflow.replay_state();
            replay_state.now = held.at;
            replay_state.begin_replay(ReplayCursor::new(held.made, last_row));
        }
        let delivered = with_default(&Dispatch::none(), || self.deliver_all(held.arrived));
        let mut replay_state = self.workflow.replay_state();
        let (position, expected) = replay_state.expected();
        let failed = |text| {
            let found = ReplayStep::Failure(text);
            Err(Deviation { position, expected, found })
        };
        // Missing commands are the consequence of a failure: report the failure.
        match (delivered.map(|_| self.failure()), replay_state.end_replay()) {
            (Err(failure), Ok(()) | Err(Deviation { found: ReplayStep::Nothing, .. })) => {
                failed(failure.to_string())
            }
            (Ok(Some(reason)), Err(Deviation { found: ReplayStep::Nothing, .. })) => failed(reason),
            (_, made) => made,
        }
    }

    /// The reason with which its code has failed, if it has.
    fn failure(&self) -> Option<String> {
        match &self.ended {
            Some(ExecutionState::Failed(failure)) => Some(failure.reason().to_owned()),
            _ => None,
        }
    }

    /// Runs one turn: delivers inputs to the code and returns its commands. Without inputs there is
    /// nothing to do, except in the first turn and after a turn that was committed in part.
    pub fn turn(
        &mut self,
        at: Timestamp,
        inputs: Vec<WorkflowInput>,
    ) -> Result<TurnProgress, TurnFailure> {
        self.check_usable()?;
        self.catch_up()?;
        self.begin_turn(at);
        self.delivered = 0;
        let first = !self.begun;
        let inputs = if self.ended.is_some() { Vec::new() } else { inputs };
        let idle = !first && inputs.is_empty() && !self.workflow.replay_state().runs_local();
        let span = self.span();
        let delivered = span.in_scope(|| self.deliver_all(inputs));
        self.delivered = delivered.inspect_err(|failure| self.fail(failure.clone()))?;
        if idle && (self.ended.is_none() || !self.parts.is_empty()) {
            return Ok(self.finished());
        }
        self.finish_turn()
    }

    /// Continues a turn with the outcomes of its local activities.
    pub fn resume(&mut self, inputs: Vec<WorkflowInput>) -> Result<TurnProgress, TurnFailure> {
        self.check_usable()?;
        let span = self.span();
        let delivered = span.in_scope(|| self.deliver_all(inputs));
        delivered.inspect_err(|failure| self.fail(failure.clone()))?;
        self.finish_turn()
    }

    /// The span of log lines of the code: the workflow and its parent.
    fn span(&self) -> Span {
        let ExecutionStart { id, execution, parent, .. } = self.workflow.begin();
        let parent = parent.as_ref().map(tracing::field::display);
        tracing::info_span!("workflow", %id, execution, parent)
    }

    /// Makes the uncommitted rest of the turn before this one the first parts of this one.
    fn begin_turn(&mut self, at: Timestamp) {
        let mut replay_state = self.workflow.replay_state();
        let left = std::mem::take(&mut replay_state.entries);
        self.parts.clear();
        if !left.is_empty() {
            self.parts = parts(replay_state.now, Vec::new(), left);
            add_commands(&mut self.parts, replay_state.state.commands());
        }
        replay_state.now = replay_state.now.max(at);
    }

    /// Delivers inputs until the code has ended, and runs the code after each of them.
    fn deliver_all(&mut self, inputs: Vec<WorkflowInput>) -> Result<usize, TurnFailure> {
        if !self.begun {
            self.begun = true;
            self.run()?;
        }
        let recorded = !self.workflow.replay_state().is_replaying();
        let mut delivered = 0;
        for input in inputs {
            if self.ended.is_some() {
                break;
            }
            if recorded {
                self.arrived_bytes += input_bytes(&input);
                self.arrived.push(input.clone());
            }
            let woken = self.workflow.replay_state().deliver(input);
            drop(woken.unstarted);
            woken.wakers.into_iter().for_each(Waker::wake);
            delivered += 1;
            self.run()?;
        }
        Ok(delivered)
    }

    /// Polls the code until it blocks.
    fn run(&mut self) -> Result<(), TurnFailure> {
        let waker = Waker::from(Arc::clone(&self.woken));
        let mut context = Context::from_waker(&waker);
        for _ in 0..MAX_POLLS {
            let Some(code) = self.code.as_mut() else { return Ok(()) };
            self.woken.0.store(false, Ordering::Release);
            let polled = catch_panic(|| code.as_mut().poll(&mut context))?;
            if let Poll::Ready(handled) = polled {
                return self.end(Some(handled));
            }
            if self.workflow.replay_state().next.is_some() {
                return self.end(None);
            }
            if !self.woken.0.load(Ordering::Acquire) {
                return Ok(());
            }
        }
        Err(TurnFailure::BusyLoop)
    }

    fn end(&mut self, handled: Option<Handled>) -> Result<(), TurnFailure> {
        // If it continues as new, dropping the code cancels its open steps.
        let code = self.code.take();
        catch_panic(|| drop(code))?;
        let mut replay_state = self.workflow.replay_state();
        self.ended = Some(match handled {
            Some(handled) => ending(handled, replay_state.cancel()),
            None => {
                let (input, version) = replay_state.next.take().unwrap_or_default();
                ExecutionState::ContinueAsNew {
                    input,
                    version,
                    carried: replay_state.mail.carried(),
                    first_step: replay_state.next_step(),
                }
            }
        });
        Ok(())
    }

    fn finish_turn(&mut self) -> Result<TurnProgress, TurnFailure> {
        if self.ended.is_none() {
            let mut replay_state = self.workflow.replay_state();
            let is_full = replay_state.entries.len() >= COMMANDS_PER_ROW
                || self.arrived_bytes >= BYTES_PER_ROW;
            if replay_state.runs_local() && !is_full {
                return Ok(TurnProgress::Local(replay_state.take_work()));
            }
            let awaits_nothing = replay_state.waits().next().is_none();
            drop(replay_state);
            if awaits_nothing {
                self.fail(TurnFailure::NonWorkflowAwait);
                return Err(TurnFailure::NonWorkflowAwait);
            }
        }
        let mut replay_state = self.workflow.replay_state();
        let arrived = std::mem::take(&mut self.arrived);
        self.arrived_bytes = 0;
        let entries = std::mem::take(&mut replay_state.entries);
        let mut rows = parts(replay_state.now, arrived, entries);
        add_commands(&mut rows, replay_state.state.commands());
        drop(replay_state);
        self.parts.append(&mut rows);
        Ok(self.finished())
    }

    fn finished(&mut self) -> TurnProgress {
        let parts = std::mem::take(&mut self.parts);
        self.rows += parts.len() as u64;
        let (delivered, state) = (self.delivered, self.state());
        let has_more = !state.has_ended() && self.workflow.replay_state().runs_local();
        TurnProgress::Finished(CompletedTurn { parts, delivered, state, has_more })
    }

    /// The state of the workflow after the inputs delivered so far.
    pub fn state(&self) -> ExecutionState {
        self.ended.clone().unwrap_or_else(|| {
            let replay_state = self.workflow.replay_state();
            let first =
                replay_state.waits().take(MAX_WAITS_SHOWN).map(|wait| wait.to_string()).collect();
            ExecutionState::Waiting { count: replay_state.waits().count(), first }
        })
    }

    fn check_usable(&self) -> Result<(), TurnFailure> {
        self.broken.clone().map_or(Ok(()), Err)
    }

    fn fail(&mut self, failure: TurnFailure) {
        self.broken = Some(failure);
        self.abandon();
    }

    /// Drops the code without recording cancellations of its steps.
    fn abandon(&mut self) {
        let work = self.workflow.replay_state().close();
        let code = self.code.take();
        if let Err(failure) = catch_panic(|| drop((work, code))) {
            let workflow = self.workflow.id();
            tracing::warn!(%workflow, %failure, "dropping the code of a workflow panicked");
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.abandon();
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instance = &mut f.debug_struct("Instance");
        let instance = instance.field("workflow", &self.workflow).field("rows", &self.rows);
        instance.field("ended", &self.ended).finish_non_exhaustive()
    }
}

/// Runs user code; a panic in it is a failure of the turn.
fn catch_panic<T>(run: impl FnOnce() -> T) -> Result<T, TurnFailure> {
    catch_unwind(AssertUnwindSafe(run))
        .map_err(|panic| TurnFailure::Panicked { text: panic_text(panic.as_ref()) })
}

/// A workflow that ends without a result after a cancel request is cancelled, whatever its error.
fn ending(handled: Handled, cancel: Option<&String>) -> ExecutionState {
    match (handled, cancel) {
        (Ok(result), _) => ExecutionState::Completed(result),
        (Err(failure), None) => ExecutionState::Failed(failure),
        (Err(failure), Some(reason)) if failure.class() == FailureClass::Cancelled => {
            ExecutionState::Cancelled { reason: reason.clone() }
        }
        (Err(failure), Some(reason)) => {
            let reason = format!("{reason}; it ended with: {}", failure.reason());
            ExecutionState::Cancelled { reason: fitting(reason) }
        }
    }
}

/// Adds commands that are not in the history to the last row.
fn add_commands(parts: &mut [TurnPart], commands: Vec<PlannedCommand>) {
    if let Some(last) = parts.last_mut() {
        last.commands.extend(commands);
    }
}

/// The row (from 0), and the position in it (from 1), of a position in several rows.
fn located(first_row: u64, lengths: &[usize], position: usize) -> (u64, usize) {
    let (mut row, mut position) = (first_row, position);
    for &length in &lengths[..lengths.len() - 1] {
        if position < length {
            break;
        }
        position -= length;
        row += 1;
    }
    (row, position + 1)
}
