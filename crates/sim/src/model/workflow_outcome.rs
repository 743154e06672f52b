//! Outcomes of workflows after everything has ended.

use std::collections::BTreeSet;

use windlass_core::{FailureClass, Lifecycle, Payload, TaskId, Timestamp};
use windlass_store::MemoryStore;
use windlass_worker::workflow::testing::RecordedExecution;
use windlass_worker::workflow::{ExecutionState, TurnProgress, WorkflowDefinition};

use crate::model::workflow::Workflows;
use crate::model::workflow_execution::WorkflowFacts;
use crate::violation::{Breach, Kind, breach};
use crate::workflow::{Plan, TENANT, WorkflowSpec, definition, expected};

impl Workflows {
    /// Checks that every workflow has ended, and that no activity is left.
    pub(crate) fn all_ended(&self) -> Result<(), Breach> {
        let open = self
            .tasks
            .values()
            .find(|task| task.workflow.is_none() || task.lifecycle.ended_at().is_none());
        match open {
            Some(task) => {
                let mail = self.messages.get(&task.id);
                breach(Kind::Stuck, format!("workflows: {task:?} with {mail:?}"))
            }
            None => Ok(()),
        }
    }

    /// Workflows that scripts started, and detached ones.
    pub(crate) fn roots(&self) -> Vec<TaskId> {
        let roots = self.tasks.values().filter(|task| task.parent.is_none());
        roots.map(|task| task.id.clone()).collect()
    }

    pub(crate) fn specs(&self) -> &[WorkflowSpec] {
        &self.specs
    }

    /// Checks that each workflow has the outcome of its code for its inputs, and each confluent one
    /// that without faults. The next version of the code must replay their histories as well.
    pub(crate) fn check_outcomes(&self) -> Result<(), Breach> {
        let (present, next) = (definition(None, false), definition(None, true));
        let spent = self.spent();
        for (id, facts) in &self.by_id {
            if let Some(step) = facts.unwritten.first() {
                let what = format!("{id} recorded the end of step {step}, which it did not start");
                return breach(Kind::Step, what);
            }
            let standing = facts.replay(id, &present)?;
            facts.replay(id, &next)?;
            facts.check_standing(id, &standing)?;
            if !spent.contains(id) {
                facts.check_result(id)?;
            }
        }
        Ok(())
    }

    /// Workflows that failed because one turn lost too many leases, and all of their ancestors.
    fn spent(&self) -> BTreeSet<&TaskId> {
        let crashed = |facts: &WorkflowFacts| {
            matches!(facts.ended, Some(Lifecycle::Failed { class: FailureClass::Crash, .. }))
        };
        let mut spent = BTreeSet::new();
        for (id, _) in self.by_id.iter().filter(|(_, facts)| crashed(facts)) {
            let mut next = Some(id);
            while let Some(id) = next {
                spent.insert(id);
                next = self.by_id.get(id).and_then(|facts| facts.parent.as_ref());
            }
        }
        spent
    }

    /// Checks that no record of a deleted workflow is left.
    pub(crate) fn check_nothing_left(&self, memory: &MemoryStore) -> Result<(), Breach> {
        use windlass_core::Table::{
            Children, Effect, Execution, Mailbox, Message, Task, WorkflowProperty,
        };
        let tables = memory.snapshot();
        let own = [Children, Effect, Execution, Mailbox, Message, WorkflowProperty, Task];
        let row = tables
            .rows()
            .find(|row| super::record::is_of_workflows(&row.key) && own.contains(&row.key.table));
        if let Some(row) = row {
            return breach(Kind::Workflow, format!("{:?} is left: {}", row.key, row.body));
        }
        let leftover = tables.payloads().find(|(key, _)| key.tenant.as_str() == TENANT);
        match leftover {
            Some((key, _)) => breach(Kind::Workflow, format!("{key:?} is left")),
            None => Ok(()),
        }
    }
}

