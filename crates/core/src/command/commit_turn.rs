use std::sync::Arc;

use crate::children::Children;
use crate::code_version::CodeVersion;
use crate::command::runtime_metadata::RuntimeMetadata;
use crate::command::send_messages::prefetch_message;
use crate::command::workflow_command::{
    Started, WorkflowCommand, make, send_message, set_property, start,
};
use crate::command::{Claim, Create, Outcome, Transition};
use crate::digest::{Digest, Digester};
use crate::event::{AfterTurn, Change, Event};
use crate::execution::Execution;
use crate::limits;
use crate::mailbox::{Mailbox, Message};
use crate::name::{TaskId, WorkerId};
use crate::payload::{Payload, Slot};
use crate::primitive::{
    await_messages, cancel_step, delete_message, eager_lease, earlier_settle, end_lease, fail,
    has_visible_messages, keep_lease, lease_kept, make_turn_ready, require_lease, require_task,
    set_timer, tenant_key, transition_to,
};
use crate::rejection::Rejection;
use crate::task::{
    ActiveAttempt, FailureClass, Fence, Lease, Lifecycle, Retry, Settle, Settled, Suspension, Task,
    TaskKey,
};
use crate::workflow::{Sticky, WorkflowState};
use crate::workflow_property::WorkflowProperty;
use crate::world::{Halt, World};

/// Commits the result of a workflow turn atomically.
#[derive(Clone, Debug)]
pub struct CommitTurn {
    pub fence: Fence,
    /// The number of the history row; equals the number of rows committed before.
    pub turn: u32,
    /// The history row; none when there is nothing to record.
    pub row: Option<Payload>,
    /// The messages that the turn has consumed. They are deleted.
    pub consumed: Vec<u64>,
    pub commands: Vec<WorkflowCommand>,
    /// The number of the step after the last one.
    pub next_step: u64,
    pub end: TurnEnd,
    /// How long the next turn is granted to this worker (sticky).
    pub sticky_ms: Option<u64>,
    /// How to lease activities to the worker of this turn in the same commit, and how many.
    pub eager: Option<Claim>,
    /// Metadata of a runtime other than Windlass's own.
    pub metadata: Option<Box<RuntimeMetadata>>,
}

/// How a turn ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnEnd {
    /// More parts of this turn follow: the lease stays.
    MoreParts,
    /// Waits for messages. If one is visible already, the lease stays.
    AwaitMessages,
    /// Waits for messages, and its lease ends. If one is visible already, the next turn is
    /// claimable at once.
    Yield,
    Complete(Option<Payload>),
    Fail {
        class: FailureClass,
        reason: String,
    },
    Cancel {
        reason: String,
    },
    /// The workflow continues as new, with another input and an empty history.
    ContinueAsNew {
        input: Option<Payload>,
        version: Option<String>,
        carried: Option<Payload>,
    },
}

