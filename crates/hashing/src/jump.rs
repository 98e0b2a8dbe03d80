//! Jump consistent hash (Lamping and Veach, 2014), as memcached's proxy uses it.

/// The bucket of a 64-bit hash among `buckets`; 0 if there is at most one.
///
/// Buckets can be added and removed only at the end.
#[must_use]
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the published algorithm rounds down; a bucket it keeps is below the number of buckets"
)]
pub fn jump_hash(mut hash: u64, buckets: u32) -> u32 {
    let (mut bucket, mut next) = (0, 0_u64);
    while next < u64::from(buckets) {
        bucket = next;
        hash = hash.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        let stretch = (1_u64 << 31) as f64 / ((hash >> 33) + 1) as f64;
        next = ((bucket + 1) as f64 * stretch) as u64;
    }
    bucket as u32
}

/// memcached's proxy: XXH3 of the key with a seed, then [`jump_hash`].
pub(crate) fn jump(key: &[u8], seed: u64, buckets: u32) -> u32 {
    jump_hash(xxhash_rust::xxh3::xxh3_64_with_seed(key, seed), buckets)
}

/// The seed that memcached's proxy derives from its pool option `seed`, a text.
#[must_use]
pub fn seed_of(text: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(text)
}
