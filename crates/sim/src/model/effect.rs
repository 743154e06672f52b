//! Effects (external calls): each is stored before it is made and keeps one id while it is
//! stored. It is repeated only by a caller that cannot know of the first call.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::command::{ClaimEffect, SettleEffect};
use windlass_core::{
    Change, Command, Digest, Effect, EffectOwner, IdempotencyKey, Outcome, Rejection, RowKey,
    TaskId, Timestamp, Value,
};
use windlass_store::MemoryStore;

use crate::coverage::CoverageEvent;
use crate::model::facts::{Facts, Track};
use crate::model::log::Step;
use crate::model::outcome::Submission;
use crate::model::record::one;
use crate::model::state::Model;
use crate::requests::key_of_provider;
use crate::script::TaskSpec;
use crate::violation::{Breach, Kind, breach};

/// The log events of effects.
const CLAIMED: &str = "effect_claimed";
const SETTLED: &str = "effect_settled";

/// The owner of an effect, and its name.
pub(crate) type CallName = (Parent, String);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Parent {
    Task(TaskId),
    Request(String),
}

/// The right to make a call: a lease, or a request until its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    Epoch(u64),
    Until(Timestamp),
}

/// A call as it reaches the external service.
#[derive(Clone, Debug)]
pub(crate) struct Invocation<'a> {
    pub(crate) call: &'a CallName,
    pub(crate) id: &'a str,
    pub(crate) right: Right,
    /// The external service reported that it has no record of it.
    pub(crate) looked: bool,
    pub(crate) idempotent_provider: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct EffectFacts {
    id: String,
    fingerprint: Digest,
    answered: bool,
    /// Who claimed it, if the claim was visible.
    right: Option<Right>,
    /// The position of the log at the claim.
    seq: u64,
}

