//! Idempotent requests: one response per key, given in time by the admitted owner. The key admits
//! no second owner while it is retained.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::command::Admit;
use windlass_core::{
    Admission, Command, Digest, Outcome, Produced, Rejection, RequestState, RowKey, Timestamp,
    Value,
};
use windlass_store::MemoryStore;

use crate::coverage::Happening;
use crate::model::answer::{Asked, Since};
use crate::model::facts::Track;
use crate::model::record::one;
use crate::model::state::Model;
use crate::requests::{GROWTH, TERMS, is_named, limiter_of};
use crate::violation::{Breach, Kind, breach};

/// Progress of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stage {
    pub(super) owner: String,
    fingerprint: Digest,
    pub(super) accepted_at: Timestamp,
    hand: Hand,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hand {
    Open,
    Answered,
    Expired,
}

/// The source of a response: a client under its owner name, or a handler with a deadline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Giver {
    Owner(String),
    Until(Timestamp),
}

#[derive(Debug, Default)]
pub(super) struct Requests {
    /// By key, the stages of its record, per commit: the log has no request events.
    rows: BTreeMap<String, Track<Option<Stage>>>,
    /// Every admission that was requested: key, owner if known, and fingerprint.
    wanted: BTreeSet<(String, Option<String>, String)>,
    /// Requests that may be released: by a named client, or by a handler with a deadline.
    given_up: BTreeSet<(String, Giver)>,
    /// Keys whose caller disconnected before its handler began.
    left: BTreeSet<String>,
    given: BTreeMap<(String, Giver), Vec<String>>,
    /// The responses that may be stored; narrowed to one as soon as a caller receives it.
    answers: BTreeMap<(String, String, Timestamp), Vec<String>>,
    /// By key and deadline: how many owners were admitted, and how many handlers ran.
    taken: BTreeMap<(String, Timestamp), (u32, u32)>,
    /// Keys that the observed commit admitted.
    pub(super) fresh: Vec<String>,
    pub(super) met: Vec<Happening>,
}

/// A call under an idempotency key.
#[derive(Clone, Debug)]
pub(crate) struct AdmitRequest<'a> {
    pub(crate) key: &'a str,
    pub(crate) fingerprint: Digest,
    pub(crate) owner: Option<&'a str>,
    /// The number of commits when the call was made.
    pub(crate) moment: u64,
    pub(crate) at: Timestamp,
}

impl Stage {
    /// The deadline for its response.
    pub(super) fn until(&self) -> Timestamp {
        self.accepted_at.plus_ms(TERMS.in_flight_ms)
    }

    fn replay_until(&self) -> Timestamp {
        self.accepted_at.plus_ms(TERMS.replay_ms)
    }

    pub(super) fn tombstone_until(&self) -> Timestamp {
        self.replay_until().plus_ms(TERMS.tombstone_ms)
    }

    pub(super) fn is_open(&self) -> bool {
        self.hand == Hand::Open
    }

    /// Whether the key may be free by then.
    fn is_over(&self, now: Timestamp) -> bool {
        self.is_open() && self.until() <= now || self.tombstone_until() <= now
    }

    fn giver(&self) -> Giver {
        if is_named(&self.owner) {
            Giver::Owner(self.owner.clone())
        } else {
            Giver::Until(self.until())
        }
    }
}

/// Reads a record. Its times must follow from the time of admission.
fn stage_of(admission: &Admission) -> Result<Stage, Breach> {
    let Some(request) = &admission.request else {
        return breach(Kind::Request, "a request without its state");
    };
    let hand = match request.state {
        RequestState::InFlight => Hand::Open,
        RequestState::Completed { .. } => Hand::Answered,
        RequestState::Expired => Hand::Expired,
    };
    let Produced::Owner(owner) = &admission.produced else {
        return breach(Kind::Request, "a request without its owner");
    };
    let (owner, fingerprint) = (owner.clone(), admission.fingerprint);
    let stage = Stage { owner, fingerprint, accepted_at: request.accepted_at, hand };
    let ends = match hand {
        Hand::Open => stage.until(),
        Hand::Answered => stage.replay_until(),
        Hand::Expired => stage.tombstone_until(),
    };
    let times = (request.replay_until, request.tombstone_until, admission.expires_at);
    if times != (stage.replay_until(), stage.tombstone_until(), ends) {
        return breach(Kind::Request, format!("{admission:?} does not match its TTLs"));
    }
    Ok(stage)
}

