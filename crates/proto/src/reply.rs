//! Classic text replies: the fixed lines, and writers of the others. Writers append to the caller's
//! buffer.

use crate::number::write_u64;
use short::{Parts, Room};

/// The end of every line of text and of every data block.
pub const CRLF: &[u8] = b"\r\n";

/// delete found its item.
pub const DELETED: &[u8] = b"DELETED\r\n";
/// The end of a retrieval, of stats, of a dump.
pub const END: &[u8] = b"END\r\n";
/// cas: the item has changed.
pub const EXISTS: &[u8] = b"EXISTS\r\n";
/// The item of cas, delete, incr, decr or touch does not exist.
pub const NOT_FOUND: &[u8] = b"NOT_FOUND\r\n";
/// The condition of add, replace, append or prepend does not hold.
pub const NOT_STORED: &[u8] = b"NOT_STORED\r\n";
/// An administrator's command is done.
pub const OK: &[u8] = b"OK\r\n";
/// `stats reset` is done.
pub const RESET: &[u8] = b"RESET\r\n";
/// The value is stored.
pub const STORED: &[u8] = b"STORED\r\n";
/// touch found its item.
pub const TOUCHED: &[u8] = b"TOUCHED\r\n";

/// The data block does not end at its announced length.
pub const BAD_DATA_CHUNK: &[u8] = b"CLIENT_ERROR bad data chunk\r\n";
/// incr or decr of a value that is not a number.
pub const NON_NUMERIC: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
/// The item would be larger than `-I`.
pub const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";
/// No memory for a new item.
pub const OUT_OF_MEMORY_STORING: &[u8] = b"SERVER_ERROR out of memory storing object\r\n";
/// No memory for the new number of incr or decr.
pub const OUT_OF_MEMORY: &[u8] = b"SERVER_ERROR out of memory\r\n";
/// The byte quota of the key's namespace does not allow the value.
pub const OVER_QUOTA: &[u8] = b"SERVER_ERROR max-bytes of the namespace reached\r\n";

/// The hold-off of a delete found no room. The key is deleted.
pub const NO_ROOM_FOR_HOLD_OFF: &[u8] =
    b"SERVER_ERROR deleted, but there is no room for the hold-off\r\n";
/// A limit of requests per second refused the hold-off of a delete. The key is deleted.
pub const HOLD_OFF_OVER_RATE: &[u8] =
    b"SERVER_ERROR deleted, but max-requests-per-second does not allow the hold-off\r\n";
/// The empty item that a delete should leave found no room. The key is deleted.
pub const NO_ROOM_FOR_EMPTY_ITEM: &[u8] =
    b"SERVER_ERROR deleted, but there is no room for the empty item\r\n";

/// True for the text of a `SERVER_ERROR` of a delete that was executed.
#[must_use]
pub fn is_only_deleted(text: &[u8]) -> bool {
    text.starts_with(b"deleted, but ")
}

/// Refused because of the number of connections; sent before closing.
pub const TOO_MANY_CONNECTIONS: &[u8] = b"ERROR Too many open connections\r\n";
/// `flush_all` under `-F`.
pub const FLUSH_NOT_ALLOWED: &[u8] = b"CLIENT_ERROR flush_all not allowed\r\n";
/// A command before the token login of `-Y`.
pub const UNAUTHENTICATED: &[u8] = b"CLIENT_ERROR unauthenticated\r\n";
/// A login with an unknown user or a wrong password.
pub const AUTH_FAILURE: &[u8] = b"CLIENT_ERROR authentication failure\r\n";
/// A login whose token exceeds the limit.
pub const AUTH_TOKEN_TOO_LONG: &[u8] = b"CLIENT_ERROR auth token too long\r\n";
/// A login whose token is not `user password`.
pub const AUTH_BAD_TOKEN: &[u8] = b"CLIENT_ERROR bad authentication token format\r\n";
/// A login whose token does not end at its announced length.
pub const AUTH_BAD_END: &[u8] = b"CLIENT_ERROR bad command line termination\r\n";

/// The start of a found item's line.
const VALUE: &[u8] = b"VALUE ";

/// Appends `VALUE <key> <flags> <bytes> [<cas>]\r\n<value>\r\n`.
#[inline(always)]
pub fn write_value(out: &mut Vec<u8>, key: &[u8], flags: u32, value: &[u8], cas: Option<u64>) {
    let header = ValueHeader { key, flags, value_bytes: value.len(), cas };
    let bytes_max = header.bytes_max() + value.len() + CRLF.len();
    short::append_parts(out, bytes_max, Value { header, value });
}

/// Appends `VALUE <key> <flags> <bytes> [<cas>]\r\n`; the value and [`CRLF`] must follow.
#[inline]
pub fn write_value_header(
    out: &mut Vec<u8>,
    key: &[u8],
    flags: u32,
    value_bytes: usize,
    cas: Option<u64>,
) {
    let header = ValueHeader { key, flags, value_bytes, cas };
    short::append_parts(out, header.bytes_max(), header);
}

struct Value<'v> {
    header: ValueHeader<'v>,
    value: &'v [u8],
}

