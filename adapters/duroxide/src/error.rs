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
const MAX_RETRY_TIME: Duration = Duration::from_secs(600);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Retries requests that the store did not answer. The runtime of duroxide treats a store outage of
/// a second as a failure of the orchestration, and commits that once the store is back.
#[derive(Debug)]
pub(crate) struct StoreRetry {
    begun: Instant,
    pause: Duration,
}

impl Default for StoreRetry {
    fn default() -> Self {
        Self { begun: Instant::now(), pause: FIRST_PAUSE }
    }
}

impl StoreRetry {
    /// Waits for the backoff, if the request may be retried.
    pub(crate) async fn wait<T>(&mut self, answer: &Result<T, Error>) -> bool {
        let retries = answer.as_ref().is_err_and(Error::is_retryable)
            && self.begun.elapsed() < MAX_RETRY_TIME;
        if retries {
            tokio::time::sleep(self.pause).await;
            self.pause = (2 * self.pause).min(MAX_PAUSE);
        }
        retries
    }
}

/// An encoding or decoding error.
pub(crate) fn garbled(operation: &'static str) -> impl Fn(serde_json::Error) -> ProviderError {
    move |error| ProviderError::permanent(operation, error.to_string())
}

pub(crate) fn unexpected(operation: &'static str, outcome: &Outcome) -> ProviderError {
    ProviderError::permanent(operation, format!("unexpected outcome: {outcome:?}"))
}
