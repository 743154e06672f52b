use std::time::{Duration, Instant};

use duroxide::providers::ProviderError;
use windlass_core::{Outcome, Rejection};
use windlass_engine::Error;
use windlass_store::StoreError;

/// An error of the engine as duroxide tells errors apart: what the rules refuse is refused again.
pub(crate) fn failed(operation: &'static str) -> impl Fn(Error) -> ProviderError {
    move |error| match &error {
        Error::Rejected(Rejection::MailboxFull { .. }) => {
            ProviderError::retryable(operation, error.to_string())
        }
        error if may_pass(error) => ProviderError::retryable(operation, error.to_string()),
        _ => ProviderError::permanent(operation, error.to_string()),
    }
}

/// For how long a store that does not answer is asked again. By then the lease of whoever asks is
/// over, and its runtime can do no harm with what it makes of the error.
const PATIENCE: Duration = Duration::from_secs(600);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Asks again what a store did not answer. duroxide's runtime takes a store that was away for a
/// second for a failure of the orchestration, and commits that as soon as the store is back.
#[derive(Debug)]
pub(crate) struct Patience {
    begun: Instant,
    pause: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { begun: Instant::now(), pause: FIRST_PAUSE }
    }
}

impl Patience {
    /// Waits a little, if this may be asked again.
    pub(crate) async fn is_left<T>(&mut self, answer: &Result<T, Error>) -> bool {
        let asks_again = answer.as_ref().is_err_and(may_pass) && self.begun.elapsed() < PATIENCE;
        if asks_again {
            tokio::time::sleep(self.pause).await;
            self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        }
        asks_again
    }
}

fn may_pass(error: &Error) -> bool {
    match error {
        Error::Overloaded | Error::OutcomeUnknown => true,
        Error::Store(store) => !matches!(**store, StoreError::Refused(_)),
        _ => false,
    }
}

/// What cannot be written or read as JSON.
pub(crate) fn garbled(operation: &'static str) -> impl Fn(serde_json::Error) -> ProviderError {
    move |error| ProviderError::permanent(operation, error.to_string())
}

pub(crate) fn unexpected(operation: &'static str, outcome: &Outcome) -> ProviderError {
    ProviderError::permanent(operation, format!("not an answer to this: {outcome:?}"))
}
