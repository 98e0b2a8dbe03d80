//! Austin Appleby's MurmurHash in the three forms that the originals use.

/// The word that starts at `bytes`, little endian, short ones filled with zeroes.
fn word32(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

fn word64(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

const M64: u64 = 0xc6a4_a793_5bd1_e995;

fn mix64(word: u64) -> u64 {
    let word = word.wrapping_mul(M64);
    (word ^ (word >> 47)).wrapping_mul(M64)
}

fn finish64(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 47)).wrapping_mul(M64);
    hash ^ (hash >> 47)
}

/// MurmurHash64A: mcrouter's, below Ch3 and rendezvous.
pub(crate) fn murmur64a(key: &[u8], seed: u64) -> u64 {
    let mut hash = seed ^ (key.len() as u64).wrapping_mul(M64);
    let (words, rest) = key.as_chunks::<8>();
    for word in words {
        hash = (hash ^ mix64(u64::from_le_bytes(*word))).wrapping_mul(M64);
    }
    if !rest.is_empty() {
        hash = (hash ^ word64(rest)).wrapping_mul(M64);
    }
    finish64(hash)
}

/// MurmurHash64A of one 64-bit number, as furc draws more bits from the ones it has.
pub(crate) fn murmur64a_word(word: u64, seed: u64) -> u64 {
    finish64((seed ^ M64.wrapping_mul(8) ^ mix64(word)).wrapping_mul(M64))
}

/// The seed that libmemcached gives both of its Murmur hashes.
fn length_seed(key: &[u8]) -> u32 {
    0xdead_beef_u32.wrapping_mul(short_len(key))
}

/// Lengths count modulo 2^32 in the originals.
#[allow(clippy::cast_possible_truncation, reason = "the originals truncate")]
fn short_len(key: &[u8]) -> u32 {
    key.len() as u32
}

/// MurmurHash2 with libmemcached's seed: its `murmur`, and twemproxy's.
pub(crate) fn murmur2(key: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = length_seed(key) ^ short_len(key);
    let (words, rest) = key.as_chunks::<4>();
    for word in words {
        let word = u32::from_le_bytes(*word).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ (word ^ (word >> 24)).wrapping_mul(M);
    }
    if !rest.is_empty() {
        hash = (hash ^ word32(rest)).wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}

/// MurmurHash3, x86, 32 bits, with libmemcached's seed: its `murmur3`.
pub(crate) fn murmur3(key: &[u8]) -> u32 {
    let scramble =
        |word: u32| word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let mut hash = length_seed(key);
    let (words, rest) = key.as_chunks::<4>();
    for word in words {
        hash ^= scramble(u32::from_le_bytes(*word));
        hash = hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    if !rest.is_empty() {
        hash ^= scramble(word32(rest));
    }
    hash ^= short_len(key);
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}
