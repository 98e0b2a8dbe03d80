//! Key dumps: `lru_crawler metadump`, `mgdump`, `stats cachedump`.
//!
//! A dump is a walk over the store in steps of about a hundred chunks, at the pace at which the
//! client reads. An item that stays for the whole walk is shown once. An item that is added or
//! removed in the meantime may or may not be shown.

use proto::number::{parse_u32, write_i64, write_u64};
use proto::{base64, reply, uri};
use store::{Handle, Item, WalkCursor};

use crate::key_text;

/// Chunks checked in one step; each gives at most one line.
const STEP_CHUNKS: usize = 100;

/// The maximum size of a class's part of a `stats cachedump` reply, in bytes, as in memcached.
const CACHEDUMP_BYTES_MAX: usize = 2 << 20;

/// The format of each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `ITEM key [n b; exp s]`, limited in items and bytes.
    Cachedump { items_left: u64, bytes_left: usize },
    /// `key=... exp=...`
    Metadump,
    /// `mg key`
    Mgdump,
}

/// A dump in progress.
#[derive(Debug)]
pub(crate) struct Dump {
    kind: Kind,
    cursor: WalkCursor,
    /// The classes to walk after the cursor's.
    classes: Vec<u8>,
}

/// The progress of a dump in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The class has more chunks.
    MoreOfClass,
    /// The next class starts with the next step.
    NextClass,
    /// All items were shown.
    Ended,
}

impl Kind {
    /// A `stats cachedump` of `items` items; 0 shows as many as fit.
    pub(crate) fn cachedump(items: u32) -> Self {
        let items_left = if items == 0 { u64::MAX } else { u64::from(items) };
        Self::Cachedump { items_left, bytes_left: CACHEDUMP_BYTES_MAX }
    }
}

impl Dump {
    /// A dump of these classes, or of all classes if there are none.
    pub(crate) fn new(kind: Kind, mut classes: Vec<u8>) -> Self {
        let cursor = cursor_of(classes.pop());
        Self { kind, cursor, classes }
    }

    fn is_full(&self) -> bool {
        matches!(
            self.kind,
            Kind::Cachedump { items_left: 0, .. } | Kind::Cachedump { bytes_left: 0, .. }
        )
    }

    /// Walks over the next chunks and calls `write` for each linked item.
    pub(crate) fn step(
        &mut self,
        handle: &Handle,
        mut write: impl FnMut(&mut Self, &Item<'_>),
    ) -> Progress {
        let mut cursor = self.cursor;
        let has_more = handle.walk(&mut cursor, STEP_CHUNKS, |item| write(self, item));
        self.cursor = cursor;
        if has_more && !self.is_full() {
            return Progress::MoreOfClass;
        }
        if matches!(self.kind, Kind::Cachedump { items_left: 0, .. }) {
            return Progress::Ended;
        }
        let Some(class) = self.classes.pop() else { return Progress::Ended };
        if let Kind::Cachedump { bytes_left, .. } = &mut self.kind {
            *bytes_left = CACHEDUMP_BYTES_MAX;
        }
        self.cursor = cursor_of(Some(class));
        Progress::NextClass
    }

    /// The text before the first item.
    pub(crate) fn head(&self) -> &'static [u8] {
        match self.kind {
            Kind::Cachedump { .. } => b"",
            Kind::Metadump | Kind::Mgdump => reply::OK,
        }
    }

    /// The line that ends the dump.
    pub(crate) fn end(&self) -> &'static [u8] {
        match self.kind {
            Kind::Cachedump { .. } | Kind::Metadump => reply::END,
            Kind::Mgdump => b"EN\r\n",
        }
    }

    /// Appends the line of `item`.
    pub(crate) fn write(
        &mut self,
        item: &Item<'_>,
        clock: &WallClock,
        cas: u64,
        out: &mut Vec<u8>,
    ) {
        match &mut self.kind {
            Kind::Metadump => write_metadump(item, clock, cas, out),
            Kind::Mgdump => {
                out.extend_from_slice(b"mg ");
                if item.is_base64_key() || !key_text::is_word(item.key()) {
                    base64::encode(item.key(), out);
                    out.extend_from_slice(b" b");
                } else {
                    out.extend_from_slice(item.key());
                }
                out.extend_from_slice(reply::CRLF);
            }
            Kind::Cachedump { items_left, bytes_left } => {
                if *items_left == 0 || *bytes_left == 0 {
                    return;
                }
                let before = out.len();
                out.extend_from_slice(b"ITEM ");
                key_text::append(item.key(), out);
                out.extend_from_slice(b" [");
                write_u64(out, item.value_len() as u64);
                out.extend_from_slice(b" b; ");
                write_u64(out, clock.unix_deadline(item).unwrap_or(0));
                out.extend_from_slice(b" s]\r\n");
                *items_left -= 1;
                *bytes_left = bytes_left.saturating_sub(out.len() - before);
            }
        }
    }
}

/// The start of a walk over one class, or all.
fn cursor_of(class: Option<u8>) -> WalkCursor {
    let mut cursor = WalkCursor::default();
    cursor.class = class;
    cursor
}

/// Turns the store's seconds into Unix time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WallClock {
    /// Unix time of the store's second 0.
    pub(crate) zero_at_unix: u64,
    /// The store's present second.
    pub(crate) now_secs: u32,
}

impl WallClock {
    /// Unix time at which the item dies; `None`: never.
    fn unix_deadline(&self, item: &Item<'_>) -> Option<u64> {
        let deadline = item.deadline();
        (deadline != 0).then(|| self.zero_at_unix + u64::from(deadline))
    }
}

fn write_metadump(item: &Item<'_>, clock: &WallClock, cas: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"key=");
    uri::encode(item.key(), out);
    out.extend_from_slice(b" exp=");
    match clock.unix_deadline(item) {
        Some(unix) => write_u64(out, unix),
        None => write_i64(out, -1),
    }
    out.extend_from_slice(b" la=");
    write_u64(out, clock.zero_at_unix + u64::from(clock.now_secs.saturating_sub(item.idle_secs())));
    out.extend_from_slice(b" cas=");
    write_u64(out, cas);
    out.extend_from_slice(if item.is_fetched() { b" fetch=yes cls=" } else { b" fetch=no cls=" });
    write_u64(out, u64::from(item.class()));
    out.extend_from_slice(b" size=");
    write_u64(out, item.total_bytes() as u64);
    out.extend_from_slice(b" flags=");
    write_u64(out, u64::from(item.flags()));
    out.extend_from_slice(b" \n");
}

/// The classes that a dump names: `all` and `hash` (empty: every class), or numbers with commas.
/// `None` for other words.
pub(crate) fn classes(word: &[u8]) -> Option<Vec<u8>> {
    if matches!(word, b"all" | b"hash") {
        return Some(Vec::new());
    }
    let mut classes = Vec::new();
    for id in word.split(|byte| *byte == b',') {
        let class =
            parse_u32(id).and_then(|id| u8::try_from(id).ok()).filter(|class| *class > 0)?;
        if !classes.contains(&class) {
            classes.push(class);
        }
    }
    // Taken from the end.
    classes.reverse();
    Some(classes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_all_or_a_list() {
        assert_eq!(classes(b"all"), Some(vec![]));
        assert_eq!(classes(b"1,3,2,3"), Some(vec![2, 3, 1]));
        for refused in [&b""[..], b"0", b"256", b"1,", b"x"] {
            assert_eq!(classes(refused), None);
        }
    }
}
