use std::fmt;
use std::time::Duration;

use windlass_core::command::Fail;
use windlass_core::{FailureClass, Fence, Retry, RetryPolicy, limits};

use crate::workflow::StepError;

/// Why an attempt failed, and whether and when to retry it.
///
/// `?` turns any [`std::error::Error`] into a transient failure, except an error caused by a
/// [`StepError`], which keeps its class. To allow this, `Failure` is not an error itself.
/// `Box<dyn Error + Send + Sync>`, `anyhow::Error` and plain text are not errors either: convert
/// them explicitly, as in `.map_err(Failure::transient)?`.
///
/// ```
/// use windlass_worker::Failure;
///
/// fn read(text: &str) -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
///     Ok(text.parse()?)
/// }
///
/// fn double(text: &str) -> Result<u64, Failure> {
///     let boxed: u64 = read(text).map_err(Failure::transient)?;
///     let plain: u64 = text.parse()?;
///     Ok(boxed + plain)
/// }
///
/// assert_eq!(double("21"), Ok(42));
/// assert_eq!(double("x").unwrap_err().reason(), "invalid digit found in string");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    class: FailureClass,
    reason: String,
    retry: Retry,
    /// How long the task is snoozed instead.
    delay: Option<Duration>,
    /// Whether the task waits for its children instead.
    waits: bool,
    /// Not a failure: the task is suspended, and this run of its handler is over.
    suspended: bool,
}

impl Failure {
    /// A temporary failure: the task's policy decides whether and when to retry.
    pub fn transient(reason: impl fmt::Display) -> Self {
        Self::new(FailureClass::Transient, &reason, Retry::Policy)
    }

    /// A failure that is not retried, unless the task's policy retries permanent failures.
    pub fn permanent(reason: impl fmt::Display) -> Self {
        Self::new(FailureClass::Permanent, &reason, Retry::Policy)
    }

    /// Retries after `delay` instead of the policy's backoff, while attempts are left.
    pub fn retry_after(reason: impl fmt::Display, delay: Duration) -> Self {
        let most_ms = u64::try_from(limits::BACKOFF_MS.max).unwrap_or(u64::MAX);
        let ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX).min(most_ms);
        Self::new(FailureClass::Transient, &reason, Retry::After { ms })
    }

    /// A failure that is never retried, whatever the policy says.
    pub fn non_retryable(reason: impl fmt::Display) -> Self {
        Self::new(FailureClass::Permanent, &reason, Retry::Never)
    }

    /// Snoozes the task for `delay`, for example because a dependency of the handler is
    /// unavailable. The attempt is not counted.
    pub fn snooze(reason: impl fmt::Display, delay: Duration) -> Self {
        let most_ms = u64::try_from(limits::DELAY_MS.max).unwrap_or(u64::MAX);
        let delay = delay.min(Duration::from_millis(most_ms));
        Self { delay: Some(delay), ..Self::transient(reason) }
    }

    /// Not a failure: the task waits for its open children.
    pub(crate) fn wait_children() -> Self {
        Self { waits: true, ..Self::transient("children of the task are open") }
    }

    /// Whether this is not a failure, but a wait for the children of the task.
    pub fn waiting_for_children(&self) -> bool {
        self.waits
    }

    /// Ends the run of a handler whose task is suspended.
    pub(crate) fn suspended() -> Self {
        Self { suspended: true, ..Self::transient("the task is suspended") }
    }

    /// Whether this is not a failure: the task is suspended, and its handler is called again.
    pub fn is_suspended(&self) -> bool {
        self.suspended
    }

    pub fn class(&self) -> FailureClass {
        self.class
    }

    pub fn reason(&self) -> &str {
        &self.reason
    }

    pub fn retry(&self) -> Retry {
        self.retry
    }

    /// How long the task is snoozed, if it is.
    pub fn delay(&self) -> Option<Duration> {
        self.delay
    }

    /// The backoff before the next attempt, if any, for attempts that the engine does not schedule.
    pub(crate) fn pause_ms(&self, retry: Option<&RetryPolicy>, attempt: u32) -> Option<u64> {
        let retry = retry.filter(|retry| attempt < retry.max_attempts)?;
        match self.retry {
            Retry::Never => None,
            Retry::After { ms } => Some(ms),
            Retry::Policy if !retry.retry_on.contains(&self.class) => None,
            Retry::Policy => Some(retry.backoff.after(attempt)),
        }
    }

    pub(crate) fn into_command(self, fence: Fence) -> Fail {
        Fail { fence, class: self.class, reason: self.reason, retry: self.retry }
    }

    pub(crate) fn of(class: FailureClass, reason: impl fmt::Display) -> Self {
        Self::new(class, &reason, Retry::Policy)
    }

    fn new(class: FailureClass, reason: &dyn fmt::Display, retry: Retry) -> Self {
        let reason = fitting(reason.to_string());
        Self { class, reason, retry, delay: None, waits: false, suspended: false }
    }
}

/// Makes a reason storable: a failure must not be rejected because of its text.
pub(crate) fn fitting(mut reason: String) -> String {
    reason.retain(|c| c != '\0');
    reason.truncate(reason.floor_char_boundary(limits::REASON.max_bytes));
    reason
}

impl<E: std::error::Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let class = class_of(&error);
        Self::new(class, &error, Retry::Policy)
    }
}

/// An error caused by a workflow step keeps the class of the step; any other is transient.
fn class_of(error: &(dyn std::error::Error + 'static)) -> FailureClass {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(step) = error.downcast_ref::<StepError>() {
            return step.class();
        }
        cause = error.source();
    }
    FailureClass::Transient
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failure: {}", self.class.as_str(), self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_always_fits() {
        let max = limits::REASON.max_bytes;
        for (reason, bytes) in [
            ("plain".to_owned(), 5),
            ("a\0b".to_owned(), 2),
            ("x".repeat(max), max),
            ("x".repeat(max + 1), max),
            (format!("{}\u{e9}", "x".repeat(max - 1)), max - 1),
        ] {
            let failure = Failure::transient(reason);
            assert_eq!(failure.reason().len(), bytes);
            assert!(limits::REASON.check_prose(failure.reason()).is_ok());
        }
    }

    #[test]
    fn a_pause_always_fits() {
        let failure = Failure::retry_after("no", Duration::MAX);
        let Retry::After { ms } = failure.retry() else { panic!("{failure:?}") };
        assert!(limits::BACKOFF_MS.check(ms).is_ok());
        let delay = Failure::snooze("no", Duration::MAX).delay().unwrap();
        assert!(limits::DELAY_MS.check(delay.as_millis()).is_ok());
    }
}
