//! One reply for each request, kept by the types.
//!
//! A client matches replies to requests by their order alone, so a request with two replies hands
//! every later reply of the connection to the wrong request: the client serves other keys' values.
//!
//! ```text
//!     request parsed -> PendingReply --(its last line, or nothing for noreply)--> Replied
//!                            \-> kept in the session's state while the reply goes on
//! ```
//!
//! A [`PendingReply`] can be neither copied nor made by a command: [`PendingReply::of_request`] is
//! called where requests are parsed, once for each. Ending a reply uses it up, so no function can
//! end a reply twice, and one that returns [`Replied`] has ended it.

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

    /// Ends the reply with what `write` appends: one line, one value with its header, or one
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

    /// Ends the reply without a byte: the client asked for none (`noreply`, quiet commands).
    #[inline]
    pub(crate) const fn suppressed(self) -> Replied {
        Replied(())
    }

    /// Ends the reply with `line`, or without a byte if the client asked for `noreply`.
    #[inline]
    pub(crate) fn line_unless(self, noreply: bool, out: &mut Vec<u8>, line: &[u8]) -> Replied {
        if noreply { self.suppressed() } else { self.line(out, line) }
    }
}
