//! Classic text replies: the fixed lines, and writers of the others. Writers append to the caller's
//! buffer.

use crate::number::write_u64;

/// Every line of text ends so; so does a data block.
pub const CRLF: &[u8] = b"\r\n";

/// delete found its item.
pub const DELETED: &[u8] = b"DELETED\r\n";
/// The end of a retrieval, of stats, of a dump.
pub const END: &[u8] = b"END\r\n";
/// cas: the item has changed.
pub const EXISTS: &[u8] = b"EXISTS\r\n";
/// The item of cas, delete, incr, decr or touch is not there.
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

/// The data block does not end where its length says.
pub const BAD_DATA_CHUNK: &[u8] = b"CLIENT_ERROR bad data chunk\r\n";
/// incr or decr of a value that is no number.
pub const NON_NUMERIC: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
/// The item would be larger than `-I`.
pub const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";
/// No memory for a new item.
pub const OUT_OF_MEMORY_STORING: &[u8] = b"SERVER_ERROR out of memory storing object\r\n";
/// No memory for the new number of incr or decr.
pub const OUT_OF_MEMORY: &[u8] = b"SERVER_ERROR out of memory\r\n";

/// Refused for the number of connections; sent before closing.
pub const TOO_MANY_CONNECTIONS: &[u8] = b"ERROR Too many open connections\r\n";
/// `flush_all` under `-F`.
pub const FLUSH_NOT_ALLOWED: &[u8] = b"CLIENT_ERROR flush_all not allowed\r\n";
/// A command before the token login of `-Y`.
pub const UNAUTHENTICATED: &[u8] = b"CLIENT_ERROR unauthenticated\r\n";
/// A login with an unknown user or a wrong password.
pub const AUTH_FAILURE: &[u8] = b"CLIENT_ERROR authentication failure\r\n";
/// A login whose token is longer than a token may be.
pub const AUTH_TOKEN_TOO_LONG: &[u8] = b"CLIENT_ERROR auth token too long\r\n";
/// A login whose token is not `user password`.
pub const AUTH_BAD_TOKEN: &[u8] = b"CLIENT_ERROR bad authentication token format\r\n";
/// A login whose token does not end where its length says.
pub const AUTH_BAD_END: &[u8] = b"CLIENT_ERROR bad command line termination\r\n";

/// Appends `VALUE <key> <flags> <bytes> [<cas>]\r\n`; the value and [`CRLF`] are to follow.
#[inline]
pub fn write_value_header(
    out: &mut Vec<u8>,
    key: &[u8],
    flags: u32,
    value_bytes: usize,
    cas: Option<u64>,
) {
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    out.push(b' ');
    write_u64(out, u64::from(flags));
    out.push(b' ');
    out.extend_from_slice(itoa::Buffer::new().format(value_bytes).as_bytes());
    if let Some(cas) = cas {
        out.push(b' ');
        write_u64(out, cas);
    }
    out.extend_from_slice(CRLF);
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
