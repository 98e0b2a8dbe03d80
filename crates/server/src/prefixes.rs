//! `stats detail`: counts of requests for keys with a common prefix.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use proto::number::write_u64;
use proto::reply;

use crate::key_text;

/// The maximum number of counted prefixes, so that invented keys cannot fill the memory. Later ones
/// are not counted.
const PREFIXES_MAX: usize = 4096;

/// Counts by prefix, if this is switched on.
#[derive(Debug)]
pub(crate) struct Prefixes {
    delimiter: u8,
    is_on: AtomicBool,
    counts: Mutex<BTreeMap<Box<[u8]>, Counts>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    gets: u64,
    hits: u64,
    sets: u64,
    deletes: u64,
}

/// The kind of request that is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// A key was deleted, or not found.
    Delete,
    /// A key was requested.
    Get {
        /// It was found.
        is_hit: bool,
    },
    /// A value was stored.
    Set,
}

impl Prefixes {
    pub(crate) fn new(delimiter: u8, is_on: bool) -> Self {
        Self { delimiter, is_on: AtomicBool::new(is_on), counts: Mutex::new(BTreeMap::new()) }
    }

    /// Relaxed: a worker that sees the switch late counts a few keys more or fewer.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    pub(crate) fn switch(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    /// Counts for the prefix of `key`, if this is switched on.
    #[inline]
    pub(crate) fn count(&self, key: &[u8], kind: Kind) {
        if self.is_on() {
            self.add(key, kind);
        }
    }

    /// The prefix is the part before the first delimiter. A key without one is not counted.
    fn add(&self, key: &[u8], kind: Kind) {
        let Some(end) = key.iter().position(|byte| *byte == self.delimiter) else { return };
        let prefix = &key[..end];
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if !counts.contains_key(prefix) {
            if counts.len() == PREFIXES_MAX {
                return;
            }
            counts.insert(prefix.into(), Counts::default());
        }
        let Some(counts) = counts.get_mut(prefix) else { return };
        match kind {
            Kind::Delete => counts.deletes += 1,
            Kind::Get { is_hit } => {
                counts.gets += 1;
                counts.hits += u64::from(is_hit);
            }
            Kind::Set => counts.sets += 1,
        }
    }

    /// Appends the lines of `stats detail dump`.
    pub(crate) fn dump(&self, out: &mut Vec<u8>) {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        for (prefix, counts) in counts.iter() {
            out.extend_from_slice(b"PREFIX ");
            key_text::append(prefix, out);
            let Counts { gets, hits, sets, deletes } = *counts;
            for (name, count) in
                [(" get ", gets), (" hit ", hits), (" set ", sets), (" del ", deletes)]
            {
                out.extend_from_slice(name.as_bytes());
                write_u64(out, count);
            }
            out.extend_from_slice(reply::CRLF);
        }
        out.extend_from_slice(reply::END);
    }

    /// Clears all counts (`stats reset`).
    pub(crate) fn reset(&self) {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_counted_and_bounded() {
        let prefixes = Prefixes::new(b':', true);
        prefixes.count(b"user:1", Kind::Get { is_hit: true });
        prefixes.count(b"user:2", Kind::Get { is_hit: false });
        prefixes.count(b"user:2", Kind::Set);
        prefixes.count(b"plain", Kind::Set);
        let mut out = Vec::new();
        prefixes.dump(&mut out);
        assert_eq!(out, b"PREFIX user get 2 hit 1 set 1 del 0\r\nEND\r\n");
        for number in 0..2 * PREFIXES_MAX {
            prefixes.count(format!("{number}:x").as_bytes(), Kind::Delete);
        }
        assert_eq!(prefixes.counts.lock().unwrap().len(), PREFIXES_MAX);
    }
}
