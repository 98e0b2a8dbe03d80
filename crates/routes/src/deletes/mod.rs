//! Failed deletes: kept in a spool on disk, and replayed in order when their server is back.
//!
//! ```text
//!     DestinationRoute --failed delete--> inbox -> spooler's thread -> Spool (disk)
//!     task, NOT_FOUND  <---- mailbox <-----------+        | oldest first, a window at a time
//!                                                         v
//!                                     the spooler's own Upstream -> server -> acknowledge
//! ```
//!
//! One thread owns the spool and the replay connections, so a slow disk or a long backlog delays
//! only the deletes that wait for it. Deletes that arrive during a write are written together: one
//! write per server commits the group, and one fsync if that is configured.
//!
//! # Why a newer delete may overtake
//!
//! While old deletes are replayed, new ones for the same server are sent directly. Deletes only
//! remove: for any two of them, of one key or of two, both orders leave the same keys absent. The
//! invariant is that the server executes each acknowledged delete at least once, not before it was
//! issued, and that the record stays until then. Overtaking breaks neither part. A repetition does
//! not either: it removes a value stored in the meantime, which causes a miss. (A fill that
//! overtakes a delete is a different problem, which leases solve. A replay comes later than the
//! delete that it repeats, so it removes such fills rather than letting them pass.)
//!
//! # Refusals of this program's own
//!
//! A server gets only commands that it is known to accept (`upstream`). It has not refused the
//! others: such a delete is sent as the plain `delete` of its key. If that is not enough (a key
//! that no line holds, a flush), the delete stays in the spool until its server accepts it.
//!
//! A server that executed a delete, and refused only its hold-off, answers with an error of its own
//! ([`Outcome::OnlyDeleted`](upstream::Outcome::OnlyDeleted)). This delete is done.
//!
//! # Deletes that are dropped
//!
//! Deletes that became too old, or that the disk lost, leave a flush behind the server's other
//! deletes. The server's values may be any of those that they were meant to delete.
//!
//! # Other routers
//!
//! An unreachable server is marked on other servers of its pool, or of other pools if it is alone
//! (see `marks`). Routers that see the mark request no values from it until the deletes are
//! executed.
//!
//! # Servers of which one copies the other
//!
//! A cold cluster's server must not execute a delete for the last time before the warm one, whose
//! values are copied to it. Such deletes are kept under both names (`warm>cold`). A window of them
//! goes to the first server; those that it has executed go to the second.

mod import;
mod marks;
#[cfg(test)]
mod marks_simulation;
mod replay;
#[cfg(test)]
mod simulation;
mod spooler;
mod unkept;

use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use spool::Spool;

use upstream::{Address, Command, Registry, Request, Settings, Ticket, Wake};
use upstream::{is_sendable, write_command};

/// Maximum bytes of deletes that wait to be written; further deletes are refused.
const INBOX_BYTES_MAX: usize = 16 << 20;

/// A server to which deletes may be replayed.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Its name in the spool.
    pub name: String,
    /// Its address.
    pub address: Address,
    /// The settings for its connections.
    pub settings: Settings,
    /// Names of the servers that keep the mark of its pending deletes: of its pools, unless it is
    /// alone there.
    pub peers: Vec<String>,
}

/// Counts of failed deletes since the start, except for the first two and the last two.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DeleteCounts {
    /// Deletes that wait for their servers.
    pub pending: u64,
    /// Bytes of these deletes on disk.
    pub bytes: u64,
    /// Deletes that were kept.
    pub kept: u64,
    /// Deletes that could not be kept. Their clients received an error.
    pub failed: u64,
    /// Deletes that servers have executed later.
    pub replayed: u64,
    /// Deletes that servers refused permanently (`CLIENT_ERROR`), and unreadable records.
    pub refused: u64,
    /// Deletes that became too old and were dropped. Their server is flushed.
    pub expired: u64,
    /// Deletes that could no longer be read from the disk. Their server is flushed.
    pub lost: u64,
    /// Servers that a router of the fleet currently marks because it keeps deletes for them.
    pub marked: u64,
    /// Servers whose mark no other server can currently keep.
    pub unmarkable: u64,
}

#[derive(Debug, Default)]
struct Counters {
    pending: AtomicU64,
    bytes: AtomicU64,
    kept: AtomicU64,
    failed: AtomicU64,
    replayed: AtomicU64,
    refused: AtomicU64,
    expired: AtomicU64,
    lost: AtomicU64,
    marked: AtomicU64,
    unmarkable: AtomicU64,
}

/// A delete on its way to the spool.
#[derive(Debug)]
struct Kept {
    destination: Arc<str>,
    record: Vec<u8>,
    mailbox: Arc<Mailbox>,
    ticket: Ticket,
}

/// One worker's answers from the spooler.
#[derive(Debug)]
pub(crate) struct Mailbox {
    done: Mutex<Vec<(Ticket, bool)>>,
    wake: Wake,
}

#[derive(Debug, Default)]
struct Inbox {
    kept: Vec<Kept>,
    bytes: usize,
    /// The servers of new configurations, each with a channel that reports when they are known.
    targets: Vec<(Vec<Target>, Sender<()>)>,
    is_ending: bool,
}

#[derive(Debug)]
struct Shared {
    inbox: Mutex<Inbox>,
    wake: Wake,
    counters: Counters,
}

/// A worker's handle of the spooler.
#[derive(Clone, Debug)]
pub struct Deletes {
    shared: Arc<Shared>,
}

/// The spooler's thread. Dropping it ends the thread after it has written all deletes it received.
#[derive(Debug)]
pub struct Spooler {
    deletes: Deletes,
    thread: Option<JoinHandle<()>>,
}

