//! The same commands in memcached's three protocols, for clients that record a history.

use crate::generate::binary::Packet;
use testkit::Wire;
use testkit::history::{Op, Out, Val};
use testkit::wire::{End, PATIENCE, show};
use thiserror::Error;

/// The protocol of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Binary packets.
    Binary,
    /// `get`, `set`, ...
    Classic,
    /// `mg`, `ms`, ...
    Meta,
}

/// The reason why a request has no reply of its kind.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NoAnswer {
    /// The connection ended, or the time limit passed, before the end of the reply.
    #[error("no reply: {0:?}")]
    Lost(End),
    /// The server's error: it did not execute the request, or does not know whether it did.
    #[error("refused: {0}")]
    Refused(String),
    /// Not a valid reply to this request.
    #[error("a reply to something else: {0}")]
    Wrong(String),
}

/// A command to send: its operation for the checker, and the bytes of its value.
#[derive(Debug, Clone)]
pub struct Request {
    /// The number of the key in the history.
    pub key: usize,
    /// The operation.
    pub op: Op,
    /// The value to store or append; empty when there is none.
    pub data: Vec<u8>,
}

impl Dialect {
    /// Appends the bytes of a request for `key` to `out`.
    pub fn encode(self, key: &str, request: &Request, out: &mut Vec<u8>) {
        match self {
            Self::Binary => out.extend(binary(request, key.as_bytes())),
            Self::Classic => classic(request, key, out),
            Self::Meta => meta(request, key, out),
        }
    }

    /// Reads the reply to a request of this kind.
    ///
    /// # Errors
    ///
    /// [`NoAnswer`]. After [`NoAnswer::Refused`] the next reply can be read.
    pub fn try_read(self, op: Op, wire: &mut Wire) -> Result<Out, NoAnswer> {
        match self {
            Self::Binary => read_binary(op, wire),
            Self::Classic => read_classic(op, wire),
            Self::Meta => read_meta(op, wire),
        }
    }

    /// Reads the reply to a request of this kind, which must arrive.
    pub fn read(self, op: Op, wire: &mut Wire) -> Out {
        self.try_read(op, wire).unwrap_or_else(|error| panic!("{op:?}: {error}"))
    }
}

/// Reads one line, without its end.
///
/// # Errors
///
/// [`NoAnswer::Lost`].
pub fn line(wire: &mut Wire) -> Result<String, NoAnswer> {
    let (bytes, end) = wire.read_until_or_end(b"\r\n", PATIENCE);
    match bytes.strip_suffix(b"\r\n") {
        Some(line) if end == End::Found => Ok(String::from_utf8_lossy(line).into_owned()),
        _ => Err(NoAnswer::Lost(end)),
    }
}

/// Reads a value of this length and the end of its line.
///
/// # Errors
///
/// [`NoAnswer::Lost`]; [`NoAnswer::Wrong`], when the value has another length.
pub fn value(len: &str, wire: &mut Wire) -> Result<Val, NoAnswer> {
    let len: usize = len.parse().map_err(|_| NoAnswer::Wrong(format!("a length of {len:?}")))?;
    let data = exact(len + 2, wire)?;
    match data.strip_suffix(b"\r\n") {
        Some(data) => Ok(Val::of(data)),
        None => Err(NoAnswer::Wrong(format!("{len} bytes that do not end: {}", show(&data)))),
    }
}

fn exact(len: usize, wire: &mut Wire) -> Result<Vec<u8>, NoAnswer> {
    match wire.read_some_exact(len, PATIENCE) {
        (bytes, End::Found) => Ok(bytes),
        (_, end) => Err(NoAnswer::Lost(end)),
    }
}

/// The error for a line that is no success.
fn failure(line: &str) -> NoAnswer {
    if line.starts_with("SERVER_ERROR") {
        NoAnswer::Refused(line.to_owned())
    } else {
        NoAnswer::Wrong(line.to_owned())
    }
}

