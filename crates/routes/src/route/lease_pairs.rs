//! Lease pairing (`enable_lease_pairing`): a token goes back to the child that gave it, whichever
//! child answers by then.
//!
//! A client is given a token of ours, mcrouter's magic number above and a count below; the child
//! and its own token are kept for ten seconds. Workers share them, since a client may have several
//! connections.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use narrow::to_u32;

/// The upper half of our tokens (mcrouter).
const MAGIC: u64 = 0x7ace_b00c_0000_0000;
const MAGIC_BITS: u64 = 0xffff_ffff_0000_0000;

/// Seconds for which a token is kept.
const KEPT_SECS: u64 = 10;

/// Tokens kept at the most; an older one is forgotten, and its value not stored.
const KEPT_MAX: usize = 65_536;

/// The children that gave leases, by the tokens that clients hold.
#[derive(Debug, Default)]
pub struct LeasePairs {
    pairs: Mutex<Pairs>,
}

#[derive(Debug, Default)]
struct Pairs {
    /// The count of the oldest.
    first: u32,
    pairs: VecDeque<Option<Pair>>,
}

#[derive(Clone, Copy, Debug)]
struct Pair {
    child: usize,
    token: u64,
    at_secs: u64,
}

impl LeasePairs {
    /// The token for the client.
    pub(super) fn add(&self, child: usize, token: u64, now_secs: u64) -> u64 {
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
        inner.pairs.push_back(Some(Pair { child, token, at_secs: now_secs }));
        MAGIC | u64::from(number)
    }

    /// Whether the token looks like one of ours, and must not be passed on as if it were not.
    pub(super) fn is_ours(token: u64) -> bool {
        token & MAGIC_BITS == MAGIC
    }

    /// The child and its token, once.
    pub(super) fn take(&self, token: u64, now_secs: u64) -> Option<(usize, u64)> {
        if !Self::is_ours(token) {
            return None;
        }
        let mut inner = self.pairs.lock().unwrap_or_else(PoisonError::into_inner);
        let number = u32::try_from(token & !MAGIC_BITS).ok()?;
        let index = number.wrapping_sub(inner.first) as usize;
        let pair = inner.pairs.get_mut(index)?.take()?;
        let is_young = pair.at_secs.saturating_add(KEPT_SECS) >= now_secs;
        is_young.then_some((pair.child, pair.token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_taken_once_and_within_its_time() {
        let pairs = LeasePairs::default();
        let (one, two) = (pairs.add(1, 100, 50), pairs.add(2, MAGIC | 7, 50));
        assert_eq!(pairs.take(100, 50), None);
        assert_eq!(pairs.take(two, 60), Some((2, MAGIC | 7)));
        assert_eq!(pairs.take(two, 60), None);
        assert_eq!(pairs.take(one, 61), None);
        let three = pairs.add(3, 5, 70);
        assert_eq!(pairs.pairs.lock().unwrap().pairs.len(), 1, "old ones are forgotten");
        assert_eq!(pairs.take(three, 70), Some((3, 5)));
        assert_eq!(pairs.take(MAGIC | 0xffff, 70), None);
    }
}
