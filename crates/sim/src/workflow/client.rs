use windlass_core::command::{
    Cancel, Claim, CommitTurn, Create, IdempotencyWindow, NewMessage, NewTask, NewWorkflow,
    PruneExecutions, RequestCancel, SendMessages, TurnEnd,
};
use windlass_core::{Command, LaneName, Payload, TaskKey, Tenant, limits};

use crate::client::Client;
use crate::model::{OPERATOR, Workflows};
use crate::workflow::interpreter::PROGRAM;
use crate::workflow::plan::{LANE, TENANT, WorkflowOperation, WorkflowSpec};

/// The source of messages to workflows.
pub(crate) const MESSAGE_SOURCE: &str = "client";

/// More leases than a run can lose over one turn.
const LOST_LEASES: u32 = 1_000;

/// Whether a command is about workflows.
pub(crate) fn is_of_workflows(command: &Command) -> bool {
    let tenant = match command {
        Command::Create(create) => &create.tenant,
        Command::SendMessages(send) => &send.tenant,
        Command::Claim(claim) => &claim.tenant,
        Command::RequestCancel(cancel) => &cancel.task.tenant,
        Command::Cancel(cancel) => &cancel.task.tenant,
        Command::PruneExecutions(prune) => &prune.task.tenant,
        Command::CommitTurn(turn) => &turn.fence.task.tenant,
        _ => return false,
    };
    tenant.as_str() == TENANT
}

/// A numbered message to a workflow, the same whenever it is sent.
pub(crate) fn message(spec: &WorkflowSpec, waits: &[u8], nth: usize) -> Command {
    let name = format!("m{}", waits[nth]);
    let (key, window_ms) = (format!("{nth}").into(), limits::DEFAULT_WINDOW_MS);
    let message = NewMessage {
        idempotency: Some(IdempotencyWindow { key, window_ms }),
        payload: Some(Payload::json(nth.to_string())),
        ..NewMessage::new(spec.id.as_str(), name, MESSAGE_SOURCE)
    };
    SendMessages { tenant: Tenant::new(TENANT), messages: vec![message] }.into()
}

impl Client<'_> {
    pub(crate) fn of_workflows(&self, operation: WorkflowOperation) -> Option<Command> {
        let specs = &self.script.workflows;
        let spec = |workflow: u8| {
            let at = usize::from(workflow).checked_rem(specs.len())?;
            Some(&specs[at])
        };
        let key = |workflow| {
            let id = spec(workflow)?.id.as_str().into();
            Some(TaskKey::new(&Tenant::new(TENANT), &id))
        };
        Some(match operation {
            WorkflowOperation::Start { workflow } => start(spec(workflow)?),
            WorkflowOperation::Tell { workflow, nth } => {
                let spec = spec(workflow)?;
                let waits = spec.plan.waits();
                let nth = usize::from(nth).checked_rem(waits.len())?;
                message(spec, &waits, nth)
            }
            WorkflowOperation::Cancel { workflow } => {
                RequestCancel { task: key(workflow)?, reason: OPERATOR.into() }.into()
            }
            WorkflowOperation::End { workflow } => {
                Cancel { task: key(workflow)?, reason: OPERATOR.into() }.into()
            }
            WorkflowOperation::Prune { workflow, keep } => {
                let (task, keep_last) = (key(workflow)?, u32::from(keep));
                PruneExecutions { task, keep_last, before: None }.into()
            }
            WorkflowOperation::Claim { lease_ms } => Claim {
                tenant: Tenant::new(TENANT),
                lanes: vec![LaneName::new(LANE)],
                lease_ms,
                ..Claim::new(self.name.as_str())
            }
            .into(),
            WorkflowOperation::Commit { lease, ahead } => self.commit(lease, ahead)?,
        })
    }

    /// Under a lease that may have ended: as the next turn, which changes nothing, or as another
    /// turn than the next.
    fn commit(&self, lease: u8, ahead: u8) -> Option<Command> {
        let fence = self.turn_lease(lease)?;
        let (turn, next_step) = self.view.workflows.position(&fence.task.id)?;
        let ahead = u32::from(ahead % 3);
        let (turn, row) = match ahead {
            0 => (turn, None),
            1 => (turn + FAR_AHEAD, Some(Payload::json(EMPTY_ROW))),
            _ => (turn.checked_sub(1)?, Some(Payload::json(EMPTY_ROW))),
        };
        let commit = CommitTurn {
            fence,
            turn,
            row,
            consumed: Vec::new(),
            commands: Vec::new(),
            next_step,
            end: TurnEnd::MoreParts,
            sticky_ms: None,
            eager: None,
            metadata: None,
        };
        Some(commit.into())
    }
}

/// More turns than a workflow makes during a call: the turn after the next one may become the
/// next, because the lease holder continues meanwhile.
const FAR_AHEAD: u32 = 1_000;

/// A history row without content.
const EMPTY_ROW: &str = "{\"at\":0}";

fn start(spec: &WorkflowSpec) -> Command {
    let payload = serde_json::to_string(&spec.plan).expect("a plan is plain data");
    let mut task = NewTask::new(spec.id.as_str(), PROGRAM);
    task.lane = LANE.into();
    task.payload = Some(Payload::json(payload));
    task.workflow = Some(NewWorkflow::default());
    task.policy.max_lost_leases = LOST_LEASES;
    Create { tenant: Tenant::new(TENANT), tasks: vec![task] }.into()
}

impl Workflows {
    /// The number of rows of a workflow, and of its next step.
    fn position(&self, id: &windlass_core::TaskId) -> Option<(u32, u64)> {
        let workflow = self.task(id)?.workflow.as_deref()?;
        Some((workflow.turns, workflow.next_step))
    }
}
