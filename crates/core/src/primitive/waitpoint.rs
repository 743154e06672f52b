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
    limits::WAITPOINT_MS.check(new.expires_ms)
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
pub(crate) fn make(
    world: &mut World,
    task: &mut Task,
    new: &NewWaitpoint,
    state: WaitpointState,
) -> Result<CreatedWaitpoint, Halt> {
    let now = world.now();
    prefetch(world, task, &[&new.id]);
    let known = world.get::<Waitpoint>(&Waitpoint::key_of(&task.tenant, &new.id))?;
    if let Some(known) = &known {
        let of_use = is_of_use(world, known)?;
        let same = known.created_at.plus_ms(new.expires_ms) == known.expires_at;
        if known.task != task.id || of_use && !same {
            return Err(Rejection::Conflict.into());
        }
        if of_use {
            return signed(world, known);
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
        expires_at: now.plus_ms(new.expires_ms),
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
fn is_of_use(world: &mut World, known: &Waitpoint) -> Result<bool, Halt> {
    match known.state {
        WaitpointState::Pending | WaitpointState::Active => Ok(world.now() < known.expires_at),
        WaitpointState::Used { seq } => {
            let key = Message::key_of(&known.tenant, &known.task, seq);
            Ok(world.get::<Message>(&key)?.is_some())
        }
    }
}

/// Marks a waitpoint as awaited by the suspension of its task.
pub(crate) fn activate(world: &mut World, task: &Task, id: &WaitpointId) -> Result<(), Halt> {
    let known = world.get::<Waitpoint>(&Waitpoint::key_of(&task.tenant, id))?;
    match known.filter(|known| known.task == task.id) {
        None => Err(Rejection::WaitpointNotFound { id: id.clone() }.into()),
        Some(known) => {
            if known.state == WaitpointState::Pending {
                let state = WaitpointState::Active;
                world.put::<Waitpoint>(Waitpoint { state, ..(*known).clone() });
            }
            Ok(())
        }
    }
}

/// The waitpoint with its token. Tokens are not stored: it is signed again with the same key or, if
/// that key is not valid any more, with the present one.
pub(crate) fn signed(world: &mut World, known: &Waitpoint) -> Result<CreatedWaitpoint, Halt> {
    let now = world.now();
    let ring = keyring(world, &known.tenant)?;
    let key = ring.proving(&known.key_id, now).or(ring.signer()).ok_or(Rejection::NoSigningKey)?;
    let token = Token::sign(key, known);
    Ok(CreatedWaitpoint { id: known.id.clone(), token, expires_at: known.expires_at })
}

fn keyring(world: &mut World, tenant: &Tenant) -> Result<Keyring, Halt> {
    let known = world.get::<Keyring>(&Keyring::key_of(tenant))?;
    // Absence is not checked by the commit, but this rejection writes nothing.
    known.map(|ring| (*ring).clone()).ok_or(Halt::Rejected(Rejection::NoSigningKey))
}
