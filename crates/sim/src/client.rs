use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use windlass_core::command::{
    Admit, Begin, Cancel, CancelHeld, ChangePriority, Claim, Complete, Create, Delay, DeleteTask,
    Fail, IdempotencyWindow, LimitLane, NewTask, Release, Renew, Replay, ReportProgress,
    SetLaneState, Snooze, Sweep, WaitChildren,
};
use windlass_core::{
    Backoff, Command, FailureClass, Fence, Outcome, Payload, RequestKey, Retry, RetryPolicy,
    SESSIONS, TaskKey, Tenant, Token, WorkerCapabilities, limits,
};
use windlass_engine::{ClaimedTask, Engine, Error, TaskInput};

use crate::concurrency;
use crate::model::{ExternalRuntime, Workflows};
use crate::node::workflow_worker;
use crate::requests::{self, Sent};
use crate::script::{
    BACKOFF_CAP_MS, CAPABILITY, JITTER_PERCENT, KINDS, LANES, Operation, Script, TaskSpec,
    VARIANTS, exact,
};
use crate::violation::{Kind, breach};
use crate::watch::Watch;

/// The commands of one client call.
#[derive(Clone, Debug)]
pub(crate) struct ClientRequest {
    pub(crate) commands: Vec<Command>,
    /// For a single claim: how long it waits for a task.
    pub(crate) wait: Option<Duration>,
    /// A request that is sent instead of commands.
    pub(crate) sent: Option<Sent>,
}

/// A call of a client.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) request: ClientRequest,
    pub(crate) node: usize,
    pub(crate) boot: u64,
    pub(crate) task: JoinHandle<()>,
    pub(crate) answered: Arc<AtomicBool>,
    /// After how many rounds the client disconnects.
    pub(crate) disconnect_after: Option<u8>,
    pub(crate) left: bool,
}

/// Turns operations into commands, skipping those without a subject.
pub(crate) fn request(
    script: &Script,
    operations: &[Operation],
    view: ClientView<'_>,
    call: usize,
) -> Option<ClientRequest> {
    let each = operations.iter().enumerate();
    let commands = each.filter_map(|(number, operation)| {
        let name = format!("client-{call}-{number}");
        Client { script, view, name }.command(operation)
    });
    let commands: Vec<Command> = commands.collect();
    let wait = match operations {
        [Operation::Claim { wait_ms, .. }] => Some(Duration::from_millis(*wait_ms)),
        _ => None,
    };
    let sent = requests::sent(operations);
    let asks = !commands.is_empty() || sent.is_some();
    asks.then_some(ClientRequest { commands, wait, sent })
}

/// What clients received before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientView<'k> {
    pub(crate) leases: &'k [Fence],
    pub(crate) workflows: &'k Workflows,
    pub(crate) external_runtime: &'k ExternalRuntime,
    pub(crate) tokens: &'k [Token],
    pub(crate) owned_requests: &'k [(RequestKey, String)],
}

pub(crate) struct Client<'s> {
    pub(crate) script: &'s Script,
    pub(crate) view: ClientView<'s>,
    /// Unique per claim, so that the log shows which claim an event belongs to.
    pub(crate) name: String,
}

