use std::sync::Arc;

use windlass_core::command::{
    AbandonTurn, Claim, CommitTurn, Complete, Delay, DropActivity, IfAbsent, MailboxLimit,
    NewMessage, NewTask, NewWorkflow, OnReject, Release, ReleaseSession, Renew, RenewSessions,
    RuntimeMetadata, SendMessages, TurnEnd, WorkflowCommand,
};
use windlass_core::{
    Command, Lifecycle, LimitKey, Payload, RetryPolicy, SESSIONS, Task, Tenant, WorkerCapabilities,
};

use crate::client::{Client, back_from};
use crate::external_runtime::operation::{
    ACTIVITY_WORKERS, ExternalOperation, FLOWS, KEEP_MS, LOCKS, SENDER, TENANT,
};
use crate::external_runtime::operation::{TURNS, WORKS};

/// The duration of renewed leases.
const RENEWED_MS: u64 = 1_500;

/// More than a run has: no activity fails because of lost leases.
const PLENTY: u32 = 1_000;

/// Whether a command is about workflows of the external runtime.
pub(crate) fn is_external_runtime(command: &Command) -> bool {
    let tenant = match command {
        Command::SendMessages(send) => &send.tenant,
        Command::Claim(claim) => &claim.tenant,
        Command::CommitTurn(turn) => &turn.fence.task.tenant,
        Command::AbandonTurn(decline) => &decline.fence.task.tenant,
        Command::DropActivity(discard) => &discard.fence.task.tenant,
        Command::Complete(complete) => &complete.fence.task.tenant,
        Command::Release(release) => &release.fence.task.tenant,
        Command::Renew(renew) => &renew.fence.task.tenant,
        Command::RenewSessions(renew) => &renew.tenant,
        Command::ReleaseSession(release) => &release.tenant,
        _ => return false,
    };
    tenant.as_str() == TENANT
}

/// The activities of a turn, in the order of their steps.
pub(crate) fn made_by(turn: &CommitTurn) -> impl Iterator<Item = &NewTask> {
    turn.commands.iter().filter_map(|behavior| match behavior {
        WorkflowCommand::Activity { task, .. } => Some(task),
        _ => None,
    })
}

impl Client<'_> {
    pub(crate) fn of_external_runtime(&self, operation: ExternalOperation) -> Option<Command> {
        let tenant = Tenant::new(TENANT);
        Some(match operation {
            ExternalOperation::Send { to, absent, after_ms } => {
                let messages = vec![message(to, absent, after_ms, &self.name)];
                SendMessages { tenant, messages }.into()
            }
            ExternalOperation::Receive { limit, lease_ms } => {
                receive(&self.name, limit, lease_ms).into()
            }
            ExternalOperation::Turn { lease, whole, works, to, next } => {
                let flow = self.held(lease, true)?;
                let commands = TurnPlan { whole, works, to, next };
                turn(&flow, commands, &self.name)?.into()
            }
            ExternalOperation::Decline { lease, delay_ms, counts } => AbandonTurn {
                fence: self.held(lease, true)?.fence(),
                delay_ms,
                count_delivery: counts,
            }
            .into(),
            ExternalOperation::Release { lease } => {
                Release { fence: self.held(lease, true)?.fence() }.into()
            }
            ExternalOperation::Work { worker, limit, lease_ms, lock_ms } => {
                work(pick(&ACTIVITY_WORKERS, worker), limit, lease_ms, lock_ms).into()
            }
            ExternalOperation::Renew { lease } => {
                Renew { fence: self.held(lease, false)?.fence(), lease_ms: RENEWED_MS }.into()
            }
            ExternalOperation::Complete { lease } => {
                let fence = self.held(lease, false)?.fence();
                Complete { fence, result: Some(Payload::json("1")) }.into()
            }
            ExternalOperation::Discard { lease } => {
                DropActivity { fence: self.held(lease, false)?.fence(), reason: "unused".into() }
                    .into()
            }
            ExternalOperation::RenewLocks { worker, lock_ms, idle_ms } => {
                let workers = vec![pick(&ACTIVITY_WORKERS, worker).into()];
                RenewSessions { tenant, workers, lock_ms, idle_ms }.into()
            }
            ExternalOperation::ForgetLock { lock } => {
                let session = pick(&LOCKS, lock).to_owned();
                ReleaseSession { tenant, session, affinity: true }.into()
            }
        })
    }

    /// A workflow or an activity as it was leased `back` leases ago.
    fn held(&self, back: u8, is_flow: bool) -> Option<Arc<Task>> {
        let leased = self.view.external_runtime.leased();
        let of_it = leased.iter().filter(|task| task.workflow.is_some() == is_flow);
        back_from(&of_it.collect::<Vec<_>>(), back).map(|task| Arc::clone(task))
    }
}

