//! Replies as a client reads them: those of a correct server, and those of a faulty one.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use proptest::prelude::*;
use proto::answer::{ANSWER_LINE_BYTES_MAX, Answer, MetaCode, Parsed, Value, parse};

const MAX: u32 = 1 << 20;

/// Asserts that `bytes` are this one reply, and that every proper prefix is incomplete.
#[track_caller]
fn is(bytes: &[u8], want: Answer<'_>) {
    assert_eq!(parse(bytes, MAX), Parsed::Answer { answer: want, consumed: bytes.len() });
    for cut in 0..bytes.len() {
        let parsed = parse(&bytes[..cut], MAX);
        assert!(matches!(parsed, Parsed::Incomplete { .. }), "cut at {cut}: {parsed:?}");
    }
}

#[test]
fn every_reply_is_parsed() {
    is(b"END\r\n", Answer::End);
    is(b"STORED\r\n", Answer::Stored);
    is(b"NOT_STORED\r\n", Answer::NotStored);
    is(b"EXISTS\r\n", Answer::Exists);
    is(b"NOT_FOUND\r\n", Answer::NotFound);
    is(b"DELETED\r\n", Answer::Deleted);
    is(b"TOUCHED\r\n", Answer::Touched);
    is(b"STALE_STORED\r\n", Answer::StaleStored);
    is(b"OK\r\n", Answer::Ok);
    is(b"18446744073709551615\r\n", Answer::Number(u64::MAX));
    is(b"5  \r\n", Answer::Number(5));
    is(b"VERSION 1.6.45\r\n", Answer::Version(b"1.6.45"));
    is(b"ERROR\r\n", Answer::Error(b""));
    is(b"CLIENT_ERROR bad\r\n", Answer::ClientError(b"bad"));
    is(b"SERVER_ERROR out of memory\r\n", Answer::ServerError(b"out of memory"));
    is(
        b"META k age: 1; exptime: 2\r\n",
        Answer::MetaInfo { key: b"k", facts: b"age: 1; exptime: 2" },
    );
}

#[test]
fn values_are_delimited_by_their_length() {
    let value = |cas, value| Answer::Value(Value { key: b"k", flags: 7, cas, value });
    is(b"VALUE k 7 0\r\n\r\n", value(None, b""));
    is(b"VALUE k 7 9\r\nEND\r\nEND\r\r\n", value(None, b"END\r\nEND\r"));
    is(b"VALUE k 7 1 99\r\nx\r\n", value(Some(99), b"x"));
    // Spaces and zeros that no server writes, but the reader of words accepts.
    is(b"VALUE  k 7  1 \r\nx\r\n", value(None, b"x"));
    is(b"VALUE k 0000000007 00000000001\r\nx\r\n", value(None, b"x"));
    is(
        b"LVALUE k 123 7 2\r\nab\r\n",
        Answer::Lease { key: b"k", token: 123, flags: 7, value: b"ab" },
    );
    assert_eq!(parse(b"VALUE k 7 1000\r\nab", MAX), Parsed::Incomplete { total: 1018 });
}

#[test]
fn meta_replies_keep_their_flags() {
    let Parsed::Answer { answer: Answer::Meta(meta), consumed: 16 } =
        parse(b"VA 2 f5 kk\r\nab\r\n+", MAX)
    else {
        panic!("not a meta reply")
    };
    assert_eq!((meta.code, meta.value), (MetaCode::Va, Some(&b"ab"[..])));
    assert_eq!(meta.flags.collect::<Vec<_>>(), [b"f5", b"kk"]);
    let codes = [
        MetaCode::Hd,
        MetaCode::Ns,
        MetaCode::Ex,
        MetaCode::Nf,
        MetaCode::En,
        MetaCode::Me,
        MetaCode::Mn,
    ];
    for code in codes {
        let line = [code.letters(), &b"\r\n"[..]].concat();
        let Parsed::Answer { answer: Answer::Meta(meta), .. } = parse(&line, MAX) else {
            panic!("{code:?}")
        };
        assert_eq!((meta.code, meta.value, meta.flags.is_empty()), (code, None, true));
    }
}

