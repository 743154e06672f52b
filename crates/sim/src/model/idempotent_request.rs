//! Idempotent requests: one response per key, given in time by the admitted owner. The key admits
//! no second owner while it is retained.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::command::Admit;
use windlass_core::{
    Admission, Command, Digest, Outcome, Produced, Rejection, RequestState, RowKey, Timestamp,
    Value,
};
use windlass_store::MemoryStore;

use crate::coverage::CoverageEvent;
use crate::model::facts::Track;
use crate::model::outcome::{Since, Submission};
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
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    InFlight,
    Completed,
    Expired,
}

/// The source of a response: a client under its owner name, or a handler with a deadline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Responder {
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
    released: BTreeSet<(String, Responder)>,
    /// Keys whose caller disconnected before its handler began.
    left: BTreeSet<String>,
    responses: BTreeMap<(String, Responder), Vec<String>>,
    /// The responses that may be stored; narrowed to one as soon as a caller receives it.
    stored_responses: BTreeMap<(String, String, Timestamp), Vec<String>>,
    /// By key and deadline: how many owners were admitted, and how many handlers ran.
    owners: BTreeMap<(String, Timestamp), (u32, u32)>,
    /// Keys that the observed commit admitted.
    pub(super) fresh: Vec<String>,
    pub(super) met: Vec<CoverageEvent>,
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
        self.phase == Phase::InFlight
    }

    /// Whether the key may be free by then.
    fn is_over(&self, now: Timestamp) -> bool {
        self.is_open() && self.until() <= now || self.tombstone_until() <= now
    }

    fn responder(&self) -> Responder {
        if is_named(&self.owner) {
            Responder::Owner(self.owner.clone())
        } else {
            Responder::Until(self.until())
        }
    }
}

