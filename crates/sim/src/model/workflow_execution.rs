//! The states of one workflow: its executions, row by row, and its steps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Deserialize;
use windlass_core::{
    HistoryPayload, Lifecycle, Message, Payload, RecordedCommand, Task, TaskId, Timestamp,
    TurnRecord, WorkerId, WorkflowInput,
};
use windlass_worker::workflow::{ExecutionStart, UnreadSignal};

use crate::violation::{Breach, Kind, breach};
use crate::workflow::MESSAGE_SOURCE;

/// A history row that a commit has written.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) execution: u32,
    pub(super) number: u32,
    pub(super) row: TurnRecord,
}

#[derive(Debug)]
pub(super) struct WorkflowFacts {
    created_at: Timestamp,
    task: TaskId,
    pub(super) parent: Option<TaskId>,
    lane: windlass_core::LaneName,
    pub(super) executions: Vec<ExecutionFacts>,
    /// Its terminal state.
    pub(super) ended: Option<Lifecycle>,
    pub(super) result: Option<Payload>,
    /// The worker that wrote its last row.
    pub(super) made_by: Option<WorkerId>,
    /// Whether its code received a cancel request.
    cancel_received: bool,
    /// Steps whose completion message was sent.
    pub(super) reported: BTreeSet<u64>,
    /// Steps whose completion was delivered to the code.
    delivered: BTreeSet<u64>,
    /// Steps whose completion was delivered before their row: they ran within their turns.
    pub(super) unwritten: BTreeSet<u64>,
    made: BTreeSet<u64>,
    pub(super) cancelled: BTreeSet<u64>,
    /// Numbers of the messages that it received.
    numbers: BTreeSet<u64>,
}

/// One execution.
#[derive(Debug)]
pub(super) struct ExecutionFacts {
    first_step: u64,
    pub(super) input: Option<Payload>,
    pub(super) carried: Option<Payload>,
    pub(super) rows: Vec<TurnRecord>,
    /// Its last row was deleted before it could be read.
    pub(super) is_cut: bool,
}

/// What an execution carries over to the next one, as stored.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Carryover {
    #[serde(default)]
    pub(super) unread: Vec<UnreadSignal>,
    #[serde(default)]
    values: BTreeMap<String, HistoryPayload>,
}

impl ExecutionFacts {
    fn new(task: &Task, input: Option<Payload>, carried: Option<Payload>) -> Self {
        let first_step = task.workflow.as_ref().map_or(0, |workflow| workflow.first_step);
        Self { first_step, input, carried, rows: Vec::new(), is_cut: false }
    }

    pub(super) fn carryover(&self) -> Carryover {
        let read = |carried: &Payload| serde_json::from_slice(&carried.bytes).ok();
        self.carried.as_ref().and_then(read).unwrap_or_default()
    }
}

impl WorkflowFacts {
    pub(super) fn new(task: &Task, input: Option<Payload>) -> Self {
        let first = ExecutionFacts::new(task, input, None);
        Self {
            created_at: task.created_at,
            task: task.id.clone(),
            parent: task.parent.clone(),
            lane: task.lane.clone(),
            executions: vec![first],
            ended: None,
            result: None,
            made_by: None,
            cancel_received: false,
            reported: BTreeSet::new(),
            delivered: BTreeSet::new(),
            unwritten: BTreeSet::new(),
            made: BTreeSet::new(),
            cancelled: BTreeSet::new(),
            numbers: BTreeSet::new(),
        }
    }

    fn present(&self) -> &ExecutionFacts {
        self.executions.last().expect("there is always one")
    }

    pub(super) fn first_step(&self) -> u64 {
        self.present().first_step
    }

    /// The number of visible rows of the present execution.
    pub(super) fn rows(&self) -> u32 {
        u32::try_from(self.present().rows.len()).unwrap_or(u32::MAX)
    }

    /// Marks the last row of the present execution as never visible.
    pub(super) fn cut(&mut self) {
        self.executions.last_mut().expect("there is always one").is_cut = true;
    }

