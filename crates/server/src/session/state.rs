//! A connection, and its current request.

use std::sync::Arc;
use std::time::Instant;

use access::{Login, ReplyFormat, Ticket};
use net::Peer;
use proto::Wire;
use proto::binary::Header;
use proto::text::GetLine;
use store::{BagWalk, Pin};

use super::announced::Announced;
use super::awaited::Body;
use super::pending_reply::{PendingReply, Replied};
use crate::admin::dump::Dump;
use watch::hub::Watching;

/// One connection. Between requests it holds no memory beyond itself.
#[derive(Debug)]
pub struct Session {
    /// Distinguishes this connection from the others of its worker.
    pub(crate) id: u64,
    pub(crate) peer: Peer,
    /// Chosen by the first byte, for life.
    pub(crate) wire: Option<Wire>,
    pub(crate) state: State,
    pub(crate) login: Login,
    /// The generation of the users at the last check of the login.
    pub(crate) generation: u64,
    /// The time for the login is over: after the one that is being checked, there is no other.
    pub(crate) is_login_time_over: bool,
    /// While a large value waits for room: the end of the wait.
    pub(crate) waits_until: Option<Instant>,
    /// Over UDP: the maximum size of a reply worth building, in bytes.
    pub(crate) reply_bytes_max: usize,
    /// The trace of the current or the next command.
    pub(crate) trace: Option<Box<Announced>>,
}

/// Between requests, or within one. A state holds only the data that resuming needs.
#[derive(Debug, Default)]
pub(crate) enum State {
    /// Waiting for the authentication worker.
    Asking(Box<Asking>),
    /// Between requests.
    #[default]
    Commands,
    /// A login was refused, and the refusal is not sent yet.
    Delayed(Box<Delayed>),
    /// A key dump is in progress.
    Dumping(Box<Dump>, PendingReply),
    /// In a retrieval line, at the next key.
    Getting(Retrieval),
    /// `stats bags` is in progress.
    ListingBags(Box<BagListing>),
    /// A value is being received.
    Receiving(Box<Receiving>),
    /// A large value is being sent.
    Sending(Box<Sending>),
    /// A refused value is being dropped: the number of bytes to come.
    Swallowing(u64),
    /// A watcher, for life.
    Watching(Box<Watching>),
}

/// `stats bags`, which counts the items of every bag.
#[derive(Debug)]
pub(crate) struct BagListing {
    pub(super) pending: PendingReply,
    /// The request's, if each line is to be a packet.
    pub(super) header: Option<Header>,
    pub(super) walk: BagWalk,
}

/// A retrieval line whose keys are answered one by one, and the reply that its end completes.
#[derive(Debug)]
pub(crate) struct Retrieval {
    pub(crate) line: GetLine,
    pub(crate) pending: PendingReply,
}

/// A value that is not whole yet.
#[derive(Debug)]
pub(crate) struct Receiving {
    pub(super) pending: PendingReply,
    /// The request's bytes, without the value.
    pub(super) head: Vec<u8>,
    pub(super) body: Body,
    /// Bytes of the value still to come.
    pub(super) missing: usize,
    pub(super) is_text: bool,
    /// No room has been found for it yet, so nothing is read.
    pub(super) waits_for_room: bool,
    /// Bytes accounted for; the number grows as more bytes arrive.
    pub(super) held: usize,
    pub(super) received: usize,
}

/// A large value being sent.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(super) pin: Pin,
    pub(super) offset: usize,
    pub(super) then: Then,
}

/// The continuation after a large value.
#[derive(Debug)]
pub(crate) enum Then {
    /// These bytes end the reply: a line end in the meta protocol, nothing in the binary one.
    End(PendingReply, &'static [u8]),
    /// A line end, and the retrieval line continues.
    Keys(Retrieval),
}

/// A request to the authentication worker.
#[derive(Debug)]
pub(crate) struct Asking {
    pub(super) pending: PendingReply,
    pub(super) ticket: Arc<Ticket>,
    /// The time of the client's request.
    pub(super) since: Instant,
    pub(super) then: Purpose,
}

/// The purpose of the authentication worker's answer.
#[derive(Debug)]
pub(super) enum Purpose {
    /// A login, by a password looked up in this generation of users.
    Login(ReplyFormat, u64),
    /// `refresh_certs`.
    Refresh,
}

/// A refusal that is not sent yet.
#[derive(Debug)]
pub(crate) struct Delayed {
    pub(super) pending: PendingReply,
    pub(super) until: Instant,
    pub(super) answer: Vec<u8>,
}

/// The result of serving.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The request continues: the session's state describes how, and holds its pending reply.
    Continue,
    /// The request has its reply.
    Replied(Replied),
    /// Leave the loop.
    Stop(net::Flow),
}

impl From<Replied> for Step {
    fn from(replied: Replied) -> Self {
        Self::Replied(replied)
    }
}

impl Session {
    pub(crate) fn new(id: u64, peer: Peer) -> Self {
        Self {
            id,
            peer,
            wire: None,
            state: State::Commands,
            login: Login::None,
            generation: 0,
            is_login_time_over: false,
            waits_until: None,
            reply_bytes_max: usize::MAX,
            trace: None,
        }
    }

    /// True for a request by UDP, whose sender may be anyone.
    pub(crate) fn is_datagram(&self) -> bool {
        self.reply_bytes_max != usize::MAX
    }
}
