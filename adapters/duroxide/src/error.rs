use duroxide::providers::ProviderError;
use windlass_core::{Outcome, Rejection};
use windlass_engine::Error;
use windlass_store::StoreError;

/// An error of the engine as duroxide tells errors apart: what the rules refuse is refused again.
pub(crate) fn failed(operation: &'static str) -> impl Fn(Error) -> ProviderError {
    move |error| match &error {
        Error::Rejected(Rejection::MailboxFull { .. }) | Error::Overloaded => {
            ProviderError::retryable(operation, error.to_string())
        }
        Error::Store(store) if !matches!(**store, StoreError::Refused(_)) => {
            ProviderError::retryable(operation, error.to_string())
        }
        Error::OutcomeUnknown => ProviderError::retryable(operation, error.to_string()),
        _ => ProviderError::permanent(operation, error.to_string()),
    }
}

/// What cannot be written or read as JSON.
pub(crate) fn garbled(operation: &'static str) -> impl Fn(serde_json::Error) -> ProviderError {
    move |error| ProviderError::permanent(operation, error.to_string())
}

pub(crate) fn unexpected(operation: &'static str, outcome: &Outcome) -> ProviderError {
    ProviderError::permanent(operation, format!("not an answer to this: {outcome:?}"))
}