    /// The start parameters of an execution.
    pub(super) fn begin(&self, number: usize) -> ExecutionStart {
        let run = &self.executions[number];
        let execution = u32::try_from(number).unwrap_or(u32::MAX);
        let over = run.carryover();
        let seed = self.created_at.micros().unsigned_abs() ^ u64::from(execution) << 48;
        ExecutionStart {
            execution,
            parent: self.parent.clone(),
            lane: self.lane.clone(),
            first_step: run.first_step,
            input: run.input.clone().map(HistoryPayload),
            carried: over.unread,
            values: over.values,
            ..ExecutionStart::new(self.task.clone(), seed)
        }
    }

    /// The rows that are not stored yet. Existing ones must be unchanged.
    pub(super) fn unwritten(
        &self,
        id: &TaskId,
        rows: &[Written],
    ) -> Result<Vec<TurnRecord>, Breach> {
        let mut fresh = Vec::new();
        for Written { execution, number, row } in rows {
            let run = self.executions.get(*execution as usize);
            let known = run.and_then(|run| run.rows.get(*number as usize));
            let is_present = *execution as usize + 1 == self.executions.len();
            let next = self.present().rows.len() + fresh.len();
            match known {
                Some(known) if known == row => {}
                Some(known) => {
                    let what = format!("turn {number} of {id} was {known:?} and is {row:?}");
                    return breach(Kind::History, what);
                }
                None if is_present && *number as usize == next => fresh.push(row.clone()),
                None => {
                    let what = format!("turn {number} of {id}/{execution} follows {next} rows");
                    return breach(Kind::History, what);
                }
            }
        }
        Ok(fresh)
    }

    /// Records rows and consumed messages. Each deleted message was delivered, or belongs to a
    /// cancelled step; and nothing was delivered that was not sent.
    pub(super) fn turned(
        &mut self,
        id: &TaskId,
        rows: Vec<TurnRecord>,
        gone: &[Arc<Message>],
        ahead: &BTreeSet<u64>,
        now: Timestamp,
    ) -> Result<(), Breach> {
        let mut gone: Vec<&Message> = gone.iter().map(Arc::as_ref).collect();
        for row in rows {
            for input in &row.inputs {
                self.arrived(id, input, &mut gone, ahead, now)?;
            }
            for made in &row.commands {
                self.makes(id, made)?;
            }
            let run = self.executions.last_mut().expect("there is always one");
            run.rows.push(row);
        }
        let released = |message: &&Message| {
            message.completion.as_ref().is_some_and(|report| self.cancelled.contains(&report.step))
        };
        match gone.into_iter().find(|message| !released(message)) {
            Some(message) if !self.present().is_cut => {
                breach(Kind::Step, format!("{message:?} was deleted, not delivered to {id}"))
            }
            _ => Ok(()),
        }
    }

