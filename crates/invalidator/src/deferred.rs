//! Deletes and flushes that single servers of a cluster did not execute, to be retried.

use std::collections::HashSet;

use bytes::Bytes;
use tokio::time::{Duration, Instant};

use crate::clock::older;
use crate::delivery::Flush;

/// Each key and each flush once.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    /// Each key with its delivery.
    pub(crate) keys: Vec<(u64, Bytes)>,
    /// Each flush with its delivery.
    pub(crate) flushes: Vec<(u64, Flush)>,
    /// The oldest delivery of any of them.
    pub(crate) oldest: Option<u64>,
    /// The oldest commit of any of them, in microseconds since 1970; 0 if unknown.
    pub(crate) oldest_us: u64,
    /// The moment of the next attempt.
    pub(crate) retry_at: Option<Instant>,
    seen: HashSet<Bytes>,
}

impl Deferred {
    /// Adds a key to retry after a pause.
    pub(crate) fn key(&mut self, seq: u64, key: &Bytes, pause: Duration) {
        if self.seen.insert(key.clone()) {
            self.keys.push((seq, key.clone()));
        }
        self.until(seq, pause);
    }

    /// Adds a flush to retry after a pause. It replaces an equal one, whose delivery then also
    /// waits for it.
    pub(crate) fn flush(&mut self, seq: u64, flush: Flush, pause: Duration) {
        if !self.flushes.iter().any(|(_, other)| *other == flush) {
            self.flushes.push((seq, flush));
        }
        self.until(seq, pause);
    }

    fn until(&mut self, seq: u64, pause: Duration) {
        self.oldest = Some(self.oldest.map_or(seq, |oldest| oldest.min(seq)));
        let at = Instant::now() + pause;
        self.retry_at = Some(self.retry_at.map_or(at, |before| before.min(at)));
    }

    /// Records the commit time of an addition, if there is any.
    pub(crate) const fn note_age(&mut self, committed_us: u64) {
        if self.oldest.is_some() {
            self.oldest_us = older(self.oldest_us, committed_us);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_key_is_deferred_once_and_the_oldest_age_counts() {
        let mut deferred = Deferred::default();
        deferred.note_age(5);
        assert_eq!(deferred.oldest_us, 0, "nothing is here");
        deferred.key(7, &Bytes::from_static(b"k"), Duration::ZERO);
        deferred.note_age(0);
        deferred.key(6, &Bytes::from_static(b"k"), Duration::ZERO);
        deferred.note_age(9);
        deferred.flush(8, Flush::All, Duration::ZERO);
        deferred.flush(9, Flush::All, Duration::ZERO);
        deferred.note_age(8);
        assert_eq!((deferred.keys.len(), deferred.flushes.len()), (1, 1));
        assert_eq!((deferred.oldest, deferred.oldest_us), (Some(6), 8));
    }
}
