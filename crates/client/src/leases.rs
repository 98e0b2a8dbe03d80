//! The keys for which no leases are requested: the user has no right to them, or the key's server
//! does not support leases.
//!
//! A refusal for one key means nothing for others: behind a proxy the server of a key is unknown,
//! and rights differ by key.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use upstream::system::now;

/// How long a refused key is read by get and filled by add before leases are tried again.
const LEASE_RETRY_AFTER: Duration = Duration::from_secs(30);

/// Maximum number of remembered keys; beyond it, some are refused once more.
const PLACES: usize = 1024;

/// The recently refused keys.
#[derive(Debug)]
pub(crate) struct Refused {
    start: Instant,
    hasher: RandomState,
    /// A part of the key's hash, and the second until which it counts; 0 is free.
    places: Box<[AtomicU64]>,
}

impl Default for Refused {
    fn default() -> Self {
        let places = (0..PLACES).map(|_| AtomicU64::new(0)).collect();
        Self { start: now(), hasher: RandomState::new(), places }
    }
}

impl Refused {
    fn now_secs(&self) -> u64 {
        now().saturating_duration_since(self.start).as_secs()
    }

    fn place(&self, key: &[u8]) -> (&AtomicU64, u64) {
        let hash = self.hasher.hash_one(key);
        let index = usize::try_from(hash).unwrap_or(0) % PLACES;
        (&self.places[index], hash >> 32)
    }

    /// Relaxed, here and below: a thread that sees it late sends one request too many.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        let (place, tag) = self.place(key);
        let word = place.load(Ordering::Relaxed);
        word != 0 && word >> 32 == tag && word & u64::from(u32::MAX) > self.now_secs()
    }

    /// Records that a lease of this key was refused.
    pub(crate) fn note(&self, key: &[u8]) {
        let (place, tag) = self.place(key);
        let until_secs = self.now_secs().saturating_add(LEASE_RETRY_AFTER.as_secs());
        place.store(tag << 32 | until_secs.min(u64::from(u32::MAX)), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_key_does_not_affect_others() {
        let refused = Refused::default();
        assert!(!refused.has(b"shared:1"));
        refused.note(b"shared:1");
        assert!(refused.has(b"shared:1"));
        let others = (0..10_000).filter(|number| refused.has(format!("app:{number}").as_bytes()));
        assert_eq!(others.count(), 0);
    }
}
