//! A request in the bytes for the server.

use std::io::Write;

use proto::base64;
use proto::meta::TRACEPARENT;
use proto::number::{write_i64, write_u64};
use proto::reply::CRLF;
use proto::text::Words;

use crate::dialect::adds_key;
use crate::request::Request;
use proto::Command;
use spans::Context;

/// Appends `request`, line end and data block included.
pub fn write(out: &mut Vec<u8>, request: &Request<'_>) {
    match request.op {
        Command::Get => word_and_key(out, b"get ", request.key),
        Command::Gets => word_and_key(out, b"gets ", request.key),
        Command::LeaseGet => word_and_key(out, b"lease-get ", request.key),
        Command::MetaInfo => word_and_key(out, b"metaget ", request.key),
        // A hold-off, which servers accept only in the meta command.
        Command::Delete if request.exptime > 0 => {
            word_and_key(out, b"md ", request.key);
            out.extend_from_slice(b" H");
            write_i64(out, request.exptime);
        }
        Command::Delete => {
            word_and_key(out, b"delete ", request.key);
            // Servers take a last word `noreply` for the flag, even if it is the key.
            if request.key == b"noreply" {
                out.extend_from_slice(b" 0");
            }
        }
        Command::Gat | Command::Gats => {
            out.extend_from_slice(if request.op == Command::Gat { b"gat " } else { b"gats " });
            write_i64(out, request.exptime);
            word_and_key(out, b" ", request.key);
        }
        Command::Touch => {
            word_and_key(out, b"touch ", request.key);
            out.push(b' ');
            write_i64(out, request.exptime);
        }
        Command::Incr | Command::Decr => {
            let word: &[u8] = if request.op == Command::Incr { b"incr " } else { b"decr " };
            word_and_key(out, word, request.key);
            out.push(b' ');
            write_u64(out, request.number);
        }
        Command::Add
        | Command::Append
        | Command::Cas
        | Command::LeaseSet
        | Command::Prepend
        | Command::Replace
        | Command::Set => {
            write_store(out, request);
        }
        Command::MetaArithmetic
        | Command::MetaDebug
        | Command::MetaDelete
        | Command::MetaGet
        | Command::MetaSet => {
            write_meta(out, request);
        }
        Command::FlushAll if !request.key.is_empty() => {
            out.extend_from_slice(b"flush_prefix ");
            out.extend_from_slice(request.key);
        }
        Command::FlushAll => {
            out.extend_from_slice(b"flush_all");
            if request.exptime != 0 {
                out.push(b' ');
                write_i64(out, request.exptime);
            }
        }
        Command::Version => out.extend_from_slice(b"version"),
    }
    out.extend_from_slice(CRLF);
    if request.op.has_value() {
        out.extend_from_slice(request.value);
        out.extend_from_slice(CRLF);
    }
}

/// Appends the line that announces the context of the next request.
pub(crate) fn announce(out: &mut Vec<u8>, context: &Context) {
    out.extend_from_slice(b"mn ");
    out.extend_from_slice(TRACEPARENT);
    out.push(b' ');
    context.write(out);
    out.extend_from_slice(CRLF);
}

/// Appends `word` and the key, without a line end.
pub(crate) fn word_and_key(out: &mut Vec<u8>, word: &[u8], key: &[u8]) {
    out.extend_from_slice(word);
    short::append(out, key);
}

/// `set key flags exptime bytes`, followed by the cas unique, or with the lease token before the
/// flags.
fn write_store(out: &mut Vec<u8>, request: &Request<'_>) {
    let word: &[u8] = match request.op {
        Command::Add => b"add ",
        Command::Append => b"append ",
        Command::Cas => b"cas ",
        Command::LeaseSet => b"lease-set ",
        Command::Prepend => b"prepend ",
        Command::Replace => b"replace ",
        _ => b"set ",
    };
    word_and_key(out, word, request.key);
    if request.op == Command::LeaseSet {
        out.push(b' ');
        write_u64(out, request.number);
    }
    out.push(b' ');
    write_u64(out, u64::from(request.flags));
    out.push(b' ');
    write_i64(out, request.exptime);
    out.push(b' ');
    write_u64(out, request.value.len() as u64);
    if request.op == Command::Cas {
        out.push(b' ');
        write_u64(out, request.number);
    }
}

