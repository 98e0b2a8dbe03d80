//! Deletes that failed: kept in a spool on disk, and asked again in order when their server is
//! back.
//!
//! ```text
//!     DestinationRoute --failed delete--> inbox -> spooler's thread -> Spool (disk)
//!     task, NOT_FOUND  <---- mailbox <-----------+        | oldest first, a window at a time
//!                                                         v
//!                                     the spooler's own Upstream -> server -> acknowledge
//! ```
//!
//! One thread owns the spool and the connections on which it replays, so that a slow disk or a long
//! backlog holds up nobody but the deletes that wait for it. What came while it wrote is written
//! together: the group is committed by one write a server, and by one fsync where that is asked
//! for.
//!
//! # Why a newer delete may overtake
//!
//! While old deletes are replayed, new ones of the same server are sent directly. Deletes only
//! remove: for any two of them, of one key or of two, both orders leave the same keys absent. What
//! must hold is that after each acknowledged delete, the server executes it at least once, not
//! before it was issued; and that the record of it stays until then. Overtaking touches neither.
//! Nor does a repetition: it removes what was stored meanwhile, a miss. (A fill that overtakes a
//! delete is another matter: that is what leases are for; a replay comes later than the delete that
//! it repeats, so it removes such fills rather than letting them pass.)
//!
//! # Refusals of this program's own
//!
//! A server is sent only what it is known to take (`upstream`). What it is not sent, it has not
//! refused: such a delete is asked as the plain `delete` of its key, and one for which that is not
//! enough (a key that no line holds, a flush) stays in the spool until its server takes it.
//!
//! # Deletes that are dropped
//!
//! Deletes that became too old, or that the disk lost, leave a flush behind the others of their
//! server. What the server then has may be any of the values that they were for.
//!
//! # Other routers
//!
//! A server that cannot be reached is marked on other servers of its pool, or of other pools if it
//! is alone (see `marks`). Routers that see the mark ask it for no value until the deletes are
//! executed.
//!
//! # Servers of which one copies the other
//!
//! A cold cluster's server must not execute a delete for the last time before the warm one, whose
//! values are copied to it. Such deletes are kept under both names (`warm>cold`); a window of them
//! goes to the first server, and what that has executed to the second.

mod import;
mod marks;
#[cfg(test)]
mod marks_simulation;
mod replay;
#[cfg(test)]
mod simulation;
mod spooler;

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

/// Bytes of deletes that wait to be written, at the most; more are not taken.
const INBOX_BYTES_MAX: usize = 16 << 20;

/// A server that deletes may be replayed to.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Its name in the spool.
    pub name: String,
    /// Its address.
    pub address: Address,
    /// The way in which it is used.
    pub settings: Settings,
    /// Names of other servers, of its pools if it is not alone there, which keep the mark that it
    /// has deletes to come.
    pub peers: Vec<String>,
}

/// Counts of failed deletes, since the start but for the first two and the last two.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DeleteCounts {
    /// Deletes that wait for their servers.
    pub pending: u64,
    /// Bytes that they take on disk.
    pub bytes: u64,
    /// Deletes that were kept.
    pub kept: u64,
    /// Deletes that could not be kept; their clients read an error.
    pub failed: u64,
    /// Deletes that servers have executed later.
    pub replayed: u64,
    /// Deletes that servers refused for good (`CLIENT_ERROR`), and records that cannot be read.
    pub refused: u64,
    /// Deletes that were too old, and are dropped; their server is flushed.
    pub expired: u64,
    /// Deletes that could not be read from the disk any more; their server is flushed.
    pub lost: u64,
    /// Servers, now, that a router of the fleet has marked: it keeps deletes for them.
    pub marked: u64,
    /// Servers, now, whose mark no other server can keep.
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
    /// The servers of a new configuration, and who waits until they are known.
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

/// The spooler's thread; dropping it ends it, when everything that was handed to it is written.
#[derive(Debug)]
pub struct Spooler {
    deletes: Deletes,
    thread: Option<JoinHandle<()>>,
}

impl Spooler {
    /// Starts the thread; when it is back, what waits for `targets` is known to whoever asks them.
    /// `worker` is a number that no other worker of `registry` has; `log` takes lines for people.
    /// mcrouter's files of failed deletes below `import` are taken over. With `holds_gets` a server
    /// is asked for no value until its deletes are executed, those of this router and those of the
    /// others that have marked it: `Failure::TryAgain`.
    ///
    /// # Errors
    ///
    /// When there is no descriptor or no thread.
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
                // The other end waits.
                let _ = started.send(Ok(()));
                work.run();
            }
            Err(error) => drop(started.send(Err(error))),
        };
        let thread = thread::Builder::new().name("spooler".to_owned()).spawn(work)?;
        start.recv().unwrap_or_else(|_| Err(io::Error::other("the thread has ended")))?;
        Ok(Self { deletes: Deletes { shared }, thread: Some(thread) })
    }

    /// The handle of it that workers hold.
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
            // Its panic was told by the thread itself.
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
    /// These servers are in use: what is pending for them is replayed, what is pending for others
    /// waits. When this is back, those of them that have deletes to come are known to, so it goes
    /// before whoever asks them.
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
        // An error is the thread's end.
        let _ = known.recv();
    }

    /// The counts of failed deletes.
    #[must_use]
    pub fn counts(&self) -> DeleteCounts {
        let counters = &self.shared.counters;
        // Relaxed: each number is as it was a moment ago.
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

    /// Hands a delete over; `mailbox` hears of `ticket` what became of it. False when too much
    /// waits already.
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

    /// Readable when [`Self::take`] has something.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.wake.fd()
    }

    /// What has been kept (true) or not, by tickets.
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

/// The delete of the request's key, whatever else it asks for, as most servers take it: a key that
/// came in base64 goes as it is if a line can hold it.
pub(crate) fn plain<'a>(request: &Request<'a>) -> Request<'a> {
    let (op, words): (_, &[u8]) = (Command::Delete, b"");
    let plain = Request { op, words, base64: false, exptime: 0, number: 0, ..*request };
    if request.base64 && !is_sendable(&plain) {
        return Request { op: Command::MetaDelete, words: b"b", base64: true, ..plain };
    }
    plain
}

/// Between the names of two servers: the second is asked when the first has executed a delete.
const THEN: char = '>';

/// The name under which deletes are kept that one server is to execute before another.
pub(crate) fn one_after_the_other(first: &str, second: &str) -> String {
    format!("{first}{THEN}{second}")
}

/// A record in the spool that has the server flushed, in place of deletes that were dropped.
fn flush_record() -> Vec<u8> {
    b"\nflush_all\r\n".to_vec()
}

/// A record in the spool: the pool's name, a line end, and the command as a server reads it.
fn record(pool: &str, request: &Request<'_>) -> Vec<u8> {
    let mut record = Vec::with_capacity(pool.len() + request.key.len() + 16);
    record.extend(pool.bytes().filter(|byte| *byte != b'\n'));
    record.push(b'\n');
    write_command(&mut record, request);
    record
}
