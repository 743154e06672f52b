//! Invariants of idempotent requests, and of effects that are claimed before they are made.

use windlass_core::command::Admit;
use windlass_core::{Admission, AnyRecord, Command, Effect, Outcome, PayloadKey, RequestState};

use crate::invariants::{Held, View, any, ensure};
use crate::steps::Step;

fn admissions(view: &View) -> impl Iterator<Item = Admission> {
    view.tables.rows().filter_map(|row| match any(row) {
        AnyRecord::Admission(admission) => Some((*admission).clone()),
        _ => None,
    })
}

fn effects(view: &View) -> impl Iterator<Item = Effect> {
    view.tables.rows().filter_map(|row| match any(row) {
        AnyRecord::Effect(effect) => Some((*effect).clone()),
        _ => None,
    })
}

fn state(admission: &Admission) -> Option<RequestState> {
    admission.request.as_ref().map(|request| request.state)
}

/// How many responses are stored. Each has its payload: see [`crate::invariants`].
pub(crate) fn stored_results(view: &View) -> usize {
    let completed =
        |admission: &Admission| matches!(state(admission), Some(RequestState::Completed { .. }));
    let responses = admissions(view).filter(completed).count();
    responses + effects(view).filter(|effect| effect.result.is_some()).count()
}

pub(crate) fn is_result(key: &PayloadKey) -> bool {
    ["response", "effect"].contains(&key.slot.as_str())
}

fn same(one: &Admission, other: &Admission) -> bool {
    (&one.tenant, &one.scope, &one.key) == (&other.tenant, &other.scope, &other.key)
}

/// The first response stays until its replay window ends, and its key is retained for longer.
pub(crate) fn a_response_never_changes(step: &Step<'_>) -> Held {
    for before in admissions(step.before) {
        let Some(RequestState::Completed { digest, .. }) = state(&before) else { continue };
        let Some(request) = &before.request else { continue };
        let after = admissions(step.after).find(|after| same(&before, after));
        let stays = match after.as_ref().and_then(state) {
            Some(RequestState::Completed { digest: after, .. }) => after == digest,
            Some(RequestState::Expired) => request.replay_until <= step.after.now,
            Some(RequestState::InFlight) | None => request.tombstone_until <= step.after.now,
        };
        ensure(stays, || format!("{before:?} became {after:?}"))?;
    }
    Ok(())
}

/// No owner is admitted while another one is, nor after a response.
pub(crate) fn one_owner_is_admitted_at_a_time(step: &Step<'_>) -> Held {
    let (Command::Admit(Admit { request, owner, .. }), Ok(Outcome::Admitted { .. })) =
        (step.command, step.outcome)
    else {
        return Ok(());
    };
    let now = step.after.now;
    let admission = admissions(step.before)
        .find(|admission| admission.key == request.key && admission.request.is_some());
    let Some(admission) = admission else { return Ok(()) };
    let is_free = match state(&admission) {
        Some(RequestState::InFlight) => admission.is_owned_by(owner) || admission.expires_at <= now,
        Some(RequestState::Completed { .. } | RequestState::Expired) => {
            admission.request.as_ref().is_some_and(|request| request.tombstone_until <= now)
        }
        None => true,
    };
    ensure(is_free, || format!("{owner} was admitted beside {admission:?}"))
}

/// An effect has one request id, for as long as it is retained.
pub(crate) fn an_effect_keeps_its_request_id(step: &Step<'_>) -> Held {
    let of = |effect: &Effect| (effect.owner.clone(), effect.provider.clone(), effect.name.clone());
    for before in effects(step.before) {
        let after = effects(step.after).find(|after| of(after) == of(&before));
        let stays = after.as_ref().is_none_or(|after| {
            after.request_id == before.request_id
                && before.result.is_none_or(|result| after.result == Some(result))
        });
        ensure(stays, || format!("{before:?} became {after:?}"))?;
    }
    Ok(())
}