fn classic(request: &Request, key: &str, out: &mut Vec<u8>) {
    let len = request.data.len();
    let line = match request.op {
        Op::Add(_) => format!("add {key} 0 0 {len}\r\n"),
        Op::Append(_) => format!("append {key} 0 0 {len}\r\n"),
        Op::Cas(_, unique) => format!("cas {key} 0 0 {len} {unique}\r\n"),
        Op::Decr(by) => format!("decr {key} {by}\r\n"),
        Op::Delete => format!("delete {key}\r\n"),
        Op::Flush => format!("flush_prefix {key}\r\n"),
        Op::Get => format!("gets {key}\r\n"),
        Op::Incr(by) => format!("incr {key} {by}\r\n"),
        Op::LeaseGet => format!("lease-get {key}\r\n"),
        Op::LeaseSet(_, token) => format!("lease-set {key} {token} 0 0 {len}\r\n"),
        Op::Prepend(_) => format!("prepend {key} 0 0 {len}\r\n"),
        Op::Replace(_) => format!("replace {key} 0 0 {len}\r\n"),
        Op::Set(_) => format!("set {key} 0 0 {len}\r\n"),
        Op::Touch => format!("touch {key} 0\r\n"),
        Op::Invalidate | Op::MetaGet => unreachable!("classic text has no {:?}", request.op),
    };
    out.extend_from_slice(line.as_bytes());
    data_block(request, out);
}

fn read_classic(op: Op, wire: &mut Wire) -> Result<Out, NoAnswer> {
    let text = line(wire)?;
    let words: Vec<&str> = text.split(' ').collect();
    let out = match *words {
        ["VALUE", _, _, len, ref cas @ ..] => {
            let val = value(len, wire)?;
            end(wire)?;
            Out::Hit { val, cas: cas.first().and_then(|word| word.parse().ok()) }
        }
        ["LVALUE", _, token, _, len] => {
            // Possibly the value from before a delete.
            value(len, wire)?;
            end(wire)?;
            Out::Token(token.parse().map_err(|_| failure(&text))?)
        }
        ["DELETED"] => Out::Deleted,
        ["END"] => Out::Miss,
        ["EXISTS"] => Out::Exists,
        ["NOT_FOUND"] => Out::NotFound,
        ["NOT_STORED"] => Out::NotStored,
        ["OK"] => Out::Flushed,
        ["STORED"] => Out::Stored,
        ["TOUCHED"] => Out::Touched,
        [number] if matches!(op, Op::Incr(_) | Op::Decr(_)) => {
            Out::Number(number.parse().map_err(|_| failure(&text))?)
        }
        _ => return Err(failure(&text)),
    };
    Ok(out)
}

/// The line that ends the reply to a get.
fn end(wire: &mut Wire) -> Result<(), NoAnswer> {
    match line(wire)?.as_str() {
        "END" => Ok(()),
        other => Err(failure(other)),
    }
}

fn meta(request: &Request, key: &str, out: &mut Vec<u8>) {
    let len = request.data.len();
    let line = match request.op {
        Op::Add(_) => format!("ms {key} {len} ME\r\n"),
        Op::Append(_) => format!("ms {key} {len} MA\r\n"),
        Op::Cas(_, unique) => format!("ms {key} {len} C{unique}\r\n"),
        Op::Decr(by) => format!("ma {key} v MD D{by}\r\n"),
        Op::Delete => format!("md {key}\r\n"),
        Op::Flush => format!("md {key} U\r\n"),
        Op::Get | Op::MetaGet => format!("mg {key} v c\r\n"),
        Op::Incr(by) => format!("ma {key} v D{by}\r\n"),
        Op::LeaseGet => format!("mg {key} v c G\r\n"),
        Op::Invalidate => format!("md {key} I\r\n"),
        Op::LeaseSet(_, token) => format!("ms {key} {len} G{token}\r\n"),
        Op::Prepend(_) => format!("ms {key} {len} MP\r\n"),
        Op::Replace(_) => format!("ms {key} {len} MR\r\n"),
        Op::Set(_) => format!("ms {key} {len}\r\n"),
        Op::Touch => format!("mg {key} T0\r\n"),
    };
    out.extend_from_slice(line.as_bytes());
    data_block(request, out);
}