impl Client<'_> {
    fn command(&self, operation: &Operation) -> Option<Command> {
        Some(match *operation {
            Operation::Create { task, id, variant } => {
                Create::one(self.new_task(task, id, variant)).into()
            }
            Operation::CreateBoth { task, other } => {
                let (first, second) = (self.new_task(task, 0, 0), self.new_task(other, 1, 0));
                let tenant = Tenant::default();
                if first.id == second.id {
                    return None;
                }
                Create { tenant, tasks: vec![first, second] }.into()
            }
            Operation::Claim { .. } => self.claim(operation).into(),
            Operation::Begin { lease } => Begin { fence: self.fence(lease)? }.into(),
            Operation::Renew { lease, lease_ms } => {
                Renew { fence: self.fence(lease)?, lease_ms }.into()
            }
            Operation::Progress { lease, percent } => {
                let message = "on the way".into();
                ReportProgress { fence: self.fence(lease)?, percent, message }.into()
            }
            Operation::Complete { lease, result } => {
                let result = Some(Payload::json(format!("\"client {result}\"")));
                Complete { fence: self.fence(lease)?, result }.into()
            }
            Operation::Fail { lease, reason, after_ms } => {
                let retry = after_ms.map_or(Retry::Policy, |ms| Retry::After { ms });
                let (fence, class) = (self.fence(lease)?, FailureClass::Transient);
                Fail { fence, class, reason: format!("client {reason} {after_ms:?}"), retry }.into()
            }
            Operation::Snooze { lease, ms } => {
                Snooze { fence: self.fence(lease)?, delay_ms: ms }.into()
            }
            Operation::Release { lease } => Release { fence: self.fence(lease)? }.into(),
            Operation::CancelHeld { lease } => {
                CancelHeld { fence: self.fence(lease)?, reason: "holder".into() }.into()
            }
            Operation::SendMessages { .. }
            | Operation::Suspend { .. }
            | Operation::Resume { .. }
            | Operation::CreateWaitpoint { .. }
            | Operation::Signal { .. }
            | Operation::ConsumeMessages { .. }
            | Operation::RotateSigningKey { .. } => return self.waiting(operation),
            Operation::Spawn { lease } => return self.spawn(lease),
            Operation::RegisterWorker { .. }
            | Operation::DeregisterWorker { .. }
            | Operation::ClaimAs { .. }
            | Operation::Grant { .. }
            | Operation::ClaimGranted { .. }
            | Operation::Revoke { .. } => return self.of_workers(operation),
            Operation::SetQuota { .. } | Operation::ReleaseSession { .. } => {
                return concurrency::command(operation);
            }
            Operation::Admit { .. }
            | Operation::CompleteRequest { .. }
            | Operation::ReleaseRequest { .. }
            | Operation::ClaimEffect { .. }
            | Operation::SettleEffect { .. }
            | Operation::Spend { .. }
            | Operation::Send { .. } => return self.of_requests(operation),
            Operation::OfWorkflow(operation) => return self.of_workflows(operation),
            Operation::OfExternalRuntime(operation) => return self.of_external_runtime(operation),
            Operation::WaitChildren { lease } => WaitChildren { fence: self.fence(lease)? }.into(),
            _ => self.order(operation),
        })
    }

    fn order(&self, operation: &Operation) -> Command {
        let tenant = Tenant::default();
        match *operation {
            Operation::Cancel { task, id } => {
                Cancel { task: self.key(task, id), reason: crate::model::OPERATOR.into() }.into()
            }
            Operation::Replay { task, id, execution } => {
                Replay { task: self.key(task, id), execution }.into()
            }
            Operation::ChangePriority { task, id, priority } => {
                ChangePriority { task: self.key(task, id), priority }.into()
            }
            Operation::DeleteTask { task, id } => DeleteTask { task: self.key(task, id) }.into(),
            Operation::SetLaneState { lane, state } => {
                SetLaneState { tenant, lane: lane_name(lane).into(), state }.into()
            }
            Operation::LimitLane { lane, limit } => {
                LimitLane { tenant, lane: lane_name(lane).into(), limit }.into()
            }
            _ => Sweep::default().into(),
        }
    }

    fn claim(&self, operation: &Operation) -> Claim {
        let Operation::Claim { lane, begin, limit, lease_ms, special, sessions, .. } = *operation
        else {
            unreachable!("it is a claim")
        };
        let lanes = lane.map_or(LANES.to_vec(), |lane| vec![lane_name(lane)]);
        let special = special.then(|| CAPABILITY.to_owned());
        let sessions = sessions.then(|| SESSIONS.to_owned());
        let capabilities = special.into_iter().chain(sessions).collect();
        Claim {
            lanes: lanes.into_iter().map(Into::into).collect(),
            capabilities: WorkerCapabilities {
                names: capabilities,
                ..WorkerCapabilities::default()
            },
            lease_ms,
            limit,
            begin,
            session_idle_ms: lease_ms,
            ..Claim::new(self.name.as_str())
        }
    }

    fn spec(&self, task: u8) -> &TaskSpec {
        &self.script.tasks[usize::from(task) % self.script.tasks.len()]
    }

    pub(crate) fn key(&self, task: u8, id: u8) -> TaskKey {
        if let Some(task) = self.exact(task) {
            return task;
        }
        let ids = &self.spec(task).ids;
        TaskKey { tenant: Tenant::default(), id: ids[usize::from(id) % ids.len()].as_str().into() }
    }

    fn new_task(&self, task: u8, id: u8, variant: u8) -> NewTask {
        match exact(task) {
            Some((task, id)) => {
                let spec = &self.script.tasks[task % self.script.tasks.len()];
                new_task(spec, u8::try_from(id).unwrap_or(0), variant)
            }
            None => new_task(self.spec(task), id, variant),
        }
    }

    /// The task of a number, if it names exactly one.
    pub(crate) fn exact(&self, number: u8) -> Option<TaskKey> {
        let (task, id) = exact(number)?;
        let ids = &self.script.tasks[task % self.script.tasks.len()].ids;
        Some(TaskKey::new(&Tenant::default(), &ids[id % ids.len()].as_str().into()))
    }

    /// The lease claimed `back` leases ago, or the last lease of a task.
    pub(crate) fn fence(&self, back: u8) -> Option<Fence> {
        if let Some(task) = self.exact(back) {
            return self.view.leases.iter().rev().find(|fence| fence.task == task).cloned();
        }
        back_from(self.view.leases, back).cloned()
    }

    /// The lease of a turn claimed `back` turns ago.
    pub(crate) fn turn_lease(&self, back: u8) -> Option<Fence> {
        back_from(self.view.workflows.leases(), back).cloned()
    }

    /// The request admitted `back` admissions ago, and its owner.
    pub(crate) fn owned_request(&self, back: u8) -> Option<(RequestKey, String)> {
        back_from(self.view.owned_requests, back).cloned()
    }

    /// The token issued `back` tokens ago.
    pub(crate) fn token(&self, back: u8) -> Option<&Token> {
        back_from(self.view.tokens, back)
    }
}

