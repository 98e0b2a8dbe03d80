//! Requests waiting for their replies, and the received part of a reply.

use super::wire::Op;

/// A request without its reply, or several equal ones sent together: the first one's reply is being
/// read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) op: Op,
    /// Their number.
    pub(super) count: u32,
    /// When each should have been sent and when it was, in nanoseconds since the thread's start.
    pub(super) intended: u64,
    pub(super) sent: u64,
    /// Keys per request.
    pub(super) keys: u32,
    /// Replies per request: one per key, or one.
    pub(super) replies: u32,
    /// Bytes per request.
    pub(super) sent_bytes: u32,
    pub(super) reply: Reply,
}

/// The received part of one request's replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) replies: u32,
    pub(super) hits: u32,
    pub(super) is_refused: bool,
    pub(super) bytes: u64,
}

impl Waiting {
    /// True if `other`, which follows, can be counted with this.
    #[inline]
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (self.intended, self.sent) == (other.intended, other.sent)
            && (self.op, self.keys, self.sent_bytes) == (other.op, other.keys, other.sent_bytes)
            && self.reply.bytes == 0
    }
}