/// How often a request was admitted.
fn lives(stages: &[Option<Stage>]) -> usize {
    stages.iter().flatten().map(|stage| stage.accepted_at).collect::<BTreeSet<_>>().len()
}

/// The key of a row.
pub(super) fn key_of(row: &RowKey) -> String {
    match row.values.last() {
        Some(Value::Text(text)) => text.to_string(),
        _ => String::new(),
    }
}

impl Model {
    /// Records that a caller wants admission under a key.
    pub(crate) fn wants(&mut self, key: &str, owner: Option<&str>, fingerprint: Digest) {
        let owner = owner.map(ToOwned::to_owned);
        self.requests.wanted.insert((key.to_owned(), owner, fingerprint.to_string()));
    }

    /// Records a response, which may be stored from this point.
    pub(crate) fn gives(&mut self, key: &str, giver: Giver, text: &str) {
        self.requests.given.entry((key.to_owned(), giver)).or_default().push(text.to_owned());
    }

    /// Records that a request may be released from this point.
    pub(crate) fn gives_up(&mut self, key: &str, giver: Option<Giver>) {
        match giver {
            Some(giver) => drop(self.requests.given_up.insert((key.to_owned(), giver))),
            None => drop(self.requests.left.insert(key.to_owned())),
        }
    }

    pub(super) fn stage(&self, key: &str) -> Option<&Stage> {
        self.requests.rows.get(key).and_then(|track| track.last().as_ref())
    }

    fn stages(&self, key: &str, moment: u64) -> Vec<Option<Stage>> {
        match self.requests.rows.get(key) {
            Some(track) => track.since(moment).iter().map(|(_, stage)| stage.clone()).collect(),
            None => vec![None],
        }
    }

    /// Whether any caller may take the key.
    fn is_free(&self, key: &str, stage: Option<&Stage>) -> bool {
        stage.is_none_or(|stage| {
            let given_up = self.requests.given_up.contains(&(key.to_owned(), stage.giver()))
                || !is_named(&stage.owner) && self.requests.left.contains(key);
            stage.is_over(self.now) || stage.is_open() && given_up
        })
    }

    /// Judges a commit that wrote or removed the record of a request.
    pub(super) fn compare_request(
        &mut self,
        memory: &MemoryStore,
        row: &RowKey,
    ) -> Result<(), Breach> {
        let key = key_of(row);
        let is = one::<Admission>(memory, row.clone());
        let is = is.map(|admission| stage_of(&admission)).transpose()?;
        let was = self.stage(&key).cloned();
        if was == is {
            return Ok(());
        }
        if !self.may_become(&key, was.as_ref(), is.as_ref()) {
            let what = format!("at {}, {key} changed to {is:?} from {was:?}", self.now);
            return breach(Kind::Request, what);
        }
        let late = was.as_ref().filter(|was| was.is_open() && was.until() <= self.now);
        if late.is_some() {
            self.requests.met.push(Happening::ReleasedByTime);
        }
        if let Some(stage) = &is {
            self.take(&key, was.as_ref(), stage)?;
        }
        let moment = self.moment;
        let track = self.requests.rows.entry(key).or_insert_with(|| Track::new(None));
        track.push(moment, is);
        Ok(())
    }