/// Reads a record. Its times must follow from the time of admission.
fn stage_of(admission: &Admission) -> Result<Stage, Breach> {
    let Some(request) = &admission.request else {
        return breach(Kind::Request, "a request without its state");
    };
    let phase = match request.state {
        RequestState::InFlight => Phase::InFlight,
        RequestState::Completed { .. } => Phase::Completed,
        RequestState::Expired => Phase::Expired,
    };
    let Produced::Owner(owner) = &admission.produced else {
        return breach(Kind::Request, "a request without its owner");
    };
    let (owner, fingerprint) = (owner.clone(), admission.fingerprint);
    let stage = Stage { owner, fingerprint, accepted_at: request.accepted_at, phase };
    let ends = match phase {
        Phase::InFlight => stage.until(),
        Phase::Completed => stage.replay_until(),
        Phase::Expired => stage.tombstone_until(),
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
    pub(crate) fn admission_requested(
        &mut self,
        key: &str,
        owner: Option<&str>,
        fingerprint: Digest,
    ) {
        let owner = owner.map(ToOwned::to_owned);
        self.requests.wanted.insert((key.to_owned(), owner, fingerprint.to_string()));
    }

    /// Records a response, which may be stored from this point.
    pub(crate) fn response_submitted(&mut self, key: &str, responder: Responder, text: &str) {
        self.requests
            .responses
            .entry((key.to_owned(), responder))
            .or_default()
            .push(text.to_owned());
    }

    /// Records that a request may be released from this point.
    pub(crate) fn release_submitted(&mut self, key: &str, responder: Option<Responder>) {
        match responder {
            Some(responder) => drop(self.requests.released.insert((key.to_owned(), responder))),
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
            let released = self.requests.released.contains(&(key.to_owned(), stage.responder()))
                || !is_named(&stage.owner) && self.requests.left.contains(key);
            stage.is_over(self.now) || stage.is_open() && released
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
            self.requests.met.push(CoverageEvent::ReleasedByTime);
        }
        if let Some(stage) = &is {
            self.record_owner(&key, was.as_ref(), stage)?;
        }
        let moment = self.moment;
        let track = self.requests.rows.entry(key).or_insert_with(|| Track::new(None));
        track.push(moment, is);
        Ok(())
    }

    fn may_become(&self, key: &str, was: Option<&Stage>, is: Option<&Stage>) -> bool {
        let Some(is) = is else { return self.is_free(key, was) };
        let same = was.filter(|was| Stage { phase: is.phase, ..(*was).clone() } == *is);
        let owner = is_named(&is.owner).then(|| is.owner.clone());
        let fresh = is.accepted_at == self.now
            && self.is_free(key, was)
            && self.requests.wanted.contains(&(key.to_owned(), owner, is.fingerprint.to_string()));
        match (is.phase, same.map(|was| was.phase)) {
            (Phase::InFlight, _) => fresh,
            (Phase::Completed, Some(Phase::InFlight)) => self.now < is.until(),
            (Phase::Completed, Some(_)) => false,
            (Phase::Completed, None) => fresh,
            (Phase::Expired, Some(Phase::Completed)) => is.replay_until() <= self.now,
            (Phase::Expired, _) => false,
        }
    }

    /// Records the owner of a key, and the responses that may be stored.
    fn record_owner(&mut self, key: &str, was: Option<&Stage>, is: &Stage) -> Result<(), Breach> {
        let before = was.map(|was| (&was.owner, was.accepted_at));
        if before != Some((&is.owner, is.accepted_at)) {
            self.requests.fresh.push(key.to_owned());
            let owners = self.requests.owners.entry((key.to_owned(), is.until()));
            owners.or_default().0 += u32::from(!is_named(&is.owner));
        }
        if is.phase != Phase::Completed {
            return Ok(());
        }
        let responses = self.requests.responses.get(&(key.to_owned(), is.responder())).cloned();
        match responses.filter(|responses| !responses.is_empty()) {
            Some(responses) => {
                let life = (key.to_owned(), is.owner.clone(), is.accepted_at);
                self.requests.stored_responses.insert(life, responses);
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
        let admitted = self.stages(request.key, request.moment).iter().flatten().any(own);
        let runs = self.requests.owners.entry((request.key.to_owned(), until)).or_default();
        runs.1 += 1;
        if !admitted || runs.1 > runs.0 {
            return breach(Kind::Request, format!("{} is handled, {runs:?}", request.key));
        }
        Ok(())
    }

    /// Checks that a response which a caller receives is the stored one.
    pub(crate) fn check_response(
        &mut self,
        request: &AdmitRequest<'_>,
        text: &str,
    ) -> Result<(), Breach> {
        for stage in self.stages(request.key, request.moment).into_iter().flatten() {
            let own = stage.fingerprint == request.fingerprint && request.at < stage.replay_until();
            if stage.phase != Phase::Completed || !own {
                continue;
            }
            let life = (request.key.to_owned(), stage.owner, stage.accepted_at);
            let may = self.requests.stored_responses.get_mut(&life);
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
        let (key, owner) = (admit.request.key.expose_secret(), Some(admit.owner.as_str()));
        let (fingerprint, Since { moment, at, .. }) = (admit.fingerprint, since);
        self.check_response(&AdmitRequest { key, fingerprint, owner, moment, at }, text)
    }

    /// Whether the request was in flight when the call was made.
    pub(crate) fn was_open(&self, request: &AdmitRequest<'_>) -> bool {
        let stages = self.stages(request.key, request.moment);
        stages.first().is_some_and(|first| first.as_ref().is_some_and(Stage::is_open))
    }

    /// Whether the call may be rejected with this reason.
    pub(crate) fn may_reject_admit(
        &mut self,
        request: &AdmitRequest<'_>,
        rejection: &Rejection,
    ) -> bool {
        let latest = self.latest;
        let stages = self.stages(request.key, request.moment);
        let mut present = stages.iter().flatten();
        let same = |stage: &Stage| stage.fingerprint == request.fingerprint;
        match rejection {
            Rejection::IdempotencyConflict => {
                let differs = |stage: &&Stage| {
                    let ends = if stage.is_open() { stage.until() } else { stage.replay_until() };
                    stage.phase != Phase::Expired && !same(stage) && request.at < ends
                };
                let others: Vec<&Stage> = present.filter(differs).collect();
                if others.iter().all(|stage| stage.is_open()) {
                    self.requests.met.push(CoverageEvent::ConflictInFlight);
                } else if others.iter().all(|stage| !stage.is_open()) {
                    self.requests.met.push(CoverageEvent::ConflictAnswered);
                }
                !others.is_empty()
            }
            Rejection::IdempotencyInFlight { retry_after_ms } => {
                *retry_after_ms == TERMS.retry_after_ms
                    && present.any(|stage| {
                        let other = request.owner != Some(&stage.owner);
                        stage.is_open() && same(stage) && other && request.at < stage.until()
                    })
            }
            Rejection::IdempotencyExpired => present.any(|stage| {
                let over = stage.phase == Phase::Completed && stage.replay_until() <= latest;
                (over || stage.phase == Phase::Expired) && request.at < stage.tombstone_until()
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
    pub(crate) fn may_be_released(&self, key: &str, moment: u64, responder: &Responder) -> bool {
        let stages = self.stages(key, moment);
        // One commit can release a request, reject its response and admit it again.
        let is_released = self.requests.released.contains(&(key.to_owned(), responder.clone()));
        if is_released && lives(&stages) > 1 {
            return true;
        }
        stages.iter().any(|stage| {
            stage.as_ref().is_none_or(|stage| {
                let own = match responder {
                    Responder::Owner(owner) => stage.owner == *owner,
                    Responder::Until(until) => stage.is_open() && stage.until() == *until,
                };
                !own || stage.is_over(self.latest)
            })
        })
    }

    /// Judges the outcomes of commands about requests; none for other commands.
    pub(super) fn check_request_outcome(
        &mut self,
        submission: &Submission<'_>,
        outcome: &Outcome,
    ) -> Option<Result<(), Breach>> {
        let found = match (submission.command, outcome) {
            (Command::Admit(admit), Outcome::Admitted { until }) => {
                // The request may be completed or released in the same commit.
                let own = |stage: &Stage| {
                    (&stage.owner, stage.until()) == (&admit.owner, *until)
                        && stage.fingerprint == admit.fingerprint
                };
                let (key, responder) =
                    (admit.request.key.expose_secret(), Responder::Owner(admit.owner.clone()));
                self.requests.released.contains(&(key.to_owned(), responder))
                    || self.stages(key, submission.moment).iter().flatten().any(own)
            }
            (Command::Admit(admit), Outcome::RequestCompleted(_)) => {
                let own = |stage: &Stage| {
                    stage.phase == Phase::Completed
                        && stage.fingerprint == admit.fingerprint
                        && submission.at < stage.replay_until()
                };
                let key = admit.request.key.expose_secret();
                self.stages(key, submission.moment).iter().flatten().any(own)
            }
            (Command::CompleteRequest(complete), Outcome::RequestCompleted(_)) => {
                let key = complete.request.key.expose_secret();
                let text = String::from_utf8_lossy(&complete.response.bytes).into_owned();
                let own = self.stages(key, submission.moment).into_iter().flatten();
                let own = own.filter(|stage| stage.owner == complete.owner);
                let mut lives = own.map(|stage| (key.to_owned(), stage.owner, stage.accepted_at));
                lives.any(|life| match self.requests.stored_responses.get_mut(&life) {
                    Some(may) if may.contains(&text) => {
                        may.retain(|may| *may == text);
                        true
                    }
                    _ => false,
                })
            }
            (Command::ReleaseRequest(release), Outcome::RequestReleased) => {
                let key = release.request.key.expose_secret();
                let other = |stage: &Option<Stage>| {
                    stage.as_ref().is_none_or(|stage| stage.owner != release.owner)
                };
                let stages = self.stages(key, submission.moment);
                // The owner may have released it and been admitted again in the same commit.
                stages.iter().any(other) || lives(&stages) > 1
            }
            _ => return None,
        };
        let wrong = || breach(Kind::Request, "not in that state");
        Some(if found { Ok(()) } else { wrong() })
    }

    /// Whether a request command may be rejected with this reason; none for other commands.
    pub(super) fn may_reject_request(
        &mut self,
        submission: &Submission<'_>,
        rejection: &Rejection,
    ) -> Option<bool> {
        Some(match submission.command {
            Command::Admit(admit) => {
                let (key, owner) = (admit.request.key.expose_secret(), Some(admit.owner.as_str()));
                let (fingerprint, moment, at) =
                    (admit.fingerprint, submission.moment, submission.at);
                let request = AdmitRequest { key, fingerprint, owner, moment, at };
                self.may_reject_admit(&request, rejection)
            }
            Command::CompleteRequest(complete) => {
                let key = complete.request.key.expose_secret();
                let text = String::from_utf8_lossy(&complete.response.bytes);
                let stages = self.stages(key, submission.moment);
                let mut own = stages.iter().flatten().filter(|stage| stage.owner == complete.owner);
                match rejection {
                    Rejection::RequestLost => self.may_be_released(
                        key,
                        submission.moment,
                        &Responder::Owner(complete.owner.clone()),
                    ),
                    Rejection::AlreadySettled => own.any(|stage| {
                        let life = (key.to_owned(), stage.owner.clone(), stage.accepted_at);
                        let may = self.requests.stored_responses.get(&life).into_iter().flatten();
                        stage.phase == Phase::Completed && may.into_iter().any(|may| *may != text)
                    }),
                    Rejection::IdempotencyExpired => {
                        own.any(|stage| !stage.is_open() && stage.replay_until() <= self.latest)
                    }
                    _ => false,
                }
            }
            Command::ReleaseRequest(release) => {
                let stages = self.stages(release.request.key.expose_secret(), submission.moment);
                let mut own = stages.iter().flatten().filter(|stage| stage.owner == release.owner);
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
    pub(super) fn existing_requests(&self) -> impl Iterator<Item = &String> {
        let existing = self.requests.rows.iter().filter(|(_, track)| track.last().is_some());
        existing.map(|(key, _)| key)
    }
}
