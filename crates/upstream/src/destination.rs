//! One server as one worker uses it: at most one connection, made on demand.
//!
//! ```text
//!     Closed --ask--> Connecting --writable--> Up --timeout, lie, end--> Closed
//! ```
//!
//! With a [`Guard`] (TLS, a login), the connection must first open, within the connect timeout.
//!
//! `connecting` makes connections, `traffic` moves bytes, and `asking` holds requests until the
//! server's dialect is known.
//!
//! The methods of [`Destination`] lie in these files because each step of a connection's life
//! changes most of its fields: the link, the pipeline, the timers and the counters that must agree.
//!
//! All requests of a connection that ends fail, and are not sent again. Only routes retry, after
//! they see the failure.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::address::Address;
use crate::counters::{Counters, add, get, set};
use crate::datagrams::Datagrams;
use crate::dialect::{self, Dialect};
use crate::ejection::Ejection;
use crate::guard::Guard;
use crate::micros::micros;
use crate::pipeline::{Broken, Pipeline};
use crate::reply_stats::{Failing, Server};
use crate::request::Request;
use crate::send_cell::SendCell;
use crate::settings::{Protocol, Settings};
use crate::sink::{Sink, Ticket};
use crate::system::Socket;
use crate::tko::{FailOpen, Health};
use crate::traffic::Traffic;
use asking::Asking;
use proto::{Command, CommandClass, Failure};
use spans::Spans;

/// The [`Server`] of a destination, borrowed from single fields, so that the others stay free.
macro_rules! server {
    ($self:ident, $now_us:expr) => {
        Server {
            address: &$self.address,
            health: &$self.health,
            counters: &$self.counters,
            is_watched: $self.worker.is_watched.get(),
            now_us: $now_us,
        }
    };
}

mod asking;
mod connecting;
mod traced;
mod traffic;

pub use connecting::LOGIN_PATIENCE;

enum Link {
    Closed,
    Connecting(Socket),
    Up(Socket),
}

/// The worker that owns a destination.
pub(crate) struct Worker {
    pub(crate) number: u32,
    pub(crate) traffic: Arc<Traffic>,
    /// Set while exchanges are watched.
    pub(crate) is_watched: Arc<SendCell<bool>>,
    /// The queue for spans of traced requests.
    pub(crate) spans: Option<Arc<Spans>>,
}

pub(crate) struct Destination {
    pub(crate) address: Address,
    pub(crate) settings: Settings,
    pub(crate) health: Arc<Health>,
    /// Sends requests to it even when it is knocked out, if too many of its pool are.
    pub(crate) fail_open: Option<Arc<FailOpen>>,
    /// Pools that eject failed servers, and its place in each.
    pub(crate) ejections: Vec<(Weak<Ejection>, usize)>,
    pub(crate) counters: Arc<Counters>,
    /// Requests of which all bytes have left.
    left: u64,
    worker: Worker,
    link: Link,
    /// The layer between the socket and the pipeline.
    guard: Option<Box<Guard>>,
    /// The connection's number, which distinguishes its events from its predecessor's.
    pub(crate) generation: u32,
    /// The generation of the latest socket.
    pub(crate) last_generation: u32,
    /// The socket that tried first, while another one also tries to connect.
    first: Option<(Socket, u32)>,
    /// The time at which one more socket tries.
    dial_us: u64,
    connect_began_us: u64,
    /// The time at which the connection could first send requests.
    opened_us: u64,
    /// Consecutive connections that were not made in time and were retried.
    connect_retries: u32,
    pipeline: Pipeline,
    /// The dialect that is sent at once; `None` while it is being probed.
    takes: Option<Dialect>,
    asking: Asking,
    /// Gets by UDP, once there were any.
    pub(crate) datagrams: Option<Datagrams>,
    /// Received and unused bytes: the start of a reply.
    input: Vec<u8>,
    /// The poller reports room to write.
    pub(crate) polls_output: bool,
    /// The time of the next probe, and the wait after it.
    probe: Option<(u64, Duration)>,
    /// There may be bytes to send.
    pub(crate) is_dirty: bool,
    /// The time at which a timer will look at this destination.
    pub(crate) timer_us: Option<u64>,
    /// The number of configurations that use it.
    pub(crate) users: u32,
}

/// The reason why the connection is closed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End<'a> {
    Broken(Broken),
    Connect(Failure),
    Gone,
    /// The connection accepts no requests, for this reason; its requests fail with this failure.
    Refused(&'a str, Failure),
    Timeout,
}