impl Spooler {
    /// Starts the thread. On return, the pending deletes of `targets` are known. `worker` is a
    /// number that no other worker of `registry` has. `log` takes log lines. The spooler takes over
    /// mcrouter's files of failed deletes below `import`. With `holds_gets`, gets of a server fail
    /// with `Failure::TryAgain` until its deletes are executed: those of this router, and those of
    /// routers that have marked it.
    ///
    /// # Errors
    ///
    /// If no descriptor or thread is available.
    pub fn start(
        spool: Spool,
        import: Option<PathBuf>,
        registry: Registry,
        worker: u32,
        holds_gets: bool,
        targets: Vec<Target>,
        log: impl Fn(&str) + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            inbox: Mutex::default(),
            wake: Wake::new()?,
            counters: Counters::default(),
        });
        let (started, start) = mpsc::sync_channel(1);
        let theirs = Arc::clone(&shared);
        let make =
            move || spooler::Work::new(spool, import, registry, worker, holds_gets, theirs, log);
        let work = move || match make() {
            Ok(mut work) => {
                work.begin(targets);
                // The receiver is waiting.
                let _ = started.send(Ok(()));
                work.run();
            }
            Err(error) => drop(started.send(Err(error))),
        };
        let thread = thread::Builder::new().name("spooler".to_owned()).spawn(work)?;
        start.recv().unwrap_or_else(|_| Err(io::Error::other("the thread has ended")))?;
        Ok(Self { deletes: Deletes { shared }, thread: Some(thread) })
    }

    /// The handle for workers.
    #[must_use]
    pub fn deletes(&self) -> &Deletes {
        &self.deletes
    }
}

impl Drop for Spooler {
    fn drop(&mut self) {
        self.deletes.shared.inbox().is_ending = true;
        self.deletes.shared.wake.wake();
        if let Some(thread) = self.thread.take() {
            // The thread itself has reported its panic.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deletes {
    /// Sets the servers in use. Their pending deletes are replayed; deletes for other servers wait.
    /// On return, it is known which of them have pending deletes, so call it before sending
    /// requests to them.
    pub fn set_targets(&self, targets: Vec<Target>) {
        let (tell, known) = mpsc::channel();
        {
            let mut inbox = self.shared.inbox();
            if inbox.is_ending {
                return;
            }
            inbox.targets.push((targets, tell));
        }
        self.shared.wake.wake();
        // An error means that the thread has ended.
        let _ = known.recv();
    }

    /// The counts of failed deletes.
    #[must_use]
    pub fn counts(&self) -> DeleteCounts {
        let counters = &self.shared.counters;
        // Relaxed: each number may be slightly old.
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DeleteCounts {
            pending: read(&counters.pending),
            bytes: read(&counters.bytes),
            kept: read(&counters.kept),
            failed: read(&counters.failed),
            replayed: read(&counters.replayed),
            refused: read(&counters.refused),
            expired: read(&counters.expired),
            lost: read(&counters.lost),
            marked: read(&counters.marked),
            unmarkable: read(&counters.unmarkable),
        }
    }

    /// Hands over a delete. `mailbox` receives the outcome for `ticket`. Returns false if too many
    /// bytes already wait.
    pub(crate) fn keep(
        &self,
        destination: &Arc<str>,
        pool: &str,
        request: &Request<'_>,
        mailbox: &Arc<Mailbox>,
        ticket: Ticket,
    ) -> bool {
        let record = record(pool, request);
        let mut inbox = self.shared.inbox();
        if inbox.bytes + record.len() > INBOX_BYTES_MAX {
            self.shared.counters.failed.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        inbox.bytes += record.len();
        let (destination, mailbox) = (Arc::clone(destination), Arc::clone(mailbox));
        inbox.kept.push(Kept { destination, record, mailbox, ticket });
        let is_first = inbox.kept.len() == 1;
        drop(inbox);
        if is_first {
            self.shared.wake.wake();
        }
        true
    }
}

impl Mailbox {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { done: Mutex::default(), wake: Wake::new()? })
    }

    /// Readable when [`Self::take`] has an outcome.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.wake.fd()
    }

    /// Tickets whose deletes have been kept (true) or not.
    pub(crate) fn take(&self) -> Vec<(Ticket, bool)> {
        self.wake.clear();
        std::mem::take(&mut *self.done.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put(&self, ticket: Ticket, is_kept: bool) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.push((ticket, is_kept));
        if done.len() == 1 {
            self.wake.wake();
        }
    }
}

/// The plain delete of the request's key, without its other options, as most servers accept it. A
/// base64 key is sent decoded if a line can hold it.
pub(crate) fn plain<'a>(request: &Request<'a>) -> Request<'a> {
    let (op, words): (_, &[u8]) = (Command::Delete, b"");
    let plain = Request { op, words, base64: false, exptime: 0, number: 0, ..*request };
    if request.base64 && !is_sendable(&plain) {
        return Request { op: Command::MetaDelete, words: b"b", base64: true, ..plain };
    }
    plain
}

/// Separates the names of two servers: the second gets a delete once the first has executed it.
const THEN: char = '>';

/// The name for deletes that one server must execute before another.
pub(crate) fn ordered_name(first: &str, second: &str) -> String {
    format!("{first}{THEN}{second}")
}

/// A spool record that flushes the server, in place of dropped deletes.
fn flush_record() -> Vec<u8> {
    b"\nflush_all\r\n".to_vec()
}

/// A spool record: the pool's name, a line end, and the command as a server reads it.
fn record(pool: &str, request: &Request<'_>) -> Vec<u8> {
    let mut record = Vec::with_capacity(pool.len() + request.key.len() + 16);
    record.extend(pool.bytes().filter(|byte| *byte != b'\n'));
    record.push(b'\n');
    write_command(&mut record, request);
    record
}
