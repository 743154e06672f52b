//! Outcomes that callers receive, compared with the log.

use windlass_core::{Command, Fence, Outcome, Settled, TaskId, Timestamp, WorkerId};
use windlass_engine::Error;

use crate::client::{brief, brief_result};
use crate::model::facts::{Content, SettleSeen};
use crate::model::idempotent_request::Responder;
use crate::model::log::OPERATOR;
use crate::model::state::Model;
use crate::model::suspension::suspend_content;
use crate::violation::{Breach, Kind, breach};

/// A task and the epoch of a lease of it.
pub(crate) type Fenced = (TaskId, u64);

/// A command, and the position of the log when it was first submitted.
#[derive(Clone, Debug)]
pub(crate) struct Submission<'c> {
    pub(crate) command: &'c Command,
    pub(crate) seq: u64,
    /// The time of the last log event when it was submitted.
    pub(crate) at: Timestamp,
    /// The number of commits by then.
    pub(crate) moment: u64,
}

/// A position: in the log, in time and in commits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Since {
    pub(crate) seq: u64,
    pub(crate) at: Timestamp,
    pub(crate) moment: u64,
}

impl Model {
    /// Records a command that a client submits: its effect may be committed from this point.
    pub(crate) fn submitted(&mut self, command: &Command) {
        let fenced = |fence: &Fence| (fence.task.id.clone(), fence.epoch);
        match command {
            Command::Claim(claim) => self.claim_submitted(claim),
            Command::Renew(renew) => {
                let lengths = self.renewing.entry(fenced(&renew.fence)).or_default();
                lengths.insert(renew.lease_ms);
            }
            Command::Fail(fail) => {
                self.failure_submitted(fenced(&fail.fence), &fail.reason, fail.retry);
            }
            Command::ClaimGranted(claim) => {
                self.claim_submitted(&crate::workers::claim(&claim.worker, 1));
            }
            Command::DeregisterWorker(deregister) => {
                self.deregistration_submitted(deregister.id.as_str());
            }
            Command::ReleaseSession(release) => self.session_release_submitted(&release.session),
            Command::DeleteTask(delete) => drop(self.deleting.insert(delete.task.id.clone())),
            Command::Complete(complete) => {
                let bytes = complete.result.as_ref().map(|result| result.bytes.to_vec());
                self.result_submitted(fenced(&complete.fence), bytes);
            }
            Command::Admit(admit) => {
                let (key, owner) = (admit.request.key.expose_secret(), Some(admit.owner.as_str()));
                self.admission_requested(key, owner, admit.fingerprint);
            }
            Command::CompleteRequest(complete) => {
                let text = String::from_utf8_lossy(&complete.response.bytes);
                let responder = Responder::Owner(complete.owner.clone());
                self.response_submitted(complete.request.key.expose_secret(), responder, &text);
            }
            Command::ReleaseRequest(release) => {
                let responder = Responder::Owner(release.owner.clone());
                self.release_submitted(release.request.key.expose_secret(), Some(responder));
            }
            Command::Spend(spend) => self.spend_submitted(spend),
            _ => self.wait_submitted(command),
        }
    }

    /// Records a result of a lease holder, which may be stored from this point.
    pub(crate) fn result_submitted(&mut self, fenced: Fenced, result: Option<Vec<u8>>) {
        self.results.entry(fenced).or_default().push(result);
    }

    /// Whether this is a settle that had taken effect before it was submitted.
    pub(crate) fn was_settled(&self, submission: &Submission<'_>) -> bool {
        let settle = content(submission.command).map(|(fenced, _)| fenced);
        let seen = settle.and_then(|fenced| self.settles.get(&fenced));
        seen.is_some_and(|seen| seen.seq <= submission.seq)
    }

    /// Judges the answer that a client receives.
    pub(crate) fn answered(
        &mut self,
        submission: &Submission<'_>,
        answer: &Result<Outcome, Error>,
    ) -> Result<(), Breach> {
        let judged = match answer {
            Ok(outcome) => self.accepted(submission, outcome),
            Err(Error::Rejected(rejection)) => self.rejected(submission, rejection),
            Err(Error::Bug { command }) => breach(Kind::Engine, format!("a bug in {command}")),
            Err(_) => Ok(()),
        };
        judged.map_err(|found| Breach {
            what: format!(
                "{}: {}: {}",
                brief(submission.command),
                brief_result(answer),
                found.what
            ),
            ..found
        })
    }