impl Destination {
    pub(crate) fn new(
        address: Address,
        settings: Settings,
        health: Arc<Health>,
        counters: Arc<Counters>,
        worker: Worker,
    ) -> Self {
        let (pipeline, takes) = match settings.protocol {
            // Requests without a packet are not sent.
            Protocol::Binary => (Pipeline::binary(), Dialect::Holdall),
            Protocol::Text => (Pipeline::text(), Dialect::Basic),
        };
        Self {
            address,
            settings,
            health,
            fail_open: None,
            ejections: Vec::new(),
            worker,
            counters,
            left: 0,
            link: Link::Closed,
            guard: None,
            generation: 0,
            last_generation: 0,
            first: None,
            dial_us: 0,
            connect_began_us: 0,
            opened_us: 0,
            connect_retries: 0,
            pipeline,
            takes: Some(takes),
            asking: Asking::default(),
            datagrams: None,
            input: Vec::new(),
            polls_output: false,
            probe: None,
            is_dirty: false,
            timer_us: None,
            users: 0,
        }
    }

    /// Sends a request, or returns the reason why not. It starts a missing connection, which the
    /// caller polls.
    pub(crate) fn ask(
        &mut self,
        request: &Request<'_>,
        ticket: Ticket,
        pool: u16,
        now_us: u64,
    ) -> Result<(), Failure> {
        if self.health.is_tko()
            && !self.fail_open.as_ref().is_some_and(|pool| pool.is_open(&self.worker.traffic))
        {
            add(&self.counters.tko, 1);
            self.plan_probe(now_us);
            self.report_failure(now_us);
            return Err(Failure::Tko);
        }
        if self.health.is_dirty() && is_held(request) {
            add(&self.counters.failed, 1);
            return Err(Failure::TryAgain);
        }
        let needed = dialect::needs(request);
        let is_sent = matches!(needed, Ok(needed) if Some(needed) <= self.takes)
            && !(request.trace.is_some() && self.probes_for_trace());
        if self.is_full(is_sent) || is_sent && !self.pipeline.reserve(request) {
            add(&self.counters.failed, 1);
            return Err(Failure::Busy);
        }
        if self.settings.udp_gets.is_some()
            && needed.is_ok()
            && self.ask_by_udp(request, ticket, pool, now_us)
        {
            return Ok(());
        }
        self.connect(now_us)?;
        add(&self.counters.asked, 1);
        if is_sent {
            self.send_on(request, ticket, pool, now_us);
        } else {
            self.ask_aside(needed, request, ticket, pool, now_us, now_us);
        }
        set(&self.counters.pending, self.pipeline.len() as u64);
        Ok(())
    }

    /// Returns true if too much is outstanding, or waits, if the request would have to wait.
    fn is_full(&self, is_sent: bool) -> bool {
        let Settings { pending_max, unsent_bytes_max, .. } = self.settings;
        self.pipeline.len() >= pending_max
            || self.pipeline.unsent() >= unsent_bytes_max
            || !is_sent && self.asking.is_full(pending_max, unsent_bytes_max)
    }

    /// Reports a failure to the pools that eject.
    #[cold]
    fn report_failure(&self, now_us: u64) {
        for (pool, place) in &self.ejections {
            if let Some(pool) = pool.upgrade() {
                pool.failed(*place, now_us);
            }
        }
    }

    /// Reports an answer to the pools that eject failing servers.
    #[cold]
    fn tell_answer(&self) {
        for (pool, place) in &self.ejections {
            if let Some(pool) = pool.upgrade() {
                pool.answered(*place);
            }
        }
    }

    /// The time at which a timeout is due, in microseconds.
    pub(crate) fn due_us(&self) -> Option<u64> {
        let timeout = |began: u64, limit: Duration| began.saturating_add(micros(limit));
        let link = if self.is_opening() {
            let end_us = timeout(self.connect_began_us, self.time_to_open());
            Some(if self.dials_by_itself() { end_us.min(self.dial_us) } else { end_us })
        } else {
            self.reply_due_us()
        };
        let probe = self.probe.map(|(at_us, _)| at_us);
        let datagrams = self.datagrams.as_ref().and_then(|udp| udp.due_us(self.udp_timeout_us()));
        link.into_iter().chain(probe).chain(datagrams).min()
    }

    /// The time at which the oldest answer is late. A question has its whole time once it can be
    /// sent; the time before that has its own limit.
    fn reply_due_us(&self) -> Option<u64> {
        let at_us = self.pipeline.oldest_us()?.max(self.opened_us);
        Some(at_us.saturating_add(micros(self.settings.timeout)))
    }

    fn udp_timeout_us(&self) -> u64 {
        self.settings.udp_gets.map_or(0, micros)
    }