impl WorkflowFacts {
    /// Replays all executions with this code. Returns the state of the last one.
    fn replay(&self, id: &TaskId, program: &WorkflowDefinition) -> Result<ExecutionState, Breach> {
        let mut last = None;
        for number in 0..self.executions.len() {
            let run = &self.executions[number];
            let before = last.take().filter(|_| !self.executions[number - 1].is_cut);
            if let Some(standing) = before {
                self.check_follows(id, number, &standing)?;
            }
            let recorded = RecordedExecution { start: self.begin(number), rows: run.rows.clone() };
            let replayed = recorded.replay(program).map_err(|error| Breach {
                kind: Kind::History,
                what: format!("{id}/{number} does not replay: {error}"),
            });
            last =
                Some(match (run.rows.is_empty(), replayed?.turn(Timestamp::default(), vec![])) {
                    (true, _) => ExecutionState::Waiting { count: 0, first: Vec::new() },
                    (false, Ok(TurnProgress::Finished(finished))) => finished.state,
                    (false, other) => {
                        let what = format!("{id}/{number} continues after its end: {other:?}");
                        return breach(Kind::History, what);
                    }
                });
        }
        Ok(last.expect("there is always one"))
    }

    /// Checks that an execution begins with the input from the one before.
    fn check_follows(
        &self,
        id: &TaskId,
        number: usize,
        before: &ExecutionState,
    ) -> Result<(), Breach> {
        let run = &self.executions[number];
        let over = run.carryover();
        match before {
            ExecutionState::ContinueAsNew { input, carried, .. }
                if *input == run.input && *carried == over.unread =>
            {
                Ok(())
            }
            other => {
                let what = format!("{id}/{number} began with {run:?}, after {other:?}");
                breach(Kind::Workflow, what)
            }
        }
    }

    fn check_standing(&self, id: &TaskId, standing: &ExecutionState) -> Result<(), Breach> {
        let agrees = match (self.ended.as_ref(), standing) {
            (Some(Lifecycle::Completed { .. }), ExecutionState::Completed(result)) => {
                *result == self.result
            }
            (Some(Lifecycle::Failed { reason, .. }), ExecutionState::Failed(failure)) => {
                reason == failure.reason()
            }
            (
                Some(Lifecycle::Cancelled { reason, .. }),
                ExecutionState::Cancelled { reason: why },
            ) => reason == why,
            // Its parent has ended, or a client cancelled it immediately, or its workers crashed.
            (Some(Lifecycle::Cancelled { .. }), ExecutionState::Waiting { .. }) => true,
            (Some(Lifecycle::Failed { class, .. }), ExecutionState::Waiting { .. }) => {
                *class == FailureClass::Crash
            }
            _ => false,
        };
        if agrees {
            return Ok(());
        }
        let what =
            format!("{id} is {:?} with {:?}, its code {standing:?}", self.ended, self.result);
        breach(Kind::Workflow, what)
    }

    /// Checks that a confluent workflow has its expected outcome, whatever the faults.
    fn check_result(&self, id: &TaskId) -> Result<(), Breach> {
        let plan = self.executions[0].input.as_ref().and_then(read::<Plan>);
        let Some(plan) = plan.filter(|plan| plan.is_confluent) else { return Ok(()) };
        let acts: Result<Vec<String>, _> = plan.acts.iter().map(|ops| expected(ops)).collect();
        let result = self.result.as_ref().and_then(read::<String>);
        let agrees = match (&self.ended, &acts) {
            (Some(Lifecycle::Completed { .. }), Ok(acts)) => {
                let whole: String = acts.iter().map(|act| format!("/{act}")).collect();
                result.as_deref() == Some(&whole)
            }
            (Some(Lifecycle::Failed { class, .. }), Err(_)) => *class == FailureClass::Permanent,
            (Some(Lifecycle::Failed { class, .. }), Ok(_)) => *class == FailureClass::Crash,
            (Some(Lifecycle::Cancelled { .. }), _) => true,
            _ => false,
        };
        if agrees {
            return Ok(());
        }
        let what = format!("{id} is {:?} with {result:?}, expected {acts:?}", self.ended);
        breach(Kind::Workflow, what)
    }
}

fn read<T: serde::de::DeserializeOwned>(payload: &Payload) -> Option<T> {
    serde_json::from_slice(&payload.bytes).ok()
}
