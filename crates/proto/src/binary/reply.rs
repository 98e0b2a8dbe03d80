//! Binary responses. Writers append to the caller's buffer.
//!
//! A quiet get that is not a hit has no response, whatever the reason: an error among the hits of
//! quiet gets makes some clients (bmemcached) leave the rest unread, and take it for the responses
//! to later requests. [`write_error`], [`write_refusal`] and [`write_miss`] append nothing then.

use super::opcode::{GATKQ, GATQ, GETKQ, GETQ};
use super::{Header, RESPONSE_MAGIC, Status};

impl Status {
    /// The number on the wire.
    #[must_use]
    pub const fn code(self) -> u16 {
        match self {
            Self::Ok => 0x00,
            Self::NotFound => 0x01,
            Self::Exists => 0x02,
            Self::TooLarge => 0x03,
            Self::InvalidArguments => 0x04,
            Self::NotStored => 0x05,
            Self::NonNumeric => 0x06,
            Self::AuthFailure => 0x20,
            Self::AuthContinue => 0x21,
            Self::AccessDenied => 0x24,
            Self::UnknownCommand => 0x81,
            Self::OutOfMemory => 0x82,
            Self::Busy => 0x85,
            Self::TemporaryFailure => 0x86,
        }
    }

    /// The status with this number on the wire.
    #[must_use]
    pub fn of_code(code: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.code() == code)
    }

    const ALL: [Self; 14] = [
        Self::Ok,
        Self::NotFound,
        Self::Exists,
        Self::TooLarge,
        Self::InvalidArguments,
        Self::NotStored,
        Self::NonNumeric,
        Self::AuthFailure,
        Self::AuthContinue,
        Self::AccessDenied,
        Self::UnknownCommand,
        Self::OutOfMemory,
        Self::Busy,
        Self::TemporaryFailure,
    ];

    /// The body of an error response.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Ok | Self::AuthContinue => "",
            Self::NotFound => "Not found",
            Self::Exists => "Data exists for key.",
            Self::TooLarge => "Too large.",
            Self::InvalidArguments => "Invalid arguments",
            Self::NotStored => "Not stored.",
            Self::NonNumeric => "Non-numeric server-side value for incr or decr",
            Self::AuthFailure => "Auth failure.",
            Self::AccessDenied => "Permission denied",
            Self::UnknownCommand => "Unknown command",
            Self::OutOfMemory => "Out of memory",
            Self::Busy => "Busy",
            Self::TemporaryFailure => "Temporary failure",
        }
    }
}

/// Appends a response's header, extras and key. `value_len` bytes of value must follow.
pub fn write_response(
    out: &mut Vec<u8>,
    request: &Header,
    status: Status,
    cas: u64,
    extras: &[u8],
    key: &[u8],
    value_len: u32,
) {
    // These are the server's lengths, not the peer's: extras of at most 4 bytes, a key of 250 or
    // the name of a statistic.
    debug_assert!(extras.len() <= 4 && key.len() <= usize::from(u16::MAX), "a response too wide");
    let extras_len = u8::try_from(extras.len()).unwrap_or_default();
    let key_len = u16::try_from(key.len()).unwrap_or_default();
    let body_len = value_len.saturating_add(u32::from(extras_len) + u32::from(key_len));
    out.extend_from_slice(&[RESPONSE_MAGIC, request.opcode]);
    out.extend_from_slice(&key_len.to_be_bytes());
    out.extend_from_slice(&[extras_len, 0]);
    out.extend_from_slice(&status.code().to_be_bytes());
    out.extend_from_slice(&body_len.to_be_bytes());
    out.extend_from_slice(&request.opaque.to_be_bytes());
    out.extend_from_slice(&cas.to_be_bytes());
    short::append(out, extras);
    short::append(out, key);
}

/// Appends the response to a get that found its item: flags, the key if requested, and the header
/// of a value of `value_len` bytes that must follow.
pub fn write_hit(
    out: &mut Vec<u8>,
    request: &Header,
    flags: u32,
    cas: u64,
    key: Option<&[u8]>,
    value_len: u32,
) {
    let key = key.unwrap_or_default();
    write_response(out, request, Status::Ok, cas, &flags.to_be_bytes(), key, value_len);
}

/// Appends the response to a get that missed: only the key if it was requested; otherwise the text.
/// A quiet get has none.
pub fn write_miss(out: &mut Vec<u8>, request: &Header, key: Option<&[u8]>) {
    match key {
        _ if is_quiet_get(request) => {}
        Some(key) => write_response(out, request, Status::NotFound, 0, b"", key, 0),
        None => write_error(out, request, Status::NotFound),
    }
}

/// Appends a response with only a cas unique: done.
pub fn write_done(out: &mut Vec<u8>, request: &Header, cas: u64) {
    write_response(out, request, Status::Ok, cas, b"", b"", 0);
}

/// Appends an error response with the usual text of `status`. A quiet get has none.
pub fn write_error(out: &mut Vec<u8>, request: &Header, status: Status) {
    write_refusal(out, request, status, status.text().as_bytes());
}

/// Appends an error response with this text. A quiet get has none.
pub fn write_refusal(out: &mut Vec<u8>, request: &Header, status: Status, text: &[u8]) {
    if !is_quiet_get(request) {
        write_value(out, request, status, 0, b"", text);
    }
}

/// Appends an error response after which the connection closes, or to an unknown opcode. No
/// response can follow the former, so quiet gets have it too.
pub fn write_last_error(out: &mut Vec<u8>, request: &Header, status: Status) {
    write_value(out, request, status, 0, b"", status.text().as_bytes());
}

const fn is_quiet_get(request: &Header) -> bool {
    matches!(request.opcode, GETQ | GETKQ | GATQ | GATKQ)
}

/// Appends the response to increment and decrement.
pub fn write_number(out: &mut Vec<u8>, request: &Header, cas: u64, number: u64) {
    write_value(out, request, Status::Ok, cas, b"", &number.to_be_bytes());
}

/// Appends the response to touch: the item's flags, and no value.
pub fn write_touched(out: &mut Vec<u8>, request: &Header, flags: u32, cas: u64) {
    write_response(out, request, Status::Ok, cas, &flags.to_be_bytes(), b"", 0);
}

/// Appends one statistic; both empty marks the end.
pub fn write_stat(out: &mut Vec<u8>, request: &Header, name: &[u8], value: &[u8]) {
    write_value(out, request, Status::Ok, 0, name, value);
}

/// Appends a response with a short value: version, the SASL mechanisms, a SASL challenge.
pub fn write_value(
    out: &mut Vec<u8>,
    request: &Header,
    status: Status,
    cas: u64,
    key: &[u8],
    value: &[u8],
) {
    let value_len = u32::try_from(value.len()).unwrap_or_default();
    write_response(out, request, status, cas, b"", key, value_len);
    short::append(out, value);
}
