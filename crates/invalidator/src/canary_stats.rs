//! The age of the newest canary change that a cluster is known to have executed.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The number of intervals after which a canary is late.
const LATE_AFTER: u32 = 2;

/// The state of one cluster's canary. Only `stats` reads the counter, so Relaxed is enough.
#[derive(Debug)]
pub struct CanaryStats {
    /// Beats that the cluster is known to have executed.
    pub proven: AtomicU64,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    /// The time before the last proven beat was written; at first, the start.
    since: Instant,
    obstacle: Obstacle,
}

/// The reason why the last beat is not proven.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Obstacle {
    /// Nothing so far.
    #[default]
    None,
    /// A hop that does not answer or that refuses: the database, the routers, a server.
    Hop(String),
    /// All of them answer, but the key of a written change is still there.
    StillThere(String),
}

impl Default for CanaryStats {
    fn default() -> Self {
        let seen = Seen { since: Instant::now(), obstacle: Obstacle::None };
        Self { proven: AtomicU64::new(0), seen: Mutex::new(seen) }
    }
}

impl CanaryStats {
    /// Starts again: nothing was written before now.
    pub fn begin(&self) {
        *self.seen.lock() = Seen { since: Instant::now(), obstacle: Obstacle::None };
    }

    /// Records that the beat written at this time was executed.
    pub fn prove(&self, written: Instant) {
        self.proven.fetch_add(1, Relaxed);
        let mut seen = self.seen.lock();
        seen.since = seen.since.max(written);
        seen.obstacle = Obstacle::None;
    }

    /// Records why a beat is not proven.
    pub fn set_obstacle(&self, obstacle: Obstacle) {
        self.seen.lock().obstacle = obstacle;
    }

    /// The time since the last proven beat was written.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.seen.lock().since.elapsed()
    }

    /// The obstacle to the last beat.
    #[must_use]
    pub fn obstacle(&self) -> Obstacle {
        self.seen.lock().obstacle.clone()
    }

    /// True when the last proven beat is older than this interval allows.
    #[must_use]
    pub fn is_late(&self, every: Duration) -> bool {
        self.age() >= every * LATE_AFTER
    }
}

impl std::fmt::Display for Obstacle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("no answer yet"),
            Self::Hop(why) | Self::StillThere(why) => f.write_str(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_age_starts_at_the_write_and_is_late_after_two_intervals() {
        let every = Duration::from_secs(2);
        let stats = CanaryStats::default();
        tokio::time::advance(Duration::from_secs(3)).await;
        let written = Instant::now();
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(stats.is_late(every));
        stats.prove(written);
        assert_eq!(stats.age(), Duration::from_secs(1));
        assert!(!stats.is_late(every));
        stats.prove(written - every);
        assert_eq!(stats.age(), Duration::from_secs(1), "an older beat proves less");
        tokio::time::advance(Duration::from_secs(3)).await;
        assert!(stats.is_late(every));
    }
}
