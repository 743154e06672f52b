use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use windlass_core::command::{
    Claim, CommitTurn, Deed as Command, Delay, NewMessage, NewTask, Release, ReportProgress, Then,
};
use windlass_core::{
    Carried, Lifecycle, Note, Outcome, Payload, Policy, Task, TaskId, Timestamp, limits,
};
use windlass_engine::{Came, Claimed, Error, Input};

use crate::cache::position;
use crate::calls::TurnCalls;
use crate::lease::{Ending, Lease, may_pass};
use crate::pause::Pause;
use crate::team::Team;
use crate::token::Token;
use crate::worker::Worker;
use crate::workflow::{Begin, Deed, Finished, Instance, Part, Standing, Turn, TurnFailure, Unread};

/// For how long the worker that has a workflow in memory is asked first.
const STICKY_MS: u64 = 5_000;

/// How long a workflow is put off whose code is not known here, or does not fit its history.
const UNKNOWN: Duration = Duration::from_secs(10);
const BROKEN: Duration = Duration::from_secs(30);

/// One lease of a workflow: as many turns as there are to be made under it.
#[derive(Debug)]
pub(crate) struct TurnAttempt {
    worker: Arc<Worker>,
    task: Arc<Task>,
    lease: Lease,
    slots: Arc<Semaphore>,
    followers: UnboundedSender<Followers>,
}

/// Activities that a commit has leased to this worker, with room for them.
#[derive(Debug)]
pub(crate) struct Followers {
    pub(crate) claimed: Vec<Claimed>,
    /// For all of them but one, which has the room of the turn.
    pub(crate) slots: Option<OwnedSemaphorePermit>,
    /// Their leases are counted from then.
    pub(crate) asked: Instant,
}

/// What an execution of a workflow leaves to the next one.
#[derive(Debug, Default, Serialize, Deserialize)]
struct HandedOver {
    #[serde(default)]
    unread: Vec<Unread>,
    #[serde(default)]
    values: BTreeMap<String, Carried>,
}

/// Why no more turns are made under a lease.
enum Stop {
    /// The workflow waits or has ended, or its next turn is anybody's.
    Done,
    /// Its code cannot go on as it is.
    Broken(TurnFailure),
    /// Something is wrong with what is stored, or with the way to it.
    Failed(Error),
    /// There is more to do, which is not done here.
    GivenBack,
    /// What was asked was refused or came too late: the lease is not this worker's.
    Lost,
}

impl TurnAttempt {
    pub(crate) fn new(
        team: &Team,
        task: Arc<Task>,
        asked: Instant,
        followers: UnboundedSender<Followers>,
    ) -> Self {
        let (worker, slots) = (team.worker.clone(), team.slots.clone());
        let lease = Lease::new(&worker, task.fence(), asked, team.heard.clone());
        Self { worker, task, lease, slots, followers }
    }

    /// Makes turns until the workflow waits.
    pub(crate) async fn run(self, home: &Handle, interrupting: Token) {
        let this = Arc::new(self);
        let mut turns = JoinSet::new();
        let makes = this.clone();
        turns.spawn_on(async move { makes.turns().await }, home);
        let stop = tokio::select! {
            biased;
            Some(ended) = turns.join_next() => ended.unwrap_or(Stop::Lost),
            ending = this.lease.keep() => {
                turns.shutdown().await;
                match ending {
                    Ending::Near => Stop::GivenBack,
                    Ending::Over | Ending::Lost(_) => Stop::Lost,
                }
            }
            () = interrupting.cancelled() => {
                turns.shutdown().await;
                Stop::GivenBack
            }
        };
        this.conclude(stop).await;
    }

    async fn conclude(&self, stop: Stop) {
        let task = &self.task.id;
        match stop {
            Stop::Done | Stop::Lost => {}
            Stop::Broken(failure) => {
                tracing::error!(%task, kind = %self.task.kind, %failure, "a workflow cannot go on");
                self.put_off(BROKEN, &failure.to_string()).await;
            }
            Stop::Failed(error) if is_of_what_is_stored(&error) => {
                // The lease runs out: a turn that nobody can make is poison, after some tries.
                tracing::error!(%task, %error, "what is stored of a workflow cannot be read");
                self.tell(&error.to_string()).await;
            }
            Stop::Failed(error) => {
                tracing::warn!(%task, %error, "a turn is given back");
                self.release().await;
            }
            Stop::GivenBack => self.release().await,
        }
    }