impl CommitTurn {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        self.check()?;
        self.prefetch(world);
        if let Some(outcome) = self.earlier_outcome(world, None)? {
            return Ok(outcome);
        }
        let (mut task, lease) = require_lease(world, &self.fence)?;
        if task.workflow.is_none() {
            return Err(Rejection::NotAWorkflow.into());
        }
        let attempt = lease.attempt.clone().ok_or(Rejection::NotBegun)?;
        if let Some(metadata) = &self.metadata {
            task = Arc::new(metadata.prepare(world, &task)?);
        }
        let Some(workflow) = &task.workflow else { return Err(Rejection::NotAWorkflow.into()) };
        if workflow.turns != self.turn || self.next_step < workflow.next_step {
            return Err(Rejection::TurnMismatch { turns: workflow.turns }.into());
        }
        if let Some(row) = &self.row {
            world.attach(task.turn_key(self.turn), row.clone());
        }
        world.put::<Task>(self.with_row_recorded(&task, workflow, &lease));
        self.delete_consumed(world, &task)?;
        let position = world.log_position();
        let mut made = Activities::default();
        world.for_each_collecting(&self.commands, |world, command| {
            self.apply_command(world, &task, command, &mut made)
        })?;
        let task = require_task(world, &self.fence.task)?;
        let lease_kept = self.finish_turn(world, &task, &attempt)?;
        let Activities { created, claimed } = made;
        let change = Change::TurnCommitted {
            epoch: self.fence.epoch,
            turn: self.turn,
            next: if lease_kept.is_some() { AfterTurn::KeepsLease } else { self.end.after_turn() },
            activities: created,
        };
        // Before the events of its commands: an activity is claimed after it was created.
        world.emit_at(position, Event::of_task(&task, world.now(), change));
        Ok(Outcome::TurnCommitted { claimed, lease_kept })
    }

    /// The response to an earlier, identical `CommitTurn`. It includes the eager leases that are
    /// still alive, because the retrying worker never received them. For a speculative turn,
    /// `worker` is the worker that has to hold the lease.
    pub(super) fn earlier_outcome(
        &self,
        world: &mut World,
        worker: Option<&WorkerId>,
    ) -> Result<Option<Outcome>, Halt> {
        let task = require_task(world, &self.fence.task)?;
        let digest = self.digest();
        let lease_kept = lease_kept(&task, &self.fence, digest, worker, world.now());
        if !lease_kept && earlier_settle(&task, self.fence.epoch, digest)?.is_none() {
            return Ok(None);
        }
        let leases = world.for_each_collecting(&self.commands, |world, command| {
            match (command, &self.eager) {
                (
                    WorkflowCommand::Activity { step, task, eager: true },
                    Some(Claim { worker, .. }),
                ) => eager_lease(world, &self.fence.task, (*step, &task.id), worker),
                _ => Ok(None),
            }
        })?;
        let claimed = leases.into_iter().flatten().collect();
        Ok(Some(Outcome::TurnCommitted { claimed, lease_kept: lease_kept.then_some(task) }))
    }

    /// Approximate number of rows written.
    pub(super) fn rows(&self) -> usize {
        3 + self.consumed.len() + 2 * self.commands.len()
    }

    /// Payload bytes carried.
    pub(super) fn bytes(&self) -> usize {
        let length = |payload: &Option<Payload>| payload.as_ref().map_or(0, |it| it.bytes.len());
        let carried = self.commands.iter().map(|command| match command {
            WorkflowCommand::Activity { task, .. }
            | WorkflowCommand::Child { task, .. }
            | WorkflowCommand::Start { task, .. } => length(&task.payload),
            WorkflowCommand::Send { message, .. } => message.carried_bytes(),
            WorkflowCommand::Timer { .. }
            | WorkflowCommand::CancelTimer { .. }
            | WorkflowCommand::CancelTask { .. }
            | WorkflowCommand::SetProperty { .. } => 0,
        });
        length(&self.row) + carried.sum::<usize>()
    }

    pub(super) fn check(&self) -> Result<(), Rejection> {
        if let Some(row) = &self.row {
            limits::CONTENT_TYPE.check(&row.content_type)?;
            limits::TURN_BYTES.check(row.bytes.len())?;
        }
        self.metadata.as_ref().map_or(Ok(()), |metadata| metadata.check())?;
        limits::TURN_COMMANDS.check(self.commands.len())?;
        limits::TURN_MESSAGES.check(self.consumed.len())?;
        if let Some(ttl_ms) = self.sticky_ms {
            limits::GRANT_MS.check(ttl_ms)?;
        }
        self.eager.as_ref().map_or(Ok(()), Claim::check)?;
        match &self.end {
            TurnEnd::MoreParts
            | TurnEnd::AwaitMessages
            | TurnEnd::Yield
            | TurnEnd::Complete(None) => Ok(()),
            TurnEnd::Complete(Some(result)) => result.check(),
            TurnEnd::Fail { reason, .. } | TurnEnd::Cancel { reason } => {
                limits::REASON.check_prose(reason)
            }
            TurnEnd::ContinueAsNew { input, version, carried } => {
                input.iter().chain(carried).try_for_each(Payload::check)?;
                version.as_ref().map_or(Ok(()), |version| version.parse::<CodeVersion>().map(drop))
            }
        }
    }

    /// Requests every row that the turn names, so that one load is enough.
    pub(super) fn prefetch(&self, world: &mut World) {
        let TaskKey { tenant, id } = &self.fence.task;
        world.prefetch(self.fence.task.row_key());
        world.prefetch(Mailbox::key_of(tenant, id));
        for &seq in &self.consumed {
            world.prefetch(Message::key_of(tenant, id, seq));
        }
        if self.eager.is_some() {
            world.prefetch(tenant_key(tenant));
        }
        let create = Create { tenant: tenant.clone(), tasks: Vec::new() };
        for command in &self.commands {
            match command {
                WorkflowCommand::Activity { task, .. } | WorkflowCommand::Child { task, .. } => {
                    world.prefetch(Children::key_of(tenant, id));
                    create.prefetch(world, task, &task.route());
                }
                WorkflowCommand::Start { task, .. } => create.prefetch(world, task, &task.route()),
                WorkflowCommand::Timer { step, .. } | WorkflowCommand::CancelTimer { step } => {
                    world.prefetch(Message::key_of(tenant, id, Message::of_step(*step)));
                }
                WorkflowCommand::CancelTask { id: step, .. } => {
                    world.prefetch(TaskKey::new(tenant, step).row_key());
                }
                WorkflowCommand::Send { message, .. } => prefetch_message(world, tenant, message),
                WorkflowCommand::SetProperty { name, .. } => {
                    world.prefetch(WorkflowProperty::key_of(tenant, id, name));
                }
            }
        }
    }

    fn digest(&self) -> Digest {
        let end = match &self.end {
            TurnEnd::MoreParts => 0,
            TurnEnd::AwaitMessages => 1,
            TurnEnd::Complete(_) => 2,
            TurnEnd::Fail { .. } => 3,
            TurnEnd::Cancel { .. } => 4,
            TurnEnd::ContinueAsNew { .. } => 5,
            TurnEnd::Yield => 6,
        };
        let mut digester = Digester::new("turn").json(&self.fence.epoch);
        digester = digester.number(i64::from(self.turn)).number(end).json(&self.consumed);
        if let Some(metadata) = &self.metadata {
            digester = digester.part(metadata.turn_id.as_bytes());
        }
        Payload::digest(self.row.as_ref(), digester).finish()
    }

    /// The workflow with one more history row, still under its lease. A committed turn resets the
    /// count of lost leases.
    fn with_row_recorded(&self, task: &Task, workflow: &WorkflowState, lease: &Lease) -> Task {
        let sticky = |ttl_ms| Sticky { worker: lease.worker.clone(), ttl_ms };
        let workflow = WorkflowState {
            turns: self.turn + u32::from(self.row.is_some()),
            next_step: self.next_step,
            sticky: self.sticky_ms.map(sticky),
            metadata: match &self.metadata {
                Some(metadata) => metadata.stored(),
                None => workflow.metadata.clone(),
            },
            last_kept_turn: None,
            ..workflow.clone()
        };
        let workflow = Some(Box::new(workflow));
        Task { workflow, lost_leases: 0, progress: None, ..task.clone() }
    }

    fn delete_consumed(&self, world: &mut World, workflow: &Task) -> Result<(), Halt> {
        let delete = |world: &mut World, seq: &u64| {
            let key = Message::key_of(&workflow.tenant, &workflow.id, *seq);
            let message = world.get::<Message>(&key)?;
            if message.is_none_or(|message| message.due_at.is_some()) {
                // A hidden message cannot have been delivered.
                return Err(Rejection::MessageNotFound { seq: *seq }.into());
            }
            delete_message(world, workflow, *seq)
        };
        world.for_each_collecting(&self.consumed, delete).map(drop)
    }

    fn apply_command(
        &self,
        world: &mut World,
        workflow: &Task,
        command: &WorkflowCommand,
        made: &mut Activities,
    ) -> Result<(), Halt> {
        match command {
            WorkflowCommand::Activity { step, task, eager } => {
                let eager = self.eager.as_ref().filter(|_| *eager);
                let eager = eager.filter(|claim| made.claimed.len() < claim.limit as usize);
                let started = make(world, workflow, task, *step, eager)?;
                made.note(&task.id, started);
                Ok(())
            }
            WorkflowCommand::Child { step, task } => {
                make(world, workflow, task, *step, None).map(drop)
            }
            WorkflowCommand::Start { step, task } => start(world, workflow, task, *step),
            WorkflowCommand::Timer { step, at } => set_timer(world, workflow, *step, *at),
            WorkflowCommand::CancelTimer { step } => {
                delete_message(world, workflow, Message::of_step(*step))
            }
            WorkflowCommand::CancelTask { step, id } => {
                cancel_step(world, &TaskKey::new(&workflow.tenant, id), &workflow.id, *step)
            }
            WorkflowCommand::Send { message, on_reject } => {
                send_message(world, workflow, message, *on_reject)
            }
            WorkflowCommand::SetProperty { name, text } => {
                set_property(world, workflow, name, text.as_deref())
            }
        }
    }

    /// Applies the end of the turn. Returns the workflow if its lease stays.
    fn finish_turn(
        &self,
        world: &mut World,
        workflow: &Task,
        attempt: &ActiveAttempt,
    ) -> Result<Option<Arc<Task>>, Halt> {
        if self.end == TurnEnd::MoreParts
            || self.end == TurnEnd::AwaitMessages && has_visible_messages(world, workflow)?
        {
            // Without a row `turns` stays, so that a later, different turn may have this digest.
            let turn = self.row.as_ref().map(|_| self.digest());
            return Ok(Some(keep_lease(world, workflow, turn)));
        }
        end_lease(world, workflow)?;
        let now = world.now();
        let mut task = workflow.clone();
        let (settled, change) = match &self.end {
            TurnEnd::MoreParts | TurnEnd::AwaitMessages => {
                task.lifecycle = Lifecycle::Suspended(Suspension::until_message(attempt, now));
                (Settled::Suspended, None)
            }
            TurnEnd::Yield => (Settled::Suspended, None),
            TurnEnd::Complete(result) => {
                complete(world, &mut task, result.as_ref());
                (Settled::Completed, Some(Change::Completed { epoch: task.epoch }))
            }
            TurnEnd::Fail { class, reason } => {
                let (settled, change) = fail(&mut task, *class, reason, Retry::Never, now);
                (settled, Some(change))
            }
            TurnEnd::Cancel { reason } => {
                let reason = reason.clone();
                task.lifecycle = Lifecycle::Cancelled { at: now, reason: reason.clone() };
                (Settled::Cancelled, Some(Change::Cancelled { reason }))
            }
            TurnEnd::ContinueAsNew { input, version, carried } => {
                start_over(world, &mut task, input.as_ref(), version.as_ref(), carried.as_ref())?;
                let execution = task.execution;
                (Settled::ContinuedAsNew, Some(Change::ContinuedAsNew { execution }))
            }
        };
        task.last_settle =
            Some(Settle { epoch: self.fence.epoch, digest: self.digest(), result: settled });
        if let Some(change) = change {
            world.emit(Event::of_task(&task, now, change));
        }
        match &self.end {
            TurnEnd::ContinueAsNew { .. } => {
                make_turn_ready(world, task, attempt.to_suspended(now))
            }
            TurnEnd::Yield => await_messages(world, task, attempt),
            _ => transition_to(world, task),
        }?;
        Ok(None)
    }
}

