//! A session joins the event loop to the protocols and the protocols to the engine.
//!
//! ```text
//!     net -> Worker::serve -> text | meta | binary -> engine -> reply into the output
//!                  \-> a state, when something is not whole yet:
//!                      Getting, Receiving, Sending, Swallowing, Dumping, Watching
//! ```
//!
//! One [`Worker`] lives in each thread and serves all its connections; a connection is a
//! [`Session`], which holds a state and, between requests, no memory. Nothing here blocks: what
//! cannot go on returns a [`Flow`] and is called again.
//!
//! # The hot path
//!
//! A text `get` or `mg` is parsed where it lies, its key is hashed once (ahead, with those that
//! follow it: see `batch`), found without a lock, and its value copied behind its header. There is
//! no allocation, no system call and no virtual call in between.

mod admin;
mod batch;
mod before_login;
mod binary;
mod by_udp;
mod collected;
mod from_proto;
mod inflight;
mod job;
mod login;
#[cfg(test)]
mod login_tests;
mod meta;
pub(crate) mod pending_reply;
mod permit;
mod receiving;
#[cfg(test)]
mod reply_count_tests;
mod reporter;
mod retrieve;
mod scan;
pub(crate) mod state;
#[cfg(test)]
pub(crate) mod tests;
mod text;
pub(crate) mod value_in;
mod value_out;
mod verbose;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use net::{CloseReason, ConnId, Control, DatagramFate, Flow, Input, Output, Peer, Service};
use proto::{KeyBuf, Wire};

use crate::options::Protocol;
use crate::shared::Shared;
use ::watch::hub::Events;
use batch::{Batch, FirstKeys};
use inflight::Inflight;
use reporter::Reporter;
use state::{State, Step};

pub use state::Session;

/// What one thread serves its connections with.
#[derive(Debug)]
pub struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) control: Control,
    pub(crate) engine: engine::Worker,
    pub(crate) reporter: Reporter,
    batch: Batch,
    first_keys: FirstKeys,
    inflight: Inflight,
    /// Scratch for the reply to a datagram, without frames.
    datagram_payload: Vec<u8>,
    /// When the turn began.
    now: Instant,
    /// Commands are printed (`-vv`).
    is_verbose: bool,
    /// Connections are let go of, for want of memory.
    is_short: bool,
    sessions: u64,
    /// When the batch that is being served began, if it is one of those whose times are taken.
    sampled_since: Option<Instant>,
    /// Connections whose refusals are sent later, and when: in the order of time, nearly.
    held: VecDeque<(Instant, ConnId)>,
}

