//! Lookahead: hashes the next keys in the input and prefetches their memory before the first
//! lookup.
//!
//! A lookup waits for memory twice, for the table's line and for the item's. With several keys
//! available (a multiget, or pipelined requests) the waits overlap:
//!
//! ```text
//!     key 1 .. key n: hash, ask for the table line -> all: ask for item lines
//!         -> serve key 1 .. key n from what was seen
//! ```
//!
//! The scan guesses the positions of keys. A hash is used only for the exact bytes from which it
//! was computed, and the place at which an item was seen is checked again. So a wrong guess costs
//! time but never gives a wrong result. A plain `get` of one key and a plain `set` are not parsed a
//! second time.

use engine::{Key, Worker};
use proto::StoreMode;
use proto::text::Store;
use store::SlotHint;

use super::scan::{GET, Scan, Seen};

/// Keys in the lookahead: twice the number of misses that a core has in flight.
const KEYS_AHEAD: usize = 24;

/// A key seen ahead: its position, its hash, the place where its item was seen, and the request.
#[derive(Clone, Copy, Debug, Default)]
struct KeySeen {
    address: usize,
    len: usize,
    hash: u64,
    hint: SlotHint,
    seen: Seen,
}

/// A request seen ahead that needs no further parsing.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FastPath<'k> {
    /// `get <key>`
    Get {
        key: Key<'k>,
        /// Bytes from the start of the request to the end of the key.
        key_end: usize,
        /// Bytes of the whole request.
        len: usize,
    },
    /// `set <key> <flags> <exptime> <bytes>`
    Set {
        key: Key<'k>,
        store: Store<'k>,
        /// Bytes of the line.
        head: usize,
    },
}

/// The keys seen ahead and not yet requested. Valid for one call of `serve`, within which input
/// does not move.
#[derive(Debug, Default)]
pub(crate) struct Lookahead {
    keys: [KeySeen; KEYS_AHEAD],
    len: usize,
    next: usize,
}

/// The first keys of the connections that are served next.
#[derive(Debug, Default)]
pub(crate) struct FirstKeys {
    keys: [(u64, SlotHint); FIRST_KEYS],
    len: usize,
}

/// More than the event loop reads at one time.
const FIRST_KEYS: usize = 8;

impl FirstKeys {
    /// Prefetches the table's line of the first key in `input`.
    #[inline]
    pub(crate) fn add(&mut self, worker: &Worker, input: &[u8]) {
        let mut scan = Scan { rest: input, in_keys: false };
        if let Some(place) = self.keys.get_mut(self.len)
            && let Some(key) = scan.next(&mut Seen::Key)
        {
            let hash = worker.key(key).hash;
            *place = (hash, worker.section().prefetch_bucket(hash));
            self.len += 1;
        }
    }

    /// Prefetches the items' lines.
    #[inline]
    pub(crate) fn prepare(&mut self, worker: &Worker) {
        let section = worker.section();
        for &(hash, bucket) in &self.keys[..self.len] {
            section.prefetch_item(hash, bucket);
        }
        self.len = 0;
    }
}

impl KeySeen {
    #[inline]
    fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        Key { bytes, hash: self.hash, hint: self.hint }
    }
}

impl Lookahead {
    /// Forgets everything: the input has changed.
    #[inline]
    pub(crate) fn clear(&mut self) {
        (self.len, self.next) = (0, 0);
    }

    /// The next request starts at `input`: looks ahead if nothing was seen of it.
    #[inline]
    pub(crate) fn arrive(&mut self, worker: &Worker, input: &[u8]) {
        let begin = input.as_ptr().addr();
        while let Some(ahead) = self.keys[..self.len].get(self.next) {
            if ahead.address >= begin {
                return;
            }
            self.next += 1;
        }
        self.look_ahead(worker, input, false);
    }

    /// `bytes` with its hash: the one computed ahead, or a new one.
    #[inline]
    pub(crate) fn key<'k>(&mut self, worker: &Worker, bytes: &'k [u8]) -> Key<'k> {
        if let Some(ahead) = self.keys[..self.len].get(self.next)
            && ahead.address == bytes.as_ptr().addr()
            && ahead.len == bytes.len()
        {
            self.next += 1;
            return ahead.key(bytes);
        }
        worker.key(bytes)
    }

    /// The request at the start of `input`, if it was seen ahead as a whole.
    #[inline]
    pub(crate) fn fast_path<'k>(&mut self, input: &'k [u8]) -> Option<FastPath<'k>> {
        let ahead = self.keys[..self.len].get(self.next)?;
        if ahead.address != input.as_ptr().addr() + GET.len() {
            return None;
        }
        let key_end = GET.len() + ahead.len;
        let bytes = input.get(GET.len()..key_end)?;
        let request = match ahead.seen {
            Seen::LoneGet { end } => {
                FastPath::Get { key: ahead.key(bytes), key_end, len: key_end + end }
            }
            Seen::Set { flags, exptime, len, head } => {
                let exptime = i64::from(exptime);
                let (mode, noreply) = (StoreMode::Set, false);
                let (cas, lease) = (None, None);
                let store = Store { mode, key: bytes, flags, exptime, len, cas, lease, noreply };
                FastPath::Set { key: ahead.key(bytes), store, head }
            }
            Seen::Key | Seen::Stored => return None,
        };
        self.next += 1;
        Some(request)
    }

    /// The next key of a retrieval line that continues at `input`, and the bytes to its end, if it
    /// was seen ahead.
    #[inline]
    pub(crate) fn next_key<'k>(
        &mut self,
        worker: &Worker,
        input: &'k [u8],
    ) -> Option<(Key<'k>, usize)> {
        if self.next == self.len {
            self.look_ahead(worker, input, true);
        }
        let ahead = self.keys[..self.len].get(self.next)?;
        let spaces = ahead.address.wrapping_sub(input.as_ptr().addr());
        if spaces > usize::from(input.first() == Some(&b' ')) {
            return None;
        }
        let end = spaces + ahead.len;
        let bytes = input.get(spaces..end)?;
        self.next += 1;
        Some((ahead.key(bytes), end))
    }

    /// The place of the key after the next one: its header has arrived by now, and loading its
    /// value takes as long as copying two values.
    #[inline]
    pub(crate) fn soon(&self) -> SlotHint {
        self.keys[..self.len].get(self.next + 1).map_or_else(SlotHint::default, |soon| soon.hint)
    }

    /// Prefetches the memory of the keys in `input`. While one key is found and hashed, the table
    /// lines of those before it are being loaded. A single key gains nothing from this.
    fn look_ahead(&mut self, worker: &Worker, input: &[u8], in_keys: bool) {
        self.clear();
        let section = worker.section();
        let mut scan = Scan { rest: input, in_keys };
        for ahead in &mut self.keys {
            let Some(key) = scan.next(&mut ahead.seen) else { break };
            (ahead.address, ahead.len) = (key.as_ptr().addr(), key.len());
            ahead.hash = worker.key(key).hash;
            ahead.hint = section.prefetch_bucket(ahead.hash);
            self.len += 1;
        }
        if self.len < 2 {
            return;
        }
        let keys = &mut self.keys[..self.len];
        for ahead in &mut *keys {
            ahead.hint = section.prefetch_item(ahead.hash, ahead.hint);
        }
        for ahead in keys {
            if matches!(ahead.seen, Seen::Set { .. } | Seen::Stored) {
                section.prefetch_replaced(ahead.hash, ahead.hint);
            }
        }
    }
}
