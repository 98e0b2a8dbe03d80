//! Watchers: connections that receive a line for each event.
//!
//! A watcher's buffer is bounded. A slow reader loses lines, and receives their number in
//! `skipped=<n>`; nothing waits for it. Without watchers, a request costs one check of a number
//! that is read once per turn.
//!
//! Lines and words are memcached's (`doc/protocol.txt`, "Watchers").

use std::io::Write;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use net::{Flow, Input, Output, Waker};

/// Maximum number of watchers, as in memcached.
pub const WATCHERS_MAX: usize = 20;

/// Bytes that a watcher's session takes from its buffer at once.
const PART_BYTES: usize = 16 * 1024;

/// Parts that a watcher's session sends before the other connections get their turn.
const PARTS_PER_TURN: usize = 4;

/// Kinds of events, as a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events(u16);

impl Events {
    /// Reads of items.
    pub const FETCHERS: Self = Self(1);
    /// Stores.
    pub const MUTATIONS: Self = Self(2);
    /// Items evicted for others.
    pub const EVICTIONS: Self = Self(4);
    /// Connections that open and close.
    pub const CONNECTIONS: Self = Self(8);
    /// Deletes.
    pub const DELETIONS: Self = Self(16);
    /// Requests forwarded by a proxy.
    pub const PROXY_REQUESTS: Self = Self(32);
    /// Known to memcached, but never reported here.
    const OTHERS: Self = Self(64);

    const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True if they have any in common.
    #[inline]
    #[must_use]
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The events of these words, `default` if there are none; `None` if one is unknown.
    #[must_use]
    pub fn of<'a>(words: impl Iterator<Item = &'a [u8]>, default: Self) -> Option<Self> {
        let mut events = Self::default();
        for word in words {
            events = events.with(match word {
                b"fetchers" => Self::FETCHERS,
                b"mutations" => Self::MUTATIONS,
                b"evictions" => Self::EVICTIONS,
                b"connevents" => Self::CONNECTIONS,
                b"deletions" => Self::DELETIONS,
                b"proxyreqs" => Self::PROXY_REQUESTS,
                b"proxyevents" | b"proxyuser" | b"sysevents" | b"rawcmds" => Self::OTHERS,
                _ => return None,
            });
        }
        Some(if events == Self::default() { default } else { events })
    }
}

/// All watchers of a program.
#[derive(Debug)]
pub struct Watchers {
    queues: Mutex<Vec<Arc<Queue>>>,
    /// The union of all watched events.
    watched: AtomicU16,
    lines: AtomicU64,
    skipped: AtomicU64,
    /// Lines and skipped ones at the last reset of the counts.
    at_reset: [AtomicU64; 2],
    buffer_bytes: usize,
}

/// One watcher's lines.
#[derive(Debug)]
struct Queue {
    events: Events,
    waker: Option<Waker>,
    pending: Mutex<Pending>,
}

#[derive(Debug, Default)]
struct Pending {
    bytes: Vec<u8>,
    skipped: u64,
}

impl Pending {
    fn report_skipped(&mut self, out: &mut Vec<u8>) {
        let skipped = std::mem::take(&mut self.skipped);
        if skipped > 0 {
            // Writing into a vector does not fail.
            let _ = writeln!(out, "skipped={skipped}");
        }
    }
}

/// A watcher's session; it leaves the list when it ends.
#[derive(Debug)]
pub struct Watching {
    watchers: Arc<Watchers>,
    queue: Arc<Queue>,
}

impl Watching {
    /// Sends a bounded part of the pending lines, so that a watcher which reads everything at once
    /// gets no more of the worker's time than others. Input from a watcher is ignored.
    pub fn serve(&self, input: &mut Input<'_>, output: &mut Output<'_>) -> Flow {
        input.consume(input.bytes().len());
        for _ in 0..PARTS_PER_TURN {
            if !self.take(output.buf()) {
                return Flow::NeedInput;
            }
            // Flushed here, so that a watcher that does not read gets one part.
            if !output.flush() {
                return Flow::Blocked;
            }
        }
        Flow::Yield
    }

    /// Moves a part of the pending lines to `out`; false if there were none.
    fn take(&self, out: &mut Vec<u8>) -> bool {
        self.queue.take(out)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut queues = self.watchers.lock();
        queues.retain(|queue| !Arc::ptr_eq(queue, &self.queue));
        self.watchers.note_watched(&queues);
    }
}