/// The item `back` before the last one.
pub(crate) fn back_from<T>(all: &[T], back: u8) -> Option<&T> {
    let count = all.len();
    (count > 0).then(|| &all[count - 1 - usize::from(back) % count])
}

fn lane_name(lane: u8) -> &'static str {
    LANES[usize::from(lane) % LANES.len()]
}

pub(crate) fn new_task(spec: &TaskSpec, id: u8, variant: u8) -> NewTask {
    let id = spec.ids[usize::from(id) % spec.ids.len()].as_str();
    let variant = variant % VARIANTS;
    let mut new = NewTask::new(id, KINDS[usize::from(variant) % KINDS.len()]);
    new.lane = LANES[spec.lane].into();
    new.priority = spec.priority;
    new.payload = Some(Payload::json(spec.payload(variant)));
    if spec.start_ms > 0 {
        new.delay = Delay::For { ms: spec.start_ms };
    }
    new.deadline_ms = spec.deadline_ms;
    new.capabilities = spec.special.then(|| CAPABILITY.to_owned()).into_iter().collect();
    new.policy.retry = spec.max_attempts.map(|max| RetryPolicy::fixed(max, spec.backoff_ms));
    if let Some(retry) = new.policy.retry.as_mut().filter(|_| spec.doubling) {
        let (base_ms, cap_ms, jitter_percent) = (spec.backoff_ms, BACKOFF_CAP_MS, JITTER_PERCENT);
        retry.backoff = Backoff::Exponential { base_ms, cap_ms, jitter_percent };
    }
    new.parent = spec.parent.as_deref().map(Into::into);
    new.limit_key = spec.limit_key.clone();
    new.policy.attempt_timeout_ms = spec.timeout_ms;
    new.policy.max_lost_leases = spec.max_lost_leases;
    new.policy.max_replays = spec.max_replays;
    new.policy.accept_expired_lease = spec.accept_expired_lease;
    new.policy.retention_ms = spec.retention_ms.unwrap_or(limits::DEFAULT_RETENTION_MS);
    let window_ms = spec.window_ms;
    new.idempotency = spec.key.clone().map(|key| IdempotencyWindow { key: key.into(), window_ms });
    new
}

/// The node of a call, and the number of the call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) call: usize,
    pub(crate) node: usize,
    pub(crate) boot: u64,
}

