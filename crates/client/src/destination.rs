//! One server as one worker uses it: at most one connection, made when it is needed.
//!
//! ```text
//!     Closed --ask--> Connecting --writable--> Up --timeout, lie, end--> Closed
//! ```
//!
//! With a [`Guard`] (TLS, a login), being up begins with its opening, which the time for connecting bounds.
//!
//! A connection that ends takes everything with it that was asked on it: it fails, and is not asked again. Whoever wants to
//! try once more is a route, and sees the failure.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::io::Errno;

use crate::address::Address;
use crate::cell::Cell;
use crate::counters::{Counters, add};
use crate::datagrams::Datagrams;
use crate::ejection::Ejection;
use crate::guard::{CHUNK_BYTES, Guard};
use crate::health::{FailOpen, Health};
use crate::pipeline::{Pipeline, Sink, Ticket};
use crate::reply::Failure;
use crate::request::{Class, Op, Request};
use crate::settings::{Protocol, Settings};
use crate::system::Socket;
use crate::tally::{Failing, Server, Tally};
use crate::traffic::Traffic;

/// What a [`Tally`] must know, out of a destination's fields, so that the others stay free.
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

/// The ticket of a destination's own question whether the server is back.
pub(crate) const PROBE: Ticket = Ticket::MAX;

enum Link {
    Closed,
    Connecting(Socket),
    Up(Socket),
}

/// Whose a destination is.
pub(crate) struct Worker {
    pub(crate) number: u32,
    pub(crate) traffic: Arc<Traffic>,
    /// Somebody watches exchanges.
    pub(crate) is_watched: Arc<Cell<bool>>,
}

pub(crate) struct Destination {
    pub(crate) address: Address,
    pub(crate) settings: Settings,
    pub(crate) health: Arc<Health>,
    /// It is asked though it is out, when too many of its pool are.
    pub(crate) fail_open: Option<Arc<FailOpen>>,
    /// Pools that eject who fails, and its place in each.
    pub(crate) ejections: Vec<(Weak<Ejection>, usize)>,
    pub(crate) counters: Arc<Counters>,
    /// Questions that have left, all bytes of them.
    left: u64,
    worker: Worker,
    link: Link,
    /// What stands between the socket and the pipeline.
    guard: Option<Box<Guard>>,
    /// Of the connection: tells events of this one from those of the one before.
    pub(crate) generation: u32,
    /// The generation of the socket that was begun last.
    pub(crate) last_generation: u32,
    /// While another socket tries to connect: the one that has tried first.
    first: Option<(Socket, u32)>,
    /// When one more is to try.
    dial_us: u64,
    connect_began_us: u64,
    /// Connections in a row that were not made in time, and were begun again.
    connect_retries: u32,
    pipeline: Pipeline,
    /// Gets by UDP, once there were any.
    pub(crate) datagrams: Option<Datagrams>,
    /// Received and not used: the begin of a reply.
    input: Vec<u8>,
    /// The poller tells of room to write.
    pub(crate) polls_output: bool,
    /// When to probe, and how long to wait after that.
    probe: Option<(u64, Duration)>,
    /// There may be something to send.
    pub(crate) is_dirty: bool,
    /// The time at which a timer will look at this destination.
    pub(crate) timer_us: Option<u64>,
    /// Configurations that use it.
    pub(crate) users: u32,
}

