//! The text protocol: one line per request, followed by a data block for storage commands.
//!
//! [`parse()`] receives all unconsumed bytes and returns at most one request. It consumes only the
//! line; the data block of a storage request (`len` bytes and `\r\n`) follows in the input, and the
//! session streams it. Of a retrieval line it consumes only the command words, since that line may
//! have any length: see [`GetLine`].
//!
//! Meta commands use the same lines; [`crate::meta`] reads their words.
//!
//! Source: memcached's `doc/protocol.txt`; `docs/protocol.md` describes the differences.

pub(crate) mod classic;
mod get;

pub use classic::{plain_set, retrieval};
pub use get::{GetLine, KeyToken};

pub use crate::words::{Words, first_word};
use crate::{Error, KeyBuf, StoreMode, meta};

/// The longest line, in bytes before its `\n`, of any command but a retrieval.
pub const LINE_BYTES_MAX: usize = 2048;

/// The meaning of the bytes so far.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Parsed<'b> {
    /// No whole line (for a retrieval: no whole command) yet. At most [`LINE_BYTES_MAX`] bytes need
    /// to be kept.
    Incomplete,
    /// No line end within [`LINE_BYTES_MAX`]: close without an answer.
    LineTooLong,
    /// A client speaks HTTP, perhaps through a browser: close without an answer.
    Http,
    /// A request.
    Request {
        /// The request.
        request: Request<'b>,
        /// Bytes of the input it used. A data block, or the keys of a retrieval, come after them.
        consumed: usize,
    },
    /// A refused request; the connection continues.
    Bad(BadRequest),
}

/// A refused line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BadRequest {
    /// The reason; [`Error::line`] is the answer.
    pub error: Error,
    /// Bytes of the input used: the line.
    pub consumed: usize,
    /// Bytes after them to read and drop: the refused request's data block with its `\r\n`. It may
    /// not have arrived yet.
    pub swallow: u64,
    /// True if the client wrote noreply, which also silences this error.
    pub silent: bool,
    /// True for a line of a storage command whose length is absent or wrong: the end of its data
    /// block is unknown, and the client's data may be read as commands.
    pub is_unframed: bool,
}

/// A text request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Request<'b> {
    /// An administrator's command.
    Admin(Admin<'b>),
    /// incr or decr.
    Arithmetic(Arithmetic<'b>),
    /// delete.
    Delete {
        /// The key to delete.
        key: &'b [u8],
        /// The number after the key, which memcached ignores: the seconds of a hold-off if the
        /// operator enables that meaning.
        secs: u32,
        /// `executed`: a proxy reports when it keeps the delete for later.
        tells_kept: bool,
        /// True if the answer is dropped.
        noreply: bool,
    },
    /// `flush_all`.
    FlushAll {
        /// The time, by the rules of [`crate::exptime`]; `None` and negative mean now.
        exptime: Option<i64>,
        /// True if the answer is dropped.
        noreply: bool,
    },
    /// `flush_prefix`: invalidate every key with this prefix.
    FlushPrefix {
        /// The prefix, 1 to 250 bytes.
        prefix: &'b [u8],
        /// True if the answer is dropped.
        noreply: bool,
    },
    /// get, gets, gat, gats or lease-get: the keys are in the input after `consumed`.
    Get(GetLine),
    /// A meta command.
    Meta(meta::Request<'b>),
    /// Close, after the earlier answers have been sent.
    Quit,
    /// A storage command: its data block follows.
    Store(Store<'b>),
    /// touch.
    Touch {
        /// The key whose expiry time changes.
        key: &'b [u8],
        /// The new one, by the rules of [`crate::exptime`].
        exptime: i64,
        /// True if the answer is dropped.
        noreply: bool,
    },
    /// version.
    Version,
}

impl Request<'_> {
    /// Bytes of the data block that follows the line, with its `\r\n`; 0 if none follows.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        let len = match self {
            Self::Meta(meta::Request { command: meta::Command::Set { len, .. }, .. })
            | Self::Store(Store { len, .. }) => *len,
            Self::Admin(_)
            | Self::Arithmetic(_)
            | Self::Delete { .. }
            | Self::FlushAll { .. }
            | Self::FlushPrefix { .. }
            | Self::Get(_)
            | Self::Meta(_)
            | Self::Quit
            | Self::Touch { .. }
            | Self::Version => return 0,
        };
        u64::from(len) + crate::reply::CRLF.len() as u64
    }

    /// True if the client wrote `noreply`. Quiet meta commands do not count: their errors are sent.
    #[must_use]
    pub const fn noreply(&self) -> bool {
        match *self {
            Self::Admin(ref admin) => admin.noreply,
            Self::Arithmetic(ref arithmetic) => arithmetic.noreply,
            Self::Delete { noreply, .. }
            | Self::FlushAll { noreply, .. }
            | Self::FlushPrefix { noreply, .. }
            | Self::Touch { noreply, .. } => noreply,
            Self::Store(ref store) => store.noreply,
            Self::Get(_) | Self::Meta(_) | Self::Quit | Self::Version => false,
        }
    }
}

