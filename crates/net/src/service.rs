//! The contract between the event loop and what it serves.
//!
//! ```text
//!     socket -> Input -> Service::serve -> Output -> socket
//! ```
//!
//! One [`Service`] lives in each worker thread and never leaves it, so it needs no lock and no
//! `Send`. A connection is one [`Service::Session`] to it. The loop calls `serve` with everything
//! that has arrived and not been consumed; the service answers whole requests into the output and
//! says by [`Flow`] what the connection waits for.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use crate::conn_id::ConnId;
use crate::io::{Input, Output};
use crate::peer::Peer;

/// The protocol that a worker serves. Made inside the worker's thread by the closure given to
/// [`crate::start`].
pub trait Service {
    /// The state of one connection.
    type Session;

    /// The poller has returned; called once before anything is served. `now` is read once per turn.
    fn begin_turn(&mut self, now: Instant);

    /// The worker is about to block in the poller: no reference into shared memory may be held from
    /// here on, except what a session pins in its own state.
    fn before_park(&mut self);

    /// `input` has been read from one of several connections that are served next: the memory that
    /// its first request needs can be asked for. A hint: `serve` is called with the same input all
    /// the same.
    #[inline]
    fn prefetch_lookup(&mut self, _session: &Self::Session, _input: &[u8]) {}

    /// Everything of the group has been looked up, and its first connection is served next.
    #[inline]
    fn prefetch_items(&mut self) {}

    /// A connection was accepted and belongs to this worker.
    fn open(&mut self, peer: &Peer) -> Self::Session;

    /// Serves whole requests from `input` until it is used up or the service gives way.
    ///
    /// `input` is everything received and not yet consumed. It may be empty or unchanged: after
    /// [`Flow::Blocked`] the call comes when the output is drained, after [`Flow::Yield`] when the
    /// others were served, after a [`crate::Waker`] was used, and once more when the server drains.
    /// At most [`crate::INPUT_MAX`] - 1 bytes may stay unconsumed with [`Flow::NeedInput`]; the
    /// connection is closed otherwise, since no more could be read.
    fn serve(
        &mut self,
        session: &mut Self::Session,
        input: &mut Input<'_>,
        output: &mut Output<'_>,
    ) -> Flow;

    /// Answers one UDP request, whose whole `datagram` is given. Appends the reply's datagrams to
    /// `reply`, each [`crate::DATAGRAM_BYTES`] long but the last; what `reply` holds already
    /// belongs to others.
    fn datagram(&mut self, peer: &Peer, datagram: &[u8], reply: &mut Vec<u8>) -> DatagramFate;

    /// The connection is gone or about to go; its socket is closed afterwards.
    fn close(&mut self, session: Self::Session, reason: CloseReason);

    /// The TLS of a connection is broken, for this reason; [`Self::close`] follows.
    fn tls_failed(&mut self, _session: &Self::Session, _reason: &str) {}

    /// A descriptor of the service's own (a poller of sockets, say) that the loop watches for
    /// input. Asked once.
    fn outside(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The descriptor of [`Self::outside`] is readable. Called before the connections that have
    /// events are served.
    fn on_outside(&mut self) {}

    /// The latest time at which the loop should turn, whatever happens.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Everybody was served. The service finishes what it does once for many requests (it sends
    /// what it collected for others), and names the connections whose answers have come: they are
    /// served again, and then this is called again, until it names none.
    fn after_turn(&mut self, _resumed: &mut Vec<ConnId>) {}

    /// True while memory is so short that no connection is to be opened and no handshake goes on.
    fn is_short_of_memory(&self) -> bool {
        false
    }

    /// Adds the connections that must go now, whatever they wait for: one whose client takes
    /// nothing is not served, and could not say so. Called at the end of each turn.
    fn take_dropped(&mut self, _dropped: &mut Vec<ConnId>) {}

    /// The service holds something back that more work would join: the loop looks for more at once,
    /// instead of waiting for it.
    fn is_holding(&self) -> bool {
        false
    }

    /// True if a new session of the same peer could go on for this one, to which nothing is owed:
    /// nothing else is known of it. Then another worker may take the connection over
    /// ([`crate::Placement::Consolidated`]).
    fn may_move(&self, _session: &Self::Session) -> bool {
        false
    }

    /// Another worker serves the connection from now on, with a session of its own.
    fn moved(&mut self, _session: Self::Session) {}

    /// True if this session's client has to log in and has not: it may not hold its place for long
    /// ([`crate::Config::login_timeout`]).
    fn is_unauthenticated(&self, _session: &Self::Session) -> bool {
        false
    }

    /// The work that this session is amid: others may need the memory of its TLS.
    fn occupation(&self, _session: &Self::Session) -> Occupation {
        Occupation::None
    }

    /// True if there is work that is no session's. A worker that drains waits for its end, too.
    fn has_work(&self) -> bool {
        false
    }

    /// True if answers to this session are still to come. Such a connection outlives the end of its
    /// input, and a drain.
    fn owes(&self, _session: &Self::Session) -> bool {
        false
    }
}

/// The event that a connection waits for after [`Service::serve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The output is full: serve again when all of it has left. What was appended is kept.
    Blocked,
    /// Send what was appended, then close.
    Close,
    /// Close at once; what was appended and not sent is dropped.
    CloseNow,
    /// Every whole request is answered: serve again when more has arrived.
    NeedInput,
    /// Nothing can be done, and nothing is read, until [`Service::after_turn`] names the
    /// connection.
    Wait,
    /// The fair share is used up and there is more to do: serve again after the other connections,
    /// without waiting.
    Yield,
}

/// The work that a session is in the middle of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occupation {
    /// Nothing: its next byte begins a request.
    None,
    /// A request that came in part, or whose reply is not complete.
    Request,
    /// It waits for what the server has to tell, for as long as its client likes.
    Listening,
}

/// The fate of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramFate {
    /// It was no request. Nothing was appended.
    Dropped,
    /// It was served, and the reply was appended.
    Replied,
    /// It was served, and its reply is longer than is allowed. Nothing was appended.
    TooLong,
}

/// The reason why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The server drains or stops.
    Drain,
    /// The peer closed its side.
    Eof,
    /// Nothing was received for the idle timeout.
    Idle,
    /// TLS sessions took too much memory, and this one was idle for longest.
    Crowded,
    /// The client did not log in in time.
    NoLogin,
    /// The service left more input unconsumed than the read buffer holds.
    InputOverflow,
    /// The service asked for it ([`Flow::Close`] or [`Flow::CloseNow`]).
    Service,
    /// The peer did not take its replies: for the stall timeout, or for longest when the worker's
    /// buffers were full.
    SlowClient,
    /// The socket failed (reset, broken pipe).
    SocketError,
    /// The peer's TLS is broken, or its handshake took too long.
    Tls,
}