impl Parts for Value<'_> {
    #[inline(always)]
    fn put(self, room: &mut Room<'_>) {
        self.header.put(room);
        room.put(self.value);
        room.put(CRLF);
    }
}

struct ValueHeader<'k> {
    key: &'k [u8],
    flags: u32,
    value_bytes: usize,
    cas: Option<u64>,
}

impl ValueHeader<'_> {
    #[inline(always)]
    fn bytes_max(&self) -> usize {
        VALUE.len() + self.key.len() + LINE_END_BYTES
    }
}

impl Parts for ValueHeader<'_> {
    #[inline(always)]
    fn put(self, room: &mut Room<'_>) {
        room.put(VALUE);
        room.put(self.key);
        let bytes = u32::try_from(self.value_bytes);
        if let (0..=9, Ok(bytes @ 0..=9999), None) = (self.flags, bytes, self.cas) {
            put_short_end(room, self.flags, bytes);
        } else {
            room.put(long_end(self.flags, self.value_bytes, self.cas).bytes());
        }
    }
}

/// ` <flags> <bytes> [<cas>]\r\n`
#[inline(never)]
fn long_end(flags: u32, value_bytes: usize, cas: Option<u64>) -> LineEnd {
    let mut end = LineEnd { bytes: [0; LINE_END_BYTES], len: 0 };
    end.push_number(u64::from(flags));
    end.push_number(value_bytes as u64);
    if let Some(cas) = cas {
        end.push_number(cas);
    }
    end.push(CRLF);
    end
}

/// Puts ` <flags> <bytes>\r\n` if flags have one digit and bytes at most four: one copy of fixed
/// length.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "single digits")]
fn put_short_end(room: &mut Room<'_>, flags: u32, bytes: u32) {
    let flags = b'0' + flags as u8;
    let digit = |unit: u32| b'0' + (bytes / unit % 10) as u8;
    match bytes {
        0..=9 => room.put(&[b' ', flags, b' ', digit(1), b'\r', b'\n']),
        10..=99 => room.put(&[b' ', flags, b' ', digit(10), digit(1), b'\r', b'\n']),
        100..=999 => {
            room.put(&[b' ', flags, b' ', digit(100), digit(10), digit(1), b'\r', b'\n']);
        }
        _ => room.put(&[
            b' ',
            flags,
            b' ',
            digit(1000),
            digit(100),
            digit(10),
            digit(1),
            b'\r',
            b'\n',
        ]),
    }
}

/// Room for three numbers of at most 20 digits, each after a space, and a line end.
const LINE_END_BYTES: usize = 3 * 21 + 2;

/// The end of a line under construction.
struct LineEnd {
    bytes: [u8; LINE_END_BYTES],
    len: usize,
}

impl LineEnd {
    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    #[inline]
    fn push(&mut self, part: &[u8]) {
        if let Some(room) = self.bytes.get_mut(self.len..self.len + part.len()) {
            room.copy_from_slice(part);
            self.len += part.len();
        }
    }

    /// A space and the number.
    #[inline]
    fn push_number(&mut self, number: u64) {
        match u8::try_from(number) {
            // Mostly flags.
            Ok(digit @ 0..=9) => self.push(&[b' ', b'0' + digit]),
            _ => {
                self.push(b" ");
                self.push(itoa::Buffer::new().format(number).as_bytes());
            }
        }
    }
}

/// Appends `LVALUE <key> <token> <flags> <bytes>\r\n`, lease-get's answer for a missing key; the
/// stale value, if there is one, and [`CRLF`] must follow. Source: mcrouter's
/// `AsciiSerialized.cpp`.
pub fn write_lease_header(
    out: &mut Vec<u8>,
    key: &[u8],
    token: u64,
    flags: u32,
    value_bytes: usize,
) {
    let mut end = LineEnd { bytes: [0; LINE_END_BYTES], len: 0 };
    end.push_number(token);
    end.push_number(u64::from(flags));
    end.push_number(value_bytes as u64);
    end.push(CRLF);
    out.extend_from_slice(b"LVALUE ");
    out.extend_from_slice(key);
    let len = out.len() + end.len;
    out.extend_from_slice(&end.bytes);
    out.truncate(len);
}

/// Appends the answer of incr and decr: the number on a line.
pub fn write_number(out: &mut Vec<u8>, number: u64) {
    write_u64(out, number);
    out.extend_from_slice(CRLF);
}

/// Appends `VERSION <version>\r\n`.
pub fn write_version(out: &mut Vec<u8>, version: &str) {
    out.extend_from_slice(b"VERSION ");
    out.extend_from_slice(version.as_bytes());
    out.extend_from_slice(CRLF);
}

/// Appends `STAT <name> <value>\r\n`.
pub fn write_stat(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(b"STAT ");
    out.extend_from_slice(name);
    out.push(b' ');
    out.extend_from_slice(value);
    out.extend_from_slice(CRLF);
}

/// Appends `STAT <name> <number>\r\n`.
pub fn write_stat_u64(out: &mut Vec<u8>, name: &[u8], number: u64) {
    write_stat(out, name, itoa::Buffer::new().format(number).as_bytes());
}