impl Worker {
    /// The worker of the calling thread, the `index`th.
    ///
    /// # Panics
    ///
    /// When more threads use the store than it was made for.
    #[must_use]
    #[expect(
        clippy::expect_used,
        reason = "the store is made for as many participants as there are threads"
    )]
    pub fn new(shared: &Arc<Shared>, index: usize, control: &Control) -> Self {
        let engine = engine::Worker::join(&shared.engine).expect("the store has room for a worker");
        Self {
            shared: Arc::clone(shared),
            control: control.clone(),
            reporter: Reporter::new(&shared.watchers),
            engine,
            batch: Batch::default(),
            first_keys: FirstKeys::default(),
            inflight: Inflight::new(shared.inflight_bytes_max),
            datagram_payload: Vec::new(),
            now: Instant::now(),
            is_verbose: false,
            is_short: false,
            // Numbers of different workers differ, so that watchers can tell connections apart.
            sessions: (index as u64) << 40,
            sampled_since: None,
            held: VecDeque::new(),
        }
    }

    /// Serves until the connection has to wait or has had its share.
    fn run(
        &mut self,
        session: &mut Session,
        input: &mut Input<'_>,
        output: &mut Output<'_>,
    ) -> Flow {
        let mut requests_left = self.shared.requests_per_turn;
        let mut key_buf = KeyBuf::new();
        loop {
            if output.is_full() && !output.flush() {
                return Flow::Blocked;
            }
            if output.buf().len() > session.reply_bytes_max {
                return Flow::Close;
            }
            let step = match &session.state {
                State::Commands => {
                    let Some(first) = input.bytes().first() else { return Flow::NeedInput };
                    if requests_left == 0 {
                        return Flow::Yield;
                    }
                    requests_left -= 1;
                    if session.wire.is_none() && *first == TLS_HANDSHAKE {
                        return self.turn_tls_away(session, output);
                    }
                    let Some(wire) = session.wire.or_else(|| self.negotiate(*first)) else {
                        return Flow::CloseNow;
                    };
                    session.wire = Some(wire);
                    if self.is_verbose {
                        self.log_command(session, wire, input.bytes());
                    }
                    self.batch.arrive(&self.engine, input.bytes());
                    match wire {
                        _ if self.shared.auth.is_some() && session.login.is_missing() => {
                            self.before_login(session, wire, input, output)
                        }
                        Wire::Text => self.text(session, input, output, &mut key_buf),
                        Wire::Binary => self.binary(session, input, output),
                    }
                }
                State::Getting(_) => {
                    if requests_left == 0 {
                        return Flow::Yield;
                    }
                    requests_left -= 1;
                    self.go_on_getting(session, input, output)
                }
                State::Receiving(_) => self.go_on_receiving(session, input, output),
                State::Sending(_) => self.go_on_sending(session, output),
                State::Swallowing(_) => Self::go_on_swallowing(session, input),
                State::Asking(_) => self.go_on_asking(session, output),
                State::Delayed(_) => self.go_on_delayed(session, output),
                State::Dumping(..) => self.go_on_dumping(session, output),
                State::Watching(_) => Self::go_on_watching(session, input, output),
            };
            if let Step::Stop(flow) = step {
                return flow;
            }
            if let Some(since) = self.sampled_since
                && matches!(session.state, State::Commands)
            {
                self.engine.answered(since.elapsed());
            }
        }
    }

    /// The system gives no memory, and what is held back for that runs low: the connection that has
    /// something to say ends, so that its memory serves the others.
    #[cold]
    fn let_go(session: &Session, output: &mut Output<'_>) -> Flow {
        let is_between = matches!(session.state, State::Commands);
        if is_between && session.wire != Some(Wire::Binary) {
            output.buf().extend_from_slice(proto::reply::OUT_OF_MEMORY);
        }
        Flow::Close
    }

    /// A TLS client at a listener that speaks none: no command begins so. It is told in its own
    /// words.
    #[cold]
    fn turn_tls_away(&self, session: &Session, output: &mut Output<'_>) -> Flow {
        self.shared.log.detail(format_args!("{} speaks TLS to a plain listener", session.peer));
        output.buf().extend_from_slice(TLS_ALERT);
        Flow::Close
    }

    /// The protocol that a connection's first byte chooses, if `-B` allows it.
    fn negotiate(&self, first: u8) -> Option<Wire> {
        let wire = Wire::of(first);
        match (self.shared.protocol, wire) {
            (Protocol::Auto, _)
            | (Protocol::Ascii, Wire::Text)
            | (Protocol::Binary, Wire::Binary) => Some(wire),
            (Protocol::Ascii, Wire::Binary) | (Protocol::Binary, Wire::Text) => None,
        }
    }

    /// Serves the requests of one datagram as those of a connection that ends with it. What is not
    /// whole is dropped; more than `limit` bytes of reply are replaced by an error line.
    fn serve_datagram(
        &mut self,
        peer: &Peer,
        requests: &[u8],
        limit: usize,
        payload: &mut Vec<u8>,
    ) {
        let mut session = self.new_session(peer);
        session.reply_bytes_max = limit;
        let mut input = Input::new(requests);
        let mut output = Output::collecting(payload);
        while self.serve(&mut session, &mut input, &mut output) == Flow::Yield {}
        self.release(session);
        if payload.len() > limit {
            payload.clear();
            payload.extend_from_slice(TOO_LARGE_FOR_UDP);
        }
    }

    fn new_session(&mut self, peer: &Peer) -> Session {
        self.sessions += 1;
        Session::new(self.sessions, peer.clone())
    }

    /// Gives back what a session holds.
    fn release(&mut self, session: Session) {
        if session.sends_until.is_some() {
            self.inflight.forget_sender(session.id);
        }
        match session.state {
            State::Receiving(_) => self.inflight.end(session.id),
            State::Sending(sending) => self.inflight.end_send(sending.bytes()),
            State::Asking(_)
            | State::Commands
            | State::Delayed(_)
            | State::Dumping(..)
            | State::Getting(_)
            | State::Swallowing(_)
            | State::Watching(_) => {}
        }
    }
}

