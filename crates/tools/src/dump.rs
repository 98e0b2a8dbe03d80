//! A dump: all items of a server as a stream, and the restore of one.
//!
//! ```text
//! holdall-dump 1
//! key=user%3A17 exp=1795533000 flags=3 bytes=5
//! hello
//! END 1
//! ```
//!
//! One line per item, in the words of `lru_crawler metadump`, and its value. `exp` is in Unix time,
//! and -1 for an item that does not expire. The last line has the number of items, which reveals a
//! truncated dump. Values that must be renewed are left out.

use std::io::{BufRead, Read, Write};
use std::time::{Duration, Instant};

use crate::connection::{Connection, Error};
use crate::keys::{KeyDump, decoded, encoded};
use crate::values::{Answer, VALUE_BYTES_MAX, key_word, now_unix, read};

pub(crate) const FIRST_LINE: &str = "holdall-dump 1";

/// Requests sent before their replies are read.
const BATCH: usize = 64;

/// Bytes of text collected before a write: replies of small values are read without waiting for the
/// dump's reader.
const TEXT_BYTES: usize = 1 << 20;

/// The latest expiry time that memcached accepts: it treats a later one as past.
const EXPIRES_MAX: u64 = i32::MAX as u64;

/// The longest line of a dump, in bytes.
const LINE_BYTES_MAX: u64 = 4096;

/// Dumped items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dumped {
    /// In the dump.
    pub items: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// Named by the server, but gone when requested.
    pub gone: u64,
    /// Left out: values that a client must renew.
    pub stale: u64,
    /// Left out: Redis values that are not strings, and keys that no word of 250 bytes names.
    pub left: u64,
}

/// Writes all items whose keys start with `prefix`. `seen` receives the progress.
///
/// # Errors
///
/// Returns the errors of the server and of `out`.
pub fn dump(
    keys: KeyDump,
    values: &mut Connection,
    prefix: &[u8],
    out: &mut impl Write,
    mut seen: impl FnMut(&Dumped),
) -> Result<Dumped, Error> {
    let mut dumped = Dumped::default();
    writeln!(out, "{FIRST_LINE}").map_err(written)?;
    let mut batch = Vec::with_capacity(BATCH);
    for entry in keys {
        let key = entry?.key;
        if key.starts_with(prefix) {
            match key_word(&key) {
                Some(_) => batch.push(key),
                None => dumped.left += 1,
            }
        }
        if batch.len() == BATCH {
            write_batch(&mut batch, values, out, &mut dumped)?;
            seen(&dumped);
        }
    }
    write_batch(&mut batch, values, out, &mut dumped)?;
    writeln!(out, "END {}", dumped.items).and_then(|()| out.flush()).map_err(written)?;
    seen(&dumped);
    Ok(dumped)
}

pub(crate) fn written(error: std::io::Error) -> Error {
    Error::Dump(format!("it cannot be written: {error}"))
}

fn write_batch(
    batch: &mut Vec<Vec<u8>>,
    values: &mut Connection,
    out: &mut impl Write,
    dumped: &mut Dumped,
) -> Result<(), Error> {
    let mut text = Vec::new();
    read(batch, values, |key, answer| {
        match answer {
            Answer::Gone => dumped.gone += 1,
            Answer::Stale => dumped.stale += 1,
            Answer::Item { value, flags, expires } => {
                write_item(key, expires, flags, &value, &mut text).map_err(written)?;
                dumped.items += 1;
                dumped.bytes += value.len() as u64;
            }
        }
        if text.len() > TEXT_BYTES {
            out.write_all(&text).map_err(written)?;
            text.clear();
        }
        Ok(())
    })?;
    batch.clear();
    out.write_all(&text).map_err(written)
}

/// Adds an item to a dump.
pub(crate) fn write_item(
    key: &[u8],
    expires: Option<u64>,
    flags: u32,
    value: &[u8],
    out: &mut impl Write,
) -> std::io::Result<()> {
    let expires = expires.map_or_else(|| "-1".to_owned(), |at| at.to_string());
    let (key, bytes) = (encoded(key), value.len());
    writeln!(out, "key={key} exp={expires} flags={flags} bytes={bytes}")?;
    out.write_all(value)?;
    out.write_all(b"\n")
}

/// Restored items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Stored.
    pub items: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// Expired since the dump.
    pub expired: u64,
    /// Already present, with `add`.
    pub present: u64,
    /// Refused, mostly because they are larger than the server's limit.
    pub refused: u64,
    /// The reason for the first refusal.
    pub refusal: Option<String>,
}

impl Restored {
    fn refuse(&mut self, why: &str) {
        self.refused += 1;
        self.refusal.get_or_insert_with(|| why.to_owned());
    }
}

/// The way of storing items.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Maximum number of items per second; 0: as fast as the server accepts them.
    pub per_second: u64,
    /// Does not overwrite existing keys.
    pub add: bool,
}

