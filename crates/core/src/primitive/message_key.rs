//! The keys of messages. A task takes a key once in its life. The key of a message that is kept for
//! a task that is to come is taken as long as the message is there, and goes over to the task with
//! it.
//!
//! It is one record for all lives of an id. Whoever finds a key free writes that record, so that
//! nobody has to rely on what another is about to make.

use crate::admission::Admission;
use crate::command::Idempotency;
use crate::digest::Digester;
use crate::mailbox::{Mailbox, Message};
use crate::name::{IdempotencyKey, TaskId, Tenant};
use crate::primitive::Letter;
use crate::rejection::Rejection;
use crate::row::RowKey;
use crate::task::Task;
use crate::time::Timestamp;
use crate::world::{Halt, World, unless_quarantined};

/// The message that has a key.
pub(crate) struct Earlier {
    pub(crate) seq: u64,
    /// Whether no task has taken it over.
    pub(crate) is_kept: bool,
}

/// Where it is said who has the key of a message.
pub(crate) fn message_admission(tenant: &Tenant, task: &TaskId, key: &IdempotencyKey) -> RowKey {
    Admission::key_of(tenant, &scope_of(task), key)
}

fn scope_of(task: &TaskId) -> String {
    format!("message/{task}")
}

/// Takes a key for the next message to a task, or to the one that is to come; or says which message
/// has it.
pub(crate) fn reserve_message(
    world: &mut World,
    (tenant, id): (&Tenant, &TaskId),
    task: Option<&Task>,
    letter: &Letter<'_>,
    Idempotency { key, window_ms }: &Idempotency,
) -> Result<Option<Earlier>, Halt> {
    let known = world.get::<Admission>(&message_admission(tenant, id, key))?;
    let (now, life) = (world.now(), task.map(|task| task.created_at));
    let is_taken =
        |known: &Admission| now < known.expires_at && (known.life.is_none() || known.life == life);
    if let Some(known) = known.filter(|known| is_taken(known)) {
        if known.fingerprint != letter.fingerprint() {
            return Err(Rejection::Conflict.into());
        }
        let seq = known.first.parse().unwrap_or_default();
        return Ok(Some(Earlier { seq, is_kept: known.life.is_none() }));
    }
    let mailbox = world.get::<Mailbox>(&Mailbox::key_of(tenant, id))?;
    let next = mailbox.map_or(Mailbox::FIRST, |mailbox| mailbox.next_seq);
    world.put::<Admission>(Admission {
        tenant: tenant.clone(),
        scope: scope_of(id),
        key: key.clone(),
        fingerprint: letter.fingerprint(),
        first: next.to_string(),
        life,
        expires_at: now.plus_ms(*window_ms),
        request: None,
    });
    Ok(None)
}

/// Asks for what [`hand_over_key`] needs.
pub(crate) fn prefetch_key(world: &mut World, message: &Message) {
    if let Some(kept) = &message.kept_key {
        world.prefetch(message_admission(&message.tenant, &message.task, &kept.key));
    }
}

/// Gives the key of a message that is kept no more to the task that takes it over; without one it
/// is free.
///
/// A key that is not there before its time was looked for too early. It is written, which the one
/// that is there makes a conflict.
pub(crate) fn hand_over_key(
    world: &mut World,
    message: &Message,
    life: Option<Timestamp>,
) -> Result<(), Halt> {
    let Some(kept) = &message.kept_key else { return Ok(()) };
    let row_key = message_admission(&message.tenant, &message.task, &kept.key);
    let known = unless_quarantined(world.get::<Admission>(&row_key))?;
    let Some(known) = known else { return Ok(()) };
    match (known, life) {
        (Some(known), _) if known.life.is_some() || known.first != message.seq.to_string() => {}
        (Some(known), Some(_)) => world.put::<Admission>(Admission { life, ..(*known).clone() }),
        (Some(_), None) => world.remove(&row_key),
        (None, _) if world.now() < kept.expires_at => world.put::<Admission>(Admission {
            tenant: message.tenant.clone(),
            scope: scope_of(&message.task),
            key: kept.key.clone(),
            fingerprint: Digester::new("message").finish(),
            first: message.seq.to_string(),
            life,
            expires_at: world.now(),
            request: None,
        }),
        (None, _) => {}
    }
    Ok(())
}
