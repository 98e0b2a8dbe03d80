//! Binary responses, read by a client. The binary form of [`crate::answer`]: any bytes give one
//! response, "incomplete", or "no response of this protocol"; the caller judges if it answers the
//! request.

use super::parse::read_header;
use super::{HEADER_BYTES, RESPONSE_MAGIC, Status};
use crate::KEY_BYTES_MAX;

/// The meaning of the bytes so far.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Parsed<'b> {
    /// No response of this protocol: close.
    Bad,
    /// The response is incomplete.
    Incomplete {
        /// Bytes of the whole response, or of its header.
        total: usize,
    },
    /// One response.
    Response {
        /// The response.
        response: Response<'b>,
        /// Bytes of the input it took.
        consumed: usize,
    },
}

/// A response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Response<'b> {
    /// The command that it answers.
    pub opcode: u8,
    /// The status; `None` for an unknown one.
    pub status: Option<Status>,
    /// The request's.
    pub opaque: u32,
    /// The cas unique.
    pub cas: u64,
    /// The bytes before the key: client flags.
    pub extras: &'b [u8],
    /// The key, if the command requests it.
    pub key: &'b [u8],
    /// The value; for a failure, a text.
    pub value: &'b [u8],
}

/// Reads the next response from `input`, all unconsumed bytes. A value of more than
/// `value_bytes_max` bytes is no response.
#[must_use]
pub fn parse(input: &[u8], value_bytes_max: u32) -> Parsed<'_> {
    if input.first().is_some_and(|magic| *magic != RESPONSE_MAGIC) {
        return Parsed::Bad;
    }
    let Some((head, body)) = input.split_first_chunk() else {
        return Parsed::Incomplete { total: HEADER_BYTES };
    };
    let header = read_header(head);
    let (extras_len, key_len) = (usize::from(header.extras_len), usize::from(header.key_len));
    let prefix_len = u32::from(header.extras_len) + u32::from(header.key_len);
    let value_len = header.body_len.checked_sub(prefix_len);
    if key_len > KEY_BYTES_MAX || value_len.is_none_or(|len| len > value_bytes_max) {
        return Parsed::Bad;
    }
    let body_len = header.body_len as usize;
    let total = HEADER_BYTES.saturating_add(body_len);
    let Some(body) = body.get(..body_len) else { return Parsed::Incomplete { total } };
    let (extras, rest) = body.split_at_checked(extras_len).unwrap_or_default();
    let (key, value) = rest.split_at_checked(key_len).unwrap_or_default();
    let [_, _, _, _, _, _, high, low, ..] = *head;
    let response = Response {
        opcode: header.opcode,
        status: Status::of_code(u16::from_be_bytes([high, low])),
        opaque: header.opaque,
        cas: header.cas,
        extras,
        key,
        value,
    };
    Parsed::Response { response, consumed: total }
}
