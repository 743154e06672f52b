//! Engine names of duroxide objects.

use duroxide::providers::WorkItem;
use windlass_core::{LaneName, TaskId};

/// The kind and the lane of orchestrations.
pub(crate) const KIND: &str = "orchestration";
pub(crate) const ORCHESTRATIONS: &str = "orchestrations";
/// The lane of activities, and the prefix of the lanes of tagged ones.
pub(crate) const ACTIVITIES: &str = "activities";
const TAGGED: u32 = 16;
/// The source of all queue messages.
pub(crate) const SOURCE: &str = "duroxide";

const INSTANCE: &str = "i/";
const ACTIVITY: &str = "a/";

/// How many bits of a step number are the event id; the higher bits are the execution. So steps
/// rise over all executions of an instance.
const EVENT_BITS: u32 = 32;

pub(crate) fn orchestrations() -> LaneName {
    LaneName::new(ORCHESTRATIONS)
}

/// The lane of an activity. Tagged ones are spread over several lanes, as one lane supports only so
/// many tags.
pub(crate) fn activities(tag: Option<&str>) -> LaneName {
    match tag {
        None => LaneName::new(ACTIVITIES),
        Some(tag) => {
            tagged(tag.bytes().fold(0, |sum: u32, byte| {
                sum.wrapping_mul(31).wrapping_add(u32::from(byte)) % TAGGED
            }))
        }
    }
}

fn tagged(number: u32) -> LaneName {
    LaneName::new(format!("{ACTIVITIES}-{number}"))
}

pub(crate) fn all_activities() -> impl Iterator<Item = LaneName> {
    std::iter::once(activities(None)).chain((0..TAGGED).map(tagged))
}

pub(crate) fn instance_id(instance: &str) -> TaskId {
    format!("{INSTANCE}{instance}").into()
}

/// The instance of a task, if it is one.
pub(crate) fn instance_of(id: &TaskId) -> Option<&str> {
    id.as_str().strip_prefix(INSTANCE)
}

/// Its numbers have a fixed width: activities scheduled together are ordered by it.
pub(crate) fn activity_id(instance: &str, execution: u64, id: u64) -> TaskId {
    format!("{ACTIVITY}{instance}/{execution:010}/{id:010}").into()
}

/// The step number of an event of an execution.
pub(crate) fn step(execution: u64, event: u64) -> u64 {
    (execution << EVENT_BITS) | event
}

/// The execution number of a task. duroxide counts executions from one, Windlass from zero.
pub(crate) fn execution(execution_id: u64) -> u32 {
    u32::try_from(execution_id.saturating_sub(1)).unwrap_or(u32::MAX)
}

pub(crate) fn execution_id(execution: u32) -> u64 {
    u64::from(execution) + 1
}

/// Encodes a tag in the characters allowed for engine tags.
pub(crate) fn tag(tag: &str) -> String {
    let mut text = String::with_capacity(tag.len());
    for byte in tag.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b':' | b'/' | b'-' => {
                text.push(char::from(byte));
            }
            other => text.push_str(&format!("+{other:02X}")),
        }
    }
    text
}

/// The instance whose queue an item belongs to; none for items of the worker queue.
pub(crate) fn addressee(item: &WorkItem) -> Option<&str> {
    match item {
        WorkItem::StartOrchestration { instance, .. }
        | WorkItem::ActivityCompleted { instance, .. }
        | WorkItem::ActivityFailed { instance, .. }
        | WorkItem::TimerFired { instance, .. }
        | WorkItem::ExternalRaised { instance, .. }
        | WorkItem::QueueMessage { instance, .. }
        | WorkItem::CancelInstance { instance, .. }
        | WorkItem::ContinueAsNew { instance, .. } => Some(instance),
        WorkItem::SubOrchCompleted { parent_instance, .. }
        | WorkItem::SubOrchFailed { parent_instance, .. } => Some(parent_instance),
        WorkItem::ActivityExecute { .. } => None,
    }
}

/// The execution and the event of a step.
pub(crate) fn event_of(step: u64) -> (u64, u64) {
    (step >> EVENT_BITS, step & ((1 << EVENT_BITS) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_rise_over_executions_and_are_decoded() {
        assert!(step(1, u64::from(u32::MAX)) < step(2, 1));
        assert_eq!(event_of(step(3, 17)), (3, 17));
    }

    #[test]
    fn encoded_tags_are_distinct() {
        assert_eq!(tag("gpu-1"), "gpu-1");
        assert_eq!((tag("a b"), tag("a+20b")), ("a+20b".into(), "a+2B20b".into()));
    }
}
