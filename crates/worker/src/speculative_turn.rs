use std::collections::BTreeMap;

use windlass_core::command::{Complete, CompleteAndCommitTurn};
use windlass_core::{
    Fence, HistoryPayload, Message, Outcome, StepOutcome, Task, TaskKey, WorkflowInput,
};
use windlass_engine::{Error, PendingInput};

use crate::attempt::NextTurn;
use crate::attempt_report::SettleResult;
use crate::handler::Handled;
use crate::lease::{Granted, Lease};
use crate::turn_attempt::TurnInProgress;
use crate::turn_commit::{EagerActivities, TurnCommit, turn_end};
use crate::worker_state::WorkerState;
use crate::workflow::{CompletedTurn, Instance, TurnProgress};
use crate::workflow_cache::Position;

/// A speculative turn: a cached workflow runs with the result of its activity before that result is
/// committed. One commit covers both.
#[derive(Debug)]
pub(crate) struct SpeculativeTurn {
    workflow: TaskKey,
    /// The position of the workflow before the turn.
    from: Position,
    instance: Instance,
    turn: TurnProgress,
    input: PendingInput,
}

/// The outcome of a speculative turn.
#[derive(Debug)]
pub(crate) enum SpeculativeOutcome {
    /// It is committed. Has its eager activities, and the workflow if its lease continues.
    Committed { eager_activities: Option<EagerActivities>, turn: Option<NextTurn> },
    /// It needs a lease of the workflow before it can end.
    Unfinished(Box<SpeculativeTurn>),
    /// It was rejected, for example because another worker committed a turn.
    Rejected,
}

impl SpeculativeTurn {
    /// Runs the turn, if the workflow is cached and has no other turn in progress.
    pub(crate) fn run(state: &WorkerState, activity: &Task, handled: &Handled) -> Option<Self> {
        let (Some(parent), Some(step), Ok(result)) = (&activity.parent, activity.step, handled)
        else {
            return None;
        };
        if state.is_closing() {
            return None;
        }
        let workflow = TaskKey::new(&activity.tenant, parent);
        let (mut instance, from) = state.worker.cache.take_settled(&workflow)?;
        let outcome = StepOutcome::Completed { result: result.clone().map(HistoryPayload) };
        let completion = WorkflowInput::StepCompletion { step, outcome };
        let input = PendingInput { seq: Message::of_step(step), input: completion.clone() };
        instance.set_attempt(1);
        // The regular turn that replaces it finds and reports the same failure.
        let turn = instance.turn(state.worker.engine.now(), vec![completion]).ok()?;
        Some(Self { workflow, from, instance, turn, input })
    }

    /// Commits the turn together with the end of the activity.
    pub(crate) async fn commit(
        self,
        state: &WorkerState,
        lease: &Lease,
        complete: Complete,
        may_chain: bool,
    ) -> Result<SpeculativeOutcome, SettleResult> {
        let SpeculativeTurn { workflow, from, instance, turn, input } = self;
        let finished = match turn {
            TurnProgress::Finished(finished) if finished.parts.len() == 1 && !finished.has_more => {
                finished
            }
            turn => {
                let speculative = SpeculativeTurn { workflow, from, instance, turn, input };
                return Ok(SpeculativeOutcome::Unfinished(Box::new(speculative)));
            }
        };
        let waits = !finished.state.has_ended();
        let fence = Fence { task: workflow.clone(), epoch: from.epoch + 1 };
        let after = Position { epoch: fence.epoch, ..from.after(1) };
        let prepared = turn_commit(fence, from.turns, &instance, finished, input.seq);
        let prepared = prepared.and_then(|commit| commit.command(state, may_chain));
        let Ok((turn, mut eager_slots)) = prepared else { return Ok(SpeculativeOutcome::Rejected) };
        let claim = state.worker.claim_granted(workflow.clone(), eager_slots.request());
        let cache = &state.worker.cache;
        if waits {
            cache.insert(workflow.clone(), after, instance);
        }
        match lease.settle_timed(CompleteAndCommitTurn { complete, claim, turn }.into()).await {
            Ok((Outcome::TurnCommitted { claimed, lease_kept }, began)) => {
                let eager_activities = eager_slots.filled(claimed, began);
                if lease_kept.is_none() {
                    cache.settled(&workflow, after);
                }
                let in_progress = |instance| Box::new(TurnInProgress { instance, turn: None });
                let turn = lease_kept.map(|task| NextTurn {
                    granted: Granted::workflow(task, began, eager_slots.request()),
                    in_progress: cache.take_at(&workflow, after).map(in_progress),
                });
                Ok(SpeculativeOutcome::Committed { eager_activities, turn })
            }
            Ok((other, _)) => unreachable!("a turn is not answered with {other:?}"),
            Err(SettleResult::Rejected(Error::Rejected(_))) => {
                drop(cache.take_at(&workflow, after));
                Ok(SpeculativeOutcome::Rejected)
            }
            Err(error) => {
                drop(cache.take_at(&workflow, after));
                Err(error)
            }
        }
    }

    /// Continues under a lease of the workflow, if no other turn was committed in between.
    pub(crate) fn continue_under(self, leased: &Task) -> Option<Box<TurnInProgress>> {
        let SpeculativeTurn { from, instance, turn, input, .. } = self;
        let is_next = leased.epoch == from.epoch + 1 && Position::of(leased) == Some(from);
        is_next.then(|| Box::new(TurnInProgress { instance, turn: Some((turn, vec![input])) }))
    }
}

fn turn_commit(
    fence: Fence,
    turn: u32,
    instance: &Instance,
    finished: CompletedTurn,
    seq: u64,
) -> Result<TurnCommit, Error> {
    let CompletedTurn { mut parts, state, .. } = finished;
    let values = if state.continues_as_new() { instance.values() } else { BTreeMap::new() };
    let end = turn_end(state, values)?;
    let (part, next_step) = (parts.pop(), instance.next_step());
    Ok(TurnCommit { fence, turn, part, consumed: vec![seq], next_step, end })
}
