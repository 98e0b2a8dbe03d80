//! Lease pairing (`enable_lease_pairing`): a token returns to the child that granted it, whichever
//! child answers by then.
//!
//! A client receives a token of this proxy: mcrouter's magic number above, a count below. The child
//! and its token are kept for ten seconds. Workers share them, since a client may have several
//! connections. Successive configurations share them, too.
//!
//! Another proxy may have issued the same token: a previous one, or one in parallel. So counts
//! start at random, and a token is valid only for its own key.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

use narrow::to_u32;

/// The upper half of our tokens (mcrouter).
const MAGIC: u64 = 0x7ace_b00c_0000_0000;
const MAGIC_BITS: u64 = 0xffff_ffff_0000_0000;

/// Seconds for which a token is kept.
const KEPT_SECS: u64 = 10;

/// Maximum number of kept tokens. An older one is forgotten, and its value not stored.
const KEPT_MAX: usize = 65_536;

/// The children that granted leases, by the tokens that clients hold.
#[derive(Debug)]
pub struct LeasePairs {
    /// Hashes keys, with a seed that clients do not know.
    hashes: RandomState,
    pairs: Mutex<Pairs>,
}

#[derive(Debug)]
struct Pairs {
    /// The count of the oldest token.
    first: u32,
    pairs: VecDeque<Option<Pair>>,
}

#[derive(Clone, Copy, Debug)]
struct Pair {
    /// The hash of the key.
    hash: u64,
    /// The child, by its place. If a new configuration has another child there, its server refuses
    /// the token, which it did not grant.
    child: usize,
    token: u64,
    at_secs: u64,
}

impl Default for LeasePairs {
    fn default() -> Self {
        let hashes = RandomState::new();
        let first = low_half(hashes.hash_one(MAGIC));
        Self { hashes, pairs: Mutex::new(Pairs { first, pairs: VecDeque::new() }) }
    }
}

/// The count of a token; for a random number, a shorter one.
const fn low_half(token: u64) -> u32 {
    (token & !MAGIC_BITS) as u32
}

impl LeasePairs {
    /// Returns the token for the client, which is valid for this key.
    pub(super) fn add(&self, key: &[u8], child: usize, token: u64, now_secs: u64) -> u64 {
        let hash = self.hashes.hash_one(key);
        let mut inner = self.pairs.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = |pair: &Option<Pair>| {
            pair.is_none_or(|pair| pair.at_secs.saturating_add(KEPT_SECS) < now_secs)
        };
        while inner.pairs.len() >= KEPT_MAX || inner.pairs.front().is_some_and(is_old) {
            inner.pairs.pop_front();
            inner.first = inner.first.wrapping_add(1);
        }
        let count = to_u32(inner.pairs.len());
        let number = inner.first.wrapping_add(count);
        inner.pairs.push_back(Some(Pair { hash, child, token, at_secs: now_secs }));
        MAGIC | u64::from(number)
    }

    /// True if the token looks like this proxy's, and must not be passed on as another's.
    pub(super) fn is_ours(token: u64) -> bool {
        token & MAGIC_BITS == MAGIC
    }

    /// Returns the child and its token, once. A token of another key stays.
    pub(super) fn take(&self, key: &[u8], token: u64, now_secs: u64) -> Option<(usize, u64)> {
        if !Self::is_ours(token) {
            return None;
        }
        let hash = self.hashes.hash_one(key);
        let mut inner = self.pairs.lock().unwrap_or_else(PoisonError::into_inner);
        let index = low_half(token).wrapping_sub(inner.first) as usize;
        let pair = inner.pairs.get_mut(index)?.take_if(|pair| pair.hash == hash)?;
        let is_young = pair.at_secs.saturating_add(KEPT_SECS) >= now_secs;
        is_young.then_some((pair.child, pair.token))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_token_is_valid_once_and_within_its_time() {
        let pairs = LeasePairs::default();
        let (one, two) = (pairs.add(b"a", 1, 100, 50), pairs.add(b"b", 2, MAGIC | 7, 50));
        assert_eq!(pairs.take(b"a", 100, 50), None);
        assert_eq!(pairs.take(b"b", two, 60), Some((2, MAGIC | 7)));
        assert_eq!(pairs.take(b"b", two, 60), None);
        assert_eq!(pairs.take(b"a", one, 61), None);
        let three = pairs.add(b"c", 3, 5, 70);
        assert_eq!(pairs.pairs.lock().unwrap().pairs.len(), 1, "old ones are forgotten");
        assert_eq!(pairs.take(b"c", three, 70), Some((3, 5)));
        assert_eq!(pairs.take(b"c", MAGIC | 0xffff, 70), None);
    }

    #[test]
    fn a_token_is_valid_only_for_its_key() {
        let pairs = LeasePairs::default();
        let token = pairs.add(b"a", 1, 100, 50);
        assert_eq!(pairs.take(b"b", token, 50), None);
        assert_eq!(pairs.take(b"a", token, 50), Some((1, 100)));
        let first = |_| LeasePairs::default().add(b"a", 1, 100, 50);
        let begun: BTreeSet<u64> = (0..8).map(first).collect();
        assert!(begun.len() > 1, "counts begin at random");
    }
}
