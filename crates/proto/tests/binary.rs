//! Binary requests: every opcode, every refused size, staying in step; and responses byte for byte.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use common::{binary_events, single_bytes};
use proto::StoreMode;
use proto::binary::{
    BODY_BYTES_MAX, Command, HEADER_BYTES, Header, Parsed, SASL_BODY_BYTES_MAX, Status, Then,
    parse, reply,
};

/// A packet with a correct header.
fn packet(opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let body_len = u32::try_from(extras.len() + key.len() + value.len()).unwrap();
    let key_len = u16::try_from(key.len()).unwrap();
    let extras_len = u8::try_from(extras.len()).unwrap();
    let header = raw_header(opcode, key_len, extras_len, body_len);
    [&header, extras, key, value].concat()
}

/// Only a header: opaque 0xdeadbeef, cas 0x0102030405060708, and a data type and a vbucket that
/// must be ignored.
fn raw_header(opcode: u8, key_len: u16, extras_len: u8, body_len: u32) -> Vec<u8> {
    let mut bytes = vec![0x80, opcode];
    bytes.extend(key_len.to_be_bytes());
    bytes.extend([extras_len, 7, 1, 2]);
    bytes.extend(body_len.to_be_bytes());
    bytes.extend(0xdead_beef_u32.to_be_bytes());
    bytes.extend(0x0102_0304_0506_0708_u64.to_be_bytes());
    bytes
}

/// Asserts the request, and that all bytes except a streamed value are consumed. `quiet` is the
/// opcode's quiet form, or 0.
#[track_caller]
fn check(opcode: u8, quiet: u8, extras: &[u8], key: &[u8], value: &[u8], want: Command<'_>) {
    for (opcode, is_quiet) in [(opcode, false), (quiet, true)] {
        if is_quiet && quiet == 0 {
            continue;
        }
        let sent = packet(opcode, extras, key, value);
        let Parsed::Request { request, consumed } = parse(&sent) else {
            panic!("{opcode:#x}: {:?}", parse(&sent));
        };
        assert_eq!((request.command, request.quiet), (want, is_quiet), "{opcode:#x}");
        assert_eq!(
            (request.header.opaque, request.header.cas),
            (0xdead_beef, 0x0102_0304_0506_0708)
        );
        let streamed = matches!(want, Command::Store { .. } | Command::Concat { .. });
        let left = if streamed { value.len() } else { 0 };
        assert_eq!(consumed, sent.len() - left, "{opcode:#x}");
        for short in 0..consumed {
            assert_eq!(parse(&sent[..short]), Parsed::Incomplete, "{opcode:#x} at {short}");
        }
    }
}

/// Asserts that a header without its body is refused.
#[track_caller]
fn check_bad(header: &[u8], status: Status, then: Then) {
    match parse(header) {
        Parsed::Bad(bad) => {
            assert_eq!((bad.status, bad.then, bad.consumed), (status, then, HEADER_BYTES));
        }
        other => panic!("{}: {other:?}", header.escape_ascii()),
    }
}

const FOUR: [u8; 4] = [0, 0, 1, 2];
const EIGHT: [u8; 8] = [0xde, 0xad, 0, 1, 0xff, 0xff, 0xff, 0xff];

#[test]
fn gets() {
    let get = |with_key, exptime| Command::Get { key: b"k", with_key, exptime };
    check(0x00, 0x09, b"", b"k", b"", get(false, None));
    check(0x0c, 0x0d, b"", b"k", b"", get(true, None));
    check(0x1d, 0x1e, &FOUR, b"k", b"", get(false, Some(0x102)));
    check(0x23, 0x24, &FOUR, b"k", b"", get(true, Some(0x102)));
    check(0x1c, 0, &FOUR, b"k", b"", Command::Touch { key: b"k", exptime: 0x102 });
}