impl Place {
    /// The workflow worker on the same node.
    pub(crate) fn workflow_worker(self) -> String {
        workflow_worker(self.node, self.boot)
    }
}

/// Submits the commands, and shows commands and answers to the model.
pub(crate) async fn ask(
    engine: Engine,
    request: ClientRequest,
    place: Place,
    watch: Watch,
    answered: Arc<AtomicBool>,
) {
    let ClientRequest { commands, wait, sent } = request;
    if let Some(sent) = sent {
        requests::send(engine, sent, place, watch).await;
        return answered.store(true, Ordering::Relaxed);
    }
    let since = {
        let mut seen = watch.see();
        commands.iter().for_each(|command| seen.submitted(place.call, place.node, command));
        seen.model.since(&place.workflow_worker())
    };
    let answers = match (&commands[..], wait) {
        ([Command::Claim(claim)], Some(wait)) => {
            let claimed = engine.claim(claim.clone(), wait).await;
            for each in claimed.iter().flatten() {
                show_input(&watch, each);
            }
            let tasks = claimed.map(|claimed| claimed.into_iter().map(|each| each.task).collect());
            vec![tasks.map(Outcome::Claimed)]
        }
        _ => match engine.submit_many(commands.clone()).await {
            Ok(answers) => answers,
            Err(error) => commands.iter().map(|_| Err(error.clone())).collect(),
        },
    };
    let shown = replays(&engine, &commands, &answers).await;
    let mut seen = watch.see();
    for (command, text) in shown {
        let judged = seen.model.replay_shown(command, since, &text);
        seen.judge(judged);
    }
    for (command, answer) in commands.iter().zip(&answers) {
        seen.answered(place.call, command, since, answer);
        let ended = matches!(answer, Err(Error::ShuttingDown));
        if ended && !seen.draining.contains(&(place.node, place.boot)) {
            let what = format!("node {} shut down unasked", place.node);
            seen.judge(breach(Kind::Engine, what));
        }
    }
    // Last, so that a call whose answer could not be judged counts as unanswered.
    answered.store(true, Ordering::Relaxed);
}

/// The stored responses of requests that were answered before, as far as they can be read.
async fn replays<'c>(
    engine: &Engine,
    commands: &'c [Command],
    answers: &[Result<Outcome, Error>],
) -> Vec<(&'c Admit, String)> {
    let mut shown = Vec::new();
    for (command, answer) in commands.iter().zip(answers) {
        if let (Command::Admit(admit), Ok(Outcome::RequestCompleted(key))) = (command, answer)
            && let Ok(Some(payload)) = engine.payload(key).await
        {
            shown.push((admit, String::from_utf8_lossy(&payload.bytes).into_owned()));
        }
    }
    shown
}

/// Shows the model the input of a claimed task.
fn show_input(watch: &Watch, claimed: &ClaimedTask) {
    let fenced = (claimed.task.id.clone(), claimed.task.epoch);
    let text: Option<String> = match &claimed.input {
        TaskInput::Inline(payload) => serde_json::from_slice(&payload.bytes).ok(),
        TaskInput::None => None,
        // The store could not be read.
        TaskInput::ByKey(_) => return,
    };
    let mut seen = watch.see();
    let judged = seen.model.input_shown(&fenced, text.as_deref());
    seen.judge(judged);
}

