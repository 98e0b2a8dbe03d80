//! One reply for each request, enforced by the types.
//!
//! A client matches replies to requests only by their order. A request with two replies assigns
//! every later reply of the connection to the wrong request, and the client serves values of other
//! keys.
//!
//! ```text
//!     request parsed -> PendingReply --(its last line, or nothing for noreply)--> Replied
//!                            \-> kept in the session's state while the reply goes on
//! ```
//!
//! A [`PendingReply`] cannot be copied, and commands cannot create one.
//! [`PendingReply::of_request`] is called where requests are parsed, once for each. Ending a reply
//! consumes it, so no function can end a reply twice, and one that returns [`Replied`] has ended
//! it.

/// The right and the duty to end the reply of one request.
#[derive(Debug)]
#[must_use = "a request without a reply leaves its client waiting"]
pub(crate) struct PendingReply(());

/// Proof that a request's reply has ended.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the loop is to know that the request has its reply"]
pub(crate) struct Replied(());

impl PendingReply {
    /// The reply of the request that was just parsed.
    pub(super) const fn of_request() -> Self {
        Self(())
    }

    /// Ends the reply with `line`, which includes its line end.
    #[inline]
    pub(crate) fn line(self, out: &mut Vec<u8>, line: &[u8]) -> Replied {
        short::append(out, line);
        Replied(())
    }

    /// Ends the reply with the output of `write`: one line, one value with its header, or one
    /// packet.
    #[inline]
    pub(crate) fn write(self, write: impl FnOnce()) -> Replied {
        write();
        Replied(())
    }

    /// Ends the reply whose last bytes have just been appended.
    #[inline]
    pub(crate) const fn written(self) -> Replied {
        Replied(())
    }

    /// Ends the reply without a byte: the client wants none (`noreply`, quiet commands).
    #[inline]
    pub(crate) const fn suppressed(self) -> Replied {
        Replied(())
    }

    /// Ends the reply with `line`, or without a byte if the client sent `noreply`.
    #[inline]
    pub(crate) fn line_unless(self, noreply: bool, out: &mut Vec<u8>, line: &[u8]) -> Replied {
        if noreply { self.suppressed() } else { self.line(out, line) }
    }
}