    async fn release(&self) {
        // Whatever came of it, the lease is over soon.
        let _ = self.lease.settle(Release { fence: self.lease.fence() }.into()).await;
    }

    /// Says what is wrong, where people look.
    async fn tell(&self, reason: &str) {
        let message: String = reason.chars().take(256).collect();
        let report = ReportProgress { fence: self.lease.fence(), percent: 0, message };
        if let Err(error) = self.worker.engine.submit(report).await {
            tracing::debug!(%error, "what is wrong with a workflow could not be told");
        }
    }

    /// Says why, and leaves the workflow alone for a while.
    async fn put_off(&self, pause: Duration, reason: &str) {
        self.tell(reason).await;
        let fence = self.lease.fence();
        let delay_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        // Whatever came of it, the lease is over soon.
        let _ = self.lease.settle(Delay { fence, delay_ms }.into()).await;
    }

    async fn turns(&self) -> Stop {
        let Some((generation, mut row)) = position(&self.task) else { return Stop::Lost };
        let mut instance = match self.instance().await {
            Ok(instance) => instance,
            Err(stop) => return stop,
        };
        instance.set_attempt(self.task.reclaims.saturating_add(1));
        let mut at = self.claimed_at();
        loop {
            let came = match self.came().await {
                Ok(came) => came,
                Err(error) => return Stop::Failed(error),
            };
            let finished = match self.turn(&mut instance, at, &came).await {
                Ok(finished) => finished,
                Err(failure) => return Stop::Broken(failure),
            };
            let starts_over = matches!(finished.standing, Standing::ContinueAsNew { .. });
            let values = if starts_over { instance.values() } else { BTreeMap::new() };
            let next_step = instance.next_step();
            let waits = !finished.standing.has_ended();
            // Whoever makes its next turn may do so before this one hears of its commit.
            let rows = u32::try_from(finished.parts.len()).unwrap_or(u32::MAX);
            let position = (generation, row.saturating_add(rows));
            if waits {
                self.worker.cache.keep(self.task.task_key(), position, instance);
            }
            match self.commit(finished, values, &came, &mut row, next_step).await {
                Ok(true) => {}
                Ok(false) => return Stop::Done,
                Err(stop) => {
                    self.worker.cache.take_at(&self.task.task_key(), position);
                    return stop;
                }
            }
            at = at.max(self.worker.engine.now());
            match self.worker.cache.take_at(&self.task.task_key(), position) {
                Some(kept) => instance = kept,
                // There are more of them than fit into memory: its next turn replays it.
                None => return Stop::GivenBack,
            }
        }
    }

    /// The workflow as live code: from memory, or from its history.
    async fn instance(&self) -> Result<Instance, Stop> {
        let Some(program) = self.worker.programs.of(&self.task) else {
            let kind = &self.task.kind;
            tracing::warn!(task = %self.task.id, %kind, "a workflow without code here is put off");
            self.put_off(UNKNOWN, &format!("a worker has no code for {kind}")).await;
            return Err(Stop::Done);
        };
        if let Some(instance) = self.worker.cache.take(&self.task) {
            return Ok(instance);
        }
        let begin = self.begin().await.map_err(Stop::Failed)?;
        let history = self.worker.engine.history(&self.task, 0).await.map_err(Stop::Failed)?;
        let mut instance = Instance::begin(program, begin);
        for row in &history {
            instance.replay(row).map_err(|found| Stop::Broken(found.into()))?;
        }
        Ok(instance)
    }

    async fn begin(&self) -> Result<Begin, Error> {
        let (engine, task) = (&self.worker.engine, &self.task);
        let input = match task.input_key() {
            Some(key) => engine.payload(&key).await?.map(Carried),
            None => None,
        };
        let over: HandedOver = match task.carried_key() {
            Some(key) => read(engine.payload(&key).await?)?,
            None => HandedOver::default(),
        };
        let state = task.workflow.as_deref();
        let seed = task.created_at.micros().unsigned_abs() ^ u64::from(task.generation) << 48;
        Ok(Begin {
            execution: task.generation,
            version: state.and_then(|state| state.version.clone()),
            parent: task.parent.clone(),
            lane: task.lane.clone(),
            first_step: state.map_or(0, |state| state.first_step),
            input,
            carried: over.unread,
            values: over.values,
            ..Begin::new(task.id.clone(), seed)
        })
    }