#[test]
fn stores() {
    for (opcode, quiet, mode) in [
        (0x01, 0x11, StoreMode::Set),
        (0x02, 0x12, StoreMode::Add),
        (0x03, 0x13, StoreMode::Replace),
    ] {
        let (flags, exptime) = (0xdead_0001, u32::MAX);
        let store = Command::Store { mode, key: b"key", flags, exptime, value_len: 5 };
        check(opcode, quiet, &EIGHT, b"key", b"value", store);
    }
    for (opcode, quiet, mode) in [(0x0e, 0x19, StoreMode::Append), (0x0f, 0x1a, StoreMode::Prepend)]
    {
        let concat = Command::Concat { mode, key: b"key", value_len: 5 };
        check(opcode, quiet, b"", b"key", b"value", concat);
    }
    // Keys of any bytes, at their longest.
    let key = [b'\n'; 250];
    let store =
        Command::Store { mode: StoreMode::Set, key: &key, flags: 0, exptime: 0, value_len: 0 };
    check(0x01, 0x11, &[0; 8], &key, b"", store);
}

#[test]
fn counters() {
    let mut extras = [0; 20];
    extras[7] = 1;
    extras[15] = 2;
    extras[19] = 3;
    for (opcode, quiet, decrement) in [(0x05, 0x15, false), (0x06, 0x16, true)] {
        let mut want =
            Command::Arithmetic { key: b"n", decrement, delta: 1, initial: 2, exptime: Some(3) };
        check(opcode, quiet, &extras, b"n", b"", want);
        if let Command::Arithmetic { exptime, .. } = &mut want {
            *exptime = None;
        }
        let no_create = [&extras[..16], &[0xff; 4]].concat();
        check(opcode, quiet, &no_create, b"n", b"", want);
    }
}

#[test]
fn other_commands() {
    check(0x04, 0x14, b"", b"k", b"", Command::Delete { key: b"k" });
    check(0x07, 0x17, b"", b"", b"", Command::Quit);
    check(0x08, 0x18, b"", b"", b"", Command::Flush { exptime: None });
    check(0x08, 0x18, &FOUR, b"", b"", Command::Flush { exptime: Some(0x102) });
    check(0x0a, 0, b"", b"", b"", Command::NoOp);
    check(0x0b, 0, b"", b"", b"", Command::Version);
    check(0x10, 0, b"", b"", b"", Command::Stat { key: b"" });
    check(0x10, 0, b"", b"items", b"", Command::Stat { key: b"items" });
    check(0x20, 0, b"", b"", b"", Command::SaslList);
    let data = b"\0user\0password".as_slice();
    check(0x21, 0, b"", b"PLAIN", data, Command::SaslAuth { mechanism: b"PLAIN", data });
    check(0x22, 0, b"", b"PLAIN", b"", Command::SaslStep { mechanism: b"PLAIN", data: b"" });
}

