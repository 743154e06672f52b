use std::collections::{BTreeMap, VecDeque};
use std::mem;

use windlass_core::command::NewTask;
use windlass_core::{HistoryPayload, Payload, StepOutcome, TaskId, Timestamp, WorkflowInput};

use super::agenda::Agenda;
use super::failure::TestFailure;
use super::mock::Mock;
use super::recorded::Recorded;
use crate::workflow::{
    CompletedTurn, ExecutionStart, ExecutionState, Instance, Local, PlannedCommand, TurnFailure,
    TurnProgress, WorkflowDefinition,
};

/// A message that a workflow sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
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
    pub(super) programs: BTreeMap<String, WorkflowDefinition>,
    /// Replays the code before each turn.
    pub(super) forgetful: bool,
    running: BTreeMap<TaskId, Execution>,
    pub(super) ended: BTreeMap<TaskId, Ended>,
    pub(super) posts: Vec<Posted>,
    pub(super) started: Vec<TaskId>,
}

#[derive(Debug)]
struct Execution {
    program: WorkflowDefinition,
    instance: Instance,
    /// The parent that waits for it, and its step.
    waits: Option<(TaskId, u64)>,
    recorded: Recorded,
    told: Told,
    /// The local activities in progress.
    locals: VecDeque<Local>,
}

/// A workflow that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) standing: ExecutionState,
    pub(super) told: Told,
}

#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) executions: Vec<Recorded>,
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
            let Some((at, to, arrivals)) = self.agenda.next() else {
                let standing =
                    self.running.get(root).map(|execution| execution.instance.standing());
                let Some(ExecutionState::Waiting { first, .. }) = standing else {
                    return Err(TestFailure::Stuck { waits: Vec::new() });
                };
                return Err(TestFailure::Stuck { waits: first });
            };
            self.now = self.now.max(at);
            self.turn(&to, arrivals).await?;
        }
    }

    /// Starts a workflow, with its first turn.
    pub(super) async fn start(
        &mut self,
        program: WorkflowDefinition,
        begin: ExecutionStart,
        waits: Option<(TaskId, u64)>,
    ) -> Result<(), TestFailure> {
        let id = begin.id.clone();
        let instance = Instance::begin(&program, begin.clone());
        let recorded = Recorded { begin, rows: Vec::new() };
        let told = Told::default();
        let locals = VecDeque::new();
        let execution = Execution { program, instance, waits, recorded, told, locals };
        self.running.insert(id.clone(), execution);
        self.turn(&id, Vec::new()).await
    }

    async fn turn(&mut self, id: &TaskId, arrivals: Vec<WorkflowInput>) -> Result<(), TestFailure> {
        // Inputs of workflows that have ended or do not exist are ignored.
        let Some(mut execution) = self.running.remove(id) else { return Ok(()) };
        let finished = execution.turn(self.now, arrivals.clone(), self.forgetful).await?;
        for command in finished.parts.into_iter().flat_map(|part| part.commands) {
            Box::pin(self.act(id, &mut execution.told, command)).await?;
        }
        match finished.standing {
            ExecutionState::Waiting { .. } => {
                self.running.insert(id.clone(), execution);
                if finished.has_more {
                    Box::pin(self.turn(id, Vec::new())).await?;
                }
            }
            ExecutionState::ContinueAsNew { input, version, carried, first_step } => {
                execution.continue_as_new(input, version, carried, first_step);
                self.running.insert(id.clone(), execution);
                let left = arrivals.into_iter().skip(finished.told).collect();
                Box::pin(self.turn(id, left)).await?;
            }
            standing => self.end(id, execution, standing)?,
        }
        Ok(())
    }

    fn end(
        &mut self,
        id: &TaskId,
        mut execution: Execution,
        standing: ExecutionState,
    ) -> Result<(), TestFailure> {
        execution.told.executions.push(execution.recorded);
        for recorded in &execution.told.executions {
            recorded.check(&execution.program)?;
        }
        if let Some((parent, step)) = execution.waits {
            let outcome = outcome(&standing);
            self.agenda.plan(self.now, parent, WorkflowInput::StepCompletion { step, outcome });
        }
        self.ended.insert(id.clone(), Ended { standing, told: execution.told });
        Ok(())
    }

    async fn act(
        &mut self,
        id: &TaskId,
        told: &mut Told,
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
                if self.programs.contains_key(task.kind.as_str()) {
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
            PlannedCommand::Post { to, name, payload, .. } => self.post(id, to, name, payload),
            PlannedCommand::Status(status) => told.status = Some(status),
            PlannedCommand::Value { key, value: Some(value) } => {
                told.values.insert(key, value);
            }
            PlannedCommand::Value { key, value: None } => {
                told.values.remove(&key);
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
        let program = self.programs.get(&name).cloned();
        let program = program.ok_or(TestFailure::NoMock { name })?;
        let parent = waits.as_ref().map(|(parent, _)| parent.clone());
        let input = task.payload.map(HistoryPayload);
        let begin = ExecutionStart { parent, input, ..ExecutionStart::new(task.id, 1) };
        self.start(program, begin, waits).await
    }

    fn post(&mut self, from: &TaskId, to: TaskId, name: String, payload: Option<Payload>) {
        let source = from.to_string();
        let carried = payload.clone().map(HistoryPayload);
        let message = WorkflowInput::Message { name: name.clone(), source, payload: carried };
        self.agenda.plan(self.now, to.clone(), message);
        self.posts.push(Posted { from: from.clone(), to, name, payload });
    }
}

impl Execution {
    async fn turn(
        &mut self,
        now: Timestamp,
        arrivals: Vec<WorkflowInput>,
        forgetful: bool,
    ) -> Result<CompletedTurn, TestFailure> {
        if forgetful {
            self.instance = self.recorded.replay(&self.program)?;
            self.locals.clear();
        }
        let mut turn = self.instance.turn(now, arrivals)?;
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
                return Err(TurnFailure::ForeignAwait.into());
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
        let values = self.told.values.iter();
        let begin = ExecutionStart {
            execution: self.recorded.begin.execution + 1,
            version: version.or_else(|| self.recorded.begin.version.clone()),
            first_step,
            input: input.map(HistoryPayload),
            carried,
            values: values
                .map(|(key, value)| (key.clone(), HistoryPayload(value.clone())))
                .collect(),
            seed: self.recorded.begin.seed.wrapping_add(1),
            ..self.recorded.begin.clone()
        };
        self.instance = Instance::begin(&self.program, begin.clone());
        let next = Recorded { begin, rows: Vec::new() };
        self.told.executions.push(mem::replace(&mut self.recorded, next));
    }
}

/// The outcome that the parent of a workflow gets.
fn outcome(standing: &ExecutionState) -> StepOutcome {
    match standing {
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
