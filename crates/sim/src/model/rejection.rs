//! Rejections: each for a reason that held at some time between command and answer.

use windlass_core::command::{ClaimEffect, SettleEffect};
use windlass_core::{Command, EffectOwner, Fence, PublicState, Rejection, TaskId};

use crate::model::facts::{Facts, Position, State};
use crate::model::outcome::{Submission, content};
use crate::model::state::Model;
use crate::violation::{Breach, Kind, breach};

impl Model {
    pub(super) fn rejected(
        &mut self,
        submission: &Submission<'_>,
        rejection: &Rejection,
    ) -> Result<(), Breach> {
        self.check_repeat(submission)?;
        if let Some(just) = self.may_reject_to_wait(submission, rejection) {
            return if just { Ok(()) } else { breach(Kind::UnjustRejection, "this never held") };
        }
        if let Some(just) = self.may_reject_to_keep(submission, rejection) {
            return if just { Ok(()) } else { breach(Kind::UnjustRejection, "this never held") };
        }
        let just = self.may_reject_request(submission, rejection);
        let just = just.or_else(|| self.may_reject_call(submission, rejection));
        if let Some(just) = just.or_else(|| self.may_reject_spend(submission, rejection)) {
            return if just { Ok(()) } else { breach(Kind::UnjustRejection, "this never held") };
        }
        let just = match submission.command {
            Command::Create(create) => self.may_reject_create(submission, create, rejection),
            Command::SetLaneState(set) => {
                *rejection == Rejection::LaneNotFound
                    && self.lanes[&set.lane].was(submission.seq, |lane| !lane.exists)
            }
            Command::LimitLane(limit) => {
                *rejection == Rejection::LaneNotFound
                    && self.lanes[&limit.lane].was(submission.seq, |lane| !lane.exists)
            }
            Command::SetQuota(set) => self.may_reject_quota(submission, set, rejection),
            command => match subject(command) {
                Some((id, fence)) => {
                    let track = &self.tasks[id];
                    track.was(submission.seq, |facts| self.may_reject(facts, id, fence, rejection))
                }
                None => false,
            },
        };
        if just { Ok(()) } else { breach(Kind::UnjustRejection, "this never held") }
    }

    /// Checks that a repeated settle gets its first answer until the next settle.
    fn check_repeat(&self, submission: &Submission<'_>) -> Result<(), Breach> {
        let Some((fenced, content)) = content(submission.command) else { return Ok(()) };
        let Some(seen) = self.settles.get(&fenced) else { return Ok(()) };
        let remembered = |facts: &Facts| facts.settled == Some(fenced.1);
        let remembered = self.tasks[&fenced.0].was_always(submission.seq, remembered);
        if remembered && seen.content.as_ref() == Some(&content) {
            return breach(
                Kind::RepeatRejected,
                format!("its first outcome was {:?}", seen.answer),
            );
        }
        Ok(())
    }

    /// Whether a task in this state may be the reason.
    pub(super) fn may_reject(
        &self,
        facts: &Facts,
        id: &TaskId,
        fence: Option<&Fence>,
        rejection: &Rejection,
    ) -> bool {
        let spec = self.spec(id);
        let under = |epoch: Option<u64>| fence.is_some_and(|fence| Some(fence.epoch) == epoch);
        // The epoch of a task that one commit created and deleted was never visible.
        let unknown = facts.exists() && facts.epoch.is_none();
        match rejection {
            Rejection::TaskNotFound => !facts.exists(),
            Rejection::StaleFence { current } => {
                !under(Some(*current)) && (unknown || facts.epoch == Some(*current))
            }
            Rejection::LeaseExpired => match &facts.state {
                State::Active(hold) => {
                    under(Some(hold.epoch))
                        && !spec.accept_expired_lease
                        && hold.expires_at <= self.latest
                }
                _ => false,
            },
            Rejection::NotLeased => {
                (unknown || under(facts.epoch))
                    && facts.exists()
                    && !facts.ended()
                    && facts.hold().is_none()
            }
            Rejection::AlreadySettled => under(facts.settled),
            Rejection::AlreadyTerminal { state } => facts.ended() && facts.public() == Some(*state),
            Rejection::NotTerminal => facts.exists() && !facts.ended(),
            Rejection::NotSuspended { state } => {
                let suspended = matches!(facts.state, State::Suspended(_));
                !suspended && !facts.ended() && may_be(facts, *state)
            }
            Rejection::NotBegun => {
                let unbegun = facts.hold().filter(|hold| hold.began_at.is_none());
                under(unbegun.map(|hold| hold.epoch))
            }
            Rejection::ChildrenOpen { open } => facts.ended() && facts.open.len() == *open as usize,
            Rejection::ExecutionMismatch { current } => facts.execution == *current,
            Rejection::AttemptsExhausted { max } => {
                facts.attempts >= *max && *max == super::retry::max_attempts(spec)
            }
            Rejection::ReplaysExhausted { max } => {
                facts.execution >= *max && *max == spec.max_replays
            }
            _ => false,
        }
    }
}

/// Whether a task may be in this state. One that was not observed yet may be blocked.
pub(super) fn may_be(facts: &Facts, state: PublicState) -> bool {
    let unseen =
        matches!(facts.state, State::Waiting { .. }) && facts.position == Position::Unknown;
    facts.public() == Some(state) || unseen && state == PublicState::Blocked
}

/// The task of a command, and its fence.
fn subject(command: &Command) -> Option<(&TaskId, Option<&Fence>)> {
    let fence = match command {
        Command::Renew(renew) => &renew.fence,
        Command::Begin(begin) => &begin.fence,
        Command::ReportProgress(report) => &report.fence,
        Command::Complete(complete) => &complete.fence,
        Command::Fail(fail) => &fail.fence,
        Command::Snooze(delay) => &delay.fence,
        Command::Release(release) => &release.fence,
        Command::CancelHeld(cancel) => &cancel.fence,
        Command::Suspend(suspend) => &suspend.fence,
        Command::ConsumeMessages(take) => &take.fence,
        Command::WaitChildren(wait) => &wait.fence,
        Command::ClaimEffect(ClaimEffect { owner: EffectOwner::Task(fence), .. })
        | Command::SettleEffect(SettleEffect { owner: EffectOwner::Task(fence), .. }) => fence,
        Command::Resume(resume) => return Some((&resume.task.id, None)),
        Command::Grant(grant) => return Some((&grant.task.id, None)),
        Command::ClaimGranted(consume) => return Some((&consume.task.id, None)),
        Command::Revoke(revoke) => return Some((&revoke.task.id, None)),
        Command::Cancel(cancel) => return Some((&cancel.task.id, None)),
        Command::ChangePriority(change) => return Some((&change.task.id, None)),
        Command::Replay(replay) => return Some((&replay.task.id, None)),
        Command::DeleteTask(delete) => return Some((&delete.task.id, None)),
        _ => return None,
    };
    Some((&fence.task.id, Some(fence)))
}