    /// Handles due timeouts.
    pub(crate) fn on_due(&mut self, now_us: u64, sink: &mut dyn Sink) {
        let udp_timeout_us = self.udp_timeout_us();
        if let Some(datagrams) = &mut self.datagrams {
            let failing = &mut Failing { sink: &mut *sink, server: server!(self, now_us) };
            datagrams.on_due(udp_timeout_us, &self.counters, now_us, failing);
        }
        let timeout = |began: u64, limit: Duration| began.saturating_add(micros(limit)) <= now_us;
        if self.is_opening() {
            if timeout(self.connect_began_us, self.time_to_open()) {
                if let Err(failure) = self.connect_again(now_us) {
                    self.close(End::Connect(failure), now_us, sink);
                }
            } else if self.dials_by_itself() && self.dial_us <= now_us {
                self.dial_again(now_us);
            }
        } else if self.reply_due_us().is_some_and(|due_us| due_us <= now_us) {
            self.close(End::Timeout, now_us, sink);
        }
        if let Some((at_us, wait)) = self.probe
            && at_us <= now_us
        {
            self.send_probe(wait, now_us);
        }
    }

    /// Closes the connection and fails its requests.
    fn close(&mut self, end: End<'_>, now_us: u64, sink: &mut dyn Sink) {
        // A server that closes before it can receive requests accepts none.
        let is_refusal = end == End::Gone && self.guard.is_some() && self.is_opening();
        let end = match is_refusal {
            true => End::Refused("the server hangs up at once", Failure::ConnectError),
            false => end,
        };
        let hangs_up = self.asking.closed(end, now_us) && self.users > 0;
        (self.link, self.guard, self.first) = (Link::Closed, None, None);
        if !hangs_up && end != End::Connect(Failure::LocalError) {
            self.report_failure(now_us);
        }
        add(&self.counters.closes, get(&self.counters.connected));
        set(&self.counters.connected, 0);
        set(&self.counters.unsent, 0);
        set(&self.counters.pending, 0);
        self.input = Vec::new();
        self.polls_output = false;
        let late_us = now_us.saturating_sub(micros(self.settings.timeout));
        let gone: &[u8] = b"Connection closed by the server.";
        let (late, other, words) = match end {
            End::Broken(_) => {
                (Failure::RemoteError, Failure::RemoteError, &b"Bad reply from the server"[..])
            }
            End::Connect(failure) => (failure, failure, &b""[..]),
            End::Gone => (Failure::RemoteError, Failure::RemoteError, gone),
            End::Refused(why, failure) => (failure, failure, why.as_bytes()),
            End::Timeout => (Failure::Timeout, Failure::Timeout, &b""[..]),
        };
        let pending = self.pipeline.len();
        let failing = &mut Failing { sink: &mut *sink, server: server!(self, now_us) };
        let late_count = self.pipeline.fail(late_us, late, other, words, failing);
        match end {
            End::Broken(_) => add(&self.counters.broken, 1),
            End::Gone | End::Connect(Failure::LocalError) => {}
            End::Connect(failure) => self.unreachable(failure.sentence()),
            End::Refused(why, _) => self.unreachable(why),
            End::Timeout => {
                add(&self.counters.timeouts, u64::from(late_count));
                if self.settings.knocks_out {
                    // At least one: the end of a line may be all that is late.
                    self.health.timed_out(late_count.max(1), self.settings.timeouts_until_tko);
                }
            }
        }
        if end != End::Timeout && !hangs_up {
            add(&self.counters.failed, pending as u64);
        }
        if self.health.is_tko() {
            self.plan_probe(now_us);
        }
        self.takes = self.takes_first();
        if self.asking.waits() {
            let failure = if hangs_up { None } else { Some((late_us, late, other, words)) };
            self.let_go(failure, now_us, sink);
        }
    }

    /// Returns true if the server has unanswered requests.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.pipeline.is_empty() || self.datagrams.as_ref().is_some_and(Datagrams::is_awaited)
    }

    /// Ends it, because it has no more users.
    pub(crate) fn end(&mut self, now_us: u64, sink: &mut dyn Sink) {
        self.close(End::Gone, now_us, sink);
        if let Some(mut datagrams) = self.datagrams.take() {
            datagrams.end(&mut Failing { sink: &mut *sink, server: server!(self, now_us) });
        }
        self.health.leave_probing(self.worker.number);
        self.probe = None;
    }
}

/// Returns true if a server with values known to be old must not answer the request: it would read
/// such a value, or it would store where no get reads while gets read another server. Deletes and
/// flushes only remove, so they pass.
fn is_held(request: &Request<'_>) -> bool {
    let is_held = match request.op.class() {
        CommandClass::Arithmetic | CommandClass::Get => true,
        CommandClass::Update => request.fails_over,
        CommandClass::Other => request.op == Command::Touch && request.fails_over,
        CommandClass::Delete => false,
    };
    is_held && !request.takes_old
}
