//! A request of a client, and its expected reply.

use testkit::history::{Op, Out};

/// The protocol that a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    Binary,
    Meta,
    Text,
}

/// A request without a reply so far.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) opaque: u32,
    pub(super) called: u64,
    pub(super) reply: Reply,
    /// A retrieval has one for each key.
    pub(super) ops: Vec<(usize, Op)>,
    /// The values received so far.
    pub(super) hits: Vec<Option<Out>>,
    /// The lease token received instead.
    pub(super) token: Option<u64>,
    /// The server had no memory for the answer.
    pub(super) is_refused: bool,
}

/// The expected kind of answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reply {
    /// One answer.
    One,
    /// Nothing (`noreply`).
    None,
    /// Only a hit (quiet get of the binary protocol).
    HitOnly,
    /// A hit or nothing, then the answer to `mn` (quiet get of the meta protocol).
    HitThenNoop,
    /// Values, then the end.
    Values,
}

/// Appends a line and its value.
pub(super) fn write(bytes: &mut Vec<u8>, line: &str, value: Option<&[u8]>) {
    for part in std::iter::once(line.as_bytes()).chain(value) {
        bytes.extend_from_slice(part);
        bytes.extend_from_slice(b"\r\n");
    }
}

/// True if a value follows the request.
pub(super) fn has_value(op: Op) -> bool {
    matches!(
        op,
        Op::Add(_)
            | Op::Append(_)
            | Op::Cas(..)
            | Op::LeaseSet(..)
            | Op::Prepend(_)
            | Op::Replace(_)
            | Op::Set(_)
    )
}
