//! Keys and stores for the benchmarks.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "a benchmark stops where it fails")]

use store::{Change, Handle, NewItem};

/// The name of a key.
pub fn key(number: u64) -> [u8; 16] {
    let mut key = *b"key-000000000000";
    let mut rest = number;
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest % 10).unwrap();
        rest /= 10;
    }
    key
}

/// Stores a value of `BYTES` bytes under a key.
pub fn set<const BYTES: usize>(me: &Handle, number: u64) {
    let key = key(number);
    let new = NewItem {
        key: &key,
        flags: 0,
        deadline: 0,
        value_len: BYTES,
        base64_key: false,
        has_cas: false,
    };
    let mut draft = me.draft(new).unwrap();
    draft.push(&[b'v'; BYTES]).unwrap();
    me.section().update(me.store().hash(&key), &key, |_| Change::Put { draft, cas: None });
}
