//! A session connects the event loop to the protocols and the protocols to the engine.
//!
//! ```text
//!     net -> Worker::serve -> text | meta | binary -> engine -> reply into the output
//!                  \-> a State, when something is not whole yet
//! ```
//!
//! One [`Worker`] lives in each thread and serves all its connections; a connection is a
//! [`Session`], which holds a state and, between requests, no memory. Nothing here blocks: an
//! operation that cannot continue returns a [`Flow`] and is called again.
//!
//! The worker runs the loop. Protocols are functions that use a context: the engine, the budget for
//! large values, the lookahead, and the receivers of events.
//!
//! # The hot path
//!
//! A text `get` or `mg` is parsed in place. Its key is hashed once (ahead, with those that follow
//! it: see `lookahead`) and found without a lock, and its value is copied after its header. There
//! is no allocation, no system call and no virtual call in between.

mod admin;
mod announced;
#[cfg(test)]
mod as_memcached_tests;
mod awaited;
mod before_login;
mod binary;
mod by_udp;
#[cfg(test)]
mod by_udp_tests;
mod collected;
pub(crate) mod context;
mod job;
mod large_values;
#[cfg(test)]
mod large_values_tests;
mod login;
#[cfg(test)]
mod login_tests;
mod lookahead;
mod meta;
#[cfg(test)]
mod namespaces_tests;
pub(crate) mod pending_reply;
mod permit;
mod receiving;
mod refusal;
#[cfg(test)]
mod refused_stores_tests;
#[cfg(test)]
mod reply_count_tests;
mod reporter;
mod retrieve;
mod scan;
pub(crate) mod state;
#[cfg(test)]
mod stats_bags_tests;
#[cfg(test)]
pub(crate) mod tests;
mod text;
mod times;
#[cfg(test)]
mod times_tests;
pub(crate) mod trace;
#[cfg(test)]
mod trace_tests;
pub(crate) mod value_in;
mod value_out;
mod verbose;

use std::sync::Arc;
use std::time::Instant;

use net::{
    CloseReason, ConnId, Control, DatagramFate, Flow, Input, Occupation, Output, Peer, Service,
};
use options::Protocol;
use proto::{KeyBuf, Wire};

use crate::log::Log;
use crate::shared::Shared;
use context::Context;
use lookahead::FirstKeys;
use state::{State, Step};
use watch::hub::Events;

pub use state::Session;

/// The state with which one thread serves its connections: the loop's, and the context of requests.
#[derive(Debug)]
pub struct Worker {
    pub(crate) context: Context,
    first_keys: FirstKeys,
    /// Scratch for the reply to a datagram, without frames.
    datagram_payload: Vec<u8>,
    /// Room for the decoded key of a request.
    key_buf: KeyBuf,
    /// Commands are printed (`-vv`).
    is_verbose: bool,
    /// The second in which the wall clock was last read.
    wall_read_at_secs: u32,
    /// The number of the connection that was opened last.
    sessions: u64,
    /// The start of the current batch, if it is one whose times are measured.
    sampled_since: Option<Instant>,
}

