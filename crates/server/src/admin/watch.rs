//! `watch`: a connection that is told what happens.
//!
//! ```text
//!     worker -> Reporter -> each interested watcher's buffer -> (waker) -> the watcher's own session -> its socket
//! ```
//!
//! A buffer is bounded. A watcher that reads too slowly loses lines, and is told how many by `skipped=<n>`; nobody waits for
//! it. While nobody watches, a request costs one look at a number that is read once a turn.

use std::io::Write;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use engine::{Miss, Verdict};
use net::{CloseReason, Flow, Input, ListenAddress, Output, Waker};
use proto::text::Words;
use proto::{reply, uri};
use store::{Item, Participant};

use crate::session::Worker;
use crate::session::state::{Session, State, Step};
use crate::session::value_in::{Finished, Job};

/// Watchers at one time, as in memcached.
const WATCHERS_MAX: usize = 20;

/// Bytes that a watcher's session takes out of its buffer at once.
const PART_BYTES: usize = 16 * 1024;

/// Kinds of events, as a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Events(u16);

impl Events {
    pub(crate) const FETCHERS: Self = Self(1);
    pub(crate) const MUTATIONS: Self = Self(2);
    pub(crate) const EVICTIONS: Self = Self(4);
    pub(crate) const CONNECTIONS: Self = Self(8);
    pub(crate) const DELETIONS: Self = Self(16);
    /// Known to memcached, and never happening here.
    const OTHERS: Self = Self(32);

    const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[inline]
    const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The events that the words name, fetchers if there are none; `None` if one is unknown.
    fn of(words: Words<'_>) -> Option<Self> {
        let mut events = Self::default();
        for word in words {
            events = events.with(match word {
                b"fetchers" => Self::FETCHERS,
                b"mutations" => Self::MUTATIONS,
                b"evictions" => Self::EVICTIONS,
                b"connevents" => Self::CONNECTIONS,
                b"deletions" => Self::DELETIONS,
                b"proxyreqs" | b"proxyevents" | b"proxyuser" | b"sysevents" | b"rawcmds" => {
                    Self::OTHERS
                }
                _ => return None,
            });
        }
        Some(if events == Self::default() { Self::FETCHERS } else { events })
    }
}

/// All watchers of a server.
#[derive(Debug)]
pub(crate) struct Watchers {
    queues: Mutex<Vec<Arc<Queue>>>,
    /// Everything that anybody watches.
    watched: AtomicU16,
    lines: AtomicU64,
    skipped: AtomicU64,
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

/// A watcher's session; leaves the list when it ends.
#[derive(Debug)]
pub(crate) struct Watching {
    watchers: Arc<Watchers>,
    queue: Arc<Queue>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut queues = self.watchers.lock();
        queues.retain(|queue| !Arc::ptr_eq(queue, &self.queue));
        self.watchers.note_watched(&queues);
    }
}

impl Watchers {
    /// No watchers yet; each will have a buffer of so many bytes.
    pub(crate) fn new(buffer_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            queues: Mutex::new(Vec::new()),
            watched: AtomicU16::new(0),
            lines: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            buffer_bytes,
        })
    }

    /// Watchers, lines written, lines skipped.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        let watchers = self.lock().len() as u64;
        (watchers, self.lines.load(Ordering::Relaxed), self.skipped.load(Ordering::Relaxed))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Queue>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_watched(&self, queues: &[Arc<Queue>]) {
        let watched = queues.iter().fold(Events::default(), |all, queue| all.with(queue.events));
        self.watched.store(watched.0, Ordering::Relaxed);
    }

    /// Adds a watcher; `None` when there are too many.
    fn add(self: &Arc<Self>, events: Events, waker: Option<Waker>) -> Option<Watching> {
        let mut queues = self.lock();
        if queues.len() >= WATCHERS_MAX {
            return None;
        }
        let queue = Arc::new(Queue { events, waker, pending: Mutex::default() });
        queues.push(Arc::clone(&queue));
        self.note_watched(&queues);
        Some(Watching { watchers: Arc::clone(self), queue })
    }

    /// Gives every watcher of `event` a line, which `write` completes behind its time and number.
    fn report(&self, event: Events, write: impl FnOnce(&mut Vec<u8>)) {
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
    /// False when there is no room.
    fn push(&self, line: &[u8], buffer_bytes: usize) -> bool {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if pending.bytes.len() + line.len() > buffer_bytes {
            pending.skipped += 1;
            return false;
        }
        let was_empty = pending.bytes.is_empty();
        if pending.skipped > 0 {
            let skipped = std::mem::take(&mut pending.skipped);
            let _ = writeln!(pending.bytes, "skipped={skipped}");
        }
        pending.bytes.extend_from_slice(line);
        if was_empty && let Some(waker) = &self.waker {
            waker.wake();
        }
        true
    }

    /// Moves a part of what is pending; false when there was nothing.
    fn take(&self, out: &mut Vec<u8>) -> bool {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let part = pending.bytes.len().min(PART_BYTES);
        out.extend(pending.bytes.drain(..part));
        if pending.bytes.is_empty() {
            pending.bytes = Vec::new();
        }
        part > 0
    }
}