    /// What has come, asked for until the lease is over.
    async fn came(&self) -> Result<Vec<Came>, Error> {
        let mut pause = Pause::default();
        loop {
            match self.worker.engine.came(&self.task).await {
                Err(error) if may_pass(&error) && Instant::now() < self.lease.deadline() => {
                    tracing::warn!(task = %self.task.id, %error, "reading what came failed");
                    sleep(pause.next()).await;
                }
                came => return came,
            }
        }
    }

    /// One turn of the code, with the local activities that it asks for.
    async fn turn(
        &self,
        instance: &mut Instance,
        at: Timestamp,
        came: &[Came],
    ) -> Result<Finished, TurnFailure> {
        let arrivals = came.iter().map(|came| came.arrival.clone()).collect();
        let mut turn = instance.turn(at, arrivals)?;
        let calls = TurnCalls::lend(&self.worker.engine, self.lease.fence());
        let mut locals = JoinSet::new();
        loop {
            match turn {
                Turn::Finished(finished) => return Ok(finished),
                Turn::Local(work) => {
                    for local in work {
                        locals.spawn(local.with_calls(calls.clone()));
                    }
                    let Some(Ok(arrival)) = locals.join_next().await else {
                        return Err(TurnFailure::ForeignAwait);
                    };
                    turn = instance.resume(vec![arrival])?;
                }
            }
        }
    }

    /// Commits a turn, part by part. Says whether the lease stays.
    async fn commit(
        &self,
        finished: Finished,
        values: BTreeMap<String, Carried>,
        came: &[Came],
        row: &mut u32,
        next_step: u64,
    ) -> Result<bool, Stop> {
        let Finished { parts, told, standing, goes_on: has_more } = finished;
        let mut taken: Vec<u64> = came[..told.min(came.len())].iter().map(|c| c.seq).collect();
        let then =
            if has_more { Then::GoOn } else { then(standing, values).map_err(Stop::Failed)? };
        // Somebody may have woken it without a word: then there is nothing to remember.
        let mut parts: Vec<Option<Part>> = parts.into_iter().map(Some).collect();
        let last = if parts.is_empty() { None } else { parts.pop().flatten() };
        for part in parts {
            let taken = std::mem::take(&mut taken);
            self.commit_part(part, row, taken, next_step, Then::GoOn).await?;
        }
        self.commit_part(last, row, taken, next_step, then).await
    }

    async fn commit_part(
        &self,
        part: Option<Part>,
        turn: &mut u32,
        taken: Vec<u64>,
        next_step: u64,
        then: Then,
    ) -> Result<bool, Stop> {
        let (row, deeds) = part.map(|part| (part.row, part.deeds)).unzip();
        let row = row.map(|row| serde_json::to_vec(&row)).transpose();
        let row = row.map_err(|error| Stop::Failed(unwritable(error)))?;
        let deeds: Vec<Command> = deeds.into_iter().flatten().map(|deed| self.deed(deed)).collect();
        let (mut inputs, slots) = self.room_for(&deeds);
        let room = slots.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let is_row = row.is_some();
        let commit = CommitTurn {
            fence: self.lease.fence(),
            turn: *turn,
            row: row.map(|row| Payload::new("application/json", row)),
            taken,
            deeds,
            next_step,
            then,
            sticky_ms: Some(STICKY_MS),
            eager: (!inputs.is_empty()).then(|| self.eager(room + 1)),
        };
        let asked = Instant::now();
        match self.lease.settle(commit.into()).await {
            Ok(Outcome::Turned { claimed, goes_on }) => {
                *turn += u32::from(is_row);
                let with_input = |task: Arc<Task>| {
                    let input = inputs.remove(&task.id).flatten();
                    Claimed { input: input.map_or(Input::None, Input::Here), task }
                };
                let claimed: Vec<Claimed> = claimed.into_iter().map(with_input).collect();
                if !claimed.is_empty() {
                    // Whoever started this turn listens until it is over.
                    let _ = self.followers.send(Followers { claimed, slots, asked });
                }
                Ok(goes_on)
            }
            Ok(other) => unreachable!("a turn is answered as a turn, not {other:?}"),
            Err(answer) => {
                tracing::warn!(task = %self.task.id, %answer, "a turn could not be kept");
                Err(Stop::Lost)
            }
        }
    }