/// Stores all items of a dump.
///
/// # Errors
///
/// An invalid or incomplete dump, after its earlier items were stored; the server's errors.
pub fn restore(
    dump: &mut impl BufRead,
    to: &mut Connection,
    pace: Pace,
    mut seen: impl FnMut(&Restored),
) -> Result<Restored, Error> {
    if line(dump)? != FIRST_LINE {
        return Err(Error::Dump(format!("its first line is not '{FIRST_LINE}'")));
    }
    let (mut restored, mut read) = (Restored::default(), 0_u64);
    let (mut requests, mut waiting) = (Vec::new(), Vec::new());
    let begin = Instant::now();
    loop {
        let head = line(dump)?;
        if let Some(count) = head.strip_prefix("END ") {
            store(&mut requests, &mut waiting, to, &mut restored)?;
            seen(&restored);
            if count.parse() != Ok(read) {
                return Err(Error::Dump(format!("it has {read} items and says {count}")));
            }
            return Ok(restored);
        }
        let item =
            Head::parse(&head).ok_or_else(|| Error::Dump(format!("unknown line: {head:?}")))?;
        let value = item.value(dump)?;
        read += 1;
        if item.expires.is_some_and(|at| at <= now_unix()) {
            restored.expired += 1;
            continue;
        }
        if !item.request(&value, pace.add, &mut requests) {
            restored.refuse("a key with spaces or control characters is too long");
            continue;
        }
        waiting.push(value.len() as u64);
        // Large values are not collected.
        if waiting.len() == BATCH || requests.len() > 1 << 20 {
            store(&mut requests, &mut waiting, to, &mut restored)?;
            seen(&restored);
            wait(begin, read, pace.per_second);
        }
    }
}

/// Waits until this number of items may have been stored.
fn wait(begin: Instant, items: u64, per_second: u64) {
    if per_second > 0 {
        let due = Duration::from_secs_f64(items as f64 / per_second as f64);
        std::thread::sleep(due.saturating_sub(begin.elapsed()));
    }
}

fn store(
    requests: &mut Vec<u8>,
    waiting: &mut Vec<u64>,
    to: &mut Connection,
    restored: &mut Restored,
) -> Result<(), Error> {
    to.send(requests)?;
    requests.clear();
    for bytes in waiting.drain(..) {
        let reply = to.line()?;
        match reply.as_str() {
            "HD" => {
                restored.items += 1;
                restored.bytes += bytes;
            }
            "NS" => restored.present += 1,
            // An answer that every key would get is not a refusal of one.
            reply if reply.starts_with("SERVER_ERROR") => restored.refuse(reply),
            reply => return Err(to.unexpected("ms", reply)),
        }
    }
    Ok(())
}

/// The line before a value.
struct Head {
    key: Vec<u8>,
    expires: Option<u64>,
    flags: u32,
    bytes: usize,
}

impl Head {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let mut word = |name: &str| words.next()?.strip_prefix(name);
        let key = decoded(word("key=")?).filter(|key| (1..=250).contains(&key.len()))?;
        let expires = match word("exp=")? {
            "-1" => None,
            at => Some(at.parse().ok()?),
        };
        let flags = word("flags=")?.parse().ok()?;
        let bytes = word("bytes=")?.parse().ok().filter(|bytes| *bytes <= VALUE_BYTES_MAX)?;
        words.next().is_none().then_some(Self { key, expires, flags, bytes })
    }

    fn value(&self, dump: &mut impl BufRead) -> Result<Vec<u8>, Error> {
        let mut value = Vec::new();
        let read = dump.take(self.bytes as u64 + 1).read_to_end(&mut value);
        read.map_err(|error| Error::Dump(format!("it cannot be read: {error}")))?;
        if value.len() != self.bytes + 1 || value.pop() != Some(b'\n') {
            return Err(Error::Dump("it ends within a value".to_owned()));
        }
        Ok(value)
    }

    /// Adds the request that stores it; false for a key that no word names.
    fn request(&self, value: &[u8], add: bool, out: &mut Vec<u8>) -> bool {
        let Some((word, flag)) = key_word(&self.key) else { return false };
        // Unix times are beyond thirty days, so servers accept them unchanged.
        let expires = self.expires.unwrap_or(0).min(EXPIRES_MAX);
        let mode = if add { " ME" } else { "" };
        out.extend_from_slice(b"ms ");
        out.extend_from_slice(&word);
        let line = format!(" {}{flag} T{expires} F{}{mode}\r\n", value.len(), self.flags);
        out.extend_from_slice(line.as_bytes());
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
        true
    }
}

fn line(dump: &mut impl BufRead) -> Result<String, Error> {
    let mut line = String::new();
    let read = dump.take(LINE_BYTES_MAX).read_line(&mut line);
    read.map_err(|error| Error::Dump(format!("it cannot be read: {error}")))?;
    match line.strip_suffix('\n') {
        Some(line) => Ok(line.to_owned()),
        None => Err(Error::Dump("it was cut short: its last line is missing".to_owned())),
    }
}
