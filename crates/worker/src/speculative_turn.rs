use std::collections::BTreeMap;

use windlass_core::command::{Complete, CompleteAndCommitTurn};
use windlass_core::{
    Fence, HistoryPayload, Message, Outcome, StepOutcome, Task, TaskKey, WorkflowInput,
};
use windlass_engine::{Error, PendingInput};

use crate::attempt::NextTurn;
use crate::attempt_report::SettleResult;
use crate::cache::Position;
use crate::commit::{EagerActivities, TurnCommit, then};
use crate::handler::Handled;
use crate::lease::{Granted, Lease};
use crate::turn::Begun;
use crate::worker_state::WorkerState;
use crate::workflow::{CompletedTurn, Instance, TurnProgress};

/// A speculative turn: a cached workflow runs with the result of its activity before that result is
/// committed. One commit covers both.
#[derive(Debug)]
pub(crate) struct SpeculativeTurn {
    workflow: TaskKey,
    /// The position of the workflow before the turn.
    from: Position,
    instance: Instance,
    turn: TurnProgress,
    came: PendingInput,
}

/// The outcome of a speculative turn.
#[derive(Debug)]
pub(crate) enum SpeculativeOutcome {
    /// It is committed. Has its eager activities, and the workflow if its lease continues.
    Kept { followers: Option<EagerActivities>, turn: Option<NextTurn> },
    /// It needs a lease of the workflow before it can end.
    Unfinished(Box<SpeculativeTurn>),
    /// It was rejected, for example because another worker committed a turn.
    Refused,
}

impl SpeculativeTurn {
    /// Runs the turn, if the workflow is cached and has no other turn in progress.
    pub(crate) fn make(team: &WorkerState, activity: &Task, handled: &Handled) -> Option<Self> {
        let (Some(parent), Some(step), Ok(result)) = (&activity.parent, activity.step, handled)
        else {
            return None;
        };
        if team.is_closing() {
            return None;
        }
        let workflow = TaskKey::new(&activity.tenant, parent);
        let (mut instance, from) = team.worker.cache.take_settled(&workflow)?;
        let outcome = StepOutcome::Completed { result: result.clone().map(HistoryPayload) };
        let arrival = WorkflowInput::StepCompletion { step, outcome };
        let came = PendingInput { seq: Message::of_step(step), arrival: arrival.clone() };
        instance.set_attempt(1);
        // The regular turn that replaces it finds and reports the same failure.
        let turn = instance.turn(team.worker.engine.now(), vec![arrival]).ok()?;
        Some(Self { workflow, from, instance, turn, came })
    }

    /// Commits the turn together with the end of the activity.
    pub(crate) async fn keep(
        self,
        team: &WorkerState,
        lease: &Lease,
        complete: Complete,
        leads: bool,
    ) -> Result<SpeculativeOutcome, SettleResult> {
        let SpeculativeTurn { workflow, from, instance, turn, came } = self;
        let finished = match turn {
            TurnProgress::Finished(finished) if finished.parts.len() == 1 && !finished.has_more => {
                finished
            }
            turn => {
                let ahead = SpeculativeTurn { workflow, from, instance, turn, came };
                return Ok(SpeculativeOutcome::Unfinished(Box::new(ahead)));
            }
        };
        let waits = !finished.standing.has_ended();
        let fence = Fence { task: workflow.clone(), epoch: from.epoch + 1 };
        let after = Position { epoch: fence.epoch, ..from.after(1) };
        let drafted = draft(fence, from.turns, &instance, finished, came.seq);
        let drafted = drafted.and_then(|draft| draft.command(team, leads));
        let Ok((turn, mut room)) = drafted else { return Ok(SpeculativeOutcome::Refused) };
        let consume = team.worker.claim_granted(workflow.clone(), room.request());
        let cache = &team.worker.cache;
        if waits {
            cache.keep(workflow.clone(), after, instance);
        }
        match lease.settle_timed(CompleteAndCommitTurn { complete, consume, turn }.into()).await {
            Ok((Outcome::TurnCommitted { claimed, lease_kept }, began)) => {
                let followers = room.filled(claimed, began);
                if lease_kept.is_none() {
                    cache.settled(&workflow, after);
                }
                let begun = |instance| Box::new(Begun { instance, turn: None });
                let turn = lease_kept.map(|task| NextTurn {
                    granted: Granted::workflow(task, began, room.request()),
                    begun: cache.take_at(&workflow, after).map(begun),
                });
                Ok(SpeculativeOutcome::Kept { followers, turn })
            }
            Ok((other, _)) => unreachable!("a turn is not answered with {other:?}"),
            Err(SettleResult::Refused(Error::Rejected(_))) => {
                drop(cache.take_at(&workflow, after));
                Ok(SpeculativeOutcome::Refused)
            }
            Err(answer) => {
                drop(cache.take_at(&workflow, after));
                Err(answer)
            }
        }
    }

    /// Continues under a lease of the workflow, if no other turn was committed in between.
    pub(crate) fn under(self, leased: &Task) -> Option<Box<Begun>> {
        let SpeculativeTurn { from, instance, turn, came, .. } = self;
        let is_next = leased.epoch == from.epoch + 1 && Position::of(leased) == Some(from);
        is_next.then(|| Box::new(Begun { instance, turn: Some((turn, vec![came])) }))
    }
}

fn draft(
    fence: Fence,
    turn: u32,
    instance: &Instance,
    finished: CompletedTurn,
    told: u64,
) -> Result<TurnCommit, Error> {
    let CompletedTurn { mut parts, standing, .. } = finished;
    let values = if standing.starts_over() { instance.values() } else { BTreeMap::new() };
    let then = then(standing, values)?;
    let (part, next_step) = (parts.pop(), instance.next_step());
    Ok(TurnCommit { fence, turn, part, taken: vec![told], next_step, then })
}
