use std::collections::{BTreeMap, VecDeque};
use std::mem;

use windlass_core::command::NewTask;
use windlass_core::{HistoryPayload, Payload, StepOutcome, TaskId, Timestamp, WorkflowInput};

use super::agenda::Agenda;
use super::failure::TestFailure;
use super::mock::Mock;
use super::recorded::RecordedExecution;
use crate::workflow::{
    CompletedTurn, ExecutionStart, ExecutionState, Instance, Local, PlannedCommand, TurnFailure,
    TurnProgress, WorkflowDefinition,
};

/// A message that a workflow sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentSignal {
    pub from: TaskId,
    pub to: TaskId,
    pub name: String,
    pub payload: Option<Payload>,
}

/// A stand-in for an engine: its clock, its mailboxes and its workers.
#[derive(Debug, Default)]
pub(super) struct Stage {
    pub(super) now: Timestamp,
    pub(super) agenda: Agenda,
    pub(super) mocks: BTreeMap<String, Mock>,
    pub(super) definitions: BTreeMap<String, WorkflowDefinition>,
    /// Replays the code before each turn.
    pub(super) replay_every_turn: bool,
    running: BTreeMap<TaskId, Execution>,
    pub(super) ended: BTreeMap<TaskId, Ended>,
    pub(super) signals: Vec<SentSignal>,
    pub(super) started: Vec<TaskId>,
}

#[derive(Debug)]
struct Execution {
    definition: WorkflowDefinition,
    instance: Instance,
    /// The parent that waits for it, and its step.
    waits: Option<(TaskId, u64)>,
    recorded: RecordedExecution,
    published: Published,
    /// The local activities in progress.
    locals: VecDeque<Local>,
}

/// A workflow that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) state: ExecutionState,
    pub(super) published: Published,
}

#[derive(Debug, Default)]
pub(super) struct Published {
    pub(super) executions: Vec<RecordedExecution>,
    pub(super) status: Option<String>,
    pub(super) values: BTreeMap<String, Payload>,
}

impl Stage {
    pub(super) fn at(now: Timestamp) -> Self {
        Self { now, ..Self::default() }
    }

    /// Runs until the workflow of this id has ended.
    pub(super) async fn run(&mut self, root: &TaskId) -> Result<Ended, TestFailure> {
        loop {
            if let Some(ended) = self.ended.remove(root) {
                return Ok(ended);
            }
            let Some((at, to, inputs)) = self.agenda.next() else {
                let state = self.running.get(root).map(|execution| execution.instance.state());
                let Some(ExecutionState::Waiting { first, .. }) = state else {
                    return Err(TestFailure::Stuck { waits: Vec::new() });
                };
                return Err(TestFailure::Stuck { waits: first });
            };
            self.now = self.now.max(at);
            self.turn(&to, inputs).await?;
        }
    }

    /// Starts a workflow, with its first turn.
    pub(super) async fn start(
        &mut self,
        definition: WorkflowDefinition,
        begin: ExecutionStart,
        waits: Option<(TaskId, u64)>,
    ) -> Result<(), TestFailure> {
        let id = begin.id.clone();
        let instance = Instance::begin(&definition, begin.clone());
        let recorded = RecordedExecution { start: begin, rows: Vec::new() };
        let published = Published::default();
        let locals = VecDeque::new();
        let execution = Execution { definition, instance, waits, recorded, published, locals };
        self.running.insert(id.clone(), execution);
        self.turn(&id, Vec::new()).await
    }

    async fn turn(&mut self, id: &TaskId, inputs: Vec<WorkflowInput>) -> Result<(), TestFailure> {
        // Inputs of workflows that have ended or do not exist are ignored.
        let Some(mut execution) = self.running.remove(id) else { return Ok(()) };
        let finished = execution.turn(self.now, inputs.clone(), self.replay_every_turn).await?;
        for command in finished.parts.into_iter().flat_map(|part| part.commands) {
            Box::pin(self.act(id, &mut execution.published, command)).await?;
        }
        match finished.state {
            ExecutionState::Waiting { .. } => {
                self.running.insert(id.clone(), execution);
                if finished.has_more {
                    Box::pin(self.turn(id, Vec::new())).await?;
                }
            }
            ExecutionState::ContinueAsNew { input, version, carried, first_step } => {
                execution.continue_as_new(input, version, carried, first_step);
                self.running.insert(id.clone(), execution);
                let left = inputs.into_iter().skip(finished.delivered).collect();
                Box::pin(self.turn(id, left)).await?;
            }
            state => self.end(id, execution, state)?,
        }
        Ok(())
    }

    fn end(
        &mut self,
        id: &TaskId,
        mut execution: Execution,
        state: ExecutionState,
    ) -> Result<(), TestFailure> {
        execution.published.executions.push(execution.recorded);
        for recorded in &execution.published.executions {
            recorded.check(&execution.definition)?;
        }
        if let Some((parent, step)) = execution.waits {
            let outcome = outcome(&state);
            self.agenda.plan(self.now, parent, WorkflowInput::StepCompletion { step, outcome });
        }
        self.ended.insert(id.clone(), Ended { state, published: execution.published });
        Ok(())
    }

