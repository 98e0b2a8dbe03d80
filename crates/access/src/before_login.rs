//! Requests that a connection may send without a login.
//!
//! Source: memcached's `try_read_command_asciiauth` in `proto_text.c`, `process_bin_sasl_auth` in
//! `proto_bin.c`, as the running 1.6.45 answers.

use memchr::memchr;
use proto::binary::{self, Command, Header, Parsed, Status, Then};
use proto::text::Words;
use proto::{number, reply};

use crate::UNAUTHENTICATED_BYTES_MAX;

/// The longest line of a login, in bytes.
const LINE_BYTES_MAX: usize = 2048;

/// The start of a text connection's input.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'b> {
    /// More input must come.
    Incomplete,
    /// A user's name and password, in this many bytes.
    Login {
        /// The name.
        name: &'b [u8],
        /// The password.
        password: &'b [u8],
        /// The bytes of line and data.
        consumed: usize,
    },
    /// Another line, of this many bytes, and the line that answers it.
    Refused(&'static [u8], usize),
    /// No login is this long. The connection ends, after these bytes.
    TooLong(&'static [u8]),
}

/// Reads a line before the login: a login is `set <any> <any> <any> <bytes>`, with `user password`
/// for its data.
#[must_use]
pub fn line(bytes: &[u8]) -> Line<'_> {
    let Some(newline) = memchr(b'\n', bytes.get(..=LINE_BYTES_MAX).unwrap_or(bytes)) else {
        let is_long = bytes.len() > LINE_BYTES_MAX;
        return if is_long { Line::TooLong(b"") } else { Line::Incomplete };
    };
    let (line, rest) = (&bytes[..newline], &bytes[newline + 1..]);
    let Some(len) = token_len(line.strip_suffix(b"\r").unwrap_or(line)) else {
        return Line::Refused(reply::UNAUTHENTICATED, newline + 1);
    };
    let data_len = len as usize + reply::CRLF.len();
    if newline + data_len >= UNAUTHENTICATED_BYTES_MAX {
        return Line::TooLong(reply::AUTH_TOKEN_TOO_LONG);
    }
    let Some(data) = rest.get(..data_len) else { return Line::Incomplete };
    let consumed = newline + 1 + data_len;
    let Some(token) = data.strip_suffix(reply::CRLF) else {
        return Line::Refused(reply::AUTH_BAD_END, consumed);
    };
    let mut words = Words::new(token);
    match (words.next(), words.next()) {
        (Some(name), Some(password)) => Line::Login { name, password, consumed },
        _ => Line::Refused(reply::AUTH_BAD_TOKEN, consumed),
    }
}

/// The length that a line announces for a login token, if it is one.
fn token_len(line: &[u8]) -> Option<u32> {
    let mut words = Words::new(line);
    if words.next() != Some(b"set") {
        return None;
    }
    words.nth(3).and_then(number::parse_u32)
}

/// The start of a binary connection's input.
#[derive(Debug)]
pub enum Packet<'b> {
    /// More input must come.
    Incomplete,
    /// Not a packet. The connection ends without a reply.
    NoPacket,
    /// The connection ends, after this error in reply to this packet.
    Refused(Header, Status),
    /// SASL, or `version` or `quit`, which are harmless, in this many bytes.
    Request(binary::Request<'b>, usize),
}

/// Reads a packet before the login.
#[must_use]
pub fn packet(bytes: &[u8]) -> Packet<'_> {
    let (request, consumed) = match binary::parse(bytes) {
        Parsed::Request { request, consumed } => (request, consumed),
        Parsed::Incomplete => return Packet::Incomplete,
        Parsed::BadMagic => return Packet::NoPacket,
        Parsed::Bad(bad) => {
            let status = match bad.then {
                Then::Close => bad.status,
                Then::Swallow(_) => Status::AuthFailure,
            };
            return Packet::Refused(bad.header, status);
        }
    };
    match request.command {
        Command::SaslList
        | Command::SaslAuth { .. }
        | Command::SaslStep { .. }
        | Command::Version
        | Command::Quit => Packet::Request(request, consumed),
        _ => Packet::Refused(request.header, Status::AuthFailure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_a_set_command_with_name_and_password() {
        let login = b"set a b c 9\r\nme secret\r\nget k";
        let want = Line::Login { name: b"me", password: b"secret", consumed: 24 };
        assert_eq!(line(login), want);
        for end in 0..24 {
            assert_eq!(line(&login[..end]), Line::Incomplete, "{end}");
        }
    }

    #[test]
    fn other_input_is_refused_or_closes_the_connection() {
        assert_eq!(line(b"get k\r\nx"), Line::Refused(reply::UNAUTHENTICATED, 7));
        assert_eq!(line(b"set x 0 0 2\r\nme\r\n"), Line::Refused(reply::AUTH_BAD_TOKEN, 17));
        assert_eq!(line(b"set x 0 0 1\r\nme\r\n"), Line::Refused(reply::AUTH_BAD_END, 16));
        assert_eq!(line(b"set x 0 0 16384\r\n"), Line::TooLong(reply::AUTH_TOKEN_TOO_LONG));
        assert_eq!(line(&[b'a'; LINE_BYTES_MAX + 1]), Line::TooLong(b""));
        assert_eq!(line(&[b'a'; LINE_BYTES_MAX]), Line::Incomplete);
    }
}