fn pick<'n>(names: &[&'n str], number: u8) -> &'n str {
    names[usize::from(number) % names.len()]
}

fn message(to: u8, absent: u8, after_ms: u64, name: &str) -> NewMessage {
    let if_absent = match absent % 4 {
        0 => IfAbsent::Reject,
        1 => IfAbsent::Buffer { ttl_ms: KEEP_MS },
        _ => {
            let mut flow = NewTask::new("it", "flow");
            flow.lane = TURNS.into();
            flow.workflow = Some(NewWorkflow::default());
            flow.policy.max_lost_leases = PLENTY;
            IfAbsent::Start(Box::new(flow))
        }
    };
    let delay = if after_ms == 0 { Delay::None } else { Delay::For { ms: after_ms } };
    let limit = MailboxLimit::Extended;
    NewMessage { delay, if_absent, limit, ..NewMessage::new(pick(&FLOWS, to), name, SENDER) }
}

pub(super) fn receive(worker: &str, limit: u32, lease_ms: u64) -> Claim {
    Claim {
        tenant: Tenant::new(TENANT),
        lanes: vec![TURNS.into()],
        limit,
        lease_ms,
        deliver_messages: true,
        ..Claim::new(worker)
    }
}

pub(super) fn work(worker: &str, limit: u32, lease_ms: u64, lock_ms: u64) -> Claim {
    let capabilities = [SESSIONS.to_owned()].into();
    Claim {
        tenant: Tenant::new(TENANT),
        lanes: vec![WORKS.into()],
        limit,
        lease_ms,
        session_idle_ms: lock_ms,
        capabilities: WorkerCapabilities { names: capabilities, ..WorkerCapabilities::default() },
        ..Claim::new(worker)
    }
}

/// The content of a turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct TurnPlan {
    pub(super) whole: bool,
    pub(super) works: u8,
    pub(super) to: Option<u8>,
    pub(super) next: bool,
}

/// The turn of a leased workflow. Its history row is its name.
pub(super) fn turn(flow: &Task, plan: TurnPlan, name: &str) -> Option<CommitTurn> {
    let Lifecycle::Active(lease) = &flow.lifecycle else { return None };
    let workflow = flow.workflow.as_deref()?;
    let steps = workflow.next_step..workflow.next_step + u64::from(plan.works);
    let works = steps.clone().map(|step| {
        let mut task = NewTask::new(format!("{}/{step}", flow.id), "work");
        task.lane = WORKS.into();
        task.policy.retry = Some(RetryPolicy::fixed(PLENTY, 0));
        task.policy.max_lost_leases = PLENTY;
        let lock = usize::try_from(step % 3).ok().and_then(|lock| LOCKS.get(lock));
        task.limit_key = lock.map(|lock| LimitKey::Affinity((*lock).to_owned()));
        WorkflowCommand::Activity { step, task, eager: false }
    });
    let sent = plan.to.map(|to| {
        let message = message(to, 2, 0, &format!("{name}-sent"));
        WorkflowCommand::Send { message, on_reject: OnReject::RejectTurn }
    });
    let consumed = lease.in_flight.iter().take(if plan.whole { usize::MAX } else { 1 });
    Some(CommitTurn {
        fence: flow.fence(),
        turn: if plan.next { 0 } else { workflow.turns },
        row: Some(Payload::json(format!("\"{name}\""))),
        consumed: consumed.copied().collect(),
        commands: works.chain(sent).collect(),
        next_step: steps.end,
        end: TurnEnd::Yield,
        sticky_ms: None,
        eager: None,
        metadata: Some(Box::new(RuntimeMetadata {
            execution: flow.execution + u32::from(plan.next),
            first_step: (!steps.is_empty()).then_some(steps.start),
            text: name.to_owned(),
            version: None,
            turn_id: name.to_owned(),
        })),
    })
}
