use crate::concurrency_limit::LimitKey;
use crate::name::{Tenant, WorkerId};
use crate::row::{Index, Range};

/// A list of tasks outside the ready queue, in one index. A task is in at most one list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskList<'a> {
    /// The tasks that a limit blocks, in the order of their admission.
    LimitWaiting(&'a LimitKey),
    /// The tasks that a limit has admitted and that are not claimed yet.
    LimitAdmitted(&'a LimitKey),
    /// The tasks that a registered worker holds.
    HeldBy(&'a WorkerId),
}

impl TaskList<'_> {
    /// The stored key of the list, unique within its tenant.
    pub(crate) fn key(self) -> String {
        let of_limit =
            |list: &str, key: &LimitKey| format!("{list}/{}/{}", key.kind().as_str(), key.name());
        match self {
            TaskList::LimitWaiting(limit) => of_limit("limit_waiting", limit),
            TaskList::LimitAdmitted(limit) => of_limit("limit_admitted", limit),
            TaskList::HeldBy(worker) => format!("held_by/{worker}"),
        }
    }

    /// The tasks of this list, in order.
    pub(crate) fn range(self, tenant: &Tenant) -> Range {
        let prefix = vec![tenant.into(), self.key().as_str().into()];
        Range { index: Index::TaskList, prefix, until: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys are stored: see `golden.rs`.
    #[test]
    fn lists_have_different_stable_keys() {
        let (limit, worker) = (LimitKey::Concurrency("w".into()), WorkerId::new("w"));
        let session = LimitKey::Session("w".into());
        for (list, key) in [
            (TaskList::LimitWaiting(&limit), "limit_waiting/concurrency/w"),
            (TaskList::LimitWaiting(&session), "limit_waiting/session/w"),
            (TaskList::LimitAdmitted(&limit), "limit_admitted/concurrency/w"),
            (TaskList::HeldBy(&worker), "held_by/w"),
        ] {
            assert_eq!(list.key(), key);
        }
    }
}