impl Service for Worker {
    type Session = Session;

    fn begin_turn(&mut self, now: Instant) {
        self.now = now;
        self.is_verbose = self.is_verbose();
        self.is_short = reserve::is_low();
        self.engine.begin_turn(self.shared.clock.secs_at(now));
        self.engine.begin_samples(self.shared.clock.ms_at(now));
        self.reporter.turn(self.engine.participant());
    }

    fn before_park(&mut self) {
        self.engine.rest();
    }

    fn prefetch_lookup(&mut self, session: &Session, input: &[u8]) {
        if matches!(session.state, State::Commands) {
            self.first_keys.add(&self.engine, input);
        }
    }

    fn prefetch_items(&mut self) {
        self.first_keys.prepare(&self.engine);
    }

    fn open(&mut self, peer: &Peer) -> Session {
        let session = self.new_session(peer);
        if self.reporter.wants(Events::CONNECTIONS) {
            self.reporter.opened(&session);
        }
        session
    }

    fn serve(
        &mut self,
        session: &mut Session,
        input: &mut Input<'_>,
        output: &mut Output<'_>,
    ) -> Flow {
        if let Some(auth) = &self.shared.auth
            && session.generation != auth.generation()
            && !self.renew_login(session, &Arc::clone(auth))
        {
            return Flow::CloseNow;
        }
        if self.is_short {
            return Self::let_go(session, output);
        }
        self.batch.clear();
        if self.engine.begin_batch() {
            self.sampled_since = Some(Instant::now());
        }
        let flow = self.run(session, input, output);
        if self.sampled_since.take().is_some() {
            self.engine.end_batch();
        }
        self.engine.quiesce();
        flow
    }

    fn datagram(&mut self, peer: &Peer, datagram: &[u8], reply: &mut Vec<u8>) -> DatagramFate {
        let Some((frame, requests)) = proto::udp::parse(datagram) else {
            return DatagramFate::Dropped;
        };
        let limit = self.shared.udp_reply_bytes_max(requests.len());
        let mut payload = std::mem::take(&mut self.datagram_payload);
        self.serve_datagram(peer, requests, limit, &mut payload);
        let fate = if payload.len() > limit {
            DatagramFate::TooLong
        } else {
            proto::udp::append_reply(frame.request_id, &payload, net::DATAGRAM_BYTES, reply);
            DatagramFate::Replied
        };
        payload.clear();
        payload.shrink_to(PAYLOAD_BYTES_KEPT);
        self.datagram_payload = payload;
        fate
    }

    fn tls_failed(&mut self, session: &Session, reason: &str) {
        self.shared.log.detail(format_args!("TLS with {}: {reason}", session.peer));
        if self.reporter.wants(Events::CONNECTIONS) {
            self.reporter.tls_failed(session, reason);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let held = self.held.front().map(|(until, _)| *until);
        held.into_iter().chain(self.inflight.deadline()).min()
    }

    fn after_turn(&mut self, resumed: &mut Vec<ConnId>) {
        resumed.extend(self.inflight.call_sender(self.now));
        if self.held.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some((_, id)) = self.held.pop_front_if(|(until, _)| *until <= now) {
            resumed.push(id);
        }
    }

    fn owes(&self, session: &Session) -> bool {
        matches!(session.state, State::Asking(_) | State::Delayed(_))
    }

    fn close(&mut self, session: Session, reason: CloseReason) {
        if self.reporter.wants(Events::CONNECTIONS) {
            self.reporter.closed(&session, reason);
        }
        self.release(session);
        self.engine.quiesce();
    }
}

/// The first byte of a TLS client.
const TLS_HANDSHAKE: u8 = 0x16;

/// The alert `protocol_version`, as a record of TLS 1.0, which every client reads.
const TLS_ALERT: &[u8] = &[0x15, 3, 1, 0, 2, 2, 70];

/// Capacity of the scratch for datagrams' replies that is kept, in bytes.
const PAYLOAD_BYTES_KEPT: usize = 64 * 1024;

/// The answer to a datagram whose answer may not be sent.
const TOO_LARGE_FOR_UDP: &[u8] = b"SERVER_ERROR reply too large for UDP\r\n";