    fn eager(&self, room: usize) -> Claim {
        let limit = u32::try_from(room).unwrap_or(u32::MAX);
        Claim { limit, ..self.worker.claim.clone() }
    }

    /// Room for the activities of a turn that this worker can run itself, with their inputs.
    fn room_for(
        &self,
        deeds: &[Command],
    ) -> (BTreeMap<TaskId, Option<Payload>>, Option<OwnedSemaphorePermit>) {
        let eager = deeds.iter().filter_map(|deed| match deed {
            Command::Activity { task, eager: true, .. } => {
                Some((task.id.clone(), task.payload.clone()))
            }
            _ => None,
        });
        let inputs: BTreeMap<_, _> = eager.collect();
        let most = self.slots.available_permits().min(inputs.len().saturating_sub(1));
        let most = u32::try_from(most).unwrap_or(0);
        let slots = (most > 0).then(|| self.slots.clone().try_acquire_many_owned(most).ok());
        (inputs, slots.flatten())
    }

    /// What the engine is asked to do for what the code did.
    fn deed(&self, deed: Deed) -> Command {
        let workflow = |task: NewTask| {
            let workflow = Some(task.workflow.clone().unwrap_or_default());
            let policy =
                Policy { max_reclaims: limits::DEFAULT_TURN_RECLAIMS, ..task.policy.clone() };
            NewTask { workflow, policy, ..task }
        };
        match deed {
            Deed::Activity { step, task } => {
                let eager = self.worker.runs(&task);
                Command::Activity { step, task: *task, eager }
            }
            Deed::Child { step, task } => Command::Child { step, task: workflow(*task) },
            Deed::Start { task, .. } => Command::Start { task: workflow(*task) },
            Deed::Timer { step, at } => Command::Timer { step, at },
            Deed::CancelTimer { step } => Command::CancelTimer { step },
            Deed::CancelActivity { step } => {
                let id = format!("{}/{step}", self.task.id).into();
                Command::CancelTask { step, id }
            }
            Deed::CancelChild { step, id } => Command::CancelTask { step, id },
            Deed::Post { to, name, payload, .. } => {
                let source = self.task.id.to_string();
                Command::Post(NewMessage { payload, ..NewMessage::new(to, name, source) })
            }
            Deed::Status(text) => Command::Note { name: Note::STATUS.to_owned(), text: Some(text) },
            Deed::Value { key, value } => {
                let text = value.map(|value| String::from_utf8_lossy(&value.bytes).into_owned());
                Command::Note { name: key, text }
            }
        }
    }

    /// When the lease was given, by the clock of the store.
    fn claimed_at(&self) -> Timestamp {
        match &self.task.lifecycle {
            Lifecycle::Active(lease) => lease.expires_at.minus_ms(self.worker.claim.lease_ms),
            _ => self.worker.engine.now(),
        }
    }
}

fn then(standing: Standing, values: BTreeMap<String, Carried>) -> Result<Then, Error> {
    Ok(match standing {
        Standing::Waiting { .. } => Then::Wait,
        Standing::Completed(result) => Then::Complete(result),
        Standing::Failed(failure) => {
            Then::Fail { class: failure.class(), reason: failure.reason().to_owned() }
        }
        Standing::Cancelled { reason } => Then::Cancel { reason },
        Standing::ContinueAsNew { input, version, carried, .. } => {
            let over = HandedOver { unread: carried, values };
            let text = serde_json::to_vec(&over).map_err(unwritable)?;
            let carried = Payload::new("application/json", text);
            Then::ContinueAsNew { input, version, carried: Some(carried) }
        }
    })
}

/// Whether trying again does not help before somebody has mended something.
fn is_of_what_is_stored(error: &Error) -> bool {
    use Error::{BadHistory, BadMessage, NoHistory, Payload};
    matches!(error, Payload(_) | NoHistory { .. } | BadHistory { .. } | BadMessage { .. })
}

fn unwritable(error: serde_json::Error) -> Error {
    Error::Payload(Arc::new(error))
}

fn read<T: serde::de::DeserializeOwned + Default>(payload: Option<Payload>) -> Result<T, Error> {
    match payload {
        Some(payload) => serde_json::from_slice(&payload.bytes).map_err(unwritable),
        None => Ok(T::default()),
    }
}