    fn may_become(&self, key: &str, was: Option<&Stage>, is: Option<&Stage>) -> bool {
        let Some(is) = is else { return self.is_free(key, was) };
        let same = was.filter(|was| Stage { hand: is.hand, ..(*was).clone() } == *is);
        let owner = is_named(&is.owner).then(|| is.owner.clone());
        let fresh = is.accepted_at == self.now
            && self.is_free(key, was)
            && self.requests.wanted.contains(&(key.to_owned(), owner, is.fingerprint.to_string()));
        match (is.hand, same.map(|was| was.hand)) {
            (Hand::Open, _) => fresh,
            (Hand::Answered, Some(Hand::Open)) => self.now < is.until(),
            (Hand::Answered, Some(_)) => false,
            (Hand::Answered, None) => fresh,
            (Hand::Expired, Some(Hand::Answered)) => is.replay_until() <= self.now,
            (Hand::Expired, _) => false,
        }
    }

    /// Records the owner of a key, and the responses that may be stored.
    fn take(&mut self, key: &str, was: Option<&Stage>, is: &Stage) -> Result<(), Breach> {
        let known = was.map(|was| (&was.owner, was.accepted_at));
        if known != Some((&is.owner, is.accepted_at)) {
            self.requests.fresh.push(key.to_owned());
            let taken = self.requests.taken.entry((key.to_owned(), is.until()));
            taken.or_default().0 += u32::from(!is_named(&is.owner));
        }
        if is.hand != Hand::Answered {
            return Ok(());
        }
        let given = self.requests.given.get(&(key.to_owned(), is.giver())).cloned();
        match given.filter(|given| !given.is_empty()) {
            Some(given) => {
                let life = (key.to_owned(), is.owner.clone(), is.accepted_at);
                self.requests.answers.insert(life, given);
                Ok(())
            }
            None => breach(Kind::Request, format!("no caller gave the response of {key}")),
        }
    }

    /// Checks that a handler which begins was admitted, and is the only one of its admission.
    pub(crate) fn handles(
        &mut self,
        request: &AdmitRequest<'_>,
        until: Timestamp,
    ) -> Result<(), Breach> {
        let own = |stage: &Stage| {
            stage.is_open() && stage.until() == until && stage.fingerprint == request.fingerprint
        };
        let let_in = self.stages(request.key, request.moment).iter().flatten().any(own);
        let runs = self.requests.taken.entry((request.key.to_owned(), until)).or_default();
        runs.1 += 1;
        if !let_in || runs.1 > runs.0 {
            return breach(Kind::Request, format!("{} is handled, {runs:?}", request.key));
        }
        Ok(())
    }

    /// Checks that a response which a caller receives is the stored one.
    pub(crate) fn answer_told(
        &mut self,
        request: &AdmitRequest<'_>,
        text: &str,
    ) -> Result<(), Breach> {
        for stage in self.stages(request.key, request.moment).into_iter().flatten() {
            let own = stage.fingerprint == request.fingerprint && request.at < stage.replay_until();
            if stage.hand != Hand::Answered || !own {
                continue;
            }
            let life = (request.key.to_owned(), stage.owner, stage.accepted_at);
            let may = self.requests.answers.get_mut(&life);
            if let Some(may) = may.filter(|may| may.iter().any(|may| may == text)) {
                may.retain(|may| may == text);
                return Ok(());
            }
        }
        breach(Kind::Request, format!("{} never had the response {text}", request.key))
    }

    /// Checks the response that a client is shown.
    pub(crate) fn replay_shown(
        &mut self,
        admit: &Admit,
        since: Since,
        text: &str,
    ) -> Result<(), Breach> {
        let (key, owner) = (admit.request.key.reveal(), Some(admit.owner.as_str()));
        let (fingerprint, Since { moment, at, .. }) = (admit.fingerprint, since);
        self.answer_told(&AdmitRequest { key, fingerprint, owner, moment, at }, text)
    }

