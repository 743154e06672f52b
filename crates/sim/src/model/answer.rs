//! Outcomes that callers receive, compared with the log.

use windlass_core::{Command, Fence, Outcome, Settled, TaskId, Timestamp, WorkerId};
use windlass_engine::Error;

use crate::client::{brief, told};
use crate::model::admit::Giver;
use crate::model::facts::{Content, SettleSeen};
use crate::model::log::OPERATOR;
use crate::model::state::Model;
use crate::model::wait::suspend_content;
use crate::violation::{Breach, Kind, breach};

/// A task and the epoch of a lease of it.
pub(crate) type Fenced = (TaskId, u64);

/// A command, and the position of the log when it was first submitted.
#[derive(Clone, Debug)]
pub(crate) struct Asked<'c> {
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
    pub(crate) fn asked(&mut self, command: &Command) {
        let fenced = |fence: &Fence| (fence.task.id.clone(), fence.epoch);
        match command {
            Command::Claim(claim) => self.offered(claim),
            Command::Renew(renew) => {
                let lengths = self.renewing.entry(fenced(&renew.fence)).or_default();
                lengths.insert(renew.lease_ms);
            }
            Command::Fail(fail) => self.fails(fenced(&fail.fence), &fail.reason, fail.retry),
            Command::ClaimGranted(consume) => {
                self.offered(&crate::workers::claim(&consume.worker, 1));
            }
            Command::DeregisterWorker(retire) => self.retires(retire.id.as_str()),
            Command::ReleaseSession(release) => self.session_released(&release.session),
            Command::DeleteTask(reap) => drop(self.reaping.insert(reap.task.id.clone())),
            Command::Complete(complete) => {
                let bytes = complete.result.as_ref().map(|result| result.bytes.to_vec());
                self.give(fenced(&complete.fence), bytes);
            }
            Command::Admit(admit) => {
                let (key, owner) = (admit.request.key.reveal(), Some(admit.owner.as_str()));
                self.wants(key, owner, admit.fingerprint);
            }
            Command::CompleteRequest(answer) => {
                let text = String::from_utf8_lossy(&answer.answer.bytes);
                let giver = Giver::Owner(answer.owner.clone());
                self.gives(answer.request.key.reveal(), giver, &text);
            }
            Command::ReleaseRequest(withdraw) => {
                let giver = Giver::Owner(withdraw.owner.clone());
                self.gives_up(withdraw.request.key.reveal(), Some(giver));
            }
            Command::Spend(spend) => self.spends(spend),
            _ => self.asked_to_wait(command),
        }
    }

    /// Records a result of a lease holder, which may be stored from this point.
    pub(crate) fn give(&mut self, fenced: Fenced, result: Option<Vec<u8>>) {
        self.given.entry(fenced).or_default().push(result);
    }

    /// Whether this is a settle that had taken effect before it was submitted.
    pub(crate) fn was_settled(&self, asked: &Asked<'_>) -> bool {
        let settle = content(asked.command).map(|(fenced, _)| fenced);
        let seen = settle.and_then(|fenced| self.settles.get(&fenced));
        seen.is_some_and(|seen| seen.seq <= asked.seq)
    }

    /// Judges the answer that a client receives.
    pub(crate) fn answered(
        &mut self,
        asked: &Asked<'_>,
        answer: &Result<Outcome, Error>,
    ) -> Result<(), Breach> {
        let judged = match answer {
            Ok(outcome) => self.accepted(asked, outcome),
            Err(Error::Rejected(rejection)) => self.refused(asked, rejection),
            Err(Error::Bug { command }) => breach(Kind::Engine, format!("a bug in {command}")),
            Err(_) => Ok(()),
        };
        judged.map_err(|found| Breach {
            what: format!("{}: {}: {}", brief(asked.command), told(answer), found.what),
            ..found
        })
    }

    fn accepted(&mut self, asked: &Asked<'_>, outcome: &Outcome) -> Result<(), Breach> {
        if let Some(judged) = self.waits_as_told(asked, outcome) {
            return judged;
        }
        if let Some(judged) = self.requests_as_told(asked, outcome) {
            return judged;
        }
        if let Some(judged) = self.calls_as_told(asked, outcome) {
            return judged;
        }
        if let Some(judged) = self.spent_as_told(asked, outcome) {
            return judged;
        }
        match (asked.command, outcome) {
            (Command::Create(create), Outcome::Created(created)) => {
                self.created_as_told(asked, create, created)
            }
            (Command::Claim(claim), Outcome::Claimed(tasks)) => {
                let fences = tasks.iter().map(|task| (task.id.clone(), task.epoch));
                let fences: Vec<Fenced> = fences.collect();
                if fences.is_empty() {
                    return self.nothing_as_told(asked, claim);
                }
                if fences.len() > claim.limit as usize {
                    return breach(Kind::StrangeClaim, "more tasks than the claim's limit");
                }
                fences.into_iter().try_for_each(|fenced| self.leased(asked, fenced, &claim.worker))
            }
            (Command::ClaimGranted(consume), Outcome::Claimed(tasks)) => match &tasks[..] {
                [task] if task.id == consume.task.id => {
                    self.leased(asked, (task.id.clone(), task.epoch), &consume.worker)
                }
                _ => breach(Kind::StrangeClaim, "the claim got a different task"),
            },
            (Command::Renew(renew), Outcome::Renewed { expires_at }) => {
                let fenced = (renew.fence.task.id.clone(), renew.fence.epoch);
                let seen = self.renewals.get(&(fenced.clone(), *expires_at)).copied();
                self.in_effect(asked, &fenced, seen.filter(|seq| *seq > asked.seq))
            }
            (Command::Begin(begin), Outcome::Begun(run)) => {
                let fenced = (begin.fence.task.id.clone(), begin.fence.epoch);
                let seen = self.begun.get(&fenced).filter(|attempt| **attempt == run.attempt);
                self.in_effect(asked, &fenced, seen.map(|_| 0))
            }
            (Command::ReportProgress(report), Outcome::ProgressReported) => {
                let fenced = (report.fence.task.id.clone(), report.fence.epoch);
                let seen = self.progress.get(&(fenced.clone(), report.percent)).copied();
                self.in_effect(asked, &fenced, seen.filter(|seq| *seq > asked.seq))
            }
            (command, Outcome::Settled(settled)) => match content(command) {
                Some((fenced, content)) => self.settled_as_told(asked, &fenced, &content, settled),
                None => breach(Kind::OtherAnswer, "the command is not a settle"),
            },
            (command, outcome) => self.ordered(asked, command, outcome),
        }
    }

    fn leased(
        &mut self,
        asked: &Asked<'_>,
        fenced: Fenced,
        worker: &WorkerId,
    ) -> Result<(), Breach> {
        match self.claims.get(&fenced) {
            Some(seen) if seen.seq > asked.seq && seen.worker == worker.as_str() => {}
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
        asked: &Asked<'_>,
        fenced: &Fenced,
        seen: Option<u64>,
    ) -> Result<(), Breach> {
        if seen.is_some() {
            return Ok(());
        }
        let stale = |epoch: Option<u64>| epoch.is_some_and(|epoch| epoch > fenced.1);
        if self.tasks[&fenced.0].was(asked.seq, |facts| stale(facts.epoch)) {
            return breach(Kind::StaleAccepted, format!("{fenced:?} is not the latest lease"));
        }
        breach(Kind::EffectMissing, format!("the log has no such event of {fenced:?}"))
    }

    pub(super) fn settled_as_told(
        &self,
        asked: &Asked<'_>,
        fenced: &Fenced,
        content: &Content,
        settled: &Settled,
    ) -> Result<(), Breach> {
        let seen: Option<&SettleSeen> = self.settles.get(fenced);
        self.in_effect(asked, fenced, seen.map(|seen| seen.seq))?;
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
        asked: &Asked<'_>,
        command: &Command,
        outcome: &Outcome,
    ) -> Result<(), Breach> {
        let since = |id: &TaskId, name| {
            self.happened.get(&(id.clone(), name)).is_some_and(|seq| *seq > asked.seq)
        };
        let was = |id: &TaskId, state| {
            self.tasks[id].was(asked.seq, |facts| facts.public() == Some(state))
        };
        let there = match (command, outcome) {
            (Command::Cancel(cancel), Outcome::Cancelled) => {
                was(&cancel.task.id, windlass_core::PublicState::Cancelled)
            }
            (Command::ChangePriority(change), Outcome::PriorityChanged) => self.tasks
                [&change.task.id]
                .was(asked.seq, |facts| facts.priority == change.priority),
            (Command::Replay(replay), Outcome::Replayed { generation }) => {
                *generation == replay.generation + 1
                    && self.tasks[&replay.task.id]
                        .was(asked.seq, |facts| facts.generation == *generation)
            }
            (Command::DeleteTask(reap), Outcome::TaskDeleted) => since(&reap.task.id, "deleted"),
            (Command::SetLaneState(set), Outcome::LaneChanged) => {
                self.lanes[&set.lane].was(asked.seq, |lane| lane.state == set.state)
            }
            (Command::LimitLane(limit), Outcome::LaneChanged) => {
                self.lanes[&limit.lane].was(asked.seq, |lane| lane.limit == limit.limit)
            }
            (Command::WaitChildren(wait), Outcome::ChildrenDone(counts)) => {
                self.are_done(asked, &wait.fence, counts)
            }
            (Command::RegisterWorker(_), Outcome::WorkerRegistered { .. })
            | (Command::DeregisterWorker(_), Outcome::WorkerDeregistered) => true,
            (Command::Grant(grant), Outcome::Granted { until }) => {
                self.is_granted(asked, grant, *until)
            }
            (Command::Revoke(revoke), Outcome::Revoked) => since(&revoke.task.id, "revoked"),
            (Command::SetQuota(set), Outcome::QuotaSet) => self.is_set(asked, set),
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
