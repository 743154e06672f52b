use std::time::Duration;

use windlass_core::command::SuspendTimeout;
use windlass_core::{Condition, OnTimeout, SuspendReason, WaitpointId};

/// What a handler waits for, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitFor {
    pub(crate) condition: Condition,
    pub(crate) reason: SuspendReason,
    pub(crate) timeout: Option<SuspendTimeout>,
}

impl WaitFor {
    /// A message with this name, from any sender.
    pub fn signal(name: impl Into<String>) -> Self {
        Condition::signal(name).into()
    }

    /// The completion of this waitpoint, by a message of any name.
    pub fn waitpoint(id: impl Into<WaitpointId>) -> Self {
        Condition::waitpoint(id).into()
    }

    /// This duration only.
    pub fn elapsed(delay: Duration) -> Self {
        Self::from(Condition::Timeout).timeout(delay, OnTimeout::Resume)
    }

    /// The reason of the wait, shown to people and in lists.
    pub fn reason(mut self, reason: SuspendReason) -> Self {
        self.reason = reason;
        self
    }

    /// Limits the wait; `then` says what happens after that.
    pub fn timeout(mut self, after: Duration, action: OnTimeout) -> Self {
        let after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        self.timeout = Some(SuspendTimeout { after_ms, action });
        self
    }
}

impl From<Condition> for WaitFor {
    fn from(condition: Condition) -> Self {
        Self { condition, reason: SuspendReason::default(), timeout: None }
    }
}
