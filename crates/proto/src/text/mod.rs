//! The text protocol: one line a request, and for storage commands a data block after it.
//!
//! [`parse()`] is given everything unconsumed and answers with at most one request. It consumes
//! only the line; the data block of a storage request (`len` bytes and `\r\n`) follows in the input
//! and is the session's to stream. Of a retrieval line it consumes only the command words, since
//! that line may be of any length: see [`GetLine`].
//!
//! Meta commands stand on the same lines; their words are read by [`crate::meta`].
//!
//! Source: memcached's `doc/protocol.txt`; where this differs is written in `docs/protocol.md`.

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
    /// No whole line (of a retrieval: no whole command) yet. At most [`LINE_BYTES_MAX`] bytes need
    /// keeping.
    Incomplete,
    /// No line end within [`LINE_BYTES_MAX`]: close without an answer.
    LineTooLong,
    /// Someone speaks HTTP to us, perhaps through a browser: close without an answer.
    Http,
    /// A request.
    Request {
        /// The request.
        request: Request<'b>,
        /// Bytes of the input it used. A data block, or the keys of a retrieval, come after them.
        consumed: usize,
    },
    /// A refused request; the connection goes on.
    Bad(BadRequest),
}

/// A refused line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BadRequest {
    /// The reason; [`Error::line`] is the answer.
    pub error: Error,
    /// Bytes of the input used: the line.
    pub consumed: usize,
    /// Bytes after them to read and drop: the refused request's data block with its `\r\n`. It need
    /// not have come yet.
    pub swallow: u64,
    /// True if the client wrote noreply, which silences this error too.
    pub silent: bool,
    /// True if the line is one of a storage command whose length is absent or wrong: nobody knows
    /// where its data block ends, and what the client means as data may come as commands.
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
        /// The number behind the key, which memcached ignores: the seconds of a hold-off where the
        /// operator gives it that meaning.
        secs: u32,
        /// `executed`: a proxy says of a delete that it keeps for later that it does.
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
    /// `flush_prefix`: invalidate every key that begins so.
    FlushPrefix {
        /// The begin, 1 to 250 bytes.
        prefix: &'b [u8],
        /// True if the answer is dropped.
        noreply: bool,
    },
    /// get, gets, gat, gats or lease-get: the keys are to be taken from the input after `consumed`.
    Get(GetLine),
    /// A meta command.
    Meta(meta::Request<'b>),
    /// Close, after the answers before it have left.
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
    /// Bytes of the data block that follows the line, with its `\r\n`; 0 where none follows.
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

    /// True if the client wrote `noreply`. Quiet meta commands do not count: their errors are
    /// told.
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
    /// The cas unique the present item must have: the cas command only.
    pub cas: Option<u64>,
    /// The token that a lease-get was given: the lease-set command only.
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
    /// By how much.
    pub delta: u64,
    /// True if the answer is dropped.
    pub noreply: bool,
}

/// A command for administrators, with its words yet to be judged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Admin<'b> {
    /// The command.
    pub command: AdminCommand,
    /// The words after the command, without a last `noreply`.
    pub words: Words<'b>,
    /// True if the last word was `noreply`. stats, watch and dumps answer all the same.
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

/// Reads the next request from `input`, everything unconsumed. `key_buf` holds a decoded base64
/// key, if there is one.
#[inline]
pub fn parse<'b>(input: &'b [u8], key_buf: &'b mut KeyBuf) -> Parsed<'b> {
    if let [b'g' | b'l', ..] = input
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
