//! `watch`: lines about events for watching connections.
//!
//! ```text
//!     worker -> Reporter -> each watcher's buffer -> (waker) -> its session -> its socket
//! ```
//!
//! The buffers are in [`watch::hub`]; the lines are here.

use std::io::Write;
use std::sync::Arc;

use engine::{Miss, Verdict, ttl_of};
use net::{CloseReason, ListenAddress};
use proto::uri;
use store::{Handle, Item};
use watch::hub::{Events, Watchers};

use super::job::{Finished, Job};
use super::state::Session;
use crate::clock::Clock;
use crate::eviction_reports::EvictionReports;

/// A worker's side of `watch`.
#[derive(Debug)]
pub(crate) struct Reporter {
    watchers: Arc<Watchers>,
    evictions: EvictionReports,
    /// The watched events at the start of the turn.
    watched: Events,
}

impl Reporter {
    pub(crate) fn new(watchers: &Arc<Watchers>, clock: Clock) -> Self {
        let evictions = EvictionReports::new(watchers, clock);
        Self { watchers: Arc::clone(watchers), evictions, watched: Events::default() }
    }

    /// Starts a turn: reads the watched events.
    pub(crate) fn turn(&mut self, participant: &Handle) {
        let watched = self.watchers.watched();
        if watched == self.watched {
            return;
        }
        if let Some(observer) = self.evictions.changed() {
            participant.on_evict(observer);
        }
        self.watched = watched;
    }

    /// True if any event is watched.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.watched != Events::default()
    }

    /// True if this event is watched.
    #[inline]
    pub(crate) fn wants(&self, event: Events) -> bool {
        self.watched.meets(event)
    }

    /// Reports a requested key.
    #[cold]
    pub(crate) fn fetched(&self, session: &Session, key: &[u8], found: Result<&Item<'_>, &Miss>) {
        self.watchers.report(Events::FETCHERS, |line| {
            line.extend_from_slice(b"type=item_get key=");
            uri::encode(key, line);
            let (status, class, size) = match found {
                Ok(item) => ("found", item.class(), item.value_len()),
                Err(Miss::Absent | Miss::NoCas) => ("not_found", 0, 0),
                Err(Miss::Expired) => ("expired", 0, 0),
                Err(Miss::Flushed) => ("flushed", 0, 0),
            };
            let _ =
                write!(line, " status={status} clsid={class} cfd={} size={size}", session.peer.fd);
        });
    }

    /// Reports a stored value, or a refused one with its own lifetime and size.
    #[cold]
    pub(crate) fn stored(&self, job: &Job<'_>, finished: Finished, now_secs: u32) {
        let Finished::Judged(stored) = finished else { return };
        let (deadline, value_len) = match stored.verdict {
            Verdict::Stored => (stored.deadline, stored.value_len),
            _ => (job.new.deadline, job.new.value_len),
        };
        self.watchers.report(Events::MUTATIONS, |line| {
            line.extend_from_slice(b"type=item_store key=");
            uri::encode(job.key.bytes, line);
            let status = match stored.verdict {
                Verdict::Exists => "exists",
                Verdict::NotFound => "not_found",
                Verdict::NotStored => "not_stored",
                Verdict::OutOfMemory => "no_memory",
                Verdict::OverQuota => "over_quota",
                Verdict::Stored => "stored",
                Verdict::TooLarge => "too_large",
            };
            let _ = write!(
                line,
                " status={status} cmd={} ttl={} clsid={} cfd={} size={value_len}",
                job.command(),
                ttl_of(deadline, now_secs).unwrap_or(0),
                stored.class,
                job.fd,
            );
        });
    }

    /// Reports the empty item in the place of a deleted one.
    #[cold]
    pub(crate) fn emptied(&self, session: &Session, key: &[u8], class: u8, ttl_secs: Option<u32>) {
        let (ttl_secs, fd) = (ttl_secs.unwrap_or(0), session.peer.fd);
        self.watchers.report(Events::MUTATIONS, |line| {
            line.extend_from_slice(b"type=item_store key=");
            uri::encode(key, line);
            let _ =
                write!(line, " status=stored cmd=set ttl={ttl_secs} clsid={class} cfd={fd} size=0");
        });
    }

    /// Reports a deleted key, whose value had `size` bytes.
    #[cold]
    pub(crate) fn deleted(&self, key: &[u8], command: &str, class: u8, size: usize) {
        self.watchers.report(Events::DELETIONS, |line| {
            line.extend_from_slice(b"type=deleted key=");
            uri::encode(key, line);
            let _ = write!(line, " cmd={command} clsid={class} size={size}");
        });
    }

    /// Reports a new connection.
    pub(crate) fn opened(&self, session: &Session) {
        self.watchers.report(Events::CONNECTIONS, |line| {
            line.extend_from_slice(b"type=conn_new ");
            write_peer(line, session);
        });
    }

    /// Reports a TLS failure of a connection.
    pub(crate) fn tls_failed(&self, session: &Session, reason: &str) {
        self.watchers.report(Events::CONNECTIONS, |line| {
            line.extend_from_slice(b"type=conntlserr ");
            write_peer(line, session);
            line.extend_from_slice(b" reason=");
            uri::encode(reason.as_bytes(), line);
        });
    }

    /// Reports the end of a connection.
    pub(crate) fn closed(&self, session: &Session, reason: CloseReason) {
        let reason = match reason {
            CloseReason::Eof | CloseReason::Service => "normal",
            CloseReason::Crowded | CloseReason::Idle => "idle_timeout",
            CloseReason::NoLogin => "login_timeout",
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
