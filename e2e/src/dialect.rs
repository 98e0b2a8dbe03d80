//! The same commands in memcached's three protocols, for clients that keep a history.

use crate::generate::binary::Packet;
use testkit::Wire;
use testkit::history::{Op, Out, Val};
use testkit::wire::show;

/// The protocol that a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Binary packets.
    Binary,
    /// `get`, `set`, ...
    Classic,
    /// `mg`, `ms`, ...
    Meta,
}

/// A command to send: what it is to the checker, and the bytes of its value.
#[derive(Debug, Clone)]
pub struct Request {
    /// The number of the key in the history.
    pub key: usize,
    /// The operation that it means.
    pub op: Op,
    /// The value that it stores or adds; empty when there is none.
    pub data: Vec<u8>,
}

impl Dialect {
    /// Appends the request's bytes to `out`.
    pub fn encode(self, request: &Request, out: &mut Vec<u8>) {
        let key = format!("lin{}", request.key);
        match self {
            Self::Binary => out.extend(binary(request, key.as_bytes())),
            Self::Classic => classic(request, &key, out),
            Self::Meta => meta(request, &key, out),
        }
    }

    /// Reads the reply to a request of this kind.
    pub fn read(self, op: Op, wire: &mut Wire) -> Out {
        match self {
            Self::Binary => read_binary(op, wire),
            Self::Classic => read_classic(op, wire),
            Self::Meta => read_meta(op, wire),
        }
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
    };
    out.extend_from_slice(line.as_bytes());
    data_block(request, out);
}

fn read_classic(op: Op, wire: &mut Wire) -> Out {
    let line = wire.line();
    if let Some(rest) = line.strip_prefix("VALUE ") {
        let words: Vec<&str> = rest.split(' ').collect();
        let data = wire.read_exact(words[2].parse::<usize>().unwrap() + 2);
        assert_eq!(wire.line(), "END");
        let val = Val::of(&data[..data.len() - 2]);
        return Out::Hit { val, cas: words.get(3).and_then(|word| word.parse().ok()) };
    }
    if let Some(rest) = line.strip_prefix("LVALUE ") {
        let words: Vec<&str> = rest.split(' ').collect();
        // The value as it was before a delete, perhaps.
        wire.read_exact(words[3].parse::<usize>().unwrap() + 2);
        assert_eq!(wire.line(), "END");
        return Out::Token(words[1].parse().unwrap());
    }
    match line.as_str() {
        "DELETED" => Out::Deleted,
        "END" => Out::Miss,
        "EXISTS" => Out::Exists,
        "NOT_FOUND" => Out::NotFound,
        "NOT_STORED" => Out::NotStored,
        "OK" => Out::Flushed,
        "STORED" => Out::Stored,
        "TOUCHED" => Out::Touched,
        number => Out::Number(number.parse().unwrap_or_else(|_| panic!("{op:?}: {line:?}"))),
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
        Op::Get => format!("mg {key} v c\r\n"),
        Op::Incr(by) => format!("ma {key} v D{by}\r\n"),
        Op::LeaseGet => format!("mg {key} v c G\r\n"),
        Op::LeaseSet(_, token) => format!("ms {key} {len} G{token}\r\n"),
        Op::Prepend(_) => format!("ms {key} {len} MP\r\n"),
        Op::Replace(_) => format!("ms {key} {len} MR\r\n"),
        Op::Set(_) => format!("ms {key} {len}\r\n"),
        Op::Touch => format!("mg {key} T0\r\n"),
    };
    out.extend_from_slice(line.as_bytes());
    data_block(request, out);
}

fn read_meta(op: Op, wire: &mut Wire) -> Out {
    let line = wire.line();
    if let Some(rest) = line.strip_prefix("VA ") {
        let words: Vec<&str> = rest.split(' ').collect();
        let data = wire.read_exact(words[0].parse::<usize>().unwrap() + 2);
        let val = Val::of(&data[..data.len() - 2]);
        return match (op, val) {
            (Op::Incr(_) | Op::Decr(_), Val::Number(number)) => Out::Number(number),
            (Op::LeaseGet, _) if words.contains(&"W") => {
                let token = words.iter().find_map(|word| word.strip_prefix('G')?.parse().ok());
                Out::Token(token.unwrap_or_else(|| panic!("W without a token: {line:?}")))
            }
            _ => {
                let cas = words.iter().find_map(|word| word.strip_prefix('c')?.parse().ok());
                Out::Hit { val, cas }
            }
        };
    }
    match (op, line.as_str()) {
        (Op::Get, "EN") => Out::Miss,
        (Op::Touch, "EN") | (_, "NF") => Out::NotFound,
        (Op::Touch, "HD") => Out::Touched,
        (Op::Delete, "HD") => Out::Deleted,
        (Op::Flush, "HD") => Out::Flushed,
        (_, "HD") => Out::Stored,
        (_, "NS") => Out::NotStored,
        (_, "EX") => Out::Exists,
        _ => panic!("{op:?}: {line:?}"),
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
        Op::Decr(_) | Op::Delete | Op::Flush | Op::Get | Op::Incr(_) | Op::LeaseGet | Op::Touch
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
        Op::Flush | Op::LeaseGet | Op::LeaseSet(..) => {
            unreachable!("the binary protocol has no {:?}", request.op)
        }
        Op::Prepend(_) => Packet { opcode: 0x0f, value, ..base },
        Op::Replace(_) => Packet { opcode: 0x03, ..store },
        Op::Set(_) => Packet { opcode: 0x01, ..store },
        Op::Touch => Packet { opcode: 0x1c, extras: &set_extras[..4], ..base },
    }
    .bytes()
}

fn read_binary(op: Op, wire: &mut Wire) -> Out {
    let header = wire.read_exact(24);
    let number = |bytes: &[u8]| bytes.iter().fold(0_u64, |n, &byte| n << 8 | u64::from(byte));
    let body = wire.read_exact(usize::try_from(number(&header[8..12])).unwrap());
    match (op, number(&header[6..8])) {
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
        (_, status) => panic!("{op:?}: status {status} {}", show(&body)),
    }
}
