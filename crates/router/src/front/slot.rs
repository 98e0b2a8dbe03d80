//! A slot of the reply queue: the kind and form of the reply owed to a request.

use upstream::Command;

/// The kind of reply owed to a slot.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// The end of a retrieval line: END, or the error of one of its keys.
    End,
    /// A key of a retrieval line.
    Key,
    /// The only key of a retrieval line, and its end.
    OnlyKey,
    /// A whole reply.
    Whole,
}

/// A place in the queue of replies, for one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) op: Command,
    pub(crate) kind: Kind,
    /// The client asked for no reply (noreply).
    pub(crate) is_mute: bool,
    /// The client asked for no commonplace reply (meta `q`).
    pub(crate) is_quiet: bool,
    /// The client uses base64 for the key.
    pub(super) is_base64: bool,
    pub(super) is_ready: bool,
    /// The reply is an error.
    pub(super) is_error: bool,
    /// Once ready, the reply in the heap; before that, the client's key, if servers see another.
    pub(super) start: u32,
    pub(super) len: u32,
    /// Bytes of the request's value, until it is answered.
    pub(super) asked_bytes: u32,
    /// The reply is a packet of the binary protocol.
    pub(crate) packet: Option<Packet>,
}

/// The parts of a request that the reply packet repeats, and the kind of the reply.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Packet {
    pub(crate) opcode: u8,
    pub(crate) opaque: u32,
    pub(crate) want: Want,
}

/// Kinds of replies of the binary protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Want {
    /// add: an existing item is a separate error.
    Add,
    /// append, prepend
    Concat,
    /// A value.
    Get,
    /// A value, with its key.
    GetWithKey,
    /// increment, decrement
    Number,
    /// Done or not done.
    Other,
    /// set, replace
    Store,
    /// touch
    Touch,
}

impl Want {
    pub(crate) const fn is_get(self) -> bool {
        matches!(self, Self::Get | Self::GetWithKey)
    }
}

impl Slot {
    /// The reply is a packet.
    pub(crate) const fn packet(self, packet: Packet) -> Self {
        Self { packet: Some(packet), ..self }
    }

    /// Returns true if the reply repeats the key, even after a miss.
    pub(crate) const fn wants_key(&self) -> bool {
        matches!(self.packet, Some(Packet { want: Want::GetWithKey, .. }))
    }

    /// Marks that the client wrote noreply, if `is_mute`.
    pub(crate) const fn mute(self, is_mute: bool) -> Self {
        Self { is_mute, ..self }
    }

    /// Sets the number of bytes of the request's value.
    pub(crate) const fn asking(self, asked_bytes: u32) -> Self {
        Self { asked_bytes, ..self }
    }

    /// Marks that the client wrote the key in base64, if `is_base64`.
    pub(crate) const fn base64(self, is_base64: bool) -> Self {
        Self { is_base64, ..self }
    }

    /// Marks that the client wrote `q`, if `is_quiet`.
    pub(crate) const fn quiet(self, is_quiet: bool) -> Self {
        Self { is_quiet, ..self }
    }

    /// A slot for the reply to `op`.
    pub(crate) const fn new(op: Command, kind: Kind) -> Self {
        Self {
            op,
            kind,
            is_mute: false,
            is_quiet: false,
            is_base64: false,
            is_ready: false,
            is_error: false,
            start: 0,
            len: 0,
            asked_bytes: 0,
            packet: None,
        }
    }
}