    /// Whether the request was in flight when the call was made.
    pub(crate) fn was_open(&self, request: &AdmitRequest<'_>) -> bool {
        let stages = self.stages(request.key, request.moment);
        stages.first().is_some_and(|first| first.as_ref().is_some_and(Stage::is_open))
    }

    /// Whether the call may be rejected with this reason.
    pub(crate) fn may_refuse_admit(
        &mut self,
        request: &AdmitRequest<'_>,
        rejection: &Rejection,
    ) -> bool {
        let latest = self.latest;
        let stages = self.stages(request.key, request.moment);
        let mut known = stages.iter().flatten();
        let same = |stage: &Stage| stage.fingerprint == request.fingerprint;
        match rejection {
            Rejection::IdempotencyConflict => {
                let differs = |stage: &&Stage| {
                    let ends = if stage.is_open() { stage.until() } else { stage.replay_until() };
                    stage.hand != Hand::Expired && !same(stage) && request.at < ends
                };
                let others: Vec<&Stage> = known.filter(differs).collect();
                if others.iter().all(|stage| stage.is_open()) {
                    self.requests.met.push(Happening::ConflictInFlight);
                } else if others.iter().all(|stage| !stage.is_open()) {
                    self.requests.met.push(Happening::ConflictAnswered);
                }
                !others.is_empty()
            }
            Rejection::IdempotencyInFlight { retry_after_ms } => {
                *retry_after_ms == TERMS.retry_after_ms
                    && known.any(|stage| {
                        let other = request.owner != Some(&stage.owner);
                        stage.is_open() && same(stage) && other && request.at < stage.until()
                    })
            }
            Rejection::IdempotencyExpired => known.any(|stage| {
                let over = stage.hand == Hand::Answered && stage.replay_until() <= latest;
                (over || stage.hand == Hand::Expired) && request.at < stage.tombstone_until()
            }),
            Rejection::RateLimited { .. } => {
                let free = |stage: &Option<Stage>| {
                    stage.as_ref().is_none_or(|stage| stage.is_over(latest))
                };
                stages.iter().any(free)
                    && self.may_be_limited(&limiter_of(request.key), 1, GROWTH, request.at)
            }
            _ => false,
        }
    }

    /// Whether an admitted owner may have been too late, or may have released the request.
    pub(crate) fn may_be_released(&self, key: &str, moment: u64, giver: &Giver) -> bool {
        let stages = self.stages(key, moment);
        // One commit can release a request, reject its response and admit it again.
        let withdrawn = self.requests.given_up.contains(&(key.to_owned(), giver.clone()));
        if withdrawn && lives(&stages) > 1 {
            return true;
        }
        stages.iter().any(|stage| {
            stage.as_ref().is_none_or(|stage| {
                let own = match giver {
                    Giver::Owner(owner) => stage.owner == *owner,
                    Giver::Until(until) => stage.is_open() && stage.until() == *until,
                };
                !own || stage.is_over(self.latest)
            })
        })
    }