/// A worker's side of it.
#[derive(Debug)]
pub(crate) struct Reporter {
    watchers: Arc<Watchers>,
    /// What was watched at the beginning of the turn.
    watched: Events,
}

impl Reporter {
    pub(crate) fn new(watchers: &Arc<Watchers>) -> Self {
        Self { watchers: Arc::clone(watchers), watched: Events::default() }
    }

    /// A turn begins: sees what is watched.
    pub(crate) fn turn(&mut self, participant: &Participant) {
        let watched = Events(self.watchers.watched.load(Ordering::Relaxed));
        if watched == self.watched {
            return;
        }
        let wants_evictions = watched.meets(Events::EVICTIONS);
        if wants_evictions != self.watched.meets(Events::EVICTIONS) {
            let watchers = Arc::clone(&self.watchers);
            participant.on_evict(if wants_evictions {
                Some(Box::new(move |item| report_eviction(&watchers, item)))
            } else {
                None
            });
        }
        self.watched = watched;
    }

    /// Somebody watches something.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.watched != Events::default()
    }

    /// Somebody watches this.
    #[inline]
    pub(crate) fn wants(&self, event: Events) -> bool {
        self.watched.meets(event)
    }

    /// A key was asked for.
    #[cold]
    pub(crate) fn fetched(&self, session: &Session, key: &[u8], found: Result<&Item<'_>, &Miss>) {
        self.watchers.report(Events::FETCHERS, |line| {
            line.extend_from_slice(b"type=item_get key=");
            uri::encode(key, line);
            let (status, class, size) = match found {
                Ok(item) => ("found", item.class(), item.value_len()),
                Err(Miss::Absent) => ("not_found", 0, 0),
                Err(Miss::Expired) => ("expired", 0, 0),
                Err(Miss::Flushed) => ("flushed", 0, 0),
            };
            let _ =
                write!(line, " status={status} clsid={class} cfd={} size={size}", session.peer.fd);
        });
    }

    /// A value was taken.
    #[cold]
    pub(crate) fn stored(&self, job: &Job<'_>, finished: Finished, ttl_secs: Option<u32>) {
        let Finished::Judged(stored) = finished else { return };
        self.watchers.report(Events::MUTATIONS, |line| {
            line.extend_from_slice(b"type=item_store key=");
            uri::encode(job.key.bytes, line);
            let status = match stored.verdict {
                Verdict::Exists => "exists",
                Verdict::NotFound => "not_found",
                Verdict::NotStored => "not_stored",
                Verdict::OutOfMemory => "no_memory",
                Verdict::Stored => "stored",
                Verdict::TooLarge => "too_large",
            };
            let _ = write!(
                line,
                " status={status} cmd={} ttl={} clsid={} cfd={} size={}",
                job.command(),
                ttl_secs.map_or(-1, i64::from),
                stored.class,
                job.fd,
                job.new.value_len
            );
        });
    }

    /// A key was deleted.
    #[cold]
    pub(crate) fn deleted(&self, session: &Session, key: &[u8], command: &str, class: u8) {
        self.watchers.report(Events::DELETIONS, |line| {
            line.extend_from_slice(b"type=deleted key=");
            uri::encode(key, line);
            let _ = write!(line, " cmd={command} clsid={class} cfd={} size=0", session.peer.fd);
        });
    }

    /// A connection came.
    pub(crate) fn opened(&self, session: &Session) {
        self.watchers.report(Events::CONNECTIONS, |line| {
            line.extend_from_slice(b"type=conn_new ");
            write_peer(line, session);
        });
    }

    /// The TLS of a connection is broken.
    pub(crate) fn tls_failed(&self, session: &Session, reason: &str) {
        self.watchers.report(Events::CONNECTIONS, |line| {
            line.extend_from_slice(b"type=conntlserr ");
            write_peer(line, session);
            line.extend_from_slice(b" reason=");
            uri::encode(reason.as_bytes(), line);
        });
    }

    /// A connection went.
    pub(crate) fn closed(&self, session: &Session, reason: CloseReason) {
        let reason = match reason {
            CloseReason::Eof | CloseReason::Service => "normal",
            CloseReason::Idle => "idle_timeout",
            CloseReason::Drain => "shutdown",
            CloseReason::InputOverflow
            | CloseReason::SlowClient
            | CloseReason::SocketError
            | CloseReason::Tls => "error",
        };
        self.watchers.report(Events::CONNECTIONS, |line| {
            line.extend_from_slice(b"type=conn_close ");
            write_peer(line, session);
            let _ = write!(line, " reason={reason}");
        });
    }
}