    fn accepted(&mut self, submission: &Submission<'_>, outcome: &Outcome) -> Result<(), Breach> {
        if let Some(judged) = self.check_wait_outcome(submission, outcome) {
            return judged;
        }
        if let Some(judged) = self.check_request_outcome(submission, outcome) {
            return judged;
        }
        if let Some(judged) = self.check_effect_outcome(submission, outcome) {
            return judged;
        }
        if let Some(judged) = self.check_spend_outcome(submission, outcome) {
            return judged;
        }
        match (submission.command, outcome) {
            (Command::Create(create), Outcome::Created(created)) => {
                self.check_create_outcome(submission, create, created)
            }
            (Command::Claim(claim), Outcome::Claimed(tasks)) => {
                let fences = tasks.iter().map(|task| (task.id.clone(), task.epoch));
                let fences: Vec<Fenced> = fences.collect();
                if fences.is_empty() {
                    return self.check_empty_claim(submission, claim);
                }
                if fences.len() > claim.limit as usize {
                    return breach(Kind::StrangeClaim, "more tasks than the claim's limit");
                }
                fences
                    .into_iter()
                    .try_for_each(|fenced| self.leased(submission, fenced, &claim.worker))
            }
            (Command::ClaimGranted(claim), Outcome::Claimed(tasks)) => match &tasks[..] {
                [task] if task.id == claim.task.id => {
                    self.leased(submission, (task.id.clone(), task.epoch), &claim.worker)
                }
                _ => breach(Kind::StrangeClaim, "the claim got a different task"),
            },
            (Command::Renew(renew), Outcome::Renewed { expires_at }) => {
                let fenced = (renew.fence.task.id.clone(), renew.fence.epoch);
                let seen = self.renewals.get(&(fenced.clone(), *expires_at)).copied();
                self.in_effect(submission, &fenced, seen.filter(|seq| *seq > submission.seq))
            }
            (Command::Begin(begin), Outcome::Begun(attempt)) => {
                let fenced = (begin.fence.task.id.clone(), begin.fence.epoch);
                let seen = self.begun.get(&fenced).filter(|begun| **begun == attempt.number);
                self.in_effect(submission, &fenced, seen.map(|_| 0))
            }
            (Command::ReportProgress(report), Outcome::ProgressReported) => {
                let fenced = (report.fence.task.id.clone(), report.fence.epoch);
                let seen = self.progress.get(&(fenced.clone(), report.percent)).copied();
                self.in_effect(submission, &fenced, seen.filter(|seq| *seq > submission.seq))
            }
            (command, Outcome::Settled(settled)) => match content(command) {
                Some((fenced, content)) => {
                    self.check_settle_outcome(submission, &fenced, &content, settled)
                }
                None => breach(Kind::OtherAnswer, "the command is not a settle"),
            },
            (command, outcome) => self.ordered(submission, command, outcome),
        }
    }

    fn leased(
        &mut self,
        submission: &Submission<'_>,
        fenced: Fenced,
        worker: &WorkerId,
    ) -> Result<(), Breach> {
        match self.claims.get(&fenced) {
            Some(seen) if seen.seq > submission.seq && seen.worker == worker.as_str() => {}
            other => return breach(Kind::EffectMissing, format!("claim {fenced:?} was {other:?}")),
        }
        if !self.leased.insert(fenced.clone()) {
            return breach(Kind::LeasedTwice, format!("{fenced:?}"));
        }
        Ok(())
    }

    /// Checks that a handler may start.
    pub(crate) fn started(
        &mut self,
        fenced: &Fenced,
        worker: &str,
        attempt: u32,
    ) -> Result<(), Breach> {
        self.check_held(fenced)?;
        let claim = self.claims.get(fenced);
        if !claim.is_some_and(|seen| seen.worker == worker && seen.attempt == Some(attempt)) {
            let what = format!("attempt {attempt} of {fenced:?} starts in {worker}: {claim:?}");
            return breach(Kind::EffectMissing, what);
        }
        if !self.started.insert(fenced.clone()) || !self.leased.insert(fenced.clone()) {
            return breach(Kind::LeasedTwice, format!("{fenced:?} starts again in {worker}"));
        }
        Ok(())
    }

    /// Checks that an accepted write under a fence is in the log, at `seen`.
    fn in_effect(
        &self,
        submission: &Submission<'_>,
        fenced: &Fenced,
        seen: Option<u64>,
    ) -> Result<(), Breach> {
        if seen.is_some() {
            return Ok(());
        }
        let stale = |epoch: Option<u64>| epoch.is_some_and(|epoch| epoch > fenced.1);
        if self.tasks[&fenced.0].was(submission.seq, |facts| stale(facts.epoch)) {
            return breach(Kind::StaleAccepted, format!("{fenced:?} is not the latest lease"));
        }
        breach(Kind::EffectMissing, format!("the log has no such event of {fenced:?}"))
    }

