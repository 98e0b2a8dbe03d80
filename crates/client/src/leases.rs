//! Knowledge of a client whether its servers have leases.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use upstream::system::now;

/// How long a client that met a server without leases asks by get and add, before it tries leases
/// again.
const NO_LEASES_FOR: Duration = Duration::from_secs(30);

/// Whether the servers know leases, as far as this client has seen.
#[derive(Debug)]
pub(crate) struct Leases {
    start: Instant,
    /// Milliseconds from the start; until then they are not asked for.
    missing_until_ms: AtomicU64,
}

impl Default for Leases {
    fn default() -> Self {
        Self { start: now(), missing_until_ms: AtomicU64::new(0) }
    }
}

impl Leases {
    fn now_ms(&self) -> u64 {
        u64::try_from(now().saturating_duration_since(self.start).as_millis()).unwrap_or(u64::MAX)
    }

    /// Relaxed, here and below: who sees it late asks once too often.
    pub(crate) fn are_asked(&self) -> bool {
        let until_ms = self.missing_until_ms.load(Ordering::Relaxed);
        until_ms == 0 || self.now_ms() >= until_ms
    }

    pub(crate) fn are_missing(&self) {
        let for_ms = u64::try_from(NO_LEASES_FOR.as_millis()).unwrap_or(u64::MAX);
        self.missing_until_ms.store(self.now_ms().saturating_add(for_ms), Ordering::Relaxed);
    }
}
