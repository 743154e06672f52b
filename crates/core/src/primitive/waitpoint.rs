use crate::command::{CreatedWaitpoint, NewWaitpoint};
use crate::event::{Change, Event};
use crate::keyring::Keyring;
use crate::limits;
use crate::mailbox::{Mailbox, Message};
use crate::name::{Tenant, WaitpointId};
use crate::primitive::mailbox;
use crate::rejection::Rejection;
use crate::task::Task;
use crate::token::{Token, check_token_part};
use crate::waitpoint::{Waitpoint, WaitpointState};
use crate::world::{Halt, World};

pub(crate) fn check(new: &NewWaitpoint) -> Result<(), Rejection> {
    limits::WAITPOINT_ID.check(new.id.as_str())?;
    check_token_part(limits::WAITPOINT_ID.field, new.id.as_str())?;
    limits::WAITPOINT_MS.check(new.ttl_ms)
}

pub(crate) fn prefetch(world: &mut World, task: &Task, ids: &[&WaitpointId]) {
    world.prefetch(Keyring::key_of(&task.tenant));
    world.prefetch(Mailbox::key_of(&task.tenant, &task.id));
    for id in ids {
        world.prefetch(Waitpoint::key_of(&task.tenant, id));
    }
}

/// Creates a waitpoint of a task and signs its token. A repeat returns the existing one. An expired
/// one, or one whose message was removed from the mailbox, is recreated: a suspension on it could
/// never resume.
pub(crate) fn create_waitpoint(
    world: &mut World,
    task: &mut Task,
    new: &NewWaitpoint,
    state: WaitpointState,
) -> Result<CreatedWaitpoint, Halt> {
    let now = world.now();
    prefetch(world, task, &[&new.id]);
    let existing = world.get::<Waitpoint>(&Waitpoint::key_of(&task.tenant, &new.id))?;
    if let Some(existing) = &existing {
        let usable = is_usable(world, existing)?;
        let same = existing.created_at.plus_ms(new.ttl_ms) == existing.expires_at;
        if existing.task != task.id || usable && !same {
            return Err(Rejection::Conflict.into());
        }
        if usable {
            return signed(world, existing);
        }
    } else {
        let mut mailbox = mailbox::open(world, task)?;
        if mailbox.waitpoints >= limits::WAITPOINTS_PER_TASK {
            let max = limits::WAITPOINTS_PER_TASK;
            return Err(Rejection::TooManyWaitpoints { max }.into());
        }
        mailbox.waitpoints += 1;
        world.put::<Mailbox>(mailbox);
    }
    let ring = keyring(world, &task.tenant)?;
    let key = ring.signer().ok_or(Rejection::NoSigningKey)?;
    let mut waitpoint = Waitpoint {
        tenant: task.tenant.clone(),
        id: new.id.clone(),
        task: task.id.clone(),
        state,
        created_at: now,
        expires_at: now.plus_ms(new.ttl_ms),
        key_id: key.id.clone(),
        fingerprint: Token::new("").fingerprint(),
    };
    let token = Token::sign(key, &waitpoint);
    waitpoint.fingerprint = token.fingerprint();
    world.emit(Event::of_task(task, now, Change::WaitpointCreated { id: new.id.clone() }));
    let expires_at = waitpoint.expires_at;
    world.put::<Waitpoint>(waitpoint);
    Ok(CreatedWaitpoint { id: new.id.clone(), token, expires_at })
}

/// Whether it is open, or its message is still stored. The sequence number of a removed message is
/// not reused.
fn is_usable(world: &mut World, waitpoint: &Waitpoint) -> Result<bool, Halt> {
    match waitpoint.state {
        WaitpointState::Pending | WaitpointState::Active => Ok(world.now() < waitpoint.expires_at),
        WaitpointState::Completed { seq } => {
            let key = Message::key_of(&waitpoint.tenant, &waitpoint.task, seq);
            Ok(world.get::<Message>(&key)?.is_some())
        }
    }
}

/// Marks a waitpoint as awaited by the suspension of its task.
pub(crate) fn activate(world: &mut World, task: &Task, id: &WaitpointId) -> Result<(), Halt> {
    let waitpoint = world.get::<Waitpoint>(&Waitpoint::key_of(&task.tenant, id))?;
    match waitpoint.filter(|waitpoint| waitpoint.task == task.id) {
        None => Err(Rejection::WaitpointNotFound { id: id.clone() }.into()),
        Some(waitpoint) => {
            if waitpoint.state == WaitpointState::Pending {
                let state = WaitpointState::Active;
                world.put::<Waitpoint>(Waitpoint { state, ..(*waitpoint).clone() });
            }
            Ok(())
        }
    }
}

/// The waitpoint with its token. Tokens are not stored: it is signed again with the same key or, if
/// that key is not valid any more, with the present one.
pub(crate) fn signed(world: &mut World, waitpoint: &Waitpoint) -> Result<CreatedWaitpoint, Halt> {
    let now = world.now();
    let ring = keyring(world, &waitpoint.tenant)?;
    let key = ring
        .verifying_key(&waitpoint.key_id, now)
        .or(ring.signer())
        .ok_or(Rejection::NoSigningKey)?;
    let token = Token::sign(key, waitpoint);
    Ok(CreatedWaitpoint { id: waitpoint.id.clone(), token, expires_at: waitpoint.expires_at })
}

fn keyring(world: &mut World, tenant: &Tenant) -> Result<Keyring, Halt> {
    let ring = world.get::<Keyring>(&Keyring::key_of(tenant))?;
    // Absence is not checked by the commit, but this rejection writes nothing.
    ring.map(|ring| (*ring).clone()).ok_or(Halt::Rejected(Rejection::NoSigningKey))
}