    pub(super) fn check_settle_outcome(
        &self,
        submission: &Submission<'_>,
        fenced: &Fenced,
        content: &Content,
        settled: &Settled,
    ) -> Result<(), Breach> {
        let seen: Option<&SettleSeen> = self.settles.get(fenced);
        self.in_effect(submission, fenced, seen.map(|seen| seen.seq))?;
        let Some(seen) = seen else { return Ok(()) };
        if !seen.says(content) {
            return breach(Kind::SettledTwice, format!("it was settled with {:?}", seen.content));
        }
        if seen.answer != *settled {
            return breach(Kind::OtherAnswer, format!("its first outcome was {:?}", seen.answer));
        }
        Ok(())
    }

    /// Judges the commands of operators and of the engine.
    fn ordered(
        &self,
        submission: &Submission<'_>,
        command: &Command,
        outcome: &Outcome,
    ) -> Result<(), Breach> {
        let since = |id: &TaskId, name| {
            self.happened.get(&(id.clone(), name)).is_some_and(|seq| *seq > submission.seq)
        };
        let was = |id: &TaskId, state| {
            self.tasks[id].was(submission.seq, |facts| facts.public() == Some(state))
        };
        let there = match (command, outcome) {
            (Command::Cancel(cancel), Outcome::Cancelled) => {
                was(&cancel.task.id, windlass_core::PublicState::Cancelled)
            }
            (Command::ChangePriority(change), Outcome::PriorityChanged) => self.tasks
                [&change.task.id]
                .was(submission.seq, |facts| facts.priority == change.priority),
            (Command::Replay(replay), Outcome::Replayed { execution }) => {
                *execution == replay.execution + 1
                    && self.tasks[&replay.task.id]
                        .was(submission.seq, |facts| facts.execution == *execution)
            }
            (Command::DeleteTask(delete), Outcome::TaskDeleted) => {
                since(&delete.task.id, "deleted")
            }
            (Command::SetLaneState(set), Outcome::LaneChanged) => {
                self.lanes[&set.lane].was(submission.seq, |lane| lane.state == set.state)
            }
            (Command::LimitLane(limit), Outcome::LaneChanged) => {
                self.lanes[&limit.lane].was(submission.seq, |lane| lane.limit == limit.limit)
            }
            (Command::WaitChildren(wait), Outcome::ChildrenDone(counts)) => {
                self.are_done(submission, &wait.fence, counts)
            }
            (Command::RegisterWorker(_), Outcome::WorkerRegistered { .. })
            | (Command::DeregisterWorker(_), Outcome::WorkerDeregistered) => true,
            (Command::Grant(grant), Outcome::Granted { until }) => {
                self.is_granted(submission, grant, *until)
            }
            (Command::Revoke(revoke), Outcome::Revoked) => since(&revoke.task.id, "revoked"),
            (Command::SetQuota(set), Outcome::QuotaSet) => self.is_set(submission, set),
            (Command::ReleaseSession(_), Outcome::SessionReleased { .. }) => true,
            (Command::Sweep(_), Outcome::Swept { .. }) => true,
            _ => return breach(Kind::OtherAnswer, "the outcome belongs to another command"),
        };
        if there { Ok(()) } else { breach(Kind::EffectMissing, "the log has no such event") }
    }
}

/// The content of a settle, and its fence.
pub(super) fn content(command: &Command) -> Option<(Fenced, Content)> {
    let (fence, content) = match command {
        Command::Complete(complete) => {
            let bytes = complete.result.as_ref().map(|result| result.bytes.to_vec());
            (&complete.fence, Content::Complete(bytes))
        }
        Command::Fail(fail) => (&fail.fence, Content::Fail(fail.reason.clone())),
        Command::Snooze(delay) => (&delay.fence, Content::Delay { ms: delay.delay_ms }),
        Command::Release(release) => (&release.fence, Content::Release),
        Command::Suspend(suspend) => (&suspend.fence, suspend_content(suspend)),
        Command::WaitChildren(wait) => (&wait.fence, Content::WaitChildren),
        Command::CancelHeld(cancel) => {
            assert_ne!(cancel.reason, OPERATOR, "the log distinguishes them by their reasons");
            (&cancel.fence, Content::Cancel(cancel.reason.clone()))
        }
        _ => return None,
    };
    Some(((fence.task.id.clone(), fence.epoch), content))
}
