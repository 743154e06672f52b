//! Commands about workflows.

use std::sync::Arc;

use windlass_core::command::{
    Claim, ClaimGranted, ClearSticky, CommitTurn, Complete, CompleteAndCommitTurn, Create,
    NewMessage, NewTask, NewWorkflow, OnReject, PruneExecutions, RequestCancel, TurnEnd,
    WorkflowCommand,
};
use windlass_core::{Command, Fence, LaneName, Lifecycle, Message, Payload, Task, TaskKey, Tenant};

use super::commands::{BAD, open, payload, reason, text};
use super::live::{IDS, LANES, Live, TENANTS};
use crate::random::Random;

fn is_workflow(task: &Task) -> bool {
    task.workflow.is_some()
}

fn new_workflow(random: &mut Random, id: String) -> NewTask {
    let version = random.percent(10).then(|| "1.2.0".to_owned());
    let mut task = NewTask::new(id, "flow");
    task.lane = LaneName::new(*random.pick(LANES));
    task.payload = payload(random);
    task.workflow = Some(NewWorkflow { version });
    task.policy.max_lost_leases = *random.pick(&[0, 2, 100]);
    task.policy.retention_ms = *random.pick(&[0, 5_000, 600_000_000]);
    task
}

pub(super) fn create(random: &mut Random, _: &Live) -> Command {
    let tenant = Tenant::new(*random.pick(TENANTS));
    let id = text(random, IDS);
    Create { tenant, tasks: vec![new_workflow(random, id)] }.into()
}

pub(super) fn request_cancel(random: &mut Random, live: &Live) -> Command {
    let suits = |task: &Task| is_workflow(task) && open(task);
    RequestCancel { task: live.key(random, suits), reason: reason(random) }.into()
}

pub(super) fn prune(random: &mut Random, live: &Live) -> Command {
    let suits = |task: &Task| is_workflow(task) && task.execution > 0;
    PruneExecutions {
        task: live.key(random, suits),
        keep_last: *random.pick(&[0, 0, 1, 5]),
        before: random.percent(30).then(|| live.now.minus_ms(1_000)),
    }
    .into()
}

/// Preferably for a leased workflow, and for its next turn.
pub(super) fn commit_turn(random: &mut Random, live: &Live) -> Command {
    let held = |task: &Task| is_workflow(task) && matches!(task.lifecycle, Lifecycle::Active(_));
    let known = live.task(random, held).filter(|_| random.percent(95)).cloned();
    let workflow = known.as_ref().and_then(|task| task.workflow.clone());
    let (turns, step) = workflow.map_or((0, 0), |known| (known.turns, known.next_step));
    let mut fence = known.as_ref().map_or_else(|| live.fence(random), |task| task.fence());
    if random.percent(BAD) {
        fence.epoch = fence.epoch.saturating_sub(1);
    }
    let count = random.below(4);
    let commands = (0..count).map(|at| command(random, live, &fence, step, step + at)).collect();
    let turn = if random.percent(BAD) { turns + 1 } else { turns };
    CommitTurn {
        turn,
        row: random.percent(85).then(|| Payload::json(format!("{{\"at\":{}}}", random.below(9)))),
        consumed: consumed(random, live, &fence),
        commands,
        next_step: if random.percent(BAD) { 0 } else { step + count },
        end: end(random),
        sticky_ms: random.percent(50).then_some(if random.percent(BAD) { 1 } else { 5_000 }),
        eager: random.percent(40).then(|| eager(random, &fence)),
        metadata: None,
        fence,
    }
    .into()
}

/// Mostly sequence numbers of existing messages.
fn consumed(random: &mut Random, live: &Live, fence: &Fence) -> Vec<u64> {
    let mut consumed = live.visible(&fence.task);
    consumed.retain(|_| random.percent(70));
    if random.percent(BAD) {
        consumed.push(Message::of_step(random.below(6)));
    }
    consumed
}

