//! Highest random weight over stable names: mcrouter's `Rendezvous` and `WeightedRendezvous`.
//!
//! A server's score for a key is a hash of both hashes; the highest score wins. A server that
//! leaves moves only its own keys.

use crate::murmur::murmur64a;

const NAME_SEED: u64 = 4_193_360_111;
const KEY_SEED: u64 = 2_718_281_828;

/// The hash of a server's name (mcrouter: its tag), made once for a pool.
pub(crate) fn name_hash(name: &[u8]) -> u64 {
    murmur64a(name, NAME_SEED)
}

/// CityHash's `Hash128to64`.
fn combine(upper: u64, lower: u64) -> u64 {
    const MUL: u64 = 0x9ddf_ea08_eb38_2d69;
    let a = (lower ^ upper).wrapping_mul(MUL);
    let b = (upper ^ a ^ (a >> 47)).wrapping_mul(MUL);
    (b ^ (b >> 47)).wrapping_mul(MUL)
}

/// The index of the highest score; the first of equals, and 0 for an empty pool.
pub(crate) fn rendezvous(key: &[u8], names: &[u64]) -> u32 {
    let key = murmur64a(key, KEY_SEED);
    let (mut best, mut index) = (0, 0);
    for (place, name) in (0..).zip(names) {
        let score = combine(*name, key);
        if score > best {
            (best, index) = (score, place);
        }
    }
    index
}

/// The indices of all tags, the highest score first, and the lower index first of equals.
/// mcrouter's `RendezvousPolicy` tries them in this order.
#[must_use]
pub fn rendezvous_order<T: AsRef<[u8]>>(key: &[u8], tags: &[T]) -> Vec<u32> {
    let key = murmur64a(key, KEY_SEED);
    let score = |tag: &T| combine(name_hash(tag.as_ref()), key);
    let mut places: Vec<(u64, u32)> = tags.iter().map(score).zip(0..).collect();
    places.sort_by_key(|(score, place)| (std::cmp::Reverse(*score), *place));
    places.into_iter().map(|(_, place)| place).collect()
}

/// The index of the highest weighted score, `weight / -ln(hash)` with the hash as a number within 0
/// and 1; the first of equals, and 0 for an empty pool.
pub(crate) fn weighted_rendezvous(key: &[u8], servers: &[(u64, f64)]) -> u32 {
    let key = murmur64a(key, KEY_SEED);
    let (mut best, mut index) = (0.0, 0);
    for (place, (name, weight)) in (0..).zip(servers) {
        let score = weight * (1.0 / -unit(combine(*name, key)).ln());
        if score > best {
            (best, index) = (score, place);
        }
    }
    index
}

/// The low 53 bits as a number from 0 to below 1.
fn unit(hash: u64) -> f64 {
    const BITS: u64 = 1 << 53;
    (hash % BITS) as f64 / BITS as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rendezvous_order_starts_with_the_winner_and_is_stable() {
        let tags = ["a", "b", "c", "d"];
        let names: Vec<u64> = tags.iter().map(|tag| name_hash(tag.as_bytes())).collect();
        for number in 0..100 {
            let key = format!("key{number}");
            let order = rendezvous_order(key.as_bytes(), &tags);
            assert_eq!(order.first(), Some(&rendezvous(key.as_bytes(), &names)));
            let without_last: Vec<u32> = order.into_iter().filter(|place| *place != 3).collect();
            assert_eq!(rendezvous_order(key.as_bytes(), &tags[..3]), without_last);
        }
    }
}