    fn arrived(
        &mut self,
        id: &TaskId,
        input: &WorkflowInput,
        gone: &mut Vec<&Message>,
        ahead: &BTreeSet<u64>,
        now: Timestamp,
    ) -> Result<(), Breach> {
        let found = gone.iter().position(|message| is_of(message, input));
        let message = found.map(|at| gone.remove(at));
        if let Some(hidden) = message.filter(|message| message.due_at.is_some_and(|due| now < due))
        {
            return breach(Kind::Message, format!("{id} received {hidden:?} at {now}"));
        }
        match (input, message) {
            (WorkflowInput::StepCompletion { step, .. }, _) if !self.delivered.insert(*step) => {
                breach(Kind::Step, format!("{id} received step {step} again"))
            }
            (WorkflowInput::StepCompletion { step, .. }, None) if ahead.contains(step) => {
                if self.made.contains(step) && self.reported.insert(*step) {
                    return Ok(());
                }
                breach(Kind::Step, format!("{id} received step {step}, which it does not own"))
            }
            (WorkflowInput::StepCompletion { step, .. }, None) => {
                self.unwritten.insert(*step);
                Ok(())
            }
            (WorkflowInput::StepCompletion { step, .. }, Some(_)) if !self.made.contains(step) => {
                breach(Kind::Step, format!("{id} received step {step}, which it did not start"))
            }
            (WorkflowInput::Message { source, payload, .. }, Some(_))
                if source == MESSAGE_SOURCE =>
            {
                let number = payload.as_ref().map(|payload| payload.0.bytes.to_vec());
                let number = number.and_then(|bytes| serde_json::from_slice(&bytes).ok());
                if number.is_some_and(|number| self.numbers.insert(number)) {
                    return Ok(());
                }
                breach(Kind::Message, format!("{id} received message {number:?} again"))
            }
            (WorkflowInput::Cancel { .. }, Some(_)) if self.cancel_received => {
                breach(Kind::Step, format!("{id} received a second cancel request"))
            }
            (input, Some(_)) => {
                self.cancel_received |= matches!(input, WorkflowInput::Cancel { .. });
                Ok(())
            }
            (other, None) => breach(Kind::Step, format!("{id} received {other:?}, unsent")),
        }
    }

    fn makes(&mut self, id: &TaskId, made: &RecordedCommand) -> Result<(), Breach> {
        let step = match made {
            RecordedCommand::Cancel { step } => {
                self.cancelled.insert(*step);
                return Ok(());
            }
            RecordedCommand::Patch { .. } => return Ok(()),
            RecordedCommand::LocalActivity { step, .. } => {
                self.unwritten.remove(step);
                *step
            }
            RecordedCommand::Activity { step, .. }
            | RecordedCommand::Timer { step, .. }
            | RecordedCommand::Child { step, .. }
            | RecordedCommand::StartDetached { step, .. }
            | RecordedCommand::WaitSignal { step, .. }
            | RecordedCommand::Signal { step, .. } => *step,
        };
        if step < self.first_step() || !self.made.insert(step) {
            return breach(Kind::Step, format!("{id} started step {step} again"));
        }
        Ok(())
    }

    /// Returns whether messages were carried over to the next execution.
    pub(super) fn starts_over(
        &mut self,
        task: &Task,
        input: Option<Payload>,
        carried: Option<Payload>,
    ) -> bool {
        let run = ExecutionFacts::new(task, input, carried);
        let carries = !run.carryover().unread.is_empty();
        self.executions.push(run);
        carries
    }

    pub(super) fn check_turns(&self, id: &TaskId, task: &Task) -> Result<(), Breach> {
        let workflow = task.workflow.as_deref();
        let (turns, rows) = (workflow.map(|workflow| workflow.turns), self.present().rows.len());
        if turns.map(|turns| turns as usize) == Some(rows) {
            return Ok(());
        }
        breach(Kind::History, format!("{id} says {turns:?} turns, and has {rows}"))
    }

    pub(super) fn ends(&mut self, task: &Task, result: Option<Payload>) {
        (self.ended, self.result) = (Some(task.lifecycle.clone()), result);
    }

    pub(super) fn check_ended(&self, id: &TaskId, task: &Task) -> Result<(), Breach> {
        let same_execution = task.execution as usize + 1 == self.executions.len();
        if same_execution && self.ended.as_ref() == Some(&task.lifecycle) {
            return Ok(());
        }
        let what = format!("{id} was {:?} and is {:?}", self.ended, task.lifecycle);
        breach(Kind::EndedChanged, what)
    }
}

/// Whether the code received this message as this input.
fn is_of(message: &Message, input: &WorkflowInput) -> bool {
    match input {
        WorkflowInput::StepCompletion { step, .. } => {
            message.completion.as_ref().is_some_and(|report| report.step == *step)
        }
        WorkflowInput::Message { name, source, .. } => {
            message.completion.is_none() && message.name == *name && message.source == *source
        }
        WorkflowInput::Cancel { .. } => {
            message.source == Message::ENGINE && message.name == Message::CANCEL
        }
    }
}
