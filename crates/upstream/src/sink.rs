//! The receiver of replies, which every layer between a connection and the caller implements.

use crate::address::Address;
use crate::reply::Reply;
use proto::Command;

/// A number that the caller gives to a request and gets back with its reply.
pub type Ticket = u64;

/// The ticket of the probes that a destination sends.
pub(crate) const PROBE: Ticket = Ticket::MAX;

/// Takes replies.
pub trait Sink {
    /// The reply, or failure, of the request with this ticket.
    fn answer(&mut self, ticket: Ticket, reply: &Reply<'_>);

    /// A server replied to this request, or failed to. Called before [`Self::answer`], and only
    /// while exchanges are watched (`routes::Core::watch`).
    fn exchanged(&mut self, _exchange: &Exchange<'_>, _reply: &Reply<'_>) {}
}

/// A request to one server, as watchers see it.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// The command.
    pub op: Command,
    /// The key.
    pub key: &'a [u8],
    /// The server's pool; empty for a server outside pools.
    pub pool: &'a str,
    /// The server.
    pub server: &'a Address,
    /// Microseconds from the request to the reply.
    pub took_us: u64,
}

/// A sink that also observes each reply together with its request.
pub(crate) trait ReplyObserver: Sink {
    /// Reports a reply to a request that was sent for this pool at this time, in microseconds.
    fn on_reply(&mut self, op: Command, key: &[u8], pool: u16, asked_us: u64, reply: &Reply<'_>);
}
