use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

const FIRST_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(30);
/// The worker stops after this many failed starts in a row.
const MAX_FAILURES: u32 = 5;

/// Counts failed starts of a program. Failures within one pause count as one: they share a cause.
#[derive(Debug, Default)]
pub(crate) struct StartBackoff(watch::Sender<StartFailures>);

#[derive(Clone, Debug, Default)]
struct StartFailures {
    in_a_row: u32,
    /// When the last failure was counted.
    at: Option<Instant>,
    why: String,
}

impl StartBackoff {
    pub(crate) fn succeeded(&self) {
        self.0.send_if_modified(|failures| {
            let ended = failures.in_a_row > 0;
            *failures = StartFailures::default();
            ended
        });
    }

    /// Counts a failure and returns the pause before the next start.
    pub(crate) fn failed(&self, why: String) -> Duration {
        self.0.send_modify(|failures| {
            if failures.at.is_none_or(|at| at.elapsed() >= backoff(failures.in_a_row)) {
                failures.in_a_row += 1;
                failures.at = Some(Instant::now());
            }
            failures.why = why;
        });
        backoff(self.0.borrow().in_a_row)
    }

    /// Waits for `MAX_FAILURES` failures in a row.
    pub(crate) async fn hopeless(&self) {
        let mut changes = self.0.subscribe();
        // The sender lives in `self`, so this returns only when the condition holds.
        let _ = changes.wait_for(|failures| failures.in_a_row >= MAX_FAILURES).await;
    }

    /// Why the last start failed, if it did.
    pub(crate) fn last_failure(&self) -> Option<String> {
        let failures = self.0.borrow();
        (failures.in_a_row > 0).then(|| failures.why.clone())
    }
}

fn backoff(in_a_row: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(in_a_row.saturating_sub(1));
    FIRST_DELAY.saturating_mul(doubled).min(MAX_DELAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_until_a_start_succeeds() {
        let starts = StartBackoff::default();
        for expected in [1, 2, 4, 8, 16, 30, 30] {
            let pause = starts.failed("no".into());
            assert_eq!(pause.as_secs(), expected);
            assert_eq!(starts.failed("no".into()), pause, "failures within the pause count as one");
            tokio::time::advance(pause).await;
        }
        assert_eq!(starts.last_failure().as_deref(), Some("no"));
        starts.succeeded();
        assert_eq!(starts.last_failure(), None);
        assert_eq!(starts.failed("no".into()), FIRST_DELAY);
    }

    #[tokio::test(start_paused = true)]
    async fn five_in_a_row_are_hopeless() {
        let starts = StartBackoff::default();
        let is_hopeless =
            async || tokio::time::timeout(Duration::ZERO, starts.hopeless()).await.is_ok();
        for _ in 0..4 {
            tokio::time::advance(starts.failed("no".into())).await;
            assert!(!is_hopeless().await);
        }
        starts.failed("no".into());
        assert!(is_hopeless().await);
    }
}
