//! What a connection is in the middle of.

use std::time::Instant;

use net::Peer;
use proto::Wire;
use proto::text::GetLine;

use super::login::{Asking, Delayed};
use super::pending_reply::{PendingReply, Replied};
use super::value_in::Receiving;
use super::value_out::Sending;
use crate::admin::dump::Dump;
use crate::auth::Login;
use watch::hub::Watching;

/// One connection. Between requests it holds no memory beyond itself.
#[derive(Debug)]
pub struct Session {
    /// Tells this connection from the others of its worker.
    pub(crate) id: u64,
    pub(crate) peer: Peer,
    /// Chosen by the first byte, for life.
    pub(crate) wire: Option<Wire>,
    pub(crate) state: State,
    pub(crate) login: Login,
    /// Of the users when it was last looked at whether the login still holds.
    pub(crate) generation: u64,
    /// While a large value waits to be sent: until when.
    pub(crate) sends_until: Option<Instant>,
    /// Over UDP: no more reply than this is worth building, in bytes.
    pub(crate) reply_bytes_max: usize,
}

/// Between requests, or in the middle of one. Whatever a state holds is what resuming needs and
/// nothing else.
#[derive(Debug, Default)]
pub(crate) enum State {
    /// The authentication worker was asked.
    Asking(Box<Asking>),
    /// Between requests.
    #[default]
    Commands,
    /// A login was refused, and is to be told so.
    Delayed(Box<Delayed>),
    /// A key dump is under way.
    Dumping(Box<Dump>, PendingReply),
    /// In a retrieval line, at the next key.
    Getting(Retrieval),
    /// A value is coming.
    Receiving(Box<Receiving>),
    /// A large value is going.
    Sending(Box<Sending>),
    /// A refused value is being dropped: so many bytes are still to come.
    Swallowing(u64),
    /// A watcher, for life.
    Watching(Box<Watching>),
}

/// A retrieval line whose keys are answered one by one, and the reply that its end completes.
#[derive(Debug)]
pub(crate) struct Retrieval {
    pub(crate) line: GetLine,
    pub(crate) pending: PendingReply,
}

/// What serving did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The request goes on: the session's state says how, and holds its pending reply.
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
            sends_until: None,
            reply_bytes_max: usize::MAX,
        }
    }

    /// One request by UDP, from a sender who may be anyone.
    pub(crate) fn is_datagram(&self) -> bool {
        self.reply_bytes_max != usize::MAX
    }
}