    /// Judges the outcomes of commands about requests; none for other commands.
    pub(super) fn requests_as_told(
        &mut self,
        asked: &Asked<'_>,
        outcome: &Outcome,
    ) -> Option<Result<(), Breach>> {
        let found = match (asked.command, outcome) {
            (Command::Admit(admit), Outcome::Admitted { until }) => {
                // The request may be completed or released in the same commit.
                let own = |stage: &Stage| {
                    (&stage.owner, stage.until()) == (&admit.owner, *until)
                        && stage.fingerprint == admit.fingerprint
                };
                let (key, giver) = (admit.request.key.reveal(), Giver::Owner(admit.owner.clone()));
                self.requests.given_up.contains(&(key.to_owned(), giver))
                    || self.stages(key, asked.moment).iter().flatten().any(own)
            }
            (Command::Admit(admit), Outcome::RequestCompleted(_)) => {
                let own = |stage: &Stage| {
                    stage.hand == Hand::Answered
                        && stage.fingerprint == admit.fingerprint
                        && asked.at < stage.replay_until()
                };
                self.stages(admit.request.key.reveal(), asked.moment).iter().flatten().any(own)
            }
            (Command::CompleteRequest(answer), Outcome::RequestCompleted(_)) => {
                let key = answer.request.key.reveal();
                let text = String::from_utf8_lossy(&answer.answer.bytes).into_owned();
                let own = self.stages(key, asked.moment).into_iter().flatten();
                let own = own.filter(|stage| stage.owner == answer.owner);
                let mut lives = own.map(|stage| (key.to_owned(), stage.owner, stage.accepted_at));
                lives.any(|life| match self.requests.answers.get_mut(&life) {
                    Some(may) if may.contains(&text) => {
                        may.retain(|may| *may == text);
                        true
                    }
                    _ => false,
                })
            }
            (Command::ReleaseRequest(withdraw), Outcome::RequestReleased) => {
                let key = withdraw.request.key.reveal();
                let other = |stage: &Option<Stage>| {
                    stage.as_ref().is_none_or(|stage| stage.owner != withdraw.owner)
                };
                let stages = self.stages(key, asked.moment);
                // The owner may have released it and been admitted again in the same commit.
                stages.iter().any(other) || lives(&stages) > 1
            }
            _ => return None,
        };
        let told = || breach(Kind::Request, "not in that state");
        Some(if found { Ok(()) } else { told() })
    }

    /// Whether a request command may be rejected with this reason; none for other commands.
    pub(super) fn may_refuse_request(
        &mut self,
        asked: &Asked<'_>,
        rejection: &Rejection,
    ) -> Option<bool> {
        Some(match asked.command {
            Command::Admit(admit) => {
                let (key, owner) = (admit.request.key.reveal(), Some(admit.owner.as_str()));
                let (fingerprint, moment, at) = (admit.fingerprint, asked.moment, asked.at);
                self.may_refuse_admit(
                    &AdmitRequest { key, fingerprint, owner, moment, at },
                    rejection,
                )
            }
            Command::CompleteRequest(answer) => {
                let key = answer.request.key.reveal();
                let text = String::from_utf8_lossy(&answer.answer.bytes);
                let stages = self.stages(key, asked.moment);
                let mut own = stages.iter().flatten().filter(|stage| stage.owner == answer.owner);
                match rejection {
                    Rejection::RequestLost => {
                        self.may_be_released(key, asked.moment, &Giver::Owner(answer.owner.clone()))
                    }
                    Rejection::AlreadySettled => own.any(|stage| {
                        let life = (key.to_owned(), stage.owner.clone(), stage.accepted_at);
                        let may = self.requests.answers.get(&life).into_iter().flatten();
                        stage.hand == Hand::Answered && may.into_iter().any(|may| *may != text)
                    }),
                    Rejection::IdempotencyExpired => {
                        own.any(|stage| !stage.is_open() && stage.replay_until() <= self.latest)
                    }
                    _ => false,
                }
            }
            Command::ReleaseRequest(withdraw) => {
                let stages = self.stages(withdraw.request.key.reveal(), asked.moment);
                let mut own = stages.iter().flatten().filter(|stage| stage.owner == withdraw.owner);
                *rejection == Rejection::AlreadySettled && own.any(|stage| !stage.is_open())
            }
            _ => return None,
        })
    }

    /// Whether an owner held the request at some time, and could act for it.
    pub(super) fn held_request(&self, key: &str, owner: &str, moment: u64) -> bool {
        let own = |stage: &Stage| stage.owner == owner;
        self.stages(key, moment).iter().flatten().any(own)
    }

    /// Requests whose record exists.
    pub(super) fn known_requests(&self) -> impl Iterator<Item = &String> {
        let known = self.requests.rows.iter().filter(|(_, track)| track.last().is_some());
        known.map(|(key, _)| key)
    }
}