/// For each opcode: sizes of extras, key and value that it does not allow.
#[test]
fn sizes_invalid_for_an_opcode_close_the_connection() {
    let close = |opcode, extras: u8, key: u16, value: u32| {
        let body = u32::from(extras) + u32::from(key) + value;
        check_bad(&raw_header(opcode, key, extras, body), Status::InvalidArguments, Then::Close);
    };
    for opcode in [0x00, 0x09, 0x0c, 0x0d, 0x04, 0x14] {
        close(opcode, 4, 1, 0);
        close(opcode, 0, 0, 0);
        close(opcode, 0, 251, 0);
        close(opcode, 0, 1, 1);
    }
    for opcode in [0x01, 0x02, 0x03, 0x11, 0x12, 0x13] {
        close(opcode, 0, 1, 1);
        close(opcode, 4, 1, 1);
        close(opcode, 9, 1, 1);
        close(opcode, 8, 0, 1);
        close(opcode, 8, 251, 1);
    }
    for opcode in [0x0e, 0x0f, 0x19, 0x1a] {
        close(opcode, 8, 1, 1);
        close(opcode, 0, 0, 1);
        close(opcode, 0, 251, 1);
    }
    for opcode in [0x05, 0x06, 0x15, 0x16] {
        close(opcode, 0, 1, 0);
        close(opcode, 19, 1, 0);
        close(opcode, 20, 0, 0);
        close(opcode, 20, 1, 1);
    }
    for opcode in [0x07, 0x17, 0x0a, 0x0b, 0x20] {
        close(opcode, 1, 0, 0);
        close(opcode, 0, 1, 0);
        close(opcode, 0, 0, 1);
    }
    for opcode in [0x08, 0x18] {
        close(opcode, 3, 0, 0);
        close(opcode, 4, 1, 0);
        close(opcode, 4, 0, 1);
    }
    for opcode in [0x1c, 0x1d, 0x1e, 0x23, 0x24] {
        close(opcode, 0, 1, 0);
        close(opcode, 4, 0, 0);
        close(opcode, 4, 1, 1);
    }
    close(0x10, 4, 0, 0);
    close(0x10, 0, 251, 0);
    close(0x10, 0, 5, 1);
    close(0x21, 0, 0, 1);
    close(0x22, 1, 5, 1);
    close(0x21, 0, 5, SASL_BODY_BYTES_MAX + 1);
}

/// CVE-2011-4971, -2016-8704, -8705, -8706, -2017-9951, -2020-10931: lengths that contradict each
/// other.
#[test]
fn contradictory_lengths_close_the_connection() {
    let unknown = |opcode, key, extras, body| {
        let header = raw_header(opcode, key, extras, body);
        check_bad(&header, Status::UnknownCommand, Then::Close);
    };
    unknown(0x0e, 0xfa, 0, 0);
    unknown(0x0f, 0xfa, 0, 0);
    unknown(0x21, 32, 0, 1);
    unknown(0x00, 0xffff, 0, 0xfffe);
    unknown(0x00, 0, 0xff, 0x14);
    unknown(0x77, 1, 1, 1);
    let huge = |opcode, key, extras, body| {
        let header = raw_header(opcode, key, extras, body);
        check_bad(&header, Status::InvalidArguments, Then::Close);
    };
    huge(0x12, 1, 8, 0xffff_ffe8);
    huge(0x01, 0xfa, 8, 0xffff_ffd0);
    huge(0x01, 1, 8, BODY_BYTES_MAX + 1);
    huge(0x77, 0, 0, BODY_BYTES_MAX + 1);
    huge(0x00, 0, 0x14, 0x14);
    let largest = raw_header(0x01, 1, 8, BODY_BYTES_MAX);
    assert_eq!(parse(&largest), Parsed::Incomplete);
}

#[test]
fn an_unknown_opcode_does_not_desynchronize_the_parser() {
    for opcode in [0x1b, 0x1f, 0x25, 0x30, 0x3c, 0x40, 0xff] {
        let header = raw_header(opcode, 300, 9, 1000);
        check_bad(&header, Status::UnknownCommand, Then::Swallow(1000));
        let sent =
            [packet(opcode, b"abc", b"key", b"\x80value"), packet(0x0a, b"", b"", b"")].concat();
        let events = binary_events(&[&sent]);
        assert_eq!(events.len(), 2);
        assert_eq!(events[1], "quiet=false NoOp");
    }
}

#[test]
fn a_wrong_magic_byte_is_refused() {
    for magic in [0x00, b'g', 0x81, 0xff] {
        assert_eq!(parse(&[magic]), Parsed::BadMagic);
    }
    assert_eq!(parse(&[]), Parsed::Incomplete);
}

