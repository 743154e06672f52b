use std::fmt;
use std::time::Duration;

/// A lease must last this many times as long as the store takes to grant it: it is renewed when a
/// third has passed, and a renewal takes about as long as the grant.
const LEAST_SHARE: u32 = 6;

/// A lease that is too short for its store; see [`crate::Worker::on_short_lease`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShortLease {
    pub lease: Duration,
    /// The time from the start of the batch that granted it until the worker received it.
    pub elapsed: Duration,
}

impl ShortLease {
    /// Reports a lease that is too short for the time that its grant took.
    pub(crate) fn check(lease: Duration, elapsed: Duration) -> Option<Self> {
        let short = Self { lease, elapsed };
        (short.recommended() > lease).then_some(short)
    }

    /// The shortest lease that suits this store.
    pub fn recommended(&self) -> Duration {
        LEAST_SHARE * self.elapsed
    }
}

impl fmt::Display for ShortLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lease, elapsed, least) =
            (self.lease.as_millis(), self.elapsed.as_millis(), self.recommended().as_millis());
        write!(
            f,
            "leases of {lease} ms are too short for this store: it took {elapsed} ms to grant one; \
             use at least {least} ms"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_lasts_six_times_as_long_as_it_takes_to_grant() {
        let ms = Duration::from_millis;
        for (elapsed, recommended) in [(0, None), (100, None), (101, Some(606)), (600, Some(3_600))]
        {
            let short = ShortLease::check(ms(600), ms(elapsed));
            assert_eq!(short.map(|short| short.recommended()), recommended.map(ms), "{elapsed} ms");
        }
    }
}