/// Why the connection is closed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End<'a> {
    Broken,
    Connect(Failure),
    Gone,
    /// No question can be asked on it, for this reason; what was asked fails so.
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
        let pipeline = match settings.protocol {
            Protocol::Binary => Pipeline::binary(),
            Protocol::Text => Pipeline::default(),
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
            connect_retries: 0,
            pipeline,
            datagrams: None,
            input: Vec::new(),
            polls_output: false,
            probe: None,
            is_dirty: false,
            timer_us: None,
            users: 0,
        }
    }

    pub(crate) fn socket(&self) -> Option<&Socket> {
        match &self.link {
            Link::Closed => None,
            Link::Connecting(socket) | Link::Up(socket) => Some(socket),
        }
    }

    pub(crate) fn is_connecting(&self) -> bool {
        matches!(self.link, Link::Connecting(_))
    }

    /// No question can be asked yet.
    fn is_opening(&self) -> bool {
        self.is_connecting() || self.guard.as_ref().is_some_and(|guard| !guard.is_open())
    }

    /// How long it may take until questions can be asked. Servers tell a wrong login late on purpose, and whoever waits should hear that.
    fn time_to_open(&self) -> Duration {
        let is_logging_in = matches!(self.link, Link::Up(_)) && self.settings.login.is_some();
        let patience = if is_logging_in { LOGIN_PATIENCE } else { Duration::ZERO };
        self.settings.connect_timeout + patience
    }

    /// Asks, or says at once why not. A connection that does not exist is begun; the caller polls it.
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
            self.tell_failure(now_us);
            return Err(Failure::Tko);
        }
        if self.health.is_dirty() && request.op.class() == Class::Get {
            add(&self.counters.failed, 1);
            return Err(Failure::TryAgain);
        }
        let is_full = self.pipeline.len() >= self.settings.pending_max
            || self.pipeline.unsent() >= self.settings.unsent_bytes_max;
        if is_full {
            add(&self.counters.failed, 1);
            return Err(Failure::Busy);
        }
        if self.settings.udp_gets.is_some() && self.ask_by_udp(request, ticket, pool, now_us) {
            return Ok(());
        }
        self.connect(now_us)?;
        add(&self.counters.asked, 1);
        self.pipeline.ask(request, ticket, pool, now_us);
        self.counters.pending.store(self.pipeline.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Asks a get by UDP, if that is to be had now.
    fn ask_by_udp(
        &mut self,
        request: &Request<'_>,
        ticket: Ticket,
        pool: u16,
        now_us: u64,
    ) -> bool {
        if !matches!(request.op, Op::Get | Op::Gets) {
            return false;
        }
        if self.datagrams.is_none() {
            self.datagrams = Datagrams::new(&self.address);
        }
        let Some(datagrams) = self.datagrams.as_mut().filter(|udp| udp.takes(now_us)) else {
            return false;
        };
        add(&self.counters.asked, 1);
        add(&self.counters.udp_asked, 1);
        datagrams.ask(request, ticket, pool, now_us);
        true
    }

    /// Datagrams have come.
    pub(crate) fn on_datagrams(&mut self, buffer: &mut [u8], now_us: u64, sink: &mut dyn Sink) {
        let Some(mut datagrams) = self.datagrams.take() else { return };
        let limit = self.settings.value_bytes_max;
        let mut tally = Tally::new(server!(self, now_us), sink);
        let (counters, tcp) = (&self.counters, &mut self.pipeline);
        let goes_on = datagrams.receive(buffer, limit, counters, tcp, now_us, &mut tally);
        drop(tally);
        self.datagrams = Some(datagrams);
        if goes_on && self.connect(now_us).is_err() {
            self.close(End::Connect(Failure::ConnectError), now_us, sink);
        }
    }

    fn connect(&mut self, now_us: u64) -> Result<(), Failure> {
        if matches!(self.link, Link::Closed) {
            let tls =
                self.settings.tls.as_ref().map(|tls| (tls, self.settings.server_name.as_str()));
            let login = self.settings.login.as_ref().map(|login| (login, self.settings.protocol));
            let guard = Guard::new(tls, login);
            let (Ok(socket), Ok(guard)) = (Socket::connect(&self.address), guard) else {
                add(&self.counters.failed, 1);
                self.unreachable();
                self.plan_probe(now_us);
                self.tell_failure(now_us);
                return Err(Failure::ConnectError);
            };
            self.guard = guard;
            if self.settings.tls.is_some() {
                self.pipeline.mark_ends();
            }
            self.connect_began_us = now_us;
            self.dial(socket, now_us);
        }
        Ok(())
    }

    fn dial(&mut self, socket: Socket, now_us: u64) {
        self.last_generation = self.last_generation.wrapping_add(1);
        (self.link, self.generation) = (Link::Connecting(socket), self.last_generation);
        self.plan_dial(now_us);
        self.polls_output = true;
    }

    fn plan_dial(&mut self, now_us: u64) {
        self.dial_us = now_us.saturating_add(micros(self.settings.probe_initial));
    }

    /// One more socket tries to connect; whichever succeeds first is taken. The system sends the first packet of a connection again after
    /// a second only: a server that is back would be found too late. The first goes on, since a long way may take longer than the
    /// time between two tries; the others replace each other.
    fn dial_again(&mut self, now_us: u64) {
        // Without a descriptor those that try go on.
        self.plan_dial(now_us);
        if let Ok(socket) = Socket::connect(&self.address)
            && let Link::Connecting(before) = std::mem::replace(&mut self.link, Link::Closed)
        {
            let before = (before, self.generation);
            self.first.get_or_insert(before);
            self.dial(socket, now_us);
        }
    }

    /// Whether an event is of a present socket: that one is taken, if another was to succeed it.
    pub(crate) fn is_told(&mut self, told: impl Fn(u32) -> bool) -> bool {
        if let Some((socket, generation)) = self.first.take_if(|(_, first)| told(*first)) {
            (self.link, self.generation) = (Link::Connecting(socket), generation);
            return true;
        }
        told(self.generation) && self.socket().is_some()
    }

    /// The socket is writable or readable, or has failed.
    pub(crate) fn on_event(&mut self, buffer: &mut [u8], now_us: u64, sink: &mut dyn Sink) {
        if self.is_connecting() {
            self.on_connected(now_us, sink);
        }
        if matches!(self.link, Link::Up(_)) {
            self.read(buffer, now_us, sink);
        }
    }

    fn on_connected(&mut self, now_us: u64, sink: &mut dyn Sink) {
        let Link::Connecting(socket) = std::mem::replace(&mut self.link, Link::Closed) else {
            return;
        };
        self.first = None;
        match socket.connected() {
            Ok(()) => {
                self.link = Link::Up(socket);
                if self.guard.is_none() {
                    self.opened(now_us);
                }
            }
            Err(_) => {
                drop(socket);
                self.close(End::Connect(Failure::ConnectError), now_us, sink);
            }
        }
    }

    /// It could not be connected to.
    fn unreachable(&self) {
        if self.settings.knocks_out {
            self.health.unreachable();
        }
    }

    /// From here on, questions are asked; that whether the server is back is the first, so that it has all of its time.
    fn opened(&mut self, now_us: u64) {
        if self.probe.is_some() {
            self.ask_probe(now_us);
        }
        if std::mem::take(&mut self.connect_retries) > 0 {
            add(&self.counters.connects_retried, 1);
        }
        self.counters.connected.store(1, Ordering::Relaxed);
        add(&self.counters.connects, 1);
    }

    /// Reads what there is, once: what is left tells itself again.
    fn read(&mut self, buffer: &mut [u8], now_us: u64, sink: &mut dyn Sink) {
        let Link::Up(socket) = &self.link else { return };
        match socket.read(buffer) {
            Ok(0) => self.close(End::Gone, now_us, sink),
            Ok(len) => {
                let received = buffer.get(..len).unwrap_or_default();
                if self.guard.is_none() {
                    self.receive(received, now_us, sink);
                } else {
                    self.receive_guarded(received, now_us, sink);
                }
            }
            Err(Errno::AGAIN) => {}
            Err(_) => self.close(End::Gone, now_us, sink),
        }
    }

    #[cold]
    fn receive_guarded(&mut self, received: &[u8], now_us: u64, sink: &mut dyn Sink) {
        let Some(guard) = &mut self.guard else { return };
        let was_open = guard.is_open();
        let mut plain = Vec::new();
        let result = guard.receive(received, &mut plain);
        let (is_open, is_ended) = (guard.is_open(), guard.is_ended());
        if let Err(reason) = result {
            if let Link::Up(socket) = &self.link {
                // The peer should know why; whether it hears is its own matter.
                let _ = socket.send(guard.outgoing());
            }
            // What was asked may have been done: nobody must believe that there was no connection.
            let failure = if was_open { Failure::RemoteError } else { Failure::ConnectError };
            return self.close(End::Refused(&reason, failure), now_us, sink);
        }
        if is_open && !was_open {
            self.opened(now_us);
        }
        if !plain.is_empty() {
            self.receive(&plain, now_us, sink);
        }
        if is_ended && !matches!(self.link, Link::Closed) {
            self.close(End::Gone, now_us, sink);
        }
    }

    /// Pools that eject hear of a failure.
    #[cold]
    fn tell_failure(&self, now_us: u64) {
        for (pool, place) in &self.ejections {
            if let Some(pool) = pool.upgrade() {
                pool.failed(*place, now_us);
            }
        }
    }

    /// The same of an answer.
    #[cold]
    fn tell_answer(&self) {
        for (pool, place) in &self.ejections {
            if let Some(pool) = pool.upgrade() {
                pool.answered(*place);
            }
        }
    }

    fn receive(&mut self, received: &[u8], now_us: u64, sink: &mut dyn Sink) {
        let asked = self.pipeline.len();
        let mut tally = Tally::new(server!(self, now_us), sink);
        let limit = self.settings.value_bytes_max;
        let oldest_us = self.pipeline.oldest_us();
        let result = if self.input.is_empty() {
            self.pipeline.receive(received, limit, &mut tally).map(|(used, total)| {
                let rest = received.get(used..).unwrap_or_default();
                if !rest.is_empty() {
                    // A length that is announced is not yet a length that comes.
                    self.input.reserve(total.min(RESERVED_MAX).max(rest.len()));
                    self.input.extend_from_slice(rest);
                }
            })
        } else {
            self.input.extend_from_slice(received);
            self.pipeline.receive(&self.input, limit, &mut tally).map(|(used, _)| {
                if used == self.input.len() {
                    self.input = Vec::new();
                } else if used > 0 {
                    self.input.drain(..used);
                }
            })
        };
        if tally.probe_answered {
            self.probe = None;
        }
        drop(tally);
        if let Some(asked_us) = oldest_us {
            let sample_ns = now_us.saturating_sub(asked_us).saturating_mul(1000);
            let mean_ns = self.counters.latency_ns.load(Ordering::Relaxed);
            let mean_ns = mean_ns - mean_ns / LATENCY_SPAN + sample_ns / LATENCY_SPAN;
            self.counters.latency_ns.store(mean_ns, Ordering::Relaxed);
        }
        self.counters.pending.store(self.pipeline.len() as u64, Ordering::Relaxed);
        if !self.ejections.is_empty() && self.pipeline.len() < asked {
            self.tell_answer();
        }
        if result.is_err() {
            self.close(End::Broken, now_us, sink);
        }
    }

    /// Sends what there is. True when the socket took less.
    pub(crate) fn flush(&mut self, now_us: u64, sink: &mut dyn Sink) -> bool {
        let is_blocked = self.send(now_us, sink);
        let asked = self.counters.asked.load(Ordering::Relaxed);
        if self.pipeline.unsent() == 0 {
            self.left = asked;
        }
        self.counters.unsent.store(asked.wrapping_sub(self.left), Ordering::Relaxed);
        is_blocked
    }

    fn send(&mut self, now_us: u64, sink: &mut dyn Sink) -> bool {
        self.is_dirty = false;
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.flush(
                &self.counters,
                now_us,
                &mut Failing { sink: &mut *sink, server: server!(self, now_us) },
            );
        }
        if self.guard.is_some() {
            return self.flush_guarded(now_us, sink);
        }
        let Link::Up(socket) = &self.link else { return false };
        loop {
            let bytes = self.pipeline.outgoing();
            if bytes.is_empty() {
                return false;
            }
            let len = bytes.len();
            match socket.send(bytes) {
                Ok(taken) => {
                    add(&self.counters.writes, 1);
                    self.pipeline.has_sent(taken);
                    if taken < len {
                        add(&self.counters.partial_writes, 1);
                        return true;
                    }
                }
                Err(Errno::AGAIN) => return true,
                Err(_) => {
                    self.close(End::Gone, now_us, sink);
                    return false;
                }
            }
        }
    }

    /// The same through the guard, which goes when it has nothing to do any more.
    #[cold]
    fn flush_guarded(&mut self, now_us: u64, sink: &mut dyn Sink) -> bool {
        let Link::Up(socket) = &self.link else { return false };
        while let Some(guard) = &mut self.guard {
            let bytes = guard.outgoing();
            if bytes.is_empty() {
                let plain = self.pipeline.outgoing();
                let plain = plain.get(..CHUNK_BYTES).unwrap_or(plain);
                if guard.is_done() {
                    self.guard = None;
                    return self.send(now_us, sink);
                }
                if !guard.is_open() || plain.is_empty() {
                    return false;
                }
                guard.send(plain);
                let taken = plain.len();
                self.pipeline.has_sent(taken);
                continue;
            }
            match socket.send(bytes) {
                Ok(taken) => {
                    add(&self.counters.writes, 1);
                    guard.has_sent(taken);
                }
                Err(Errno::AGAIN) => return true,
                Err(_) => {
                    self.close(End::Gone, now_us, sink);
                    return false;
                }
            }
        }
        false
    }

    /// When something is due without anything happening, in microseconds.
    pub(crate) fn due_us(&self) -> Option<u64> {
        let timeout = |began: u64, limit: Duration| began.saturating_add(micros(limit));
        let link = if self.is_opening() {
            let end_us = timeout(self.connect_began_us, self.time_to_open());
            Some(if self.dials_by_itself() { end_us.min(self.dial_us) } else { end_us })
        } else {
            self.pipeline.oldest_us().map(|at_us| timeout(at_us, self.settings.timeout))
        };
        let probe = self.probe.map(|(at_us, _)| at_us);
        let datagrams = self.datagrams.as_ref().and_then(|udp| udp.due_us(self.udp_timeout_us()));
        link.into_iter().chain(probe).chain(datagrams).min()
    }

    /// More sockets try to connect; of a server that is knocked out, probes do that.
    fn dials_by_itself(&self) -> bool {
        self.is_connecting() && !self.health.is_tko()
    }

    fn udp_timeout_us(&self) -> u64 {
        self.settings.udp_gets.map_or(0, micros)
    }

    /// Something is due.
    pub(crate) fn on_due(&mut self, now_us: u64, sink: &mut dyn Sink) {
        let udp_timeout_us = self.udp_timeout_us();
        if let Some(datagrams) = &mut self.datagrams {
            let failing = &mut Failing { sink: &mut *sink, server: server!(self, now_us) };
            datagrams.on_due(udp_timeout_us, &self.counters, now_us, failing);
        }
        let timeout = |began: u64, limit: Duration| began.saturating_add(micros(limit)) <= now_us;
        if self.is_opening() {
            if timeout(self.connect_began_us, self.time_to_open()) {
                if !self.connects_again(now_us) {
                    self.close(End::Connect(Failure::ConnectTimeout), now_us, sink);
                }
            } else if self.dials_by_itself() && self.dial_us <= now_us {
                self.dial_again(now_us);
            }
        } else if self.pipeline.oldest_us().is_some_and(|at| timeout(at, self.settings.timeout)) {
            self.close(End::Timeout, now_us, sink);
        }
        if let Some((at_us, wait)) = self.probe
            && at_us <= now_us
        {
            self.send_probe(wait, now_us);
        }
    }

    /// A connection that was not made in time is begun again, as often as the settings say.
    fn connects_again(&mut self, now_us: u64) -> bool {
        if self.connect_retries >= self.settings.connect_retries {
            self.connect_retries = 0;
            return false;
        }
        self.connect_retries += 1;
        add(&self.counters.connect_retries, 1);
        (self.link, self.guard, self.first) = (Link::Closed, None, None);
        self.connect(now_us).is_ok()
    }

    /// A server that was knocked out is asked some time later, by one worker.
    fn plan_probe(&mut self, now_us: u64) {
        if self.probe.is_none() && self.health.take_probing(self.worker.number) {
            self.probe =
                Some((now_us + micros(self.settings.probe_initial), self.settings.probe_initial));
        }
    }

    fn send_probe(&mut self, waited: Duration, now_us: u64) {
        if !self.health.is_tko() {
            self.probe = None;
            return;
        }
        let wait = (waited * 3 / 2).min(self.settings.probe_max);
        // Up to a tenth later, so that the probes of many programs do not meet.
        let jitter = micros(wait) / 10 * (now_us % 16) / 16;
        self.probe = Some((now_us + micros(wait) + jitter, wait));
        if self.is_connecting() {
            self.dial_again(now_us);
        } else if self.connect(now_us).is_ok() && !self.is_opening() {
            self.ask_probe(now_us);
            self.is_dirty = true;
        }
    }

    /// Asks whether the server is back, unless that will be seen by what was asked.
    fn ask_probe(&mut self, now_us: u64) {
        if self.pipeline.is_empty() {
            self.pipeline.ask(&Request::new(Op::Version, b""), PROBE, 0, now_us);
        }
    }

    /// Ends the connection and fails what was asked on it.
    fn close(&mut self, end: End<'_>, now_us: u64, sink: &mut dyn Sink) {
        // Who goes away before a question can be asked does not take any.
        let is_refusal = end == End::Gone && self.guard.is_some() && self.is_opening();
        let end = match is_refusal {
            true => End::Refused("the server hangs up at once", Failure::ConnectError),
            false => end,
        };
        (self.link, self.guard, self.first) = (Link::Closed, None, None);
        self.tell_failure(now_us);
        let was_connected = self.counters.connected.swap(0, Ordering::Relaxed);
        add(&self.counters.closes, was_connected);
        self.counters.unsent.store(0, Ordering::Relaxed);
        self.counters.pending.store(0, Ordering::Relaxed);
        self.input = Vec::new();
        self.polls_output = false;
        let late_us = now_us.saturating_sub(micros(self.settings.timeout));
        let gone: &[u8] = b"Connection closed by the server";
        let (late, other, words) = match end {
            End::Broken => {
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
            End::Broken => add(&self.counters.broken, 1),
            End::Connect(_) | End::Refused(..) => self.unreachable(),
            End::Gone => {}
            End::Timeout => {
                add(&self.counters.timeouts, u64::from(late_count));
                if self.settings.knocks_out {
                    self.health.timed_out(late_count, self.settings.timeouts_until_tko);
                }
            }
        }
        if end != End::Timeout {
            add(&self.counters.failed, pending as u64);
        }
        if self.health.is_tko() {
            self.plan_probe(now_us);
        }
    }

    /// Nobody uses it any more.
    pub(crate) fn end(&mut self, now_us: u64, sink: &mut dyn Sink) {
        self.close(End::Gone, now_us, sink);
        if let Some(mut datagrams) = self.datagrams.take() {
            datagrams.end(&mut Failing { sink: &mut *sink, server: server!(self, now_us) });
        }
        self.health.leave_probing(self.worker.number);
        self.probe = None;
    }
}

/// Bytes reserved for a reply that has only begun, at the most.
const RESERVED_MAX: usize = 1 << 20;

/// How much longer than a connection a login may take: ours are refused after a second.
pub(crate) const LOGIN_PATIENCE: Duration = Duration::from_secs(2);

/// Answers over which the mean latency goes, roughly.
const LATENCY_SPAN: u64 = 64;

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
