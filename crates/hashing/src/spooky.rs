//! SpookyHash V2 by Bob Jenkins, 32 bits of it: the hash for mcrouter's weights, shadow fractions
//! and migrations.
//!
//! Two algorithms under one name: short messages (below 192 bytes) mix four words, long ones
//! twelve.

const FILL: u64 = 0xdead_beef_dead_beef;
const BLOCK_BYTES: usize = 96;
const SHORT_BYTES_MAX: usize = 191;

/// mcrouter's `routingKeyHash`: SpookyHash V2 with seed 0.
#[must_use]
pub fn routing_hash(key: &[u8]) -> u32 {
    spooky_hash32(key, 0)
}

/// The low 32 bits of SpookyHash V2 with both seeds equal.
#[must_use]
#[allow(clippy::cast_possible_truncation, reason = "the low half is the hash")]
pub fn spooky_hash32(key: &[u8], seed: u32) -> u32 {
    spooky_hash64(key, u64::from(seed)) as u32
}

/// SpookyHash V2 with both seeds equal; folly's hash of strings, with seed 0.
#[must_use]
pub fn spooky_hash64(key: &[u8], seed: u64) -> u64 {
    if key.len() <= SHORT_BYTES_MAX { short(key, seed) } else { long(key, seed) }
}

/// Up to eight bytes, little endian.
fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

fn short(key: &[u8], seed: u64) -> u64 {
    let mut h = [seed, seed, FILL, FILL];
    let (blocks, mut rest) = key.as_chunks::<32>();
    for block in blocks {
        h[2] = h[2].wrapping_add(word(&block[..8]));
        h[3] = h[3].wrapping_add(word(&block[8..16]));
        short_mix(&mut h);
        h[0] = h[0].wrapping_add(word(&block[16..24]));
        h[1] = h[1].wrapping_add(word(&block[24..]));
    }
    if let Some((block, tail)) = rest.split_at_checked(16) {
        h[2] = h[2].wrapping_add(word(&block[..8]));
        h[3] = h[3].wrapping_add(word(&block[8..]));
        short_mix(&mut h);
        rest = tail;
    }
    h[3] = h[3].wrapping_add((key.len() as u64) << 56);
    if rest.is_empty() {
        h[2] = h[2].wrapping_add(FILL);
        h[3] = h[3].wrapping_add(FILL);
    } else {
        let (low, high) = rest.split_at(rest.len().min(8));
        h[2] = h[2].wrapping_add(word(low));
        h[3] = h[3].wrapping_add(word(high));
    }
    short_end(&mut h);
    h[0]
}

fn short_mix(h: &mut [u64; 4]) {
    for (step, turn) in [50, 52, 30, 41, 54, 48, 38, 37, 62, 34, 5, 36].into_iter().enumerate() {
        let (a, next, far) = ((step + 2) % 4, (step + 3) % 4, step % 4);
        h[a] = h[a].rotate_left(turn).wrapping_add(h[next]);
        h[far] ^= h[a];
    }
}

fn short_end(h: &mut [u64; 4]) {
    for (step, turn) in [15, 52, 26, 51, 28, 9, 47, 54, 32, 25, 63].into_iter().enumerate() {
        let (from, to) = ((step + 2) % 4, (step + 3) % 4);
        h[to] ^= h[from];
        h[from] = h[from].rotate_left(turn);
        h[to] = h[to].wrapping_add(h[from]);
    }
}

fn long(key: &[u8], seed: u64) -> u64 {
    let mut h = [seed, seed, FILL, seed, seed, FILL, seed, seed, FILL, seed, seed, FILL];
    let (blocks, rest) = key.as_chunks::<BLOCK_BYTES>();
    for block in blocks {
        long_mix(&mut h, block);
    }
    let mut last = [0; BLOCK_BYTES];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    last[BLOCK_BYTES - 1] = u8::try_from(rest.len()).unwrap_or_default();
    for (lane, bytes) in h.iter_mut().zip(last.as_chunks::<8>().0) {
        *lane = lane.wrapping_add(u64::from_le_bytes(*bytes));
    }
    for _ in 0..3 {
        long_end(&mut h);
    }
    h[0]
}

fn long_mix(h: &mut [u64; 12], block: &[u8; BLOCK_BYTES]) {
    const TURNS: [u32; 12] = [11, 32, 43, 31, 17, 28, 39, 57, 55, 54, 22, 46];
    for (i, bytes) in block.as_chunks::<8>().0.iter().enumerate() {
        h[i] = h[i].wrapping_add(u64::from_le_bytes(*bytes));
        h[(i + 2) % 12] ^= h[(i + 10) % 12];
        h[(i + 11) % 12] ^= h[i];
        h[i] = h[i].rotate_left(TURNS[i]);
        h[(i + 11) % 12] = h[(i + 11) % 12].wrapping_add(h[(i + 1) % 12]);
    }
}

fn long_end(h: &mut [u64; 12]) {
    const TURNS: [u32; 12] = [44, 15, 34, 21, 38, 33, 10, 13, 38, 53, 42, 54];
    for (i, turn) in TURNS.into_iter().enumerate() {
        let (sum, turned, far) = ((i + 11) % 12, (i + 1) % 12, (i + 2) % 12);
        h[sum] = h[sum].wrapping_add(h[turned]);
        h[far] ^= h[sum];
        h[turned] = h[turned].rotate_left(turn);
    }
}
