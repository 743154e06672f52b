use std::sync::Mutex;
use std::time::{Duration, Instant};

use windlass::Error;

/// How soon the same error is reported again.
const AGAIN: Duration = Duration::from_secs(60);

/// Reports store errors once, and then once a minute.
#[derive(Debug, Default)]
pub(super) struct Outage(Mutex<Option<(String, Instant)>>);

impl Outage {
    /// The text of an error, if it is due to be reported.
    pub(super) fn report(&self, error: &Error, now: Instant) -> Option<String> {
        let text = error.to_string();
        let mut last = self.0.lock().expect("no code panics under this lock");
        if last.as_ref().is_some_and(|(reported, at)| *reported == text && now < *at + AGAIN) {
            return None;
        }
        *last = Some((text.clone(), now));
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_reported_once_a_minute() {
        let (outage, start) = (Outage::default(), Instant::now());
        for (error, second, reported) in [
            (Error::Overloaded, 0, true),
            (Error::Overloaded, 1, false),
            (Error::OutcomeUnknown, 2, true),
            (Error::OutcomeUnknown, 61, false),
            (Error::OutcomeUnknown, 62, true),
        ] {
            let text = outage.report(&error, start + Duration::from_secs(second));
            assert_eq!(text.is_some(), reported, "{error} at {second}");
        }
    }
}