impl TurnEnd {
    /// What is logged where the lease does not stay.
    const fn after_turn(&self) -> AfterTurn {
        match self {
            TurnEnd::MoreParts | TurnEnd::AwaitMessages | TurnEnd::Yield => AfterTurn::Waits,
            TurnEnd::Complete(_) | TurnEnd::Fail { .. } | TurnEnd::Cancel { .. } => AfterTurn::Ends,
            TurnEnd::ContinueAsNew { .. } => AfterTurn::ContinuesAsNew,
        }
    }
}

/// The activities that a turn has created, and those of them that it leased to its worker.
#[derive(Default)]
struct Activities {
    created: Vec<TaskId>,
    claimed: Vec<Arc<Task>>,
}

impl Activities {
    fn note(&mut self, id: &TaskId, started: Started) {
        match started {
            Started::No => return,
            Started::Unleased => {}
            Started::Leased(task) => self.claimed.push(task),
        }
        self.created.push(id.clone());
    }
}

fn complete(world: &mut World, task: &mut Task, result: Option<&Payload>) {
    task.lifecycle = Lifecycle::Completed { at: world.now() };
    if let Some(result) = result {
        task.results.push(task.execution);
        world.attach(task.payload_key(task.execution, Slot::RESULT), result.clone());
    }
}

/// Starts the next execution: another input, an empty history, and step numbers that continue.
pub(super) fn start_over(
    world: &mut World,
    task: &mut Task,
    input: Option<&Payload>,
    version: Option<&String>,
    carried: Option<&Payload>,
) -> Result<(), Halt> {
    let now = world.now();
    world.assume_absent(Execution::key_of(&task.tenant, &task.id, task.execution));
    world.put::<Execution>(Execution::ended(task, now));
    task.execution += 1;
    task.started_at = now;
    task.input_bytes = input.map(|input| input.bytes.len() as u64);
    if let Some(input) = input {
        world.attach(task.payload_key(task.execution, Slot::INPUT), input.clone());
    }
    if let Some(carried) = carried {
        world.attach(task.payload_key(task.execution, Slot::CARRIED), carried.clone());
    }
    if let Some(workflow) = &mut task.workflow {
        workflow.turns = 0;
        workflow.first_step = workflow.next_step;
        workflow.has_carried_messages = carried.is_some();
    }
    version.map_or(Ok(()), |version| pin(task, version))
}