impl Worker {
    /// The worker of the calling thread, the `index`th.
    ///
    /// # Panics
    ///
    /// Panics when more threads use the store than it was made for.
    #[must_use]
    #[expect(
        clippy::expect_used,
        reason = "the store is made for as many participants as there are threads"
    )]
    pub fn new(shared: &Arc<Shared>, index: usize, control: &Control) -> Self {
        let engine = engine::Worker::join(&shared.engine).expect("the store has room for a worker");
        Self {
            context: Context::new(shared, engine, control),
            first_keys: FirstKeys::default(),
            datagram_payload: Vec::new(),
            key_buf: KeyBuf::new(),
            is_verbose: false,
            wall_read_at_secs: 0,
            // Numbers of different workers differ, so that watchers can tell connections apart.
            sessions: (index as u64) << 40,
            sampled_since: None,
        }
    }

    /// The account of large values wants the memory that the connection holds.
    #[cfg(test)]
    pub(crate) fn is_revoked(&self, session: &Session) -> bool {
        self.context.large_values.with(|account| account.is_revoked(session.id))
    }

    /// Serves until the connection has to wait or has used its share.
    fn run(
        &mut self,
        session: &mut Session,
        input: &mut Input<'_>,
        output: &mut Output<'_>,
    ) -> Flow {
        let cx = &mut self.context;
        let mut requests_left = cx.shared.requests_per_turn;
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
                    let is_tls = *first == TLS_HANDSHAKE && !session.is_datagram();
                    if session.wire.is_none() && is_tls {
                        return refuse_tls(&cx.shared.log, session, output);
                    }
                    let Some(wire) = session.wire.or_else(|| negotiate(cx.shared.protocol, *first))
                    else {
                        return Flow::CloseNow;
                    };
                    session.wire = Some(wire);
                    if self.is_verbose {
                        verbose::log_command(&cx.shared.log, session, wire, input.bytes());
                    }
                    if session.trace.is_some() && !trace::begin(cx, session, input.bytes(), output)
                    {
                        return Flow::NeedInput;
                    }
                    cx.lookahead.arrive(&cx.engine, input.bytes());
                    match wire {
                        _ if cx.shared.auth.is_some() && session.login.is_missing() => {
                            before_login::serve(cx, session, wire, input, output)
                        }
                        Wire::Text => text::serve(cx, session, input, output, &mut self.key_buf),
                        Wire::Binary => binary::serve(cx, session, input, output),
                    }
                }
                State::Getting(_) => {
                    if requests_left == 0 {
                        return Flow::Yield;
                    }
                    requests_left -= 1;
                    retrieve::go_on(cx, session, input, output)
                }
                State::Receiving(_) => receiving::go_on(cx, session, input, output),
                State::Sending(_) => value_out::go_on(cx, session, output),
                State::Swallowing(_) => value_in::continue_swallowing(session, input),
                State::Asking(_) => login::go_on_asking(cx, session, output),
                State::Delayed(_) => login::go_on_delayed(session, output),
                State::Dumping(..) => admin::go_on_dumping(cx, session, output),
                State::ListingBags(_) => admin::go_on_listing_bags(cx, session, output),
                State::Watching(_) => admin::go_on_watching(session, input, output),
            };
            if session.trace.is_some() {
                trace::step_taken(session, &step, output);
            }
            if let Step::Stop(flow) = step {
                return flow;
            }
            if let Some(since) = self.sampled_since
                && matches!(session.state, State::Commands)
            {
                cx.engine.answered(since.elapsed());
            }
        }
    }

    /// Serves the requests of one datagram as those of a connection that ends with it. An
    /// incomplete request is dropped with all that follows; an error line replaces more than
    /// `limit` bytes of reply. False if there was no request.
    fn serve_datagram(
        &mut self,
        peer: &Peer,
        requests: &[u8],
        limit: usize,
        payload: &mut Vec<u8>,
    ) -> bool {
        let mut session = self.new_session(peer);
        session.reply_bytes_max = limit;
        let mut input = Input::new(requests);
        let mut output = Output::collecting(payload);
        while self.serve(&mut session, &mut input, &mut output) == Flow::Yield {}
        let is_used = input.bytes().is_empty();
        self.release(session);
        if payload.len() > limit {
            payload.clear();
            payload.extend_from_slice(TOO_LARGE_FOR_UDP);
        }
        is_used || !payload.is_empty()
    }

    fn new_session(&mut self, peer: &Peer) -> Session {
        self.sessions += 1;
        Session::new(self.sessions, peer.clone())
    }

    /// Frees the resources of a session.
    fn release(&mut self, session: Session) {
        if session.waits_until.is_some() {
            self.context.large_values.with(|account| account.forget_waiting(session.id));
        }
        match session.state {
            State::Receiving(_) | State::Sending(_) => {
                self.context.large_values.with(|account| account.end(session.id));
            }
            State::Asking(_)
            | State::Commands
            | State::Delayed(_)
            | State::Dumping(..)
            | State::Getting(_)
            | State::ListingBags(_)
            | State::Swallowing(_)
            | State::Watching(_) => {}
        }
    }
}

impl Service for Worker {
    type Session = Session;

    fn begin_turn(&mut self, now: Instant) {
        self.context.now = now;
        self.context.shared.activity.turn();
        self.is_verbose = verbose::is_on(&self.context.shared);
        let secs = self.context.shared.clock.secs_at(now);
        if secs != self.wall_read_at_secs {
            self.wall_read_at_secs = secs;
            self.context.shared.follow_wall_clock(now);
        }
        self.context.engine.begin_turn(secs);
        self.context.engine.begin_samples(self.context.shared.clock.ms_at(now));
        self.context.reporter.turn(self.context.engine.participant());
    }

    fn before_park(&mut self) {
        self.context.engine.rest();
    }

    fn prefetch_lookup(&mut self, session: &Session, input: &[u8]) {
        if matches!(session.state, State::Commands) {
            self.first_keys.add(&self.context.engine, input);
        }
    }

    fn prefetch_items(&mut self) {
        self.first_keys.prepare(&self.context.engine);
    }

    fn open(&mut self, peer: &Peer) -> Session {
        let session = self.new_session(peer);
        if self.context.reporter.wants(Events::CONNECTIONS) {
            self.context.reporter.opened(&session);
        }
        session
    }

