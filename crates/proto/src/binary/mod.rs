//! The binary protocol: a 24-byte header, extras, key and value.
//!
//! [`parse()`] consumes the header, the extras and the key. A storage request's value (`value_len`
//! bytes, no line end) follows in the input, and the session streams it.
//!
//! Source: memcached's `protocol-binary.xml` and `protocol_binary.h`; the behaviour of the running
//! 1.6.45.

pub mod answer;
pub mod opcode;
mod parse;
pub mod reply;
pub mod request;

pub use parse::parse;

use crate::StoreMode;

/// The first byte of a request.
pub const REQUEST_MAGIC: u8 = 0x80;
/// The first byte of a response.
pub const RESPONSE_MAGIC: u8 = 0x81;
/// Bytes of a header.
pub const HEADER_BYTES: usize = 24;
/// The longest body a header may announce, in bytes: 1 GiB.
pub const BODY_BYTES_MAX: u32 = 1 << 30;
/// The longest SASL body, in bytes. It is kept whole until complete, from peers without a login.
pub const SASL_BODY_BYTES_MAX: u32 = 4096;

/// The meaning of the bytes so far.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Parsed<'b> {
    /// No whole header, extras and key (for SASL: no whole body) yet.
    Incomplete,
    /// The first byte is not [`REQUEST_MAGIC`]: close without an answer.
    BadMagic,
    /// A request.
    Request {
        /// The request.
        request: Request<'b>,
        /// Bytes of the input it used. A value comes after them.
        consumed: usize,
    },
    /// A refused request. Its answer is [`reply::write_last_error`] with this status.
    Bad(BadRequest),
}

/// A refused request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BadRequest {
    /// For the answer.
    pub header: Header,
    /// The reason.
    pub status: Status,
    /// Bytes of the input used.
    pub consumed: usize,
    /// The connection's next step.
    pub then: Then,
}

/// The connection's next step after a refused request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Then {
    /// The lengths cannot be trusted: answer and close.
    Close,
    /// Read and drop this many bytes, the request's body, and continue.
    Swallow(u32),
}

/// The reserved field of a delete: the client wants an error for a delete that a proxy keeps for
/// later. Servers ignore the field.
pub const TELLS_KEPT: u16 = 0x6578;

/// The part of a request's header that is kept.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Header {
    /// The command's number, unchanged.
    pub opcode: u8,
    /// Bytes of extras.
    pub extras_len: u8,
    /// Bytes of key.
    pub key_len: u16,
    /// Reserved, and 0 from most clients: see [`TELLS_KEPT`].
    pub reserved: u16,
    /// Bytes of extras, key and value.
    pub body_len: u32,
    /// Returned unchanged.
    pub opaque: u32,
    /// The cas unique the present item must have; 0: none.
    pub cas: u64,
}

/// A binary request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Request<'b> {
    /// Its header, for the answer.
    pub header: Header,
    /// The quiet form: the usual answer (a miss of gets, the success of others) is not sent.
    pub quiet: bool,
    /// The command.
    pub command: Command<'b>,
}

/// The commands. Expiry times are unsigned: by the rules of [`crate::exptime`], none is negative.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Command<'b> {
    /// increment, decrement
    Arithmetic {
        /// The counter's key.
        key: &'b [u8],
        /// decrement rather than increment.
        decrement: bool,
        /// The amount to add or subtract.
        delta: u64,
        /// The number to create it with.
        initial: u64,
        /// The expiry time to create it with; `None` (0xffffffff): do not create.
        exptime: Option<u32>,
    },
    /// append, prepend: the value follows.
    Concat {
        /// `Append` or `Prepend`.
        mode: StoreMode,
        /// The key of the value.
        key: &'b [u8],
        /// Bytes of value that follow.
        value_len: u32,
    },
    /// delete
    Delete {
        /// The key.
        key: &'b [u8],
    },
    /// flush
    Flush {
        /// The time; `None`: now.
        exptime: Option<u32>,
    },
    /// get, getk; with `exptime`: gat, gatk
    Get {
        /// The key.
        key: &'b [u8],
        /// True if the answer repeats the key.
        with_key: bool,
        /// The new expiry time.
        exptime: Option<u32>,
    },
    /// noop
    NoOp,
    /// quit
    Quit,
    /// SASL: list the mechanisms.
    SaslList,
    /// SASL: start.
    SaslAuth {
        /// The mechanism's name.
        mechanism: &'b [u8],
        /// The client's message.
        data: &'b [u8],
    },
    /// SASL: continue.
    SaslStep {
        /// The mechanism's name.
        mechanism: &'b [u8],
        /// The client's message.
        data: &'b [u8],
    },
    /// stat
    Stat {
        /// The subcommand; empty: the general statistics.
        key: &'b [u8],
    },
    /// set, add, replace: the value follows.
    Store {
        /// `Set`, `Add` or `Replace`.
        mode: StoreMode,
        /// The key.
        key: &'b [u8],
        /// Client flags.
        flags: u32,
        /// Expiry time.
        exptime: u32,
        /// Bytes of value that follow.
        value_len: u32,
    },
    /// touch
    Touch {
        /// The key of the item.
        key: &'b [u8],
        /// The new one.
        exptime: u32,
    },
    /// version
    Version,
}

/// The status of a response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Status {
    /// 0x00
    Ok,
    /// 0x01
    NotFound,
    /// 0x02: exists, or the cas unique differs.
    Exists,
    /// 0x03
    TooLarge,
    /// 0x04
    InvalidArguments,
    /// 0x05
    NotStored,
    /// 0x06
    NonNumeric,
    /// 0x20
    AuthFailure,
    /// 0x21
    AuthContinue,
    /// 0x24: the user has no right to this.
    AccessDenied,
    /// 0x81
    UnknownCommand,
    /// 0x82
    OutOfMemory,
    /// 0x85
    Busy,
    /// 0x86
    TemporaryFailure,
}
