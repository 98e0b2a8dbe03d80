//! memcached's wire formats: converts bytes to requests, and replies to bytes.
//!
//! ```text
//! bytes -> text::parse   -> Request (classic, or meta within it) -> reply, meta::reply -> bytes
//!       -> binary::parse -> Request                              -> binary::reply      -> bytes
//! datagram -> udp::parse -> the same two
//! bytes of a server -> answer::parse, binary::answer::parse -> Answer, Response (for a client)
//! ```
//!
//! # Laws
//!
//! 1. Parsers are total: any bytes give a request, an error, or "incomplete"; none panics.
//! 2. The same bytes give the same requests however the reads split them.
//! 3. Numbers come only through [`number`]: exact digits, no overflow, nothing after them.
//! 4. A value of known length is never read as commands, not even when its line is refused (except
//!    for too few words).
//! 5. There is no socket and no clock here, and no allocation except the growth of the caller's
//!    reply buffer.
//!
//! The first byte of a connection (over UDP: of a datagram) determines the protocol: see
//! [`Wire::of`].
//!
//! Source: memcached's `doc/protocol.txt` and `protocol-binary.xml`; the behaviour of the running
//! 1.6.45.
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

pub mod answer;
pub mod base64;
pub mod binary;
mod command;
pub mod error;
pub mod exptime;
mod failure;
pub mod key;
pub mod meta;
pub mod number;
pub mod reply;
pub mod text;
pub mod udp;
pub mod uri;
mod words;

pub use command::{Command, CommandClass};
pub use error::Error;
pub use exptime::Exptime;
pub use failure::Failure;
pub use key::{KEY_BYTES_MAX, KeyBuf};

/// The longest value that a text or meta line may announce, in bytes: memcached's `INT_MAX - 2`. A
/// longer one is refused as a malformed line; the engine decides if a shorter one is too large for
/// the cache.
pub const VALUE_BYTES_MAX: u32 = 0x7fff_fffd;

/// The memcached version that is reported in place of a memcached's: to clients that request it
/// from a server or a proxy, and by `-V` and `-h` under the name `memcached`. Clients derive
/// features from it.
pub const COMPATIBLE_VERSION: &str = "1.6.45";

/// The longest hold-off of a delete, in seconds: an hour, where the paper uses two seconds.
pub const HOLD_OFF_SECS_MAX: u32 = 3600;

/// Bytes of the `\r\n` after a data block.
const DATA_END_BYTES: u64 = 2;

/// The protocol of a connection, which its first byte determines permanently.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wire {
    /// Lines: classic text and meta commands.
    Text,
    /// 24-byte headers.
    Binary,
}

impl Wire {
    /// Returns the protocol for the first byte of a connection or of a datagram's payload.
    #[must_use]
    pub const fn of(first_byte: u8) -> Self {
        if first_byte == binary::REQUEST_MAGIC { Self::Binary } else { Self::Text }
    }
}

/// The storage command of a request. A compare-and-swap is a `Set` (or any other) that also carries
/// a cas unique to compare.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StoreMode {
    /// Only if the key is absent.
    Add,
    /// After the present value; its flags and TTL stay.
    Append,
    /// Before the present value; its flags and TTL stay.
    Prepend,
    /// Only if the key is present.
    Replace,
    /// Always.
    Set,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_selects_the_protocol() {
        for byte in 0..=u8::MAX {
            let want = if byte == 0x80 { Wire::Binary } else { Wire::Text };
            assert_eq!(Wire::of(byte), want, "{byte:#x}");
        }
    }
}