fn report_eviction(watchers: &Watchers, item: &Item<'_>) {
    watchers.report(Events::EVICTIONS, |line| {
        line.extend_from_slice(b"type=eviction key=");
        uri::encode(item.key(), line);
        let fetched = if item.is_fetched() { "yes" } else { "no" };
        let ttl = if item.deadline() == 0 { -1 } else { i64::from(item.deadline()) };
        let _ = write!(
            line,
            " fetch={fetched} ttl={ttl} la={} clsid={} size={}",
            item.idle_secs(),
            item.class(),
            item.total_bytes()
        );
    });
}

fn write_peer(line: &mut Vec<u8>, session: &Session) {
    let transport = match *session.peer.listener {
        ListenAddress::Tcp(..) => "tcp",
        ListenAddress::Udp(..) => "udp",
        ListenAddress::Unix(_) => "local",
    };
    let _ = match session.peer.remote {
        Some(remote) => write!(
            line,
            "rip={} rport={} transport={transport} cfd={}",
            remote.ip(),
            remote.port(),
            session.peer.fd
        ),
        None => write!(line, "rip=unix rport=0 transport={transport} cfd={}", session.peer.fd),
    };
}

impl Worker {
    pub(crate) fn watch_command(
        &mut self,
        session: &mut Session,
        words: Words<'_>,
        output: &mut Output<'_>,
    ) -> Step {
        let answer: &[u8] = if !self.shared.watch_enabled || session.is_datagram() {
            b"CLIENT_ERROR watch commands not allowed\r\n"
        } else if let Some(events) = Events::of(words) {
            match self.shared.watchers.add(events, output.waker()) {
                Some(watching) => {
                    session.state = State::Watching(Box::new(watching));
                    reply::OK
                }
                None => b"WATCHER_TOO_MANY log watcher limit reached\r\n",
            }
        } else {
            super::ERROR
        };
        output.buf().extend_from_slice(answer);
        Step::Next
    }

    /// Passes lines on. What a watcher sends is not listened to.
    pub(crate) fn go_on_watching(
        session: &mut Session,
        input: &mut Input<'_>,
        output: &mut Output<'_>,
    ) -> Step {
        let State::Watching(watching) = &mut session.state else { return Step::Next };
        input.consume(input.bytes().len());
        if watching.queue.take(output.buf()) {
            // Flushed here, since a watcher's lines are small and its wait is long.
            return if output.flush() { Step::Next } else { Step::Stop(Flow::Blocked) };
        }
        Step::Stop(Flow::NeedInput)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_buffer_skips_lines_and_says_so() {
        let watchers = Watchers::new(150);
        let watching = watchers.add(Events::MUTATIONS, None).unwrap();
        for _ in 0..5 {
            watchers.report(Events::MUTATIONS, |line| line.extend_from_slice(&[b'x'; 30]));
            watchers.report(Events::FETCHERS, |line| line.extend_from_slice(b"not watched"));
        }
        let mut first = Vec::new();
        assert!(watching.queue.take(&mut first));
        watchers.report(Events::MUTATIONS, |line| line.extend_from_slice(b"last"));
        let mut second = Vec::new();
        assert!(watching.queue.take(&mut second));
        let lines = first.split(|byte| *byte == b'\n').count() - 1;
        let second = String::from_utf8(second).unwrap();
        assert!(lines < 5, "{lines} lines fit into 150 bytes");
        assert!(second.starts_with(&format!("skipped={}\nts=", 5 - lines)), "{second}");
        assert!(!second.contains("not watched"));
    }

    #[test]
    fn a_watcher_that_ends_leaves_nothing_watched() {
        let watchers = Watchers::new(1000);
        let watching = watchers.add(Events::EVICTIONS, None);
        assert_eq!(watchers.watched.load(Ordering::Relaxed), Events::EVICTIONS.0);
        drop(watching);
        assert_eq!(watchers.watched.load(Ordering::Relaxed), 0);
        let all: Vec<_> = (0..WATCHERS_MAX).map(|_| watchers.add(Events::FETCHERS, None)).collect();
        assert!(all.iter().all(Option::is_some) && watchers.add(Events::FETCHERS, None).is_none());
    }
}