/// `mg key words`.
fn write_meta(out: &mut Vec<u8>, request: &Request<'_>) {
    out.extend_from_slice(match request.op {
        Command::MetaArithmetic => b"ma ",
        Command::MetaDebug => b"me ",
        Command::MetaDelete => b"md ",
        Command::MetaSet => b"ms ",
        _ => b"mg ",
    });
    if request.base64 {
        base64::encode(request.key, out);
    } else {
        out.extend_from_slice(request.key);
    }
    if request.op == Command::MetaSet {
        // Writing into a vector does not fail.
        let _ = write!(out, " {}", request.value.len());
    }
    if adds_key(request.op, request.key, request.words) {
        for word in Words::new(request.words).filter(|word| word.first() != Some(&b'k')) {
            out.push(b' ');
            out.extend_from_slice(word);
        }
    } else if !request.words.is_empty() {
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
    fn every_command_is_written_in_protocol_syntax() {
        let base = Request {
            flags: 5,
            exptime: -1,
            number: 9,
            value: b"ab",
            ..Request::new(Command::Get, b"k")
        };
        let lines = [
            (Command::Get, "get k\r\n"),
            (Command::Gets, "gets k\r\n"),
            (Command::Gat, "gat -1 k\r\n"),
            (Command::Gats, "gats -1 k\r\n"),
            (Command::LeaseGet, "lease-get k\r\n"),
            (Command::MetaInfo, "metaget k\r\n"),
            (Command::Delete, "delete k\r\n"),
            (Command::Touch, "touch k -1\r\n"),
            (Command::Incr, "incr k 9\r\n"),
            (Command::Decr, "decr k 9\r\n"),
            (Command::Set, "set k 5 -1 2\r\nab\r\n"),
            (Command::Add, "add k 5 -1 2\r\nab\r\n"),
            (Command::Replace, "replace k 5 -1 2\r\nab\r\n"),
            (Command::Append, "append k 5 -1 2\r\nab\r\n"),
            (Command::Prepend, "prepend k 5 -1 2\r\nab\r\n"),
            (Command::Cas, "cas k 5 -1 2 9\r\nab\r\n"),
            (Command::LeaseSet, "lease-set k 9 5 -1 2\r\nab\r\n"),
            (Command::MetaGet, "mg k v t\r\n"),
            (Command::MetaDelete, "md k v t\r\n"),
            (Command::MetaArithmetic, "ma k v t\r\n"),
            (Command::MetaDebug, "me k v t\r\n"),
            (Command::MetaSet, "ms k 2 v t\r\nab\r\n"),
            (Command::FlushAll, "flush_prefix k\r\n"),
            (Command::Version, "version\r\n"),
        ];
        for (op, line) in lines {
            assert_eq!(written(&Request { op, words: b"v t", ..base }), line);
        }
        let encoded =
            Request { base64: true, words: b"b", ..Request::new(Command::MetaGet, b"k\n") };
        assert_eq!(written(&encoded), "mg awo= b\r\n");
        let with_key = Request { words: b"v k O1 b", ..encoded };
        assert_eq!(written(&with_key), "mg awo= v O1 b\r\n");
        let plain = Request { key: b"k", ..with_key };
        assert_eq!(written(&plain), "mg aw== v k O1 b\r\n");
        let named_noreply = Request::new(Command::Delete, b"noreply");
        assert_eq!(written(&named_noreply), "delete noreply 0\r\n");
        let held = Request { exptime: 5, ..named_noreply };
        assert_eq!(written(&held), "md noreply H5\r\n");
        assert_eq!(written(&Request::new(Command::FlushAll, b"")), "flush_all\r\n");
        let flush = Request { exptime: -1, ..Request::new(Command::FlushAll, b"") };
        assert_eq!(written(&flush), "flush_all -1\r\n");
        assert_eq!(written(&Request::new(Command::FlushAll, b"user:")), "flush_prefix user:\r\n");
    }
}
