//! Create requests: repeated, conflicting, and sharing an idempotency key.

use windlass_core::command::{Create, Created, NewTask};
use windlass_core::{
    Admission, Kind as TaskKind, PayloadKey, Produced, Rejection, Slot, TaskId, Tenant,
};
use windlass_core::{RowKey, Timestamp, Value};
use windlass_store::{MemoryStore, Store};

use crate::model::facts::Facts;
use crate::model::outcome::{Fenced, Submission};
use crate::model::record::{REQUESTS, SPENT, one};
use crate::model::state::Model;
use crate::ready::ready;
use crate::script::VARIANTS;
use crate::violation::{Breach, Kind, breach};

/// A use of an idempotency key, and the task that it refers to.
#[derive(Clone, Debug)]
pub(super) struct KeySeen {
    task: TaskId,
    /// None when the task was deleted before it could be read.
    content: Option<(TaskKind, Option<u8>)>,
    used_at: Timestamp,
    expires_at: Timestamp,
}

impl Model {
    /// The variant of its spec that a create request asks for.
    fn variant_of(&self, new: &NewTask) -> Option<u8> {
        let bytes = new.payload.as_ref().map(|payload| &payload.bytes[..]);
        let spec = self.spec(&new.id);
        (0..VARIANTS).find(|variant| bytes == Some(spec.payload(*variant).as_bytes()))
    }

    /// Whether this request may have created a task.
    fn may_be(&self, kind: &TaskKind, variant: Option<u8>, new: &NewTask) -> bool {
        *kind == new.kind && (variant.is_none() || variant == self.variant_of(new))
    }

    fn is_made_by(&self, facts: &Facts, new: &NewTask) -> bool {
        facts.kind.as_ref().is_some_and(|kind| self.may_be(kind, facts.variant, new))
    }

    /// Whether another request may have created a task.
    fn may_differ(&self, kind: &TaskKind, variant: Option<u8>, new: &NewTask) -> bool {
        *kind != new.kind || variant.is_none() || variant != self.variant_of(new)
    }

    /// Learns from the stored input which variant of a task was created.
    pub(super) fn learn_variant(
        &mut self,
        memory: &MemoryStore,
        id: &TaskId,
    ) -> Result<(), Breach> {
        if !self.facts(id).exists() || self.facts(id).variant.is_some() {
            return Ok(());
        }
        let (tenant, slot) = (Tenant::default(), Slot::INPUT);
        let key = PayloadKey { tenant, task: id.clone(), execution: 0, slot };
        let found = ready(memory.payloads(&[key])).expect("memory does not fail");
        let found = found.into_iter().flatten().next().map(|payload| payload.bytes.to_vec());
        let spec = self.spec(id);
        let made = |variant: &u8| found.as_deref() == Some(spec.payload(*variant).as_bytes());
        let Some(variant) = (0..VARIANTS).find(made) else {
            return breach(Kind::StrangeInput, format!("{id} was created with {found:?}"));
        };
        self.track(id).amend(|facts| facts.variant = Some(variant));
        Ok(())
    }

    /// Checks that a worker receives the input its task was created with.
    pub(crate) fn input_shown(&self, fenced: &Fenced, text: Option<&str>) -> Result<(), Breach> {
        let spec = self.spec(&fenced.0);
        let given = |facts: &Facts| {
            let input = facts.variant.map(|variant| spec.input(variant));
            facts.epoch == Some(fenced.1) && input.is_none_or(|input| text == Some(&input[..]))
        };
        // A worker whose task was deleted in the meantime holds no lease. It may read the input
        // of the next task of that id.
        let claimed = self.claims.get(fenced).map(|seen| seen.seq);
        let deleted = self.happened.get(&(fenced.0.clone(), "deleted")).copied();
        if self.tasks[&fenced.0].was(0, given) || claimed < deleted {
            return Ok(());
        }
        breach(Kind::StrangeInput, format!("{fenced:?} was leased with input {text:?}"))
    }

    /// Judges a commit that wrote or removed the record of a key.
    pub(super) fn compare_key(&mut self, memory: &MemoryStore, row: &RowKey) -> Result<(), Breach> {
        let Some(Value::Text(key)) = row.values.last() else { return Ok(()) };
        let scoped = |scope: &str| {
            let of_scope =
                |value: &Value| matches!(value, Value::Text(text) if text.starts_with(scope));
            row.values.iter().any(of_scope)
        };
        // The keys of messages are judged by the answers to callers.
        if ["message/", REQUESTS, SPENT].into_iter().any(scoped) {
            return Ok(());
        }
        let last = self.keys.get(&**key).and_then(|seen| seen.last());
        let Some(admission) = one::<Admission>(memory, row.clone()) else {
            // The batch that removed it may have an earlier time.
            let too_early = last.is_some_and(|last| self.latest < last.expires_at);
            return if too_early { breach(Kind::Key, format!("{key} is missing")) } else { Ok(()) };
        };
        let Produced::Task(task) = admission.produced.clone() else {
            return breach(Kind::Key, format!("{key} produced {:?}", admission.produced));
        };
        let expires_at = admission.expires_at;
        if last.is_some_and(|last| last.task == task && last.expires_at == expires_at) {
            return Ok(());
        }
        let too_early = last.is_some_and(|last| self.now < last.expires_at);
        if too_early || expires_at != self.now.plus_ms(self.spec(&task).window_ms) {
            let what = format!("{key} is for {task} until {expires_at}: {last:?}");
            return breach(Kind::Key, what);
        }
        let facts = self.facts(&task);
        let content = facts.kind.clone().map(|kind| (kind, facts.variant));
        let used_at = self.now;
        let seen = KeySeen { task, content, used_at, expires_at };
        self.keys.entry(key.to_string()).or_default().push(seen);
        Ok(())
    }