#[test]
fn split_input_is_parsed_the_same() {
    let sent = [
        packet(0x11, &EIGHT, b"key", b"value"),
        packet(0x0d, b"", b"key", b""),
        packet(0x1b, b"abcd", b"", b"left over"),
        packet(0x19, b"", b"key", b""),
        packet(0x21, b"", b"PLAIN", b"\0a\0b"),
        packet(0x1f, b"", b"", b""),
        packet(0x0a, b"", b"", b""),
        b"get".to_vec(),
    ]
    .concat();
    let whole = binary_events(&[&sent]);
    assert_eq!(whole.last().unwrap(), "bad magic");
    assert_eq!(whole.len(), 10);
    for cut in 0..=sent.len() {
        let (first, second) = sent.split_at(cut);
        assert_eq!(binary_events(&[first, second]), whole, "cut at {cut}");
    }
    assert_eq!(binary_events(&single_bytes(&sent)), whole);
}

const REQUEST: Header = Header {
    opcode: 0x0c,
    key_len: 1,
    body_len: 1,
    opaque: 0xdead_beef,
    cas: 9,
    extras_len: 0,
    reserved: 0,
};

/// Asserts a response: its header's varying fields, then its body.
#[track_caller]
fn check_reply(
    write: impl FnOnce(&mut Vec<u8>),
    key_len: u16,
    extras_len: u8,
    status: u16,
    body_len: u32,
    cas: u64,
    body: &[u8],
) {
    let mut out = Vec::new();
    write(&mut out);
    let mut want = vec![0x81, 0x0c];
    want.extend(key_len.to_be_bytes());
    want.extend([extras_len, 0]);
    want.extend(status.to_be_bytes());
    want.extend(body_len.to_be_bytes());
    want.extend([0xde, 0xad, 0xbe, 0xef]);
    want.extend(cas.to_be_bytes());
    want.extend(body);
    assert_eq!(out.escape_ascii().to_string(), want.escape_ascii().to_string());
}

#[test]
fn responses() {
    check_reply(|out| reply::write_hit(out, &REQUEST, 0x0102, 5, None, 7), 0, 4, 0, 11, 5, &FOUR);
    check_reply(
        |out| reply::write_hit(out, &REQUEST, 0x0102, 5, Some(b"k"), 7),
        1,
        4,
        0,
        12,
        5,
        b"\0\0\x01\x02k",
    );
    check_reply(|out| reply::write_miss(out, &REQUEST, Some(b"k")), 1, 0, 1, 1, 0, b"k");
    check_reply(|out| reply::write_miss(out, &REQUEST, None), 0, 0, 1, 9, 0, b"Not found");
    check_reply(|out| reply::write_done(out, &REQUEST, 6), 0, 0, 0, 0, 6, b"");
    check_reply(
        |out| reply::write_number(out, &REQUEST, 6, 258),
        0,
        0,
        0,
        8,
        6,
        &[0, 0, 0, 0, 0, 0, 1, 2],
    );
    check_reply(|out| reply::write_touched(out, &REQUEST, 0x0102, 6), 0, 4, 0, 4, 6, &FOUR);
    check_reply(|out| reply::write_stat(out, &REQUEST, b"pid", b"12"), 3, 0, 0, 5, 0, b"pid12");
    check_reply(|out| reply::write_stat(out, &REQUEST, b"", b""), 0, 0, 0, 0, 0, b"");
    check_reply(
        |out| reply::write_value(out, &REQUEST, Status::AuthContinue, 0, b"", b"x"),
        0,
        0,
        0x21,
        1,
        0,
        b"x",
    );
}

#[test]
fn statuses_and_their_texts() {
    let statuses = [
        (Status::NotFound, 1, "Not found"),
        (Status::Exists, 2, "Data exists for key."),
        (Status::TooLarge, 3, "Too large."),
        (Status::InvalidArguments, 4, "Invalid arguments"),
        (Status::NotStored, 5, "Not stored."),
        (Status::NonNumeric, 6, "Non-numeric server-side value for incr or decr"),
        (Status::AuthFailure, 0x20, "Auth failure."),
        (Status::UnknownCommand, 0x81, "Unknown command"),
        (Status::OutOfMemory, 0x82, "Out of memory"),
    ];
    for (status, code, text) in statuses {
        let len = u32::try_from(text.len()).unwrap();
        check_reply(
            |out| reply::write_error(out, &REQUEST, status),
            0,
            0,
            code,
            len,
            0,
            text.as_bytes(),
        );
    }
}