fn read_meta(op: Op, wire: &mut Wire) -> Result<Out, NoAnswer> {
    let text = line(wire)?;
    if let Some(rest) = text.strip_prefix("VA ") {
        let words: Vec<&str> = rest.split(' ').collect();
        let val = value(words[0], wire)?;
        let flag = |flag| words.iter().find_map(|word| word.strip_prefix(flag)?.parse().ok());
        return match (op, val) {
            (Op::Incr(_) | Op::Decr(_), Val::Number(number)) => Ok(Out::Number(number)),
            (Op::LeaseGet, _) if words.contains(&"W") => {
                flag('G').map(Out::Token).ok_or_else(|| failure(&text))
            }
            (Op::MetaGet, _) if words.contains(&"X") => {
                Ok(Out::Stale { val, cas: flag('c'), won: words.contains(&"W") })
            }
            _ => Ok(Out::Hit { val, cas: flag('c') }),
        };
    }
    match (op, text.as_str()) {
        (Op::Get | Op::MetaGet, "EN") => Ok(Out::Miss),
        (Op::Touch, "EN") | (_, "NF") => Ok(Out::NotFound),
        (Op::Touch, "HD") => Ok(Out::Touched),
        (Op::Delete | Op::Invalidate, "HD") => Ok(Out::Deleted),
        (Op::Flush, "HD") => Ok(Out::Flushed),
        (_, "HD") => Ok(Out::Stored),
        (_, "NS") => Ok(Out::NotStored),
        (_, "EX") => Ok(Out::Exists),
        _ => Err(failure(&text)),
    }
}

fn data_block(request: &Request, out: &mut Vec<u8>) {
    if carries_data(request.op) {
        out.extend_from_slice(&request.data);
        out.extend_from_slice(b"\r\n");
    }
}

const fn carries_data(op: Op) -> bool {
    !matches!(
        op,
        Op::Decr(_)
            | Op::Delete
            | Op::Flush
            | Op::Get
            | Op::Incr(_)
            | Op::Invalidate
            | Op::LeaseGet
            | Op::MetaGet
            | Op::Touch
    )
}

fn binary(request: &Request, key: &[u8]) -> Vec<u8> {
    let set_extras = [0; 8];
    let number_extras = |by: u64| [by.to_be_bytes().as_slice(), &[0; 8], &[0xff; 4]].concat();
    let value = &request.data;
    let base = Packet { key, ..Packet::default() };
    let store = Packet { extras: &set_extras, value, ..base.clone() };
    match request.op {
        Op::Add(_) => Packet { opcode: 0x02, ..store },
        Op::Append(_) => Packet { opcode: 0x0e, value, ..base },
        Op::Cas(_, unique) => Packet { opcode: 0x01, cas: unique, ..store },
        Op::Decr(by) => return Packet { opcode: 0x06, extras: &number_extras(by), ..base }.bytes(),
        Op::Delete => Packet { opcode: 0x04, ..base },
        Op::Get => Packet { opcode: 0x00, ..base },
        Op::Incr(by) => return Packet { opcode: 0x05, extras: &number_extras(by), ..base }.bytes(),
        Op::Flush | Op::Invalidate | Op::LeaseGet | Op::LeaseSet(..) | Op::MetaGet => {
            unreachable!("the binary protocol has no {:?}", request.op)
        }
        Op::Prepend(_) => Packet { opcode: 0x0f, value, ..base },
        Op::Replace(_) => Packet { opcode: 0x03, ..store },
        Op::Set(_) => Packet { opcode: 0x01, ..store },
        Op::Touch => Packet { opcode: 0x1c, extras: &set_extras[..4], ..base },
    }
    .bytes()
}

fn read_binary(op: Op, wire: &mut Wire) -> Result<Out, NoAnswer> {
    let header = exact(24, wire)?;
    let number = |bytes: &[u8]| bytes.iter().fold(0_u64, |n, &byte| n << 8 | u64::from(byte));
    if header[0] != 0x81 {
        return Err(NoAnswer::Wrong(show(&header)));
    }
    let body = exact(usize::try_from(number(&header[8..12])).unwrap(), wire)?;
    let out = match (op, number(&header[6..8])) {
        (Op::Get, 0) => {
            let val = Val::of(&body[usize::from(header[4])..]);
            Out::Hit { val, cas: Some(number(&header[16..24])) }
        }
        (Op::Get, 1) => Out::Miss,
        (Op::Incr(_) | Op::Decr(_), 0) => Out::Number(number(&body)),
        (Op::Delete, 0) => Out::Deleted,
        (Op::Touch, 0) => Out::Touched,
        (_, 0) => Out::Stored,
        (Op::Replace(_), 1) | (Op::Add(_), 2) | (_, 5) => Out::NotStored,
        (_, 1) => Out::NotFound,
        (_, 2) => Out::Exists,
        // The server's own errors: out of memory, busy, unavailable.
        (_, status @ 0x80..) => {
            return Err(NoAnswer::Refused(format!("status {status:#x} {}", show(&body))));
        }
        (_, status) => return Err(NoAnswer::Wrong(format!("status {status} {}", show(&body)))),
    };
    Ok(out)
}