#[derive(Debug, Default)]
pub(super) struct Effects {
    rows: BTreeMap<CallName, Track<Option<EffectFacts>>>,
    /// By task, the lease of its latest effect event in the log; one commit may hold several.
    claimed_by: BTreeMap<TaskId, Right>,
    /// By id, the time until which it must be retained.
    keep_until: BTreeMap<String, Timestamp>,
    /// Ids whose call was made.
    done: BTreeSet<String>,
    /// By id, the answer of the first settle that a caller saw accepted.
    settled: BTreeMap<String, Vec<u8>>,
    /// By call, the log event of the observed commit about it.
    logged: BTreeMap<(CallName, &'static str), u64>,
    /// Calls that one commit claimed, perhaps settled, and deleted with their task, so that no
    /// record was ever visible; and that commit.
    unrecorded: BTreeSet<(CallName, &'static str, u64)>,
    /// By id, the claimant of such a call that saw its claim accepted.
    claimed_unrecorded: BTreeMap<String, Right>,
}

fn call_of(row: &RowKey) -> Option<CallName> {
    let texts = row.values.iter().filter_map(|value| match value {
        Value::Text(text) => Some(&**text),
        _ => None,
    });
    let [_, parent, provider, name] = texts.collect::<Vec<&str>>()[..] else { return None };
    let parent = match parent.strip_prefix("task/") {
        Some(task) => Parent::Task(task.into()),
        None => Parent::Request(key_of_provider(provider)?),
    };
    Some((parent, name.to_owned()))
}

fn call_by(caller: &EffectOwner, name: &str) -> CallName {
    let parent = match caller {
        EffectOwner::Task(fence) => Parent::Task(fence.task.id.clone()),
        EffectOwner::Request { request, .. } => {
            Parent::Request(request.key.expose_secret().to_owned())
        }
    };
    (parent, name.to_owned())
}

impl Model {
    /// Checks a log event about an effect: its task is leased, and its attempt has begun.
    pub(super) fn effect_logged(
        &mut self,
        at: &Step<'_>,
        facts: &mut Facts,
        spec: &TaskSpec,
        change: &Change,
    ) -> Result<(), Breach> {
        if let Change::EffectClaimed { name, .. } | Change::EffectSettled { name, .. } = change {
            let call = (Parent::Task(at.id.clone()), name.clone());
            self.effects.logged.insert((call, change.name()), at.seq);
        }
        let Some(hold) = facts.hold().copied().filter(|hold| hold.began_at.is_some()) else {
            return breach(Kind::IllegalMove, "no attempt runs under a lease");
        };
        self.effects.claimed_by.insert(at.id.clone(), Right::Epoch(hold.epoch));
        super::lease::held(facts, hold.epoch, at, spec).map(drop)
    }

    fn effect_facts(&self, call: &CallName) -> Option<&EffectFacts> {
        self.effects.rows.get(call).and_then(|track| track.last().as_ref())
    }

    /// Judges a commit that wrote or removed the record of a call.
    pub(super) fn compare_effect(
        &mut self,
        memory: &MemoryStore,
        row: &RowKey,
    ) -> Result<(), Breach> {
        let Some(call) = call_of(row) else {
            return breach(Kind::Effect, format!("an effect without an owner: {row:?}"));
        };
        let was = self.effect_facts(&call).cloned();
        let is = one::<Effect>(memory, row.clone());
        let same = |was: &EffectFacts, is: &Effect| was.id == is.request_id.expose_secret();
        let is = match (&was, is) {
            (_, None) => None,
            (Some(was), Some(is)) if same(was, &is) => {
                if was.answered && is.result.is_none() || was.fingerprint != is.fingerprint {
                    return breach(Kind::Effect, format!("{call:?} was {was:?}"));
                }
                Some(EffectFacts { answered: is.result.is_some(), ..was.clone() })
            }
            (_, Some(is)) => Some(self.claimed_call(&call, &is)),
        };
        let gone = was.as_ref().filter(|was| is.as_ref().is_none_or(|is| is.id != was.id));
        if let Some(gone) = gone
            && !self.may_be_forgotten(&call, gone)
        {
            let kind = if is.is_some() { "claimed again" } else { "forgotten" };
            return breach(Kind::Effect, format!("{call:?} is {kind} at {}", self.now));
        }
        // Settled and deleted in one commit: the log has the event, and no record was visible.
        let settled = self.effects.logged.contains_key(&(call.clone(), SETTLED));
        let answered =
            gone.filter(|_| settled).map(|gone| EffectFacts { answered: true, ..gone.clone() });
        if is != was {
            let moment = self.moment;
            let track = self.effects.rows.entry(call).or_insert_with(|| Track::new(None));
            if answered.is_some() {
                track.push(moment, answered);
            }
            track.push(moment, is);
        }
        Ok(())
    }

    /// After the records of a commit: finds logged calls that left no record.
    pub(super) fn find_unrecorded_calls(&mut self) {
        let logged = std::mem::take(&mut self.effects.logged);
        for (call, what) in logged.keys() {
            let Parent::Task(task) = &call.0 else { continue };
            let Some(claimed) = logged.get(&(call.clone(), CLAIMED)) else { continue };
            let deleted = self.happened.get(&(task.clone(), "deleted"));
            if deleted.is_some_and(|deleted| deleted > claimed) {
                self.effects.unrecorded.insert((call.clone(), what, self.moment));
            }
        }
    }

    /// The state of a call that is stored for the first time.
    fn claimed_call(&mut self, call: &CallName, effect: &Effect) -> EffectFacts {
        let right = match &call.0 {
            Parent::Task(task) => self.effects.claimed_by.get(task).copied(),
            Parent::Request(key) => {
                let stage = self.stage(key).cloned();
                if let Some(stage) = &stage {
                    let keep = stage.tombstone_until();
                    self.effects
                        .keep_until
                        .insert(effect.request_id.expose_secret().to_owned(), keep);
                }
                stage.map(|stage| Right::Until(stage.until()))
            }
        };
        EffectFacts {
            id: effect.request_id.expose_secret().to_owned(),
            fingerprint: effect.fingerprint,
            answered: effect.result.is_some(),
            right,
            seq: self.last_seq,
        }
    }

    /// Whether a call may be deleted: with its task, or after its request's retention.
    fn may_be_forgotten(&self, call: &CallName, effect: &EffectFacts) -> bool {
        match &call.0 {
            Parent::Task(task) => {
                let deleted = self.happened.get(&(task.clone(), "deleted"));
                deleted.is_some_and(|seq| *seq >= effect.seq)
            }
            Parent::Request(_) => {
                let keep = self.effects.keep_until.get(&effect.id);
                keep.is_none_or(|keep| *keep <= self.now)
            }
        }
    }

    /// Records a lookup of an earlier call at the external service.
    pub(crate) fn looks_up(&mut self, call: &CallName, id: &str) {
        if let Parent::Request(key) = &call.0
            && let Some(stage) = self.stage(key).filter(|stage| stage.is_open())
            && self.effect_facts(call).is_some_and(|effect| effect.id == id)
        {
            let keep = stage.tombstone_until();
            let until = self.effects.keep_until.entry(id.to_owned()).or_default();
            *until = keep.max(*until);
        }
    }

    /// Checks a call that the external service executes.
    pub(crate) fn makes_call(&mut self, invocation: &Invocation<'_>) -> Result<(), Breach> {
        let Invocation { call, id, right, looked, idempotent_provider } = invocation;
        let track = self.effects.rows.get(call);
        let is_same =
            |effect: &Option<EffectFacts>| effect.as_ref().is_some_and(|effect| effect.id == *id);
        let claims = track.into_iter().flat_map(|track| track.since(0));
        let mut claims = claims.filter(|(_, is)| is_same(is)).filter_map(|(_, is)| is.as_ref());
        let unrecorded = || self.effects.claimed_unrecorded.get(*id).map(|right| Some(*right));
        let Some(first) = claims.next().map(|first| first.right).or_else(unrecorded) else {
            return breach(Kind::Effect, format!("{call:?} is made without a claim"));
        };
        let is_first = first.is_none_or(|first| first == *right);
        let again = !self.effects.done.insert((*id).to_owned());
        if again && !idempotent_provider && !looked && !is_first {
            return breach(Kind::Effect, format!("{call:?} is made again by {right:?}"));
        }
        if again {
            let met = if *idempotent_provider {
                CoverageEvent::ThreadedAgain
            } else {
                CoverageEvent::CalledLate
            };
            self.requests.met.push(met);
        }
        Ok(())
    }

    fn effect_facts_since(&self, call: &CallName, moment: u64) -> Vec<Option<EffectFacts>> {
        match self.effects.rows.get(call) {
            Some(track) => track.since(moment).iter().map(|(_, effect)| effect.clone()).collect(),
            None => vec![None],
        }
    }

    /// Whether the caller held the task or request that owns the call.
    fn held_call(&self, submission: &Submission<'_>, caller: &EffectOwner) -> bool {
        match caller {
            EffectOwner::Task(fence) => {
                let held = |facts: &Facts| {
                    facts
                        .hold()
                        .is_some_and(|hold| hold.epoch == fence.epoch && hold.began_at.is_some())
                };
                self.tasks[&fence.task.id].was(submission.seq, held)
            }
            EffectOwner::Request { request, owner } => {
                self.held_request(request.key.expose_secret(), owner, submission.moment)
            }
        }
    }

    /// Judges the outcomes of commands about effects; none for other commands.
    pub(super) fn check_effect_outcome(
        &mut self,
        submission: &Submission<'_>,
        outcome: &Outcome,
    ) -> Option<Result<(), Breach>> {
        let judged = match (submission.command, outcome) {
            (
                Command::ClaimEffect(claim),
                Outcome::EffectClaimed { request_id, existed, result },
            ) => {
                let ClaimEffect { owner, name, fingerprint, .. } = claim;
                let own = |is: &EffectFacts| {
                    is.id == request_id.expose_secret()
                        && is.fingerprint == *fingerprint
                        && (is.answered || result.is_none())
                };
                let call = call_by(owner, name);
                let there =
                    self.effect_facts_since(&call, submission.moment).iter().flatten().any(own);
                let fresh = *existed || *request_id == claim.request_id && result.is_none();
                let there = there || self.claimed_unrecorded(submission, owner, &call, request_id);
                there && fresh && self.held_call(submission, owner)
            }
            (Command::SettleEffect(settle), Outcome::EffectSettled) => {
                let SettleEffect { owner, name, result, .. } = settle;
                let call = call_by(owner, name);
                let there = self.effect_facts_since(&call, submission.moment);
                let there = there.iter().flatten().find(|is| is.answered);
                let same = there.is_some_and(|is| {
                    let says = self.effects.settled.entry(is.id.clone());
                    *says.or_insert_with(|| result.bytes.to_vec()) == result.bytes.to_vec()
                });
                let same = same || self.was_unrecorded(submission, &call, SETTLED);
                same && self.held_call(submission, owner)
            }
            _ => return None,
        };
        Some(if judged { Ok(()) } else { breach(Kind::Effect, "not in that state") })
    }

    /// Whether a commit since then claimed (or settled) this call and deleted it with its task.
    fn was_unrecorded(
        &self,
        submission: &Submission<'_>,
        call: &CallName,
        what: &'static str,
    ) -> bool {
        let moment = |moment: u64| (call.clone(), what, moment);
        let mut since = self.effects.unrecorded.range(moment(submission.moment + 1)..);
        since.next().is_some_and(|found| *found <= moment(self.moment))
    }

    /// The same for a claim. The caller that saw it accepted may make the call from this point.
    fn claimed_unrecorded(
        &mut self,
        submission: &Submission<'_>,
        caller: &EffectOwner,
        call: &CallName,
        id: &IdempotencyKey,
    ) -> bool {
        let EffectOwner::Task(fence) = caller else { return false };
        let found = self.was_unrecorded(submission, call, CLAIMED);
        if found {
            let right = Right::Epoch(fence.epoch);
            self.effects.claimed_unrecorded.entry(id.expose_secret().to_owned()).or_insert(right);
        }
        found
    }

    /// Whether a command about an effect may be rejected with this reason; none for other
    /// commands, or if only the task can be the reason.
    pub(super) fn may_reject_call(
        &self,
        submission: &Submission<'_>,
        rejection: &Rejection,
    ) -> Option<bool> {
        let (owner, name) = match submission.command {
            Command::ClaimEffect(claim) => (&claim.owner, &claim.name),
            Command::SettleEffect(settle) => (&settle.owner, &settle.name),
            _ => return None,
        };
        let call = call_by(owner, name);
        let effects = self.effect_facts_since(&call, submission.moment);
        match (rejection, owner) {
            (Rejection::Conflict, _) => Some(match submission.command {
                Command::ClaimEffect(claim) => {
                    let other = |is: &EffectFacts| is.fingerprint != claim.fingerprint;
                    effects.iter().flatten().any(other)
                        || self.was_unrecorded(submission, &call, CLAIMED)
                }
                _ => false,
            }),
            (Rejection::EffectNotClaimed, _) => Some(effects.iter().any(Option::is_none)),
            (Rejection::AlreadySettled, _) => {
                let answered = effects.iter().flatten().any(|is| is.answered);
                Some(answered || self.was_unrecorded(submission, &call, SETTLED))
            }
            (Rejection::RequestLost, EffectOwner::Request { request, owner }) => {
                let (key, responder) =
                    (request.key.expose_secret(), super::Responder::Owner(owner.clone()));
                let answered = |is: &super::idempotent_request::Stage| !is.is_open();
                let late = self.stage(key).is_some_and(answered);
                Some(late || self.may_be_released(key, submission.moment, &responder))
            }
            (_, EffectOwner::Task(_)) => None,
            (_, EffectOwner::Request { .. }) => Some(false),
        }
    }

    /// The number of effects with a stored answer.
    pub(super) fn answered_calls(&self) -> usize {
        let last = self.effects.rows.values().filter_map(|track| track.last().as_ref());
        last.filter(|effect| effect.answered).count()
    }

    /// Checks that no request, effect or limiter record is retained forever.
    pub(crate) fn check_forgotten(&self, memory: &MemoryStore) -> Result<(), Breach> {
        if let Some(key) = self.existing_requests().next() {
            return breach(Kind::Request, format!("{key} is never deleted"));
        }
        let gone = |parent: &Parent| match parent {
            Parent::Task(task) => !self.facts(task).exists(),
            Parent::Request(_) => true,
        };
        let mut rows = self.effects.rows.iter();
        match rows.find(|(call, track)| track.last().is_some() && gone(&call.0)) {
            Some((call, _)) => breach(Kind::Effect, format!("{call:?} is never deleted")),
            None => self.check_spent(memory),
        }
    }
}
