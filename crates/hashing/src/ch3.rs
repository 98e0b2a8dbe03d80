//! Ch3, mcrouter's consistent hash: a binary decision tree (Mark Rabkin's `furc_hash`), and its
//! weighted form.
//!
//! The function derives an endless string of bits from the key: 64 by MurmurHash64A, and each
//! further 64 by hashing the last 64. It descends from the power of two above the pool size. A 1 at
//! a level selects the upper half of that level, and the lower bits of the number also come from
//! the string, 23 bits apart. A number outside of the pool is drawn again from the next level.

use crate::murmur::{murmur64a, murmur64a_word};
use crate::spooky::spooky_hash32;

const SEED: u64 = 4_193_360_111;
const TRIES: u32 = 32;
/// Distance between the bits of one number; it also limits the size of a pool.
const STRIDE: u32 = 23;

/// The largest pool that Ch3 can name.
pub const POOL_SIZE_MAX: u32 = 1 << STRIDE;

const WEIGHT_SEED: u32 = 0xface_2014;

/// The bits of a key by index. Indexes rise, except for returns to the first word, which holds the
/// levels.
struct Bits {
    first: u64,
    word: u64,
    ordinal: u32,
}

impl Bits {
    fn new(key: &[u8]) -> Self {
        let first = murmur64a(key, SEED);
        Self { first, word: first, ordinal: 0 }
    }

    fn get(&mut self, index: u32) -> bool {
        if index / 64 < self.ordinal {
            (self.word, self.ordinal) = (self.first, 0);
        }
        while self.ordinal < index / 64 {
            self.word = murmur64a_word(self.word, SEED);
            self.ordinal += 1;
        }
        self.word >> (index % 64) & 1 == 1
    }
}

/// The number of the server, 0 to `pool_size - 1`, that holds `key`: mcrouter's `furc_hash`.
///
/// Returns 0 for a `pool_size` of 0 or 1. Of a pool larger than [`POOL_SIZE_MAX`], only the first
/// [`POOL_SIZE_MAX`] servers hold keys.
#[must_use]
pub fn furc_hash(key: &[u8], pool_size: u32) -> u32 {
    if pool_size <= 1 {
        return 0;
    }
    let mut bits = Bits::new(key);
    let mut level = (pool_size.min(POOL_SIZE_MAX) - 1).ilog2() + 1;
    let mut at = level;
    for _ in 0..TRIES {
        while !bits.get(at) {
            level -= 1;
            if level == 0 {
                return 0;
            }
            at = level;
        }
        at += STRIDE;
        let mut number = 1;
        for _ in 1..level {
            number = number << 1 | u32::from(bits.get(at));
            at += STRIDE;
        }
        if number < pool_size {
            return number;
        }
    }
    0
}

/// The part of 2^32 - 1 below which a server of this weight accepts a key; weights are within 0 and
/// 1.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a weight is within 0 and 1"
)]
pub(crate) fn acceptance(weight: f64) -> u32 {
    (weight * f64::from(u32::MAX)) as u32
}

/// Ch3 of the key among the servers. While the server refuses the key by its weight, the number of
/// the try is appended, last digit first. After 32 refusals the last server has the key.
pub(crate) fn weighted_ch3(key: &[u8], acceptances: &[u32]) -> u32 {
    let (mut index, accepted) = offer(key, acceptances);
    if accepted {
        return index;
    }
    for salt in 0..TRIES - 1 {
        let digits = [digit(salt % 10), digit(salt / 10)];
        let digits = if salt < 10 { &digits[..1] } else { &digits[..] };
        let (server, accepted) = joined(key, digits, |key| offer(key, acceptances));
        index = server;
        if accepted {
            break;
        }
    }
    index
}

/// The server that Ch3 selects, and whether it accepts the key.
fn offer(key: &[u8], acceptances: &[u32]) -> (u32, bool) {
    debug_assert!(acceptances.len() <= POOL_SIZE_MAX as usize, "`Placement` makes no larger pool");
    // Of a larger pool only the first servers are used, as by `furc_hash`.
    let pool_size = u32::try_from(acceptances.len()).unwrap_or(POOL_SIZE_MAX);
    let index = furc_hash(key, pool_size);
    let limit = acceptances.get(index as usize).copied().unwrap_or_default();
    (index, spooky_hash32(key, WEIGHT_SEED) < limit)
}

#[allow(clippy::cast_possible_truncation, reason = "a digit")]
fn digit(number: u32) -> u8 {
    b'0' + (number % 10) as u8
}

/// Calls `then` with the key followed by `behind`. Allocates nothing for keys of the protocols'
/// length.
pub(crate) fn joined<R>(key: &[u8], behind: &[u8], then: impl FnOnce(&[u8]) -> R) -> R {
    let mut buffer = [0; JOINED_BYTES];
    let bytes = key.len().saturating_add(behind.len());
    if let Some(joined) = buffer.get_mut(..bytes) {
        let (front, back) = joined.split_at_mut(key.len());
        front.copy_from_slice(key);
        back.copy_from_slice(behind);
        then(joined)
    } else {
        then(&[key, behind].concat())
    }
}

/// A key of 250 bytes and a salt.
const JOINED_BYTES: usize = 320;