impl Watchers {
    /// No watchers yet; each will have a buffer of `buffer_bytes`.
    #[must_use]
    pub fn new(buffer_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            queues: Mutex::new(Vec::new()),
            watched: AtomicU16::new(0),
            lines: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            at_reset: Default::default(),
            buffer_bytes,
        })
    }

    /// Watchers, and the lines written and skipped since the last reset.
    #[must_use]
    pub fn counts(&self) -> (u64, u64, u64) {
        let watchers = self.lock().len() as u64;
        // Relaxed, here and below: numbers for people.
        let since = |count: &AtomicU64, base: &AtomicU64| {
            count.load(Ordering::Relaxed).saturating_sub(base.load(Ordering::Relaxed))
        };
        let [lines, skipped] = &self.at_reset;
        (watchers, since(&self.lines, lines), since(&self.skipped, skipped))
    }

    /// Counts lines from zero again. Their numbers continue.
    pub fn reset_counts(&self) {
        for (count, base) in [&self.lines, &self.skipped].into_iter().zip(&self.at_reset) {
            base.store(count.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// The union of all watched events.
    #[inline]
    #[must_use]
    pub fn watched(&self) -> Events {
        // Relaxed: a turn that sees it late reports a turn less.
        Events(self.watched.load(Ordering::Relaxed))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Queue>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_watched(&self, queues: &[Arc<Queue>]) {
        let watched = queues.iter().fold(Events::default(), |all, queue| all.with(queue.events));
        self.watched.store(watched.0, Ordering::Relaxed);
    }

    /// Adds a watcher; `None` when there are too many.
    pub fn add(self: &Arc<Self>, events: Events, waker: Option<Waker>) -> Option<Watching> {
        let mut queues = self.lock();
        if queues.len() >= WATCHERS_MAX {
            return None;
        }
        let queue = Arc::new(Queue { events, waker, pending: Mutex::default() });
        queues.push(Arc::clone(&queue));
        self.note_watched(&queues);
        Some(Watching { watchers: Arc::clone(self), queue })
    }

    /// Adds a line for every watcher of `event`, which `write` completes after its time and number.
    pub fn report(&self, event: Events, write: impl FnOnce(&mut Vec<u8>)) {
        let queues = self.lock();
        if !queues.iter().any(|queue| queue.events.meets(event)) {
            return;
        }
        let number = self.lines.fetch_add(1, Ordering::Relaxed) + 1;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut line = Vec::with_capacity(128);
        // Writing into a vector does not fail.
        let _ = write!(line, "ts={}.{:06} gid={number} ", now.as_secs(), now.subsec_micros());
        write(&mut line);
        line.push(b'\n');
        for queue in queues.iter().filter(|queue| queue.events.meets(event)) {
            if !queue.push(&line, self.buffer_bytes) {
                self.skipped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl Queue {
    /// False if there is no room.
    fn push(&self, line: &[u8], buffer_bytes: usize) -> bool {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if pending.bytes.len() + line.len() > buffer_bytes {
            pending.skipped += 1;
            return false;
        }
        let was_empty = pending.bytes.is_empty();
        if pending.skipped > 0 {
            let mut bytes = std::mem::take(&mut pending.bytes);
            pending.report_skipped(&mut bytes);
            pending.bytes = bytes;
        }
        pending.bytes.extend_from_slice(line);
        if was_empty && let Some(waker) = &self.waker {
            waker.wake();
        }
        true
    }

    /// Moves a part of the pending lines; false if there were none.
    fn take(&self, out: &mut Vec<u8>) -> bool {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let part = pending.bytes.len().min(PART_BYTES);
        out.extend(pending.bytes.drain(..part));
        if pending.bytes.is_empty() {
            pending.bytes = Vec::new();
            // The next event may be long in coming.
            pending.report_skipped(out);
        }
        part > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_buffer_skips_lines_and_reports_their_number() {
        let watchers = Watchers::new(150);
        let watching = watchers.add(Events::MUTATIONS, None).unwrap();
        for _ in 0..5 {
            watchers.report(Events::MUTATIONS, |line| line.extend_from_slice(&[b'x'; 30]));
            watchers.report(Events::FETCHERS, |line| line.extend_from_slice(b"not watched"));
        }
        let mut out = Vec::new();
        assert!(watching.take(&mut out));
        let first = String::from_utf8(std::mem::take(&mut out)).unwrap();
        let lines = first.lines().filter(|line| line.starts_with("ts=")).count();
        assert!(lines < 5, "{lines} lines fit into 150 bytes");
        assert!(first.ends_with(&format!("x\nskipped={}\n", 5 - lines)), "{first}");
        watchers.report(Events::MUTATIONS, |line| line.extend_from_slice(b"last"));
        assert!(watching.take(&mut out) && !watching.take(&mut out));
        let second = String::from_utf8(out).unwrap();
        assert!(second.starts_with("ts=") && second.ends_with("last\n"), "{second}");
        assert!(!first.contains("not watched") && !second.contains("not watched"));
    }

    #[test]
    fn a_dropped_watcher_leaves_nothing_watched() {
        let watchers = Watchers::new(1000);
        let watching = watchers.add(Events::EVICTIONS, None);
        assert_eq!(watchers.watched(), Events::EVICTIONS);
        drop(watching);
        assert_eq!(watchers.watched(), Events::default());
        let all: Vec<_> = (0..WATCHERS_MAX).map(|_| watchers.add(Events::FETCHERS, None)).collect();
        assert!(all.iter().all(Option::is_some) && watchers.add(Events::FETCHERS, None).is_none());
    }
}