    async fn act(
        &mut self,
        id: &TaskId,
        published: &mut Published,
        command: PlannedCommand,
    ) -> Result<(), TestFailure> {
        match command {
            PlannedCommand::Activity { step, task } => self.play(id, step, &task)?,
            PlannedCommand::Child { step, task } if self.mocks.contains_key(task.kind.as_str()) => {
                self.play(id, step, &task)?;
            }
            PlannedCommand::Child { step, task } => {
                self.begin(*task, Some((id.clone(), step))).await?;
            }
            PlannedCommand::Start { task, .. } => {
                self.started.push(task.id.clone());
                if self.definitions.contains_key(task.kind.as_str()) {
                    self.begin(*task, None).await?;
                }
            }
            PlannedCommand::Timer { step, at } => {
                let fired = WorkflowInput::StepCompletion { step, outcome: StepOutcome::Fired };
                self.agenda.plan(at.max(self.now), id.clone(), fired);
            }
            PlannedCommand::CancelActivity { step } | PlannedCommand::CancelTimer { step } => {
                self.agenda.forget(id, step);
            }
            PlannedCommand::CancelChild { step, id: child } => {
                self.agenda.forget(id, step);
                let reason = "its parent does not wait for it".to_owned();
                self.agenda.plan(self.now, child, WorkflowInput::Cancel { reason });
            }
            PlannedCommand::Signal { to, name, payload, .. } => self.signal(id, to, name, payload),
            PlannedCommand::Status(status) => published.status = Some(status),
            PlannedCommand::Value { key, value: Some(value) } => {
                published.values.insert(key, value);
            }
            PlannedCommand::Value { key, value: None } => {
                published.values.remove(&key);
            }
        }
        Ok(())
    }

    fn play(&mut self, id: &TaskId, step: u64, task: &NewTask) -> Result<(), TestFailure> {
        let name = task.kind.as_str();
        let mock = self.mocks.get(name);
        let mock = mock.ok_or_else(|| TestFailure::NoMock { name: name.to_owned() })?;
        let (ms, outcome) = mock.play(task);
        self.agenda.plan(
            self.now.plus_ms(ms),
            id.clone(),
            WorkflowInput::StepCompletion { step, outcome },
        );
        Ok(())
    }

    async fn begin(
        &mut self,
        task: NewTask,
        waits: Option<(TaskId, u64)>,
    ) -> Result<(), TestFailure> {
        let name = task.kind.to_string();
        let definition = self.definitions.get(&name).cloned();
        let definition = definition.ok_or(TestFailure::NoMock { name })?;
        let parent = waits.as_ref().map(|(parent, _)| parent.clone());
        let input = task.payload.map(HistoryPayload);
        let begin = ExecutionStart { parent, input, ..ExecutionStart::new(task.id, 1) };
        self.start(definition, begin, waits).await
    }

    fn signal(&mut self, from: &TaskId, to: TaskId, name: String, payload: Option<Payload>) {
        let source = from.to_string();
        let carried = payload.clone().map(HistoryPayload);
        let message = WorkflowInput::Message { name: name.clone(), source, payload: carried };
        self.agenda.plan(self.now, to.clone(), message);
        self.signals.push(SentSignal { from: from.clone(), to, name, payload });
    }
}

impl Execution {
    async fn turn(
        &mut self,
        now: Timestamp,
        inputs: Vec<WorkflowInput>,
        replay_every_turn: bool,
    ) -> Result<CompletedTurn, TestFailure> {
        if replay_every_turn {
            self.instance = self.recorded.replay(&self.definition)?;
            self.locals.clear();
        }
        let mut turn = self.instance.turn(now, inputs)?;
        loop {
            match turn {
                TurnProgress::Local(work) => self.locals.extend(work),
                TurnProgress::Finished(finished) => {
                    if !finished.has_more {
                        self.locals.clear();
                    }
                    let rows = finished.parts.iter().map(|part| part.row.clone());
                    self.recorded.rows.extend(rows);
                    return Ok(finished);
                }
            }
            // Those that were cancelled run too, as they may in a worker.
            let Some(local) = self.locals.pop_front() else {
                return Err(TurnFailure::NonWorkflowAwait.into());
            };
            let report = local.await;
            turn = self.instance.resume(vec![report])?;
        }
    }

    /// Starts the next execution.
    fn continue_as_new(
        &mut self,
        input: Option<Payload>,
        version: Option<String>,
        carried: Vec<crate::workflow::UnreadSignal>,
        first_step: u64,
    ) {
        let values = self.published.values.iter();
        let begin = ExecutionStart {
            execution: self.recorded.start.execution + 1,
            version: version.or_else(|| self.recorded.start.version.clone()),
            first_step,
            input: input.map(HistoryPayload),
            carried,
            values: values
                .map(|(key, value)| (key.clone(), HistoryPayload(value.clone())))
                .collect(),
            seed: self.recorded.start.seed.wrapping_add(1),
            ..self.recorded.start.clone()
        };
        self.instance = Instance::begin(&self.definition, begin.clone());
        let next = RecordedExecution { start: begin, rows: Vec::new() };
        self.published.executions.push(mem::replace(&mut self.recorded, next));
    }
}

/// The outcome that the parent of a workflow gets.
fn outcome(state: &ExecutionState) -> StepOutcome {
    match state {
        ExecutionState::Failed(failure) => {
            StepOutcome::Failed { class: failure.class(), reason: failure.reason().to_owned() }
        }
        ExecutionState::Cancelled { reason } => StepOutcome::Cancelled { reason: reason.clone() },
        ExecutionState::Completed(result) => {
            StepOutcome::Completed { result: result.clone().map(HistoryPayload) }
        }
        ExecutionState::Waiting { .. } | ExecutionState::ContinueAsNew { .. } => {
            unreachable!("it has not ended")
        }
    }
}
