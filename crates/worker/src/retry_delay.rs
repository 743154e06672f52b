use std::time::Duration;

const FIRST: Duration = Duration::from_millis(20);
const MAX_DELAY: Duration = Duration::from_secs(2);

/// Backoff between retries: doubles up to [`MAX_DELAY`].
#[derive(Debug)]
pub(crate) struct RetryDelay(Duration);

impl Default for RetryDelay {
    fn default() -> Self {
        Self(FIRST)
    }
}

impl RetryDelay {
    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (2 * pause).min(MAX_DELAY);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_limit() {
        let mut pause = RetryDelay::default();
        let pauses: Vec<u128> = (0..9).map(|_| pause.next().as_millis()).collect();
        assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1_280, 2_000, 2_000]);
    }
}