/// bmemcached leaves unread what follows an error among quiet gets.
#[test]
fn a_quiet_get_has_no_response_but_a_hit() {
    for opcode in [0x09, 0x0d, 0x1e, 0x24] {
        let header = Header { opcode, ..REQUEST };
        let mut out = Vec::new();
        reply::write_miss(&mut out, &header, Some(b"k"));
        reply::write_miss(&mut out, &header, None);
        reply::write_refusal(&mut out, &header, Status::TemporaryFailure, b"away");
        for code in 1..0x100 {
            if let Some(status) = Status::of_code(code) {
                reply::write_error(&mut out, &header, status);
            }
        }
        assert!(out.is_empty(), "opcode {opcode:#x}: {}", out.escape_ascii());
        reply::write_hit(&mut out, &header, 0, 0, None, 0);
        assert_eq!(out.len(), HEADER_BYTES + 4);
        reply::write_last_error(&mut out, &header, Status::AuthFailure);
        assert_eq!(out.len(), 2 * HEADER_BYTES + 4 + 13, "the connection closes");
    }
}

/// A client reads a server's output with every split; lengths that disagree are no response.
#[test]
fn a_client_reads_what_a_server_writes() {
    use proto::binary::answer;
    let header = Header { opcode: 0x0c, opaque: 9, ..Header::default() };
    let mut sent = Vec::new();
    reply::write_hit(&mut sent, &header, 5, 7, Some(b"k"), 2);
    sent.extend_from_slice(b"xy");
    let want = answer::Response {
        opcode: 0x0c,
        status: Some(Status::Ok),
        opaque: 9,
        cas: 7,
        extras: &[0, 0, 0, 5],
        key: b"k",
        value: b"xy",
    };
    let whole = answer::Parsed::Response { response: want, consumed: sent.len() };
    assert_eq!(answer::parse(&sent, 2), whole);
    for short in 0..sent.len() {
        let total = if short < HEADER_BYTES { HEADER_BYTES } else { sent.len() };
        assert_eq!(answer::parse(&sent[..short], 2), answer::Parsed::Incomplete { total });
    }
    assert_eq!(answer::parse(&sent, 1), answer::Parsed::Bad);
    let changed = |at: usize, byte: u8| {
        let mut bytes = sent.clone();
        bytes[at] = byte;
        bytes
    };
    // The magic, a key that is too long, a body that is shorter than key and extras.
    for bytes in [changed(0, 0x80), changed(2, 1), changed(11, 4), changed(8, 0xff)] {
        assert_eq!(answer::parse(&bytes, 1 << 30), answer::Parsed::Bad);
    }
    for (key_len, is_read) in [(250, true), (251, false)] {
        let mut long = Vec::new();
        reply::write_hit(&mut long, &header, 5, 7, Some(&vec![b'k'; key_len]), 0);
        let parsed = answer::parse(&long, 2);
        assert_eq!(matches!(parsed, answer::Parsed::Response { .. }), is_read, "{parsed:?}");
        assert_eq!(parsed == answer::Parsed::Bad, !is_read);
    }
    let unknown = changed(7, 0x84);
    let answer::Parsed::Response { response, .. } = answer::parse(&unknown, 2) else {
        panic!("no response")
    };
    assert_eq!(response.status, None);
    let mut asked = Vec::new();
    proto::binary::request::write(&mut asked, 0x01, 9, 7, &[0; 8], b"k", 0);
    let Parsed::Request { request, .. } = parse(&asked) else { panic!("{:?}", parse(&asked)) };
    assert_eq!((request.header.opaque, request.header.cas), (9, 7));
}
