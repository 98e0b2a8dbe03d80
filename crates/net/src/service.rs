//! The contract between the event loop and its service.
//!
//! ```text
//!     socket -> Input -> Service::serve -> Output -> socket
//! ```
//!
//! One [`Service`] lives in each worker thread and never leaves it, so it needs no lock and no
//! `Send`. A connection is one [`Service::Session`] to it. The loop calls `serve` with all received
//! and unconsumed bytes; the service writes the answers of whole requests to the output and
//! returns, as a [`Flow`], the event that the connection waits for.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use crate::conn_id::ConnId;
use crate::io::{Input, Output};
use crate::peer::Peer;

/// The protocol that a worker serves. The closure given to [`crate::start`] creates it in the
/// worker's thread.
pub trait Service {
    /// The state of one connection.
    type Session;

    /// The poller has returned; called once before anything is served. `now` is read once per turn.
    fn begin_turn(&mut self, now: Instant);

    /// The worker is about to block in the poller: from now on the service may hold no reference
    /// into shared memory, except what a session pins in its own state.
    fn before_park(&mut self);

    /// `input` was read from one of several connections that are served next: the service can
    /// prefetch the memory that its first request needs. This is a hint: `serve` is called with the
    /// same input in any case.
    #[inline]
    fn prefetch_lookup(&mut self, _session: &Self::Session, _input: &[u8]) {}

    /// All lookups of the group are done, and its first connection is served next.
    #[inline]
    fn prefetch_items(&mut self) {}

    /// A connection was accepted and belongs to this worker.
    fn open(&mut self, peer: &Peer) -> Self::Session;

    /// Serves whole requests from `input` until it is used up or the service yields.
    ///
    /// `input` is all received and unconsumed bytes. It may be empty or unchanged: the call comes
    /// after [`Flow::Blocked`] when the output is drained, after [`Flow::Yield`] when the others
    /// were served, after a [`crate::Waker`] was used, and once more when the server drains. At
    /// most [`crate::INPUT_MAX`] - 1 bytes may stay unconsumed with [`Flow::NeedInput`]; otherwise
    /// the connection is closed, since no more could be read.
    fn serve(
        &mut self,
        session: &mut Self::Session,
        input: &mut Input<'_>,
        output: &mut Output<'_>,
    ) -> Flow;

    /// Answers one UDP request, whose whole `datagram` is given. Appends the reply's datagrams to
    /// `reply`, each [`crate::DATAGRAM_BYTES`] long except the last; the present content of `reply`
    /// belongs to others.
    fn datagram(&mut self, peer: &Peer, datagram: &[u8], reply: &mut Vec<u8>) -> DatagramFate;

    /// The connection has ended or is about to end; its socket is closed afterwards.
    fn close(&mut self, session: Self::Session, reason: CloseReason);

    /// The TLS of a connection is broken, for this reason; [`Self::close`] follows.
    fn tls_failed(&mut self, _session: &Self::Session, _reason: &str) {}

    /// A descriptor of the service (for example a poller of sockets) that the loop watches for
    /// input. Called once.
    fn outside(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The descriptor of [`Self::outside`] is readable. Called before the connections that have
    /// events are served.
    fn on_outside(&mut self) {}

    /// The latest time of the loop's next turn, even without events.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// All connections were served. The service finishes its work for many requests at once (it
    /// sends what it collected for other servers), and names the connections whose answers have
    /// come. They are served again, and then this is called again, until it names none.
    fn after_turn(&mut self, _resumed: &mut Vec<ConnId>) {}

    /// True while memory is so short that no connection may be opened and no handshake continues.
    fn is_short_of_memory(&self) -> bool {
        false
    }

    /// Adds the connections that must be closed now, regardless of their state: one whose client
    /// reads nothing is not served, and could not report this. Called at the end of each turn.
    fn take_dropped(&mut self, _dropped: &mut Vec<ConnId>) {}

    /// True if the service holds something back that further work would join: the loop checks for
    /// more at once instead of waiting.
    fn is_holding(&self) -> bool {
        false
    }

    /// True if a new session of the same peer could replace this one, which owes no reply and has
    /// no other state. Then another worker may take the connection over
    /// ([`crate::Placement::Consolidated`]).
    fn may_move(&self, _session: &Self::Session) -> bool {
        false
    }

    /// Another worker serves the connection from now on, with a new session.
    fn moved(&mut self, _session: Self::Session) {}

    /// True if this session's client has to log in and has not done so: it may stay only for
    /// [`crate::Config::login_timeout`].
    fn is_unauthenticated(&self, _session: &Self::Session) -> bool {
        false
    }

    /// The time for this session's login is over, and it has pending replies: it finishes the login
    /// that is being checked, and starts no other. Called again until the connection closes or the
    /// client has logged in.
    fn end_login_time(&mut self, _session: &mut Self::Session) {}

    /// The current work of this session: others may need the memory of its TLS.
    fn occupation(&self, _session: &Self::Session) -> Occupation {
        Occupation::None
    }

    /// True if there is work that belongs to no session. A draining worker also waits for its end.
    fn has_work(&self) -> bool {
        false
    }

    /// True if answers to this session are still to come. Such a connection outlives the end of its
    /// input, and a drain.
    fn has_pending_replies(&self, _session: &Self::Session) -> bool {
        false
    }
}

/// The event that a connection waits for after [`Service::serve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The output is full: serve again when all of it has been sent. The appended bytes are kept.
    Blocked,
    /// Send the appended bytes, then close.
    Close,
    /// Close at once; appended and unsent bytes are dropped.
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

/// The current work of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occupation {
    /// None: its next byte starts a request.
    None,
    /// A partly received request, or an incomplete reply.
    Request,
    /// It waits for messages from the server, for as long as its client likes.
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
    /// The peer did not read its replies: for the stall timeout, or for longest when the worker's
    /// buffers were full.
    SlowClient,
    /// The socket failed (reset, broken pipe).
    SocketError,
    /// The peer's TLS is broken, or its handshake took too long.
    Tls,
}