/// Restricts the next turns to workers that have this version of the code.
pub(super) fn pin(task: &mut Task, version: &str) -> Result<(), Halt> {
    let Some(workflow) = &mut task.workflow else { return Ok(()) };
    if workflow.version.as_deref() == Some(version) {
        return Ok(());
    }
    let capability = |version: &str| -> Result<String, Rejection> {
        Ok(version.parse::<CodeVersion>()?.capability(&task.kind))
    };
    let old = workflow.version.as_deref().map(capability).transpose()?;
    task.route = task.route.with_capability(old.as_deref(), capability(version)?);
    workflow.version = Some(version.to_owned());
    workflow.sticky = None;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{
        Complete, DeleteTask, Fail, IdempotencyWindow, IfAbsent, NewMessage, NewTask, NewWorkflow,
        OnReject, Release, RequestCancel, SendMessages, Sweep,
    };
    use crate::name::Tenant;
    use crate::record::{StoredRecord, Table, read_row};
    use crate::testing::{Stage, check_task, claim, fence, fence_of, key, lane, message};

    fn row() -> Payload {
        Payload::json("{}")
    }

    fn turn(nth: u64, turn: u32, end: TurnEnd) -> CommitTurn {
        CommitTurn {
            fence: fence(nth),
            turn,
            row: Some(row()),
            consumed: Vec::new(),
            commands: Vec::new(),
            next_step: 0,
            end,
            sticky_ms: None,
            eager: None,
            metadata: None,
        }
    }

    fn workflow() -> NewTask {
        NewTask {
            lane: lane(),
            payload: Some(Payload::json("7")),
            workflow: Some(NewWorkflow::default()),
            ..NewTask::new("t", "order")
        }
    }

    fn activity(step: u64) -> WorkflowCommand {
        let task = NewTask {
            lane: "work".into(),
            payload: Some(Payload::json("1")),
            ..NewTask::new(format!("t/{step}"), "charge")
        };
        WorkflowCommand::Activity { step, task, eager: false }
    }

    /// A workflow under its first lease.
    fn started() -> Stage {
        let mut stage = Stage::new();
        stage.must(Create::one(workflow()));
        stage.must(claim());
        stage
    }

    fn lease_kept(outcome: &Outcome) -> bool {
        match outcome {
            Outcome::TurnCommitted { lease_kept, .. } => lease_kept.is_some(),
            other => panic!("{other:?}"),
        }
    }

    fn messages(stage: &Stage) -> Vec<Message> {
        let rows = stage.tables.rows().filter(|row| row.key.table == Message::TABLE);
        let read = rows.map(|row| read_row::<Message>(row.schema, &row.body));
        read.map(|message| (*message.expect("it can be read")).clone()).collect()
    }

    fn state(stage: &Stage) -> &'static str {
        stage.task("t").expect("it exists").lifecycle.public().as_str()
    }

    /// An activity that may be leased with the turn.
    fn eager_activity(step: u64) -> WorkflowCommand {
        match activity(step) {
            WorkflowCommand::Activity { step, task, .. } => {
                WorkflowCommand::Activity { step, task, eager: true }
            }
            other => other,
        }
    }

    /// Claims the activity of a step and completes it.
    fn work(stage: &mut Stage, step: u64, result: Option<&str>) {
        let claim = Claim { lanes: vec!["work".into()], ..Claim::new("v") };
        let Outcome::Claimed(claimed) = stage.must(claim) else { panic!("it is a claim") };
        assert_eq!(claimed[0].id.as_str(), format!("t/{step}"));
        let result = result.map(Payload::json);
        stage.must(Complete { fence: claimed[0].fence(), result });
    }

    #[test]
    fn table() {
        check_task(
            "
            absent    |         | absent          | ! task_not_found |
            waiting   |         | waiting e0 a0   | ! stale_fence    |
            delayed   |         | delayed e0 a0   | ! stale_fence    |
            granted   |         | granted e0 a0   | ! stale_fence    |
            claimed   |         | claimed e1 a0   | ! not_a_workflow |
            active    |         | active e1 a1    | ! not_a_workflow |
            active    | epoch=2 | active e1 a1    | ! stale_fence    |
            lease_expired    |         | active e1 a1    | ! lease_expired  |
            completed |         | completed e1 a1 | ! already_settled |
            failed    |         | failed e1 a1    | ! already_settled |
            cancelled |         | cancelled e1 a1 | ! already_terminal |
            expired   |         | expired e1 a1   | ! already_terminal |
            suspended |         | suspended e1 a1 | ! already_settled |
            resumable |         | resumable e1 a1 | ! already_settled |
            waiting_children |  | waiting_children e1 a1 | ! already_settled |
            blocked   |         | blocked e0 a0   | ! stale_fence    |
            owned     |         | owned e0 a0     | ! stale_fence    |
            ",
            |args| CommitTurn { fence: args.fence(), ..turn(1, 0, TurnEnd::AwaitMessages) },
        );
    }

    #[test]
    fn a_finished_step_resumes_the_workflow() {
        let mut stage = started();
        let first = CommitTurn {
            commands: vec![activity(0)],
            next_step: 1,
            ..turn(1, 0, TurnEnd::AwaitMessages)
        };
        assert!(!lease_kept(&stage.must(first.clone())));
        assert_eq!(state(&stage), "suspended");
        assert!(!lease_kept(&stage.must(first)), "a repeated turn gets the same response");
        work(&mut stage, 0, Some("42"));
        assert!(stage.task("t/0").is_none(), "an activity is deleted when it ends");
        assert_eq!(state(&stage), "resumable");
        let completion = &messages(&stage)[0];
        let report = completion.completion.as_ref().expect("it is a report");
        assert_eq!((report.step, completion.seq), (0, Message::of_step(0)));
        let result = completion.payload_key().expect("it has a result");
        assert_eq!(stage.tables.payload(&result), Some(&Payload::json("42")));

        stage.must(claim());
        let end = CommitTurn {
            consumed: vec![Message::of_step(0)],
            next_step: 1,
            ..turn(2, 1, TurnEnd::Complete(Some(Payload::json("43"))))
        };
        assert!(!lease_kept(&stage.must(end)));
        let ended = stage.task("t").expect("it is retained");
        assert_eq!((state(&stage), ended.attempts), ("completed", 1));
        assert_eq!(stage.tables.payload(&ended.result_key().unwrap()), Some(&Payload::json("43")));
        assert_eq!(stage.tables.payload(&result), None, "it is deleted with its message");
        for row in 0..2 {
            assert!(stage.tables.payload(&ended.turn_key(row)).is_some(), "row {row}");
        }
        stage.must(DeleteTask { task: key("t") });
        assert_eq!(stage.tables.payloads().count(), 0);
        let mut left = stage.tables.rows().map(|row| row.key.table);
        assert!(left.all(|table| matches!(table, Table::Lane | Table::ReadyRoute)));
    }

    #[test]
    fn history_rows_are_committed_in_order() {
        let mut stage = started();
        assert_eq!(
            stage.run(turn(1, 1, TurnEnd::AwaitMessages)),
            Err(Rejection::TurnMismatch { turns: 0 })
        );
        assert!(lease_kept(
            &stage.must(CommitTurn { next_step: 4, ..turn(1, 0, TurnEnd::MoreParts) })
        ));
        let back = CommitTurn { next_step: 3, ..turn(1, 1, TurnEnd::AwaitMessages) };
        assert_eq!(stage.run(back), Err(Rejection::TurnMismatch { turns: 1 }));
        assert_eq!(state(&stage), "active");
    }

    #[test]
    fn a_visible_message_keeps_the_lease_after_a_turn() {
        let mut stage = started();
        stage.must(SendMessages::one(message("go")));
        assert!(lease_kept(&stage.must(turn(1, 0, TurnEnd::AwaitMessages))));
        assert_eq!(state(&stage), "active");
        let consumed = CommitTurn { consumed: vec![1], ..turn(1, 1, TurnEnd::AwaitMessages) };
        assert!(!lease_kept(&stage.must(consumed)));
        stage.must(SendMessages::one(message("go")));
        assert_eq!(state(&stage), "resumable");
    }

    fn turns_logged(stage: &Stage) -> Vec<(&'static str, Vec<String>)> {
        let found = stage.tables.events_after(0).filter_map(|entry| match entry.change() {
            Some(Change::TurnCommitted { next, activities, .. }) => {
                let ids = activities.iter().map(ToString::to_string).collect();
                Some((next.as_str(), ids))
            }
            _ => None,
        });
        found.collect()
    }

    #[test]
    fn every_part_of_a_turn_is_logged_with_its_activities() {
        let mut stage = started();
        let other = NewTask { lane: "work".into(), ..NewTask::new("t/1", "charge") };
        stage.must(Create::one(other));
        let commands = vec![activity(0), activity(1), eager_activity(2)];
        let eager = Some(Claim { lanes: vec!["work".into()], ..Claim::new("w") });
        stage.must(CommitTurn { commands, next_step: 3, eager, ..turn(1, 0, TurnEnd::MoreParts) });
        stage.must(CommitTurn { next_step: 3, ..turn(1, 1, TurnEnd::Complete(None)) });
        let created = vec!["t/0".to_owned(), "t/2".to_owned()];
        let expected = [("keeps_lease", created), ("ends", Vec::new())];
        assert_eq!(turns_logged(&stage), expected, "t/1 could not be created");
        let names: Vec<String> = stage.tables.events_after(3).map(|entry| entry.name).collect();
        assert_eq!(names, ["turn_committed", "claimed", "turn_committed", "completed"]);
    }

    #[test]
    fn the_end_of_a_turn_is_logged_and_stored() {
        let over = TurnEnd::ContinueAsNew { input: None, version: None, carried: None };
        let class = FailureClass::Permanent;
        for (end, event, settled) in [
            (TurnEnd::AwaitMessages, "turn_committed", Settled::Suspended),
            (TurnEnd::Complete(None), "completed", Settled::Completed),
            (TurnEnd::Fail { class, reason: "no".into() }, "failed", Settled::Failed),
            (TurnEnd::Cancel { reason: "stop".into() }, "cancelled", Settled::Cancelled),
            (over, "continued_as_new", Settled::ContinuedAsNew),
        ] {
            let mut stage = started();
            stage.must(turn(1, 0, end));
            let last = stage.tables.events_after(0).last().expect("a turn is logged");
            assert_eq!(last.name, event);
            let settle = stage.task("t").unwrap().last_settle.expect("the lease has ended");
            assert_eq!(settle.result, settled);
        }
    }

    #[test]
    fn two_timers_cannot_share_a_step() {
        let mut stage = started();
        let timer = || vec![WorkflowCommand::Timer { step: 0, at: stage_time() }];
        stage.must(CommitTurn {
            commands: timer(),
            next_step: 1,
            ..turn(1, 0, TurnEnd::MoreParts)
        });
        let again =
            CommitTurn { commands: timer(), next_step: 1, ..turn(1, 1, TurnEnd::MoreParts) };
        assert_eq!(stage.run(again), Err(Rejection::Conflict));
    }

    fn stage_time() -> crate::time::Timestamp {
        Stage::new().now.plus_ms(1_000)
    }

    #[test]
    fn a_timer_fires_and_can_be_cancelled() {
        let mut stage = started();
        let at = stage.now.plus_ms(1_000);
        let commands =
            vec![WorkflowCommand::Timer { step: 0, at }, WorkflowCommand::Timer { step: 1, at }];
        stage.must(CommitTurn { commands, next_step: 2, ..turn(1, 0, TurnEnd::AwaitMessages) });
        stage.must(SendMessages::one(message("go")));
        stage.must(claim());
        let commands = vec![
            WorkflowCommand::CancelTimer { step: 1 },
            WorkflowCommand::CancelTimer { step: 9 },
        ];
        let next = CommitTurn {
            commands,
            consumed: vec![1],
            next_step: 2,
            ..turn(2, 1, TurnEnd::AwaitMessages)
        };
        assert!(!lease_kept(&stage.must(next)));
        stage.later(999);
        stage.must(Sweep::default());
        assert_eq!(state(&stage), "suspended");
        stage.later(1);
        stage.must(Sweep::default());
        assert_eq!(state(&stage), "resumable");
        let steps: Vec<_> =
            messages(&stage).iter().map(|m| m.completion.as_ref().unwrap().step).collect();
        assert_eq!(steps, [0]);
    }

    #[test]
    fn a_cancelled_activity_sends_no_report() {
        let mut stage = started();
        let commands = vec![activity(0), activity(1)];
        stage.must(CommitTurn { commands, next_step: 2, ..turn(1, 0, TurnEnd::MoreParts) });
        let held = Claim { lanes: vec!["work".into()], ..Claim::new("v") };
        stage.must(held);
        let cancel =
            |step: u64| WorkflowCommand::CancelTask { step, id: format!("t/{step}").into() };
        let commands = vec![cancel(0), cancel(1), cancel(7)];
        assert!(!lease_kept(&stage.must(CommitTurn {
            commands,
            next_step: 2,
            ..turn(1, 1, TurnEnd::AwaitMessages)
        })));
        assert!(stage.task("t/0").is_none() && stage.task("t/1").is_none());
        let late = Complete { fence: fence_of("t/0", 1), result: None };
        assert_eq!(stage.run(late), Err(Rejection::TaskNotFound));
        let (fence, reason) = (fence_of("t/0", 1), String::new());
        let class = FailureClass::Transient;
        let late = Fail { fence, class, reason, retry: Retry::Policy };
        assert_eq!(stage.run(late), Err(Rejection::TaskNotFound));
        assert_eq!(messages(&stage), []);
    }

    #[test]
    fn eager_activities_are_leased_in_the_commit_that_creates_them() {
        let mut stage = started();
        let claim = Claim { limit: 2, ..Claim::new("w") };
        let commands = vec![eager_activity(0), activity(1), eager_activity(2), eager_activity(3)];
        let turn = CommitTurn {
            commands,
            next_step: 4,
            eager: Some(claim),
            ..turn(1, 0, TurnEnd::AwaitMessages)
        };
        let Outcome::TurnCommitted { claimed, .. } = stage.must(turn) else {
            panic!("it is a turn")
        };
        let ids: Vec<_> = claimed.iter().map(|task| task.id.as_str()).collect();
        assert_eq!(ids, ["t/0", "t/2"]);
        stage.must(Complete { fence: claimed[1].fence(), result: None });
        assert_eq!(state(&stage), "resumable");
        for step in [1, 3] {
            work(&mut stage, step, None);
        }
        assert_eq!(messages(&stage).len(), 3);
    }

    /// The retrying worker never received the eager leases. Leases that have ended since, or that
    /// came from an ordinary claim, are not returned.
    #[test]
    fn a_repeated_turn_returns_the_eager_leases_still_alive() {
        let take = || Claim { lanes: vec!["work".into()], ..Claim::new("w") };
        type Between = fn(&mut Stage, Claim);
        let rows: [(&str, Between, &[&str]); 8] = [
            ("nothing", |_, _| {}, &["t/0", "t/1"]),
            ("time", |stage, _| stage.later(29_000), &["t/0", "t/1"]),
            ("the lease expires", |stage, _| stage.later(31_000), &[]),
            (
                "it is swept and leased again",
                |stage, take| {
                    stage.later(31_000);
                    stage.must(Sweep::default());
                    stage.must(Claim { limit: 3, ..take });
                },
                &[],
            ),
            (
                "one ends",
                |stage, _| drop(stage.must(Complete { fence: fence_of("t/0", 1), result: None })),
                &["t/1"],
            ),
            (
                "one is released",
                |stage, _| drop(stage.must(Release { fence: fence_of("t/1", 1) })),
                &["t/0"],
            ),
            (
                "one is released and claimed again",
                |stage, take| {
                    stage.must(Release { fence: fence_of("t/1", 1) });
                    stage.must(Claim { limit: 3, ..take });
                },
                &["t/0"],
            ),
            // Its lease did not come with the turn.
            ("the third is claimed", |stage, take| drop(stage.must(take)), &["t/0", "t/1"]),
        ];
        for (between, happens, expected) in rows {
            let mut stage = started();
            let eager = Some(Claim { limit: 2, ..Claim::new("w") });
            let commands = (0..3).map(eager_activity).collect();
            let turn =
                CommitTurn { commands, next_step: 3, eager, ..turn(1, 0, TurnEnd::AwaitMessages) };
            let Outcome::TurnCommitted { claimed: first, .. } = stage.must(turn.clone()) else {
                panic!("it is a turn")
            };
            happens(&mut stage, take());
            let before = stage.tables.clone();
            let Outcome::TurnCommitted { claimed, lease_kept: None } = stage.must(turn.clone())
            else {
                panic!("{between}")
            };
            let ids: Vec<_> = claimed.iter().map(|task| task.id.as_str()).collect();
            assert_eq!(ids, expected, "{between}");
            assert!(claimed.iter().all(|task| first.contains(task)), "{between}");
            let other = CommitTurn { eager: Some(Claim::new("v")), ..turn };
            assert_eq!(
                stage.must(other),
                Outcome::TurnCommitted { claimed: vec![], lease_kept: None }
            );
            assert_eq!(stage.tables, before, "{between}");
        }
    }

    /// As long as the lease is alive and no later turn was committed.
    #[test]
    fn a_repeated_turn_keeps_the_lease() {
        let with_kept_lease = || {
            let mut stage = started();
            stage.must(SendMessages::one(message("go")));
            let commands = vec![eager_activity(0)];
            let eager = Some(Claim::new("w"));
            let again =
                CommitTurn { commands, next_step: 1, eager, ..turn(1, 0, TurnEnd::AwaitMessages) };
            let first = stage.must(again.clone());
            assert!(lease_kept(&first));
            assert_eq!(stage.must(again.clone()), first);
            (stage, again)
        };
        let (mut stage, again) = with_kept_lease();
        let row = Some(Payload::json("[]"));
        let rejected = Err(Rejection::TurnMismatch { turns: 1 });
        assert_eq!(stage.run(CommitTurn { row, ..again.clone() }), rejected, "a different turn");
        stage.must(CommitTurn { next_step: 1, ..turn(1, 1, TurnEnd::MoreParts) });
        let rejected = Err(Rejection::TurnMismatch { turns: 2 });
        assert_eq!(stage.run(again), rejected, "another turn was committed since");

        let (mut stage, again) = with_kept_lease();
        stage.must(Release { fence: fence(1) });
        assert_eq!(stage.run(again.clone()), Err(Rejection::AlreadySettled), "it is released");
        stage.must(claim());
        let rejected = Err(Rejection::TurnMismatch { turns: 1 });
        let next = CommitTurn { fence: fence(2), ..again };
        assert_eq!(stage.run(next), rejected, "it was under another lease");

        let (mut stage, again) = with_kept_lease();
        stage.later(31_000);
        assert_eq!(stage.run(again), Err(Rejection::LeaseExpired));
    }

    #[test]
    fn a_crash_costs_no_attempt_and_too_many_fail_the_workflow() {
        let mut stage = Stage::new();
        let mut poison = workflow();
        poison.policy.max_lost_leases = 2;
        stage.must(Create::one(poison));
        for lost in 0..2 {
            stage.must(claim());
            stage.later(31_000);
            stage.must(Sweep::default());
            assert_eq!(
                (state(&stage), stage.task("t").unwrap().lost_leases),
                ("resumable", lost + 1)
            );
        }
        stage.must(claim());
        stage.must(turn(3, 0, TurnEnd::AwaitMessages));
        assert_eq!(stage.task("t").unwrap().lost_leases, 0, "a committed turn resets the count");
        stage.must(SendMessages::one(message("go")));
        for _ in 0..3 {
            assert_eq!(state(&stage), "resumable");
            stage.must(claim());
            stage.later(31_000);
            stage.must(Sweep::default());
        }
        assert_eq!(state(&stage), "failed");
        let Lifecycle::Failed { class, reason, .. } = stage.task("t").unwrap().lifecycle else {
            panic!("it has failed")
        };
        assert_eq!(class, FailureClass::Crash);
        assert_eq!(reason, "turn 1 was claimed 3 times and never committed");
    }

    /// The reason names the turn and how often it was leased.
    #[test]
    fn too_many_lost_leases_name_the_turn() {
        let default = limits::DEFAULT_TURN_LOST_LEASES;
        let rows = [
            (0, 0, "turn 0 was claimed 1 times and never committed"),
            (0, 2, "turn 0 was claimed 3 times and never committed"),
            (6, default, "turn 6 was claimed 11 times and never committed"),
        ];
        for (rows_before, max_lost_leases, expected) in rows {
            let mut stage = Stage::new();
            let mut poison = workflow();
            poison.policy.max_lost_leases = max_lost_leases;
            stage.must(Create::one(poison));
            stage.must(claim());
            for row in 0..rows_before {
                stage.must(turn(1, row, TurnEnd::MoreParts));
            }
            for _ in 0..max_lost_leases {
                stage.later(31_000);
                stage.must(Sweep::default());
                assert_eq!(state(&stage), "resumable", "{expected}");
                stage.must(claim());
            }
            stage.later(31_000);
            stage.must(Sweep::default());
            let Lifecycle::Failed { reason, .. } = stage.task("t").unwrap().lifecycle else {
                panic!("{expected}")
            };
            assert_eq!(reason, expected);
        }
    }

    #[test]
    fn the_sticky_worker_is_preferred_for_a_limited_time() {
        let mut stage = started();
        let sticky = CommitTurn { sticky_ms: Some(5_000), ..turn(1, 0, TurnEnd::AwaitMessages) };
        stage.must(sticky);
        stage.must(SendMessages::one(message("go")));
        let other = Claim { worker: "v".into(), ..claim() };
        assert_eq!(stage.must(other.clone()), Outcome::Claimed(vec![]));
        stage.later(5_000);
        stage.must(Sweep::default());
        assert!(matches!(stage.must(other), Outcome::Claimed(tasks) if tasks.len() == 1));
        assert_eq!(stage.task("t").unwrap().workflow.unwrap().sticky, None);
        stage.must(Release { fence: fence(2) });
        stage.must(Claim { grants: true, ..claim() });
        let consumed = CommitTurn {
            consumed: vec![1],
            sticky_ms: Some(5_000),
            ..turn(3, 1, TurnEnd::AwaitMessages)
        };
        stage.must(consumed);
        stage.must(SendMessages::one(message("go")));
        let own = stage.must(Claim { grants: true, ..claim() });
        assert!(matches!(own, Outcome::Claimed(tasks) if tasks.len() == 1));
    }

    /// The worker died while it held an activity, which another worker completes.
    #[test]
    fn losing_the_lease_of_a_step_clears_the_sticky_worker() {
        for (by, is_kept_for_w) in [("w", false), ("u", true)] {
            let mut stage = started();
            let commands = vec![activity(0)];
            let sticky_ms = Some(5_000);
            stage.must(CommitTurn {
                commands,
                next_step: 1,
                sticky_ms,
                ..turn(1, 0, TurnEnd::AwaitMessages)
            });
            stage.must(Claim { lanes: vec!["work".into()], ..Claim::new(by) });
            stage.later(31_000);
            stage.must(Sweep::default());
            work(&mut stage, 0, None);
            let other = stage.must(Claim { worker: "v".into(), ..claim() });
            let Outcome::Claimed(tasks) = other else { panic!("it is a claim") };
            assert_eq!(tasks.is_empty(), is_kept_for_w, "lost by {by}");
        }
    }

    /// The worker is alive, and has the workflow in its cache.
    #[test]
    fn an_attempt_timeout_keeps_the_sticky_worker() {
        let mut stage = started();
        let WorkflowCommand::Activity { step, mut task, eager } = activity(0) else {
            panic!("it is one")
        };
        task.policy.attempt_timeout_ms = Some(1_000);
        let commands = vec![WorkflowCommand::Activity { step, task, eager }];
        let sticky_ms = Some(5_000);
        stage.must(CommitTurn {
            commands,
            next_step: 1,
            sticky_ms,
            ..turn(1, 0, TurnEnd::AwaitMessages)
        });
        stage.must(Claim { lanes: vec!["work".into()], ..Claim::new("w") });
        stage.later(1_000);
        stage.must(Sweep::default());
        assert_eq!(messages(&stage).len(), 1, "it was its only attempt");
        let other = stage.must(Claim { worker: "v".into(), ..claim() });
        assert_eq!(other, Outcome::Claimed(vec![]));
    }

    #[test]
    fn cancellation_is_requested_once() {
        let mut stage = started();
        stage.must(turn(1, 0, TurnEnd::AwaitMessages));
        let ask = |reason: &str| RequestCancel { task: key("t"), reason: reason.into() };
        for reason in ["enough", "again"] {
            stage.must(ask(reason));
        }
        assert_eq!(state(&stage), "resumable");
        let pending = messages(&stage);
        assert_eq!((pending.len(), pending[0].name.as_str()), (1, Message::CANCEL));
        let task = stage.task("t").unwrap();
        assert_eq!(task.workflow.unwrap().cancel_reason.as_deref(), Some("enough"));
        stage.must(claim());
        let end = TurnEnd::Cancel { reason: "enough".into() };
        stage.must(CommitTurn { consumed: vec![1], ..turn(2, 1, end) });
        assert_eq!(state(&stage), "cancelled");
    }

    #[test]
    fn continue_as_new_continues_the_step_numbers() {
        let mut stage = started();
        let at = stage.now.plus_ms(1);
        let commands = vec![activity(0), WorkflowCommand::Timer { step: 1, at }];
        stage.must(CommitTurn { commands, next_step: 2, ..turn(1, 0, TurnEnd::MoreParts) });
        let over = TurnEnd::ContinueAsNew {
            input: Some(Payload::json("8")),
            version: None,
            carried: Some(Payload::json("[]")),
        };
        let commands = vec![WorkflowCommand::CancelTimer { step: 1 }];
        stage.must(CommitTurn { commands, next_step: 2, ..turn(1, 1, over) });
        let task = stage.task("t").unwrap();
        assert_eq!((state(&stage), task.execution), ("resumable", 1));
        let input = task.input_key().unwrap();
        assert_eq!(stage.tables.payload(&input), Some(&Payload::json("8")));
        let carried = task.carried_key().unwrap();
        assert_eq!(stage.tables.payload(&carried), Some(&Payload::json("[]")));
        let state = task.workflow.as_ref().unwrap();
        assert_eq!((state.turns, state.first_step, state.next_step), (0, 2, 2));
        work(&mut stage, 0, Some("1"));
        assert_eq!(messages(&stage), [], "it was of the execution before");
        stage.must(claim());
        stage.must(CommitTurn { next_step: 2, ..turn(2, 0, TurnEnd::Complete(None)) });
        stage.later(8 * 86_400_000);
        for _ in 0..3 {
            stage.must(Sweep::default());
        }
        assert_eq!(stage.tables.payloads().count(), 0, "nothing is retained for ever");
        let executions = stage.tables.rows().filter(|row| row.key.table == Table::Execution);
        assert_eq!(executions.count(), 0);
    }

    #[test]
    fn only_a_worker_with_its_version_claims_it() {
        let offering = |capabilities: &[&str]| {
            let mut claim = claim();
            claim.capabilities.names = capabilities.iter().map(|c| (*c).to_owned()).collect();
            claim.grants = true;
            claim
        };
        let takes =
            |stage: &mut Stage, capabilities: &[&str]| match stage.must(offering(capabilities)) {
                Outcome::Claimed(tasks) => tasks.len() == 1,
                other => panic!("{other:?}"),
            };
        let pinned = |version: &str| NewTask {
            workflow: Some(NewWorkflow { version: Some(version.into()) }),
            ..workflow()
        };
        let mut stage = Stage::new();
        let rejected = stage.run(Create::one(pinned("1.2"))).unwrap_err();
        assert_eq!(rejected.to_string(), "version is not a version such as 1.2.0");
        stage.must(Create::one(pinned("1.2.0")));
        for others in [&[][..], &["order:1.2.1"], &["other:1.2.0"]] {
            assert!(!takes(&mut stage, others), "{others:?}");
        }
        assert!(takes(&mut stage, &["order:1.2.0", "order:2.0.0"]));
        let over = |version: &str| TurnEnd::ContinueAsNew {
            input: None,
            version: Some(version.into()),
            carried: None,
        };
        let rejected = stage.run(turn(1, 0, over("two"))).unwrap_err();
        assert_eq!(rejected.code(), "invalid");
        stage.must(CommitTurn { sticky_ms: Some(5_000), ..turn(1, 0, over("2.0.0")) });
        assert_eq!(stage.task("t").unwrap().workflow.unwrap().version.as_deref(), Some("2.0.0"));
        assert!(!takes(&mut stage, &["order:1.2.0"]));
        assert!(takes(&mut stage, &["order:2.0.0"]));
        let continued = TurnEnd::ContinueAsNew { input: None, version: None, carried: None };
        stage.must(turn(2, 0, continued));
        assert!(!takes(&mut stage, &["order:1.2.0"]));
        assert!(takes(&mut stage, &["order:2.0.0"]));
    }

    #[test]
    fn a_child_that_cannot_be_created_fails_its_step() {
        let mut stage = started();
        stage.must(Create::one(NewTask::new("other", "k")));
        let child =
            NewTask { workflow: Some(NewWorkflow::default()), ..NewTask::new("other", "k") };
        let long = NewTask { id: "x".repeat(201).into(), ..child.clone() };
        let commands = vec![
            WorkflowCommand::Child { step: 0, task: child.clone() },
            WorkflowCommand::Start { step: 1, task: child.clone() },
            WorkflowCommand::Start { step: 2, task: long },
            WorkflowCommand::Start {
                step: 3,
                task: NewTask { id: "fresh".into(), ..child.clone() },
            },
            WorkflowCommand::Start { step: 4, task: NewTask { id: "fresh".into(), ..child } },
        ];
        assert!(lease_kept(&stage.must(CommitTurn {
            commands,
            next_step: 5,
            ..turn(1, 0, TurnEnd::AwaitMessages)
        })));
        assert_eq!(stage.task("fresh").unwrap().parent, None);
        let found = rejections(&stage);
        assert_eq!(found.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(found[0].1.starts_with("other could not be created: "), "{found:?}");
        assert_eq!(found[1].1, found[0].1);
        assert!(
            found[2].1.ends_with("could not be created: id is longer than 200 bytes"),
            "{found:?}"
        );
    }

    /// The steps that were reported to the workflow as rejected, and why.
    fn rejections(stage: &Stage) -> Vec<(u64, String)> {
        let found = messages(stage).into_iter().filter_map(|message| {
            let report = message.completion?;
            match report.task?.lifecycle {
                Lifecycle::Failed { class, reason, .. } => {
                    assert_eq!(class, FailureClass::Permanent);
                    Some((report.step, reason))
                }
                _ => None,
            }
        });
        found.collect()
    }

    /// A turn without a row leaves the number of turns, so that the next one may repeat its steps.
    #[test]
    fn a_step_whose_message_is_stored_is_rejected() {
        let at = crate::time::Timestamp::from_millis(9_000_000);
        let timer = || WorkflowCommand::Timer { step: 0, at };
        let send = || WorkflowCommand::Send {
            on_reject: OnReject::FailStep { step: 0 },
            message: NewMessage::new("missing", "hello", "t"),
        };
        let start = || WorkflowCommand::Start { step: 0, task: NewTask::new("t", "charge") };
        let turn = |command| CommitTurn {
            row: None,
            commands: vec![command],
            next_step: 1,
            ..turn(1, 0, TurnEnd::MoreParts)
        };
        for first in [timer(), send(), start()] {
            let mut stage = started();
            stage.must(turn(first));
            let before = stage.tables.clone();
            for second in [timer(), send(), start()] {
                assert_eq!(stage.run(turn(second)), Err(Rejection::Conflict));
                assert_eq!(stage.tables, before);
            }
        }
    }

    #[test]
    fn an_undeliverable_message_fails_its_step() {
        let mut stage = started();
        for id in ["full", "over"] {
            stage.must(Create::one(NewTask { lane: "work".into(), ..NewTask::new(id, "k") }));
        }
        stage.must(crate::command::Cancel { task: key("over"), reason: String::new() });
        for _ in 0..limits::MAILBOX_MESSAGES {
            stage.must(SendMessages::one(NewMessage::new("full", "hello", "t")));
        }
        let buffered = NewMessage {
            if_absent: IfAbsent::Buffer { ttl_ms: 60_000 },
            ..NewMessage::new("later", "hello", "t")
        };
        let to = ["full", "over", "missing"].map(|to| NewMessage::new(to, "hello", "t"));
        let commands = to.into_iter().chain([buffered]).zip(0..);
        let commands = commands
            .map(|(message, step)| WorkflowCommand::Send {
                message,
                on_reject: OnReject::FailStep { step },
            })
            .collect();
        assert!(lease_kept(&stage.must(CommitTurn {
            commands,
            next_step: 4,
            ..turn(1, 0, TurnEnd::AwaitMessages)
        })));
        let found = rejections(&stage);
        let why = [
            (0, "hello could not be sent to full: the mailbox is full"),
            (1, "hello could not be sent to over: "),
            (2, "hello could not be sent to missing: "),
        ];
        assert_eq!(found.len(), why.len(), "{found:?}");
        for ((step, reason), expected) in found.iter().zip(why) {
            assert!(*step == expected.0 && reason.starts_with(expected.1), "{found:?}");
        }
        let consumed = (0..3).map(Message::of_step).collect();
        stage.must(CommitTurn { consumed, next_step: 4, ..turn(1, 1, TurnEnd::AwaitMessages) });
        assert_eq!(state(&stage), "suspended");
    }

    /// The turn is committed, the rejected message leaves no row.
    #[test]
    fn a_rejected_message_of_a_turn_leaves_nothing() {
        let keyed = |to: &str, key: &str| NewMessage {
            idempotency: Some(IdempotencyWindow { key: key.into(), window_ms: 60_000 }),
            ..NewMessage::new(to, "hello", "t")
        };
        let workflow = NewTask {
            lane: "work".into(),
            workflow: Some(NewWorkflow::default()),
            ..NewTask::new("new", "k")
        };
        let orphan = NewTask { parent: Some("missing".into()), ..workflow.clone() };
        let lost = NewTask { lane: "unused".into(), ..orphan };
        let start = |new: NewTask| IfAbsent::Start(Box::new(new));
        let buffered = NewMessage {
            if_absent: IfAbsent::Buffer { ttl_ms: 60_000 },
            payload: Some(Payload::new("a/b", vec![0; 256 * 1_024])),
            ..NewMessage::new("new", "large", "t")
        };
        for (before, message) in [
            (0, keyed("over", "k")),
            (0, NewMessage { if_absent: start(lost), ..keyed("new", "k") }),
            (64, NewMessage { if_absent: start(workflow), ..buffered.clone() }),
        ] {
            let mut stage = started();
            stage.must(Create::one(NewTask { lane: "work".into(), ..NewTask::new("over", "k") }));
            stage.must(crate::command::Cancel { task: key("over"), reason: String::new() });
            (0..before).for_each(|_| drop(stage.must(SendMessages::one(buffered.clone()))));
            let rows = |stage: &Stage| {
                let others =
                    stage.tables.rows().filter(|row| !format!("{:?}", row.key).contains("\"t\""));
                others.map(|row| format!("{row:?}")).collect::<Vec<_>>()
            };
            let expected = rows(&stage);
            let commands =
                vec![WorkflowCommand::Send { message, on_reject: OnReject::FailStep { step: 0 } }];
            stage.must(CommitTurn { commands, next_step: 1, ..turn(1, 0, TurnEnd::AwaitMessages) });
            assert_eq!(rejections(&stage).len(), 1);
            assert_eq!(rows(&stage), expected);
        }
    }

    #[test]
    fn a_child_reports_and_retains_its_result() {
        let mut stage = started();
        let child = NewTask {
            lane: "work".into(),
            workflow: Some(NewWorkflow::default()),
            ..NewTask::new("child", "invoice")
        };
        let commands = vec![WorkflowCommand::Child { step: 0, task: child }];
        stage.must(CommitTurn { commands, next_step: 1, ..turn(1, 0, TurnEnd::AwaitMessages) });
        let claim = Claim { lanes: vec!["work".into()], ..Claim::new("v") };
        stage.must(claim);
        let end = TurnEnd::Complete(Some(Payload::json("9")));
        stage.must(CommitTurn { fence: fence_of("child", 1), ..turn(1, 0, end) });
        assert_eq!(state(&stage), "resumable");
        let result = messages(&stage)[0].payload_key().unwrap();
        stage.must(crate::testing::claim());
        let rejected = stage.run(DeleteTask { task: key("child") });
        assert_eq!(rejected, Err(Rejection::ParentOpen), "its parent has not read it");
        let consumed = vec![Message::of_step(0)];
        stage.must(CommitTurn { consumed, next_step: 1, ..turn(2, 1, TurnEnd::Complete(None)) });
        assert_eq!(
            stage.tables.payload(&result),
            Some(&Payload::json("9")),
            "it belongs to the child"
        );
        stage.must(DeleteTask { task: key("child") });
        assert_eq!(stage.tables.payload(&result), None);
    }

    #[test]
    fn properties_and_messages() {
        let mut stage = started();
        stage.must(Create::one(NewTask::new("u", "k")));
        let property = |name: &str, text: Option<&str>| WorkflowCommand::SetProperty {
            name: name.into(),
            text: text.map(str::to_owned),
        };
        let send = |step, to: &str| WorkflowCommand::Send {
            on_reject: OnReject::FailStep { step },
            message: NewMessage::new(to, "hello", "t"),
        };
        let buffered = NewMessage {
            if_absent: IfAbsent::Buffer { ttl_ms: 60_000 },
            ..NewMessage::new("later", "hello", "t")
        };
        let commands = vec![
            property("", Some("half way")),
            property("a", Some("1")),
            property("b", None),
            send(0, "u"),
            send(1, "t"),
            send(2, "missing"),
            WorkflowCommand::Send { message: buffered, on_reject: OnReject::FailStep { step: 3 } },
        ];
        assert!(lease_kept(&stage.must(CommitTurn {
            commands,
            next_step: 4,
            ..turn(1, 0, TurnEnd::AwaitMessages)
        })));
        let buffered = Message::key_of(&Tenant::default(), &"later".into(), 1);
        assert!(stage.record::<Message>(&buffered).unwrap().buffered_until.is_some());
        let status: WorkflowProperty = stage
            .record(&WorkflowProperty::key_of(
                &Tenant::default(),
                &"t".into(),
                WorkflowProperty::STATUS,
            ))
            .unwrap();
        assert_eq!(status.text, "half way");
        let found = stage.tables.events_after(0).filter_map(|logged| logged.change());
        let found: Vec<_> = found.filter(|change| change.name() == "status_changed").collect();
        assert_eq!(found, [Change::StatusChanged { revision: status.revision }]);
        assert_eq!(messages(&stage).len(), 4);
        let before = stage.tables.clone();
        let long = "x".repeat(64 * 1_024 + 1);
        let commands = vec![property("a", Some(&long))];
        let rejected =
            stage.run(CommitTurn { commands, next_step: 4, ..turn(1, 1, TurnEnd::AwaitMessages) });
        assert_eq!(rejected.unwrap_err().code(), "invalid");
        assert_eq!(stage.tables, before);
    }
}