/// The completion of an activity together with the next turn of its workflow.
pub(super) fn advance(random: &mut Random, live: &Live) -> Command {
    let waits = |workflow: Arc<Task>| {
        let state = workflow.workflow.as_ref();
        matches!(workflow.lifecycle, Lifecycle::Suspended(_))
            && state.is_some_and(|state| state.sticky.is_some())
    };
    let leased = |task: &Task| match &task.lifecycle {
        Lifecycle::Active(lease) if task.step.is_some() && task.workflow.is_none() => {
            live.now < lease.expires_at && live.parent(task).is_some_and(waits)
        }
        _ => false,
    };
    let Some(activity) = live.task(random, leased).cloned() else {
        return commit_turn(random, live);
    };
    let workflow = live.parent(&activity);
    let fence = workflow.as_ref().map_or_else(|| live.fence(random), |known| known.fence());
    let known = workflow.and_then(|known| known.workflow.clone());
    let keeper = known.as_ref().and_then(|known| known.sticky.as_ref());
    let worker = keeper.map_or_else(|| "w1".into(), |sticky| sticky.worker.clone());
    let (turns, next_step) = known.map_or((0, 0), |known| (known.turns, known.next_step));
    let claim = ClaimGranted { task: fence.task.clone(), ..ClaimGranted::new("w", worker) };
    CompleteAndCommitTurn {
        complete: Complete { fence: activity.fence(), result: payload(random) },
        claim,
        turn: CommitTurn {
            fence: Fence { epoch: fence.epoch + 1, ..fence },
            turn: turns,
            row: Some(Payload::json("{}")),
            consumed: activity.step.map(Message::of_step).into_iter().collect(),
            commands: Vec::new(),
            next_step,
            end: end(random),
            sticky_ms: Some(5_000),
            eager: None,
            metadata: None,
        },
    }
    .into()
}

pub(super) fn unstick(random: &mut Random, live: &Live) -> Command {
    let TaskKey { tenant, id } = live.key(random, is_workflow);
    ClearSticky { tenant, worker: "w1".into(), workflows: vec![id] }.into()
}

fn eager(random: &mut Random, fence: &Fence) -> Claim {
    let lanes = LANES.iter().copied().map(LaneName::new).collect();
    let limit = *random.pick(&[1, 1, 2, 8]);
    Claim { tenant: fence.task.tenant.clone(), lanes, limit, lease_ms: 2_500, ..Claim::new("w1") }
}

fn command(
    random: &mut Random,
    live: &Live,
    fence: &Fence,
    first: u64,
    step: u64,
) -> WorkflowCommand {
    let workflow = &fence.task.id;
    let before = random.below(first + 1);
    let of_step = |step: u64| format!("{workflow}/{step}");
    match random.below(12) {
        0..3 => {
            let mut task = NewTask::new(of_step(step), "act");
            task.lane = LaneName::new(*random.pick(LANES));
            task.payload = payload(random);
            WorkflowCommand::Activity { step, task, eager: random.percent(60) }
        }
        3 => {
            // A task with this id may already exist.
            let id = if random.percent(60) { of_step(step) } else { text(random, IDS) };
            WorkflowCommand::Child { step, task: new_workflow(random, id) }
        }
        4 => {
            let id = text(random, IDS);
            WorkflowCommand::Start { step, task: new_workflow(random, id) }
        }
        5 | 6 => {
            let ms = *random.pick(&[0, 400, 15_000]);
            WorkflowCommand::Timer { step, at: live.now.plus_ms(ms) }
        }
        7 => WorkflowCommand::CancelTimer { step: before },
        8 | 9 => WorkflowCommand::CancelTask { step: before, id: of_step(before).into() },
        10 => {
            let to = live.key(random, open).id;
            let message = NewMessage::new(to, text(random, &["go", "more"]), "flow");
            WorkflowCommand::Send { message, on_reject: OnReject::FailStep { step } }
        }
        _ => {
            let name = text(random, &["", "v\u{e4}lue"]);
            WorkflowCommand::SetProperty { name, text: random.percent(80).then(|| "1".to_owned()) }
        }
    }
}

fn end(random: &mut Random) -> TurnEnd {
    match random.below(12) {
        0 | 1 => TurnEnd::MoreParts,
        2 => TurnEnd::Complete(payload(random)),
        3 => {
            let class = windlass_core::FailureClass::Permanent;
            TurnEnd::Fail { class, reason: reason(random) }
        }
        4 => TurnEnd::Cancel { reason: reason(random) },
        5 | 6 => TurnEnd::ContinueAsNew {
            input: payload(random),
            version: random.percent(20).then(|| "1.3.0".to_owned()),
            carried: random.percent(50).then(|| Payload::json("{}")),
        },
        _ => TurnEnd::AwaitMessages,
    }
}
