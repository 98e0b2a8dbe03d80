//! Keys of a run, the values that clients store under them, and what was seen of each.

use testkit::Rng;
use testkit::history::Event;

/// One command on one key, as a client saw it.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) key: usize,
    pub(super) event: Event,
}

/// What is stored under a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Numbers, which `incr` and `decr` change.
    Number,
    /// Short texts, which `append` and `prepend` make longer.
    Text,
    /// Anything up to the largest value: what fills the memory.
    Bytes,
    /// The same sizes, with a deadline now and then. Workers read the clock at the beginnings of
    /// their turns, so one can find an item that is expired for another.
    Mortal,
}

const NUMBERS: usize = 3;
const TEXTS: usize = 3;
const FILLERS: usize = 110;
const MORTALS: usize = 40;
const KEYS: usize = NUMBERS + TEXTS + FILLERS + MORTALS;

/// Most bytes of a value: a little less than the largest item.
const VALUE_BYTES_MAX: usize = 200_000;

/// A key that several clients use at once: a third of all picks are of the first two kinds.
pub(super) fn pick(rng: &mut Rng) -> usize {
    if rng.one_in(3) {
        rng.below(NUMBERS + TEXTS)
    } else {
        NUMBERS + TEXTS + rng.below(FILLERS + MORTALS)
    }
}

/// The kind of a key.
pub(super) fn kind(key: usize) -> Kind {
    match key {
        0..NUMBERS => Kind::Number,
        key if key < NUMBERS + TEXTS => Kind::Text,
        key if key < NUMBERS + TEXTS + FILLERS => Kind::Bytes,
        _ => Kind::Mortal,
    }
}

/// The beginning of one name or of several, and their keys.
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
        Kind::Text => format!("<{serial}>").into_bytes(),
        Kind::Bytes | Kind::Mortal => {
            let len = match rng.below(10) {
                0..=5 => 1 + rng.below(8_000),
                6..=8 => 8_000 + rng.below(50_000),
                _ => 58_000 + rng.below(VALUE_BYTES_MAX - 58_000),
            };
            let unit = format!("<{key} {serial}>").into_bytes();
            unit.iter().copied().cycle().take(len.max(unit.len())).collect()
        }
    }
}
