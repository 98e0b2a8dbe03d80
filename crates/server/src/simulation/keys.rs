//! Keys of a run, the values that clients store under them, and the observations of each.

use testkit::Rng;
use testkit::history::Event;

/// One command on one key, as a client saw it.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) key: usize,
    pub(super) event: Event,
}

/// The kind of values under a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Numbers, which `incr` and `decr` change.
    Number,
    /// Short texts, which `append` and `prepend` make longer.
    Text,
    /// Short texts, which clients of the meta protocol mark as stale and win.
    Marked,
    /// Items of one size, which are evicted in the order of their use.
    Ranked,
    /// Values up to the largest, which fill the memory.
    Bytes,
    /// The same sizes, sometimes with a deadline. Workers read the clock when their turns start, so
    /// one can find an item that is expired for another.
    Mortal,
}

const NUMBERS: usize = 3;
const TEXTS: usize = 3;
const MARKED: usize = 3;
const RANKED: usize = 80;
const FILLERS: usize = 110;
const MORTALS: usize = 40;
const SHARED: usize = NUMBERS + TEXTS + MARKED;
const KEYS: usize = SHARED + RANKED + FILLERS + MORTALS;

/// Bytes of a value of [`Kind::Ranked`].
const RANKED_BYTES: usize = 3000;

/// The maximum bytes of a value: a little less than the largest item.
const VALUE_BYTES_MAX: usize = 200_000;

/// A key that several clients use at once: a third of all picks are of the first three kinds, and a
/// third are of one size.
pub(super) fn pick(rng: &mut Rng) -> usize {
    match rng.below(3) {
        0 => rng.below(SHARED),
        1 => SHARED + rng.below(RANKED),
        _ => SHARED + RANKED + rng.below(FILLERS + MORTALS),
    }
}

/// The kind of a key.
pub(super) fn kind(key: usize) -> Kind {
    const TEXTS_END: usize = NUMBERS + TEXTS;
    const RANKED_END: usize = SHARED + RANKED;
    const FILLERS_END: usize = RANKED_END + FILLERS;
    match key {
        0..NUMBERS => Kind::Number,
        NUMBERS..TEXTS_END => Kind::Text,
        TEXTS_END..SHARED => Kind::Marked,
        SHARED..RANKED_END => Kind::Ranked,
        RANKED_END..FILLERS_END => Kind::Bytes,
        _ => Kind::Mortal,
    }
}

/// The start of one name or of several, and their keys.
pub(super) fn pick_prefix(rng: &mut Rng) -> (String, Vec<usize>) {
    let prefix = rng.pick(&["key:", "key:1", "key:4", "key:14"]).to_string();
    let keys = (0..KEYS).filter(|key| name(*key).starts_with(&prefix));
    let keys = keys.collect();
    (prefix, keys)
}

/// The name of a key on the wire.
pub(super) fn name(key: usize) -> String {
    format!("key:{key}")
}

/// The key of a name.
pub(super) fn of_name(name: &[u8]) -> usize {
    let number = name.strip_prefix(b"key:").and_then(|digits| std::str::from_utf8(digits).ok());
    number.and_then(|digits| digits.parse().ok()).expect("a key of this run")
}

/// A value for `key` that no other request stores: `serial` is the request's own.
pub(super) fn value(rng: &mut Rng, key: usize, serial: u64) -> Vec<u8> {
    match kind(key) {
        Kind::Number => (serial * 1000).to_string().into_bytes(),
        Kind::Marked | Kind::Text => format!("<{serial}>").into_bytes(),
        Kind::Ranked => repeated(key, serial, RANKED_BYTES),
        Kind::Bytes | Kind::Mortal => {
            let len = match rng.below(10) {
                0..=5 => 1 + rng.below(8_000),
                6..=8 => 8_000 + rng.below(50_000),
                _ => 58_000 + rng.below(VALUE_BYTES_MAX - 58_000),
            };
            repeated(key, serial, len)
        }
    }
}

fn repeated(key: usize, serial: u64, len: usize) -> Vec<u8> {
    let unit = format!("<{key} {serial}>").into_bytes();
    unit.iter().copied().cycle().take(len.max(unit.len())).collect()
}
