use std::time::{Duration, Instant};

use duroxide::providers::ProviderError;
use windlass_core::{Outcome, Rejection};
use windlass_engine::Error;

/// Maps an engine error to a provider error: rejections are permanent, except a full mailbox.
pub(crate) fn failed(operation: &'static str) -> impl Fn(Error) -> ProviderError {
    move |error| match &error {
        Error::Rejected(Rejection::MailboxFull { .. }) => {
            ProviderError::retryable(operation, error.to_string())
        }
        error if error.is_retryable() => ProviderError::retryable(operation, error.to_string()),
        _ => ProviderError::permanent(operation, error.to_string()),
    }
}

/// How long a store that does not answer is retried. By then the lease of the caller has expired,
/// and its runtime can do no harm when it handles the error.
const PATIENCE: Duration = Duration::from_secs(600);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Retries requests that the store did not answer. The runtime of duroxide treats a store outage of
/// a second as a failure of the orchestration, and commits that once the store is back.
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
    /// Waits for the backoff, if the request may be retried.
    pub(crate) async fn is_left<T>(&mut self, answer: &Result<T, Error>) -> bool {
        let asks_again =
            answer.as_ref().is_err_and(Error::is_retryable) && self.begun.elapsed() < PATIENCE;
        if asks_again {
            tokio::time::sleep(self.pause).await;
            self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        }
        asks_again
    }
}

/// An encoding or decoding error.
pub(crate) fn garbled(operation: &'static str) -> impl Fn(serde_json::Error) -> ProviderError {
    move |error| ProviderError::permanent(operation, error.to_string())
}

pub(crate) fn unexpected(operation: &'static str, outcome: &Outcome) -> ProviderError {
    ProviderError::permanent(operation, format!("unexpected outcome: {outcome:?}"))
}
