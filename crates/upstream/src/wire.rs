//! A request in the bytes that a server reads.

use std::io::Write;

use proto::base64;
use proto::number::{write_i64, write_u64};
use proto::reply::CRLF;

use crate::request::{Op, Request};

/// Appends `request`, line end and data block included.
pub fn write(out: &mut Vec<u8>, request: &Request<'_>) {
    match request.op {
        Op::Get => word_and_key(out, b"get ", request.key),
        Op::Gets => word_and_key(out, b"gets ", request.key),
        Op::LeaseGet => word_and_key(out, b"lease-get ", request.key),
        Op::MetaInfo => word_and_key(out, b"metaget ", request.key),
        Op::Delete => {
            word_and_key(out, b"delete ", request.key);
            if request.exptime > 0 {
                out.push(b' ');
                write_i64(out, request.exptime);
            }
        }
        Op::Gat | Op::Gats => {
            out.extend_from_slice(if request.op == Op::Gat { b"gat " } else { b"gats " });
            write_i64(out, request.exptime);
            word_and_key(out, b" ", request.key);
        }
        Op::Touch => {
            word_and_key(out, b"touch ", request.key);
            out.push(b' ');
            write_i64(out, request.exptime);
        }
        Op::Incr | Op::Decr => {
            let word: &[u8] = if request.op == Op::Incr { b"incr " } else { b"decr " };
            word_and_key(out, word, request.key);
            out.push(b' ');
            write_u64(out, request.number);
        }
        Op::Add | Op::Append | Op::Cas | Op::LeaseSet | Op::Prepend | Op::Replace | Op::Set => {
            write_store(out, request);
        }
        Op::MetaArithmetic | Op::MetaDebug | Op::MetaDelete | Op::MetaGet | Op::MetaSet => {
            write_meta(out, request);
        }
        Op::FlushAll if !request.key.is_empty() => {
            out.extend_from_slice(b"flush_prefix ");
            out.extend_from_slice(request.key);
        }
        Op::FlushAll => {
            out.extend_from_slice(b"flush_all");
            if request.exptime != 0 {
                out.push(b' ');
                write_i64(out, request.exptime);
            }
        }
        Op::Version => out.extend_from_slice(b"version"),
    }
    out.extend_from_slice(CRLF);
    if request.op.has_value() {
        out.extend_from_slice(request.value);
        out.extend_from_slice(CRLF);
    }
}

/// Appends `word` and the key, without a line end.
pub(crate) fn word_and_key(out: &mut Vec<u8>, word: &[u8], key: &[u8]) {
    out.extend_from_slice(word);
    out.extend_from_slice(key);
}

/// `set key flags exptime bytes`, with the cas unique behind it, or the lease token before the flags.
fn write_store(out: &mut Vec<u8>, request: &Request<'_>) {
    let word: &[u8] = match request.op {
        Op::Add => b"add ",
        Op::Append => b"append ",
        Op::Cas => b"cas ",
        Op::LeaseSet => b"lease-set ",
        Op::Prepend => b"prepend ",
        Op::Replace => b"replace ",
        _ => b"set ",
    };
    word_and_key(out, word, request.key);
    if request.op == Op::LeaseSet {
        out.push(b' ');
        write_u64(out, request.number);
    }
    out.push(b' ');
    write_u64(out, u64::from(request.flags));
    out.push(b' ');
    write_i64(out, request.exptime);
    out.push(b' ');
    write_u64(out, request.value.len() as u64);
    if request.op == Op::Cas {
        out.push(b' ');
        write_u64(out, request.number);
    }
}

/// `mg key words`.
fn write_meta(out: &mut Vec<u8>, request: &Request<'_>) {
    out.extend_from_slice(match request.op {
        Op::MetaArithmetic => b"ma ",
        Op::MetaDebug => b"me ",
        Op::MetaDelete => b"md ",
        Op::MetaSet => b"ms ",
        _ => b"mg ",
    });
    if request.base64 {
        base64::encode(request.key, out);
    } else {
        out.extend_from_slice(request.key);
    }
    if request.op == Op::MetaSet {
        // Writing into a vector does not fail.
        let _ = write!(out, " {}", request.value.len());
    }
    if !request.words.is_empty() {
        out.push(b' ');
        out.extend_from_slice(request.words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(request: &Request<'_>) -> String {
        let mut out = Vec::new();
        write(&mut out, request);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_command_is_written_as_the_protocol_has_it() {
        let base = Request {
            flags: 5,
            exptime: -1,
            number: 9,
            value: b"ab",
            ..Request::new(Op::Get, b"k")
        };
        let lines = [
            (Op::Get, "get k\r\n"),
            (Op::Gets, "gets k\r\n"),
            (Op::Gat, "gat -1 k\r\n"),
            (Op::Gats, "gats -1 k\r\n"),
            (Op::LeaseGet, "lease-get k\r\n"),
            (Op::MetaInfo, "metaget k\r\n"),
            (Op::Delete, "delete k\r\n"),
            (Op::Touch, "touch k -1\r\n"),
            (Op::Incr, "incr k 9\r\n"),
            (Op::Decr, "decr k 9\r\n"),
            (Op::Set, "set k 5 -1 2\r\nab\r\n"),
            (Op::Add, "add k 5 -1 2\r\nab\r\n"),
            (Op::Replace, "replace k 5 -1 2\r\nab\r\n"),
            (Op::Append, "append k 5 -1 2\r\nab\r\n"),
            (Op::Prepend, "prepend k 5 -1 2\r\nab\r\n"),
            (Op::Cas, "cas k 5 -1 2 9\r\nab\r\n"),
            (Op::LeaseSet, "lease-set k 9 5 -1 2\r\nab\r\n"),
            (Op::MetaGet, "mg k v t\r\n"),
            (Op::MetaDelete, "md k v t\r\n"),
            (Op::MetaArithmetic, "ma k v t\r\n"),
            (Op::MetaDebug, "me k v t\r\n"),
            (Op::MetaSet, "ms k 2 v t\r\nab\r\n"),
            (Op::FlushAll, "flush_prefix k\r\n"),
            (Op::Version, "version\r\n"),
        ];
        for (op, line) in lines {
            assert_eq!(written(&Request { op, words: b"v t", ..base }), line);
        }
        let encoded = Request { base64: true, words: b"b", ..Request::new(Op::MetaGet, b"k\n") };
        assert_eq!(written(&encoded), "mg awo= b\r\n");
        assert_eq!(written(&Request::new(Op::FlushAll, b"")), "flush_all\r\n");
        let flush = Request { exptime: -1, ..Request::new(Op::FlushAll, b"") };
        assert_eq!(written(&flush), "flush_all -1\r\n");
        assert_eq!(written(&Request::new(Op::FlushAll, b"user:")), "flush_prefix user:\r\n");
    }
}