    fn serve(
        &mut self,
        session: &mut Session,
        input: &mut Input<'_>,
        output: &mut Output<'_>,
    ) -> Flow {
        if let Some(auth) = &self.context.shared.auth
            && session.generation != auth.generation()
            && !login::renew(session, auth)
        {
            return Flow::CloseNow;
        }
        if self.is_short_of_memory() {
            return let_go(session, output);
        }
        self.context.lookahead.clear();
        if self.context.engine.begin_batch() {
            self.sampled_since = Some(Instant::now());
        }
        let flow = self.run(session, input, output);
        if self.sampled_since.take().is_some() {
            self.context.engine.end_batch();
        }
        self.context.engine.quiesce();
        flow
    }

    fn datagram(&mut self, peer: &Peer, datagram: &[u8], reply: &mut Vec<u8>) -> DatagramFate {
        let Some((frame, requests)) = proto::udp::parse(datagram) else {
            return DatagramFate::Dropped;
        };
        let limit = self.context.shared.udp_reply_bytes_max(requests.len());
        let mut payload = std::mem::take(&mut self.datagram_payload);
        let was_request = self.serve_datagram(peer, requests, limit, &mut payload);
        let fate = if !was_request {
            DatagramFate::Dropped
        } else if payload.len() > limit {
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
        self.context.shared.log.fault(&session.peer, format_args!("TLS: {reason}"));
        if self.context.reporter.wants(Events::CONNECTIONS) {
            self.context.reporter.tls_failed(session, reason);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let Context { refusals, large_values, .. } = &self.context;
        refusals.deadline().into_iter().chain(large_values.deadline()).min()
    }

    fn after_turn(&mut self, resumed: &mut Vec<ConnId>) {
        let Context { large_values, now, .. } = &self.context;
        resumed.extend(large_values.take_due(*now));
        self.context.refusals.take_due(resumed);
    }

    fn is_unauthenticated(&self, session: &Session) -> bool {
        self.context.shared.auth.is_some() && session.login.is_missing()
    }

    fn end_login_time(&mut self, session: &mut Session) {
        session.is_login_time_over = true;
    }

    #[inline]
    fn is_short_of_memory(&self) -> bool {
        reserve::is_low()
    }

    fn take_dropped(&mut self, dropped: &mut Vec<ConnId>) {
        self.context.large_values.take_revoked(dropped);
    }

    fn occupation(&self, session: &Session) -> Occupation {
        match session.state {
            State::Commands => Occupation::None,
            State::Watching(_) => Occupation::Listening,
            State::Asking(_)
            | State::Delayed(_)
            | State::Dumping(..)
            | State::Getting(_)
            | State::ListingBags(_)
            | State::Receiving(_)
            | State::Sending(_)
            | State::Swallowing(_) => Occupation::Request,
        }
    }

    fn has_pending_replies(&self, session: &Session) -> bool {
        matches!(session.state, State::Asking(_) | State::Delayed(_))
    }

    fn close(&mut self, session: Session, reason: CloseReason) {
        let fault = match reason {
            CloseReason::NoLogin => Some("closed: it did not log in in time"),
            CloseReason::SlowClient => Some("closed: it does not read its replies"),
            CloseReason::InputOverflow => Some("closed: its request is too long"),
            _ => None,
        };
        if let Some(what) = fault {
            self.context.shared.log.fault(&session.peer, format_args!("{what}"));
        }
        if self.context.reporter.wants(Events::CONNECTIONS) {
            self.context.reporter.closed(&session, reason);
        }
        self.release(session);
        self.context.engine.quiesce();
    }
}

/// The system gives no memory and the reserve runs low: ends a connection that sent something, so
/// that its memory serves the others.
#[cold]
fn let_go(session: &Session, output: &mut Output<'_>) -> Flow {
    let is_between = matches!(session.state, State::Commands) && !session.is_datagram();
    if is_between && session.wire != Some(Wire::Binary) {
        output.buf().extend_from_slice(proto::reply::OUT_OF_MEMORY);
    }
    Flow::Close
}

/// Refuses a TLS client at a listener without TLS, which its first byte reveals. The answer is a
/// TLS alert, which it understands.
#[cold]
fn refuse_tls(log: &Log, session: &Session, output: &mut Output<'_>) -> Flow {
    log.detail(format_args!("{} speaks TLS to a plain listener", session.peer));
    output.buf().extend_from_slice(TLS_ALERT);
    Flow::Close
}

/// The protocol that a connection's first byte chooses, if `-B` allows it.
fn negotiate(protocol: Protocol, first: u8) -> Option<Wire> {
    let wire = Wire::of(first);
    match (protocol, wire) {
        (Protocol::Auto, _) | (Protocol::Ascii, Wire::Text) | (Protocol::Binary, Wire::Binary) => {
            Some(wire)
        }
        (Protocol::Ascii, Wire::Binary) | (Protocol::Binary, Wire::Text) => None,
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