/// A short form of a command.
pub(crate) fn brief(command: &Command) -> String {
    let under = |fence: &Fence| format!("{}/{}", fence.task.id, fence.epoch);
    let rest = match command {
        Command::Create(create) => {
            let each = create.tasks.iter().map(|new| format!("{}:{}", new.id, new.kind));
            each.collect::<Vec<_>>().join(" ")
        }
        Command::Claim(claim) => {
            let Claim { lanes, begin, limit, lease_ms, .. } = claim;
            format!("{limit} of {lanes:?} for {lease_ms} ms, begin {begin}")
        }
        Command::Renew(renew) => under(&renew.fence),
        Command::Begin(begin) => under(&begin.fence),
        Command::ReportProgress(report) => format!("{} {}%", under(&report.fence), report.percent),
        Command::Complete(complete) => under(&complete.fence),
        Command::Fail(fail) => format!("{} {:?}", under(&fail.fence), fail.reason),
        Command::Snooze(delay) => format!("{} {} ms", under(&delay.fence), delay.delay_ms),
        Command::Release(release) => under(&release.fence),
        Command::CancelHeld(cancel) => under(&cancel.fence),
        Command::Cancel(cancel) => cancel.task.id.to_string(),
        Command::PruneExecutions(prune) => prune.task.id.to_string(),
        Command::ClearSticky(unstick) => unstick.worker.to_string(),
        Command::RequestCancel(cancel) => cancel.task.id.to_string(),
        Command::CommitTurn(turn) => format!("{} {}", under(&turn.fence), turn.turn),
        Command::CompleteAndCommitTurn(advance) => {
            format!("{} {}", under(&advance.complete.fence), advance.turn.turn)
        }
        Command::ChangePriority(change) => format!("{} {}", change.task.id, change.priority),
        Command::Replay(replay) => format!("{} {}", replay.task.id, replay.execution),
        Command::DeleteTask(delete) => delete.task.id.to_string(),
        Command::SetLaneState(set) => format!("{} {}", set.lane, set.state.as_str()),
        Command::LimitLane(limit) => format!("{} {:?}", limit.lane, limit.limit),
        Command::WaitChildren(wait) => under(&wait.fence),
        Command::SetQuota(set) => format!("{:?} {:?} {:?}", set.scope, set.limit, set.rate),
        Command::ReleaseSession(release) => release.session.clone(),
        Command::RenewSessions(renew) => format!("{:?}", renew.workers),
        Command::AbandonTurn(decline) => under(&decline.fence),
        Command::DropActivity(discard) => under(&discard.fence),
        Command::SendMessages(send) => {
            let to: Vec<_> = send.messages.iter().map(|message| message.task.as_str()).collect();
            to.join(" ")
        }
        Command::CompleteWaitpoint(signal) => signal.name.clone(),
        Command::CreateWaitpoint(create) => create.waitpoint.id.to_string(),
        Command::Suspend(suspend) => under(&suspend.fence),
        Command::Resume(resume) => resume.task.id.to_string(),
        Command::ConsumeMessages(take) => under(&take.fence),
        Command::RotateSigningKey(rotate) => rotate.id.clone(),
        Command::RegisterWorker(register) => register.id.to_string(),
        Command::DeregisterWorker(deregister) => deregister.id.to_string(),
        Command::Grant(grant) => format!("{} to {}", grant.task.id, grant.worker),
        Command::ClaimGranted(consume) => format!("{} by {}", consume.task.id, consume.worker),
        Command::Revoke(revoke) => revoke.task.id.to_string(),
        Command::MoveSubscriptionCursor(moved) => format!("{} to {}", moved.name, moved.cursor.seq),
        Command::DeleteSubscription(dropped) => dropped.name.clone(),
        Command::Admit(admit) => format!("{:?} by {}", admit.request.key, admit.owner),
        Command::CompleteRequest(answer) => format!("{:?} by {}", answer.request.key, answer.owner),
        Command::ReleaseRequest(withdraw) => {
            format!("{:?} by {}", withdraw.request.key, withdraw.owner)
        }
        Command::ClaimEffect(claim) => format!("{} {}", claim.provider, claim.name),
        Command::SettleEffect(settle) => format!("{} {}", settle.provider, settle.name),
        Command::Spend(spend) => format!("{:?}", spend.charges),
        Command::Sweep(_)
        | Command::TrimLog(_)
        | Command::HeartbeatNode(_)
        | Command::DeregisterNode(_) => String::new(),
    };
    format!("{} {rest}", command.name())
}

/// A short form of an answer.
pub(crate) fn brief_result(answer: &Result<Outcome, Error>) -> String {
    match answer {
        Ok(Outcome::Claimed(tasks)) => {
            let each = tasks.iter().map(|task| format!("{}/{}", task.id, task.epoch));
            format!("claimed [{}]", each.collect::<Vec<_>>().join(" "))
        }
        Ok(outcome) => format!("{outcome:?}"),
        Err(Error::Rejected(rejection)) => format!("rejected, {rejection:?}"),
        Err(error) => error.code().to_owned(),
    }
}