/// set, add, replace, append, prepend, cas or lease-set.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Store<'b> {
    /// The command; cas is `Set` with a `cas`, lease-set is `Set` with a `lease`.
    pub mode: StoreMode,
    /// The key, 1 to 250 bytes.
    pub key: &'b [u8],
    /// Client flags.
    pub flags: u32,
    /// Expiry time, by the rules of [`crate::exptime`].
    pub exptime: i64,
    /// Bytes in the data block, without its `\r\n`; at most [`crate::VALUE_BYTES_MAX`].
    pub len: u32,
    /// The cas unique that the present item must have: only for the cas command.
    pub cas: Option<u64>,
    /// The token of a lease-get: only for the lease-set command.
    pub lease: Option<u64>,
    /// True if the answer is dropped.
    pub noreply: bool,
}

/// incr or decr.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Arithmetic<'b> {
    /// The counter's key.
    pub key: &'b [u8],
    /// decr rather than incr.
    pub decrement: bool,
    /// The amount to add or subtract.
    pub delta: u64,
    /// True if the answer is dropped.
    pub noreply: bool,
}

/// A command for administrators, whose words are not yet checked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Admin<'b> {
    /// The command.
    pub command: AdminCommand,
    /// The words after the command, without a last `noreply`.
    pub words: Words<'b>,
    /// True if the last word was `noreply`. stats, watch and dumps still answer.
    pub noreply: bool,
}

/// The commands of [`Admin`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AdminCommand {
    /// `cache_memlimit`
    CacheMemlimit,
    /// `extstore`
    Extstore,
    /// `lru`
    Lru,
    /// `lru_crawler`
    LruCrawler,
    /// `refresh_certs`
    RefreshCerts,
    /// `shutdown`
    Shutdown,
    /// `slabs`
    Slabs,
    /// `stats`
    Stats,
    /// `verbosity`
    Verbosity,
    /// `watch`
    Watch,
}

/// Reads the next request from `input`, all unconsumed bytes. `key_buf` holds a decoded base64 key,
/// if there is one.
#[inline]
pub fn parse<'b>(input: &'b [u8], key_buf: &'b mut KeyBuf) -> Parsed<'b> {
    if let [b'g' | b'l' | b'b', ..] = input
        && let Some((line, consumed)) = retrieval(input)
    {
        return classic::request(Request::Get(line), consumed);
    }
    if let Some((store, consumed)) = plain_set(input) {
        return classic::request(Request::Store(store), consumed);
    }
    let window = input.get(..=LINE_BYTES_MAX).unwrap_or(input);
    let Some(newline) = memchr::memchr(b'\n', window) else {
        return if input.len() > LINE_BYTES_MAX { Parsed::LineTooLong } else { Parsed::Incomplete };
    };
    let line = input.get(..newline).unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    classic::line(line, newline + 1, key_buf)
}