/// Lines and values of exactly the maximum length.
#[test]
fn replies_of_maximum_length_are_parsed() {
    let line = [b"VERSION ", &[b'1'; ANSWER_LINE_BYTES_MAX - 9][..], b"\r\n"].concat();
    is(&line, Answer::Version(&line[8..ANSWER_LINE_BYTES_MAX - 1]));
    assert_eq!(line.len(), ANSWER_LINE_BYTES_MAX + 1, "it and its line feed");
    let value = vec![b'v'; 1 << 20];
    let key = [b'k'; 250];
    for (head, is_lease) in [(&b"VALUE "[..], false), (b"LVALUE ", true)] {
        let numbers = if is_lease { &b" 5 7 1048576\r\n"[..] } else { b" 7 1048576\r\n" };
        let reply = [head, &key, numbers, &value, b"\r\n"].concat();
        let want = if is_lease {
            Answer::Lease { key: &key, token: 5, flags: 7, value: &value }
        } else {
            Answer::Value(Value { key: &key, flags: 7, cas: None, value: &value })
        };
        assert_eq!(parse(&reply, MAX), Parsed::Answer { answer: want, consumed: reply.len() });
    }
    let reply = [b"VA 1048576 f7\r\n", &value[..], b"\r\n"].concat();
    let Parsed::Answer { answer: Answer::Meta(meta), consumed } = parse(&reply, MAX) else {
        panic!("not a meta reply")
    };
    assert_eq!((meta.value, consumed), (Some(&value[..]), reply.len()));
}

#[test]
fn malformed_replies_are_refused() {
    let long_key = [b"VALUE ", &[b'k'; 251][..], b" 0 1\r\nx\r\n"].concat();
    let long_lease = [b"LVALUE ", &[b'k'; 251][..], b" 1 0 1\r\nx\r\n"].concat();
    let long_line = vec![b'x'; ANSWER_LINE_BYTES_MAX + 1];
    let lies: [&[u8]; 27] = [
        b"\r\n",
        b"hello\r\n",
        b"STORED\n",
        b"STORED \r\n",
        b"END x\r\n",
        b"-1\r\n",
        b"5x\r\n",
        b"5 x\r\n",
        b"18446744073709551616\r\n",
        b"VALUE k 0 4294967293\r\n",
        b"VALUE k 0 18446744073709551616\r\n",
        b"VALUE k 0 -1\r\n",
        b"VALUE k 4294967296 1\r\nx\r\n",
        b"VALUE k 0 1048577\r\n",
        b"VALUE k 0 1\r\nxy\r\n",
        b"VALUE k 0 1\r\nx\n",
        b"VALUE k 0 1 2 3\r\nx\r\n",
        b"VALUE k 0\r\n",
        b"VA -1\r\n",
        b"VA\r\n",
        b"LVALUE k 1 0\r\n",
        b"LVALUE k 1 0 1 2\r\nx\r\n",
        b"LVALUE k 1 0 1048577\r\n",
        b"VA 1048577\r\n",
        &long_key,
        &long_lease,
        &long_line,
    ];
    for lie in lies {
        assert_eq!(parse(lie, MAX), Parsed::Bad, "{}", lie.escape_ascii());
    }
}

proptest! {
    /// Any bytes: no panic, and the consumed bytes exist.
    #[test]
    fn arbitrary_bytes_cause_no_panic(bytes in "(VALUE |VA |HD |LVALUE |[0-9a-z \r\n]|\\x00){0,30}") {
        if let Parsed::Answer { consumed, .. } = parse(bytes.as_bytes(), MAX) {
            prop_assert!((1..=bytes.len()).contains(&consumed));
        }
    }
}