    /// Checks that a task with a key is created only by the request that takes the key.
    pub(super) fn check_keyed(&mut self) -> Result<(), Breach> {
        for id in std::mem::take(&mut self.keyed) {
            let Some(key) = &self.spec(&id).key else { continue };
            let last = self.keys.get(key).and_then(|seen| seen.last());
            if !last.is_some_and(|last| last.task == id && last.used_at == self.now) {
                return breach(Kind::Key, format!("{key} created {id}, but the key is {last:?}"));
            }
        }
        Ok(())
    }

    /// What a key may have referred to since the command was submitted.
    fn uses_of_key(
        &self,
        submission: &Submission<'_>,
        new: &NewTask,
    ) -> impl Iterator<Item = &KeySeen> {
        let at = submission.at;
        let key = new
            .idempotency
            .as_ref()
            .and_then(|operation| self.keys.get(operation.key.expose_secret()));
        key.into_iter().flatten().filter(move |seen| at < seen.expires_at)
    }

    pub(super) fn check_create_outcome(
        &self,
        submission: &Submission<'_>,
        create: &Create,
        created: &[Created],
    ) -> Result<(), Breach> {
        if create.tasks.len() != created.len() {
            return breach(Kind::OtherAnswer, "wrong number of tasks");
        }
        for (new, reported) in create.tasks.iter().zip(created) {
            let Some(track) = self.tasks.get(&reported.id) else {
                return breach(Kind::OtherAnswer, format!("no script creates {reported:?}"));
            };
            let made = track.was(submission.seq, |facts| self.is_made_by(facts, new));
            let there = if !reported.duplicate {
                let happened = self.happened.get(&(reported.id.clone(), "created"));
                reported.id == new.id && happened.is_some_and(|seq| *seq > submission.seq) && made
            } else if new.idempotency.is_some() {
                self.uses_of_key(submission, new).any(|seen| {
                    let content = seen.content.as_ref();
                    let same = |(kind, variant): &(_, _)| self.may_be(kind, *variant, new);
                    seen.task == reported.id && content.is_none_or(same)
                })
            } else {
                reported.id == new.id && made
            };
            if !there {
                let kind = if reported.duplicate { Kind::Key } else { Kind::EffectMissing };
                return breach(kind, format!("{reported:?}"));
            }
        }
        Ok(())
    }

    pub(super) fn may_reject_create(
        &self,
        submission: &Submission<'_>,
        create: &Create,
        rejection: &Rejection,
    ) -> bool {
        let may = |new: &NewTask| match rejection {
            Rejection::Conflict => {
                let differs = |kind: &TaskKind, variant| self.may_differ(kind, variant, new);
                let under_key = self.uses_of_key(submission, new).any(|seen| {
                    let content = seen.content.as_ref();
                    content.is_none_or(|(kind, variant)| differs(kind, *variant))
                });
                under_key
                    || self.may_be_of_other_parent(submission, create, new)
                    || self.tasks[&new.id].was(submission.seq, |facts| {
                        facts.kind.as_ref().is_some_and(|kind| differs(kind, facts.variant))
                    })
            }
            Rejection::LaneClosed { lane } => {
                *lane == new.lane
                    && self.lanes[lane].was(submission.seq, |lane| !lane.takes())
                    && !self.is_repeat(submission, new)
            }
            Rejection::ParentNotFound | Rejection::ParentTerminal => {
                self.may_lack_parent(submission, new, rejection) && !self.is_repeat(submission, new)
            }
            _ => false,
        };
        create.tasks.iter().any(may)
    }

    /// Whether the task existed before the command, so that the answer must be a duplicate.
    fn is_repeat(&self, submission: &Submission<'_>, new: &NewTask) -> bool {
        let surely = |kind: &TaskKind, variant: Option<u8>| {
            variant.is_some() && self.may_be(kind, variant, new)
        };
        if new.idempotency.is_some() {
            // A key may be taken again without a log event: its time shows when.
            return self.uses_of_key(submission, new).any(|seen| {
                let content = seen.content.as_ref();
                seen.used_at <= submission.at
                    && self.latest < seen.expires_at
                    && content.is_some_and(|(kind, variant)| surely(kind, *variant))
            });
        }
        self.tasks[&new.id].was_always(submission.seq, |facts| {
            facts.kind.as_ref().is_some_and(|kind| surely(kind, facts.variant))
        })
    }
}
