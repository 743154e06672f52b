//! Idempotency keys of messages. A task accepts a key once. The key of a buffered message is taken
//! while the message is stored, and passes to the task that receives it.
//!
//! All tasks with the same id share one record per key. A sender that finds a key free writes that
//! record, so that concurrent senders conflict.

use crate::admission::{Admission, Produced};
use crate::command::IdempotencyWindow;
use crate::digest::{Digest, Digester};
use crate::mailbox::{Mailbox, Message};
use crate::name::{IdempotencyKey, TaskId, Tenant};
use crate::rejection::Rejection;
use crate::row::RowKey;
use crate::task::{Task, TaskKey};
use crate::time::Timestamp;
use crate::world::{Halt, World, unless_quarantined};

/// The message that holds a key.
pub(crate) struct EarlierMessage {
    pub(crate) seq: u64,
    /// Whether it is still buffered.
    pub(crate) is_buffered: bool,
}

/// The row of the key of a message.
pub(crate) fn message_admission(tenant: &Tenant, task: &TaskId, key: &IdempotencyKey) -> RowKey {
    Admission::key_of(tenant, &scope_of(task), key)
}

fn scope_of(task: &TaskId) -> String {
    format!("message/{task}")
}

/// Reserves a key for the next message to a task, which may not exist yet, or returns the message
/// that holds the key.
pub(crate) fn reserve_message(
    world: &mut World,
    TaskKey { tenant, id }: &TaskKey,
    task: Option<&Task>,
    fingerprint: Digest,
    IdempotencyWindow { key, window_ms }: &IdempotencyWindow,
) -> Result<Option<EarlierMessage>, Halt> {
    let admission = world.get::<Admission>(&message_admission(tenant, id, key))?;
    let (now, task_created_at) = (world.now(), task.map(|task| task.created_at));
    let is_taken = |admission: &Admission| {
        let receiver = admission.task_created_at;
        now < admission.expires_at && (receiver.is_none() || receiver == task_created_at)
    };
    if let Some(admission) = admission.filter(|admission| is_taken(admission)) {
        if admission.fingerprint != fingerprint {
            return Err(Rejection::Conflict.into());
        }
        let Produced::Message(seq) = admission.produced else {
            return Err(Rejection::Conflict.into());
        };
        return Ok(Some(EarlierMessage { seq, is_buffered: admission.task_created_at.is_none() }));
    }
    let mailbox = world.get::<Mailbox>(&Mailbox::key_of(tenant, id))?;
    let next = mailbox.map_or(Mailbox::FIRST, |mailbox| mailbox.next_seq);
    world.put::<Admission>(Admission {
        tenant: tenant.clone(),
        scope: scope_of(id),
        key: key.clone(),
        fingerprint,
        produced: Produced::Message(next),
        task_created_at,
        expires_at: now.plus_ms(*window_ms),
        request: None,
    });
    Ok(None)
}

/// Prefetches the records that [`hand_over_key`] needs.
pub(crate) fn prefetch_key(world: &mut World, message: &Message) {
    if let Some(buffered_key) = &message.buffered_key {
        world.prefetch(message_admission(&message.tenant, &message.task, &buffered_key.key));
    }
}

/// Passes the key of a buffered message to the task that receives it, or deletes the key.
///
/// A key that is absent before it expires was loaded before its insert. Inserting it forces a key
/// conflict.
pub(crate) fn hand_over_key(
    world: &mut World,
    message: &Message,
    task_created_at: Option<Timestamp>,
) -> Result<(), Halt> {
    let Some(buffered_key) = &message.buffered_key else { return Ok(()) };
    let row_key = message_admission(&message.tenant, &message.task, &buffered_key.key);
    let admission = unless_quarantined(world.get::<Admission>(&row_key))?;
    let Some(admission) = admission else { return Ok(()) };
    let produced = Produced::Message(message.seq);
    match (admission, task_created_at) {
        (Some(admission), _)
            if admission.task_created_at.is_some() || admission.produced != produced => {}
        (Some(admission), Some(_)) => {
            world.put::<Admission>(Admission { task_created_at, ..(*admission).clone() });
        }
        (Some(_), None) => world.remove(&row_key),
        (None, _) if world.now() < buffered_key.expires_at => world.put::<Admission>(Admission {
            tenant: message.tenant.clone(),
            scope: scope_of(&message.task),
            key: buffered_key.key.clone(),
            fingerprint: Digester::new("message").finish(),
            produced,
            task_created_at,
            expires_at: world.now(),
            request: None,
        }),
        (None, _) => {}
    }
    Ok(())
}
