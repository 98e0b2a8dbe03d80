//! The age of the last good check of the log's contents.

use std::time::Duration;

use tokio::time::Instant;

/// The number of intervals after which a check is late.
const LATE_AFTER: u32 = 3;

/// The last check of the followed server that found nothing missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastCheck {
    /// The time at which its answer came.
    pub at: Instant,
    /// The interval of checks.
    pub every: Duration,
}

impl LastCheck {
    /// The time since then.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.at.elapsed()
    }

    /// True when later checks should also have been made by now.
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.age() >= self.every.saturating_mul(LATE_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_check_is_late_after_three_intervals() {
        let check = LastCheck { at: Instant::now(), every: Duration::from_secs(2) };
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(!check.is_late());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(check.is_late());
        assert_eq!(check.age(), Duration::from_secs(6));
    }
}
