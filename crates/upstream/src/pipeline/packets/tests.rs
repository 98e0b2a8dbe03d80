//! Questions in packets, with honest and lying answers.

use proto::binary::opcode as code;
use proto::binary::request::write;

use super::super::tests::{Got, fed};
use super::super::{Broken, Pipeline, Ticket};
use crate::reply::{Outcome, OwnedReply};
use crate::request::Request;
use proto::{Command, Failure};

/// A pipeline with these questions, with tickets 0, 1, ..., and its output.
fn asked(requests: &[Request<'_>]) -> (Pipeline, Vec<u8>) {
    let mut pipeline = Pipeline::binary();
    for (ticket, request) in (0..).zip(requests) {
        pipeline.ask(request, ticket, 0, 1);
    }
    let sent = pipeline.outgoing().to_vec();
    pipeline.has_sent(sent.len());
    (pipeline, sent)
}

/// A response: `status` and the rest.
fn response(
    opcode: u8,
    opaque: u32,
    status: u16,
    extras: &[u8],
    key: &[u8],
    value: &[u8],
) -> Vec<u8> {
    let mut packet = Vec::new();
    write(&mut packet, opcode, opaque, 7, extras, key, u32::try_from(value.len()).unwrap());
    packet.extend_from_slice(value);
    packet[0] = 0x81;
    packet[6..8].copy_from_slice(&status.to_be_bytes());
    packet
}

fn hit(opcode: u8, opaque: u32, key: &[u8], value: &[u8]) -> Vec<u8> {
    response(opcode, opaque, 0, &5_u32.to_be_bytes(), key, value)
}

#[track_caller]
fn answers(requests: &[Request<'_>], bytes: &[u8]) -> (Vec<(Ticket, OwnedReply)>, Option<Broken>) {
    let (got, broken) = fed(asked(requests).0, asked(requests).0, bytes);
    (got.0, broken)
}

fn outcomes(got: &[(Ticket, OwnedReply)]) -> Vec<(Ticket, Outcome)> {
    got.iter().map(|(ticket, reply)| (*ticket, reply.outcome)).collect()
}

/// Opcode and opaque of each packet.
fn heads(mut bytes: &[u8]) -> Vec<(u8, u32)> {
    let mut heads = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<24>() {
        let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
        heads.push((head[1], number(12)));
        bytes = &rest[number(8) as usize..];
    }
    assert!(bytes.is_empty());
    heads
}

const fn get(key: &[u8]) -> Request<'_> {
    Request::new(Command::Get, key)
}

#[test]
fn all_gets_of_a_turn_but_the_last_are_quiet() {
    let asks = [get(b"a"), get(b"b"), get(b"c"), Request::new(Command::Delete, b"d"), get(b"e")];
    let (mut pipeline, sent) = asked(&asks);
    let heads_of_five =
        [(code::GETKQ, 0), (code::GETKQ, 1), (code::GETK, 2), (code::DELETE, 3), (code::GETK, 4)];
    assert_eq!(heads(&sent), heads_of_five);
    // Later questions are separate: the previous one may have left.
    pipeline.ask(&get(b"f"), 9, 0, 1);
    assert_eq!(heads(pipeline.outgoing()), [(code::GETK, 5)]);
}

#[test]
fn a_reply_shows_which_earlier_gets_are_misses() {
    let asks = [get(b"a"), get(b"b"), get(b"c"), Request::new(Command::Delete, b"d")];
    let (found, missed) = (Outcome::Found, Outcome::NotFound);
    let last = response(code::GETK, 2, 1, b"", b"", b"Not found");
    let deleted = response(code::DELETE, 3, 0, b"", b"", b"");
    let cases = [
        ([&hit(code::GETKQ, 1, b"b", b"x")[..], &last, &deleted].concat(), [missed, found, missed]),
        ([&last[..], &deleted].concat(), [missed; 3]),
        ([&hit(code::GETK, 2, b"c", b"x")[..], &deleted].concat(), [missed, missed, found]),
    ];
    for (bytes, [a, b, c]) in cases {
        let (got, broken) = answers(&asks, &bytes);
        let want = vec![(0, a), (1, b), (2, c), (3, Outcome::Deleted)];
        assert_eq!((outcomes(&got), broken), (want, None));
    }
}

#[test]
fn a_faulty_reply_is_detected_before_delivery() {
    let two = [get(b"a"), get(b"b")];
    let delete = [Request::new(Command::Delete, b"a"), get(b"b")];
    let mut long = hit(code::GETKQ, 0, b"a", b"x");
    long[8..12].copy_from_slice(&0x7fff_ffff_u32.to_be_bytes());
    let lies: [(&[Request<'_>], Vec<u8>, Broken); 12] = [
        (&two, hit(code::GETKQ, 0, b"b", b"x"), Broken::Mismatch),
        (&two, hit(code::GETKQ, 0, b"", b"x"), Broken::Mismatch),
        (&two, hit(code::GETK, 0, b"a", b"x"), Broken::Mismatch),
        (&two, hit(code::GETK, 2, b"a", b"x"), Broken::Mismatch),
        (&two, hit(code::GETK, u32::MAX, b"a", b"x"), Broken::Mismatch),
        (&two, response(code::GETKQ, 0, 0, b"", b"a", b"x"), Broken::Mismatch),
        (&two, response(code::DELETE, 0, 0, b"", b"", b""), Broken::Mismatch),
        // A question that must be answered precedes it.
        (&delete, hit(code::GETK, 1, b"b", b"x"), Broken::Mismatch),
        (&delete, response(code::DELETE, 0, 5, b"", b"", b""), Broken::Mismatch),
        (&two, long, Broken::Garbage),
        (&two, b"VALUE a 0 1\r\nx\r\nEND\r\n....".to_vec(), Broken::Garbage),
        (&[], hit(code::GETK, 0, b"a", b"x"), Broken::Unsolicited),
    ];
    for (asks, bytes, broken) in lies {
        let (got, found) = answers(asks, &bytes);
        assert_eq!((outcomes(&got), found), (vec![], Some(broken)), "{}", bytes.escape_ascii());
    }
    // A repeated answer is unsolicited.
    let twice = hit(code::GETKQ, 0, b"a", b"x").repeat(2);
    let (got, broken) = answers(&two, &twice);
    assert_eq!((outcomes(&got), broken), (vec![(0, Outcome::Found)], Some(Broken::Mismatch)));
}

/// What every command means, by its status.
#[test]
fn statuses_map_to_the_outcomes_of_text_replies() {
    let remote = Outcome::Failed(Failure::RemoteError);
    let client = Outcome::Failed(Failure::ClientError);
    let cases = [
        (Command::Set, code::SET, 0, Outcome::Stored),
        (Command::Set, code::SET, 3, remote),
        (Command::Set, code::SET, 0x82, remote),
        (Command::Set, code::SET, 0x84, remote),
        (Command::Set, code::SET, 0x85, Outcome::Failed(Failure::Busy)),
        (Command::Set, code::SET, 0x86, Outcome::Failed(Failure::TryAgain)),
        (Command::Set, code::SET, 0x20, client),
        (Command::Set, code::SET, 0x24, client),
        (Command::Set, code::SET, 0x81, client),
        (Command::Set, code::SET, 4, client),
        (Command::Add, code::ADD, 2, Outcome::NotStored),
        (Command::Replace, code::REPLACE, 1, Outcome::NotStored),
        (Command::Append, code::APPEND, 5, Outcome::NotStored),
        (Command::Prepend, code::PREPEND, 1, Outcome::NotStored),
        (Command::Cas, code::SET, 2, Outcome::Exists),
        (Command::Cas, code::SET, 1, Outcome::NotFound),
        (Command::Delete, code::DELETE, 0, Outcome::Deleted),
        (Command::Delete, code::DELETE, 1, Outcome::NotFound),
        (Command::Touch, code::TOUCH, 0, Outcome::Touched),
        (Command::Touch, code::TOUCH, 1, Outcome::NotFound),
        (Command::Incr, code::INCREMENT, 1, Outcome::NotFound),
        (Command::Decr, code::DECREMENT, 6, client),
        (Command::LeaseGet, code::NOOP, 0, client),
        (Command::LeaseSet, code::NOOP, 0, client),
        (Command::MetaInfo, code::NOOP, 0, client),
        (Command::MetaDebug, code::NOOP, 0, client),
    ];
    for (op, opcode, status, outcome) in cases {
        let request = Request { number: 9, value: b"v", ..Request::new(op, b"k") };
        let (got, broken) = answers(&[request], &response(opcode, 0, status, b"", b"", b"no\r\n"));
        assert_eq!((outcomes(&got), broken), (vec![(0, outcome)], None), "{op:?} {status}");
        // A server's text may have any bytes; it is not passed on.
        assert!(!got[0].1.value.contains(&b'\n'));
    }
    let counted = response(code::INCREMENT, 0, 0, b"", b"", &12_u64.to_be_bytes());
    let (got, _) = answers(&[Request::new(Command::Incr, b"n")], &counted);
    assert_eq!((got[0].1.outcome, got[0].1.number), (Outcome::Number, 12));
    let version = response(code::VERSION, 0, 0, b"", b"", b"1.2.3");
    let (got, _) = answers(&[Request::new(Command::Version, b"")], &version);
    assert_eq!((got[0].1.outcome, &got[0].1.value[..]), (Outcome::Version, &b"1.2.3"[..]));
    let held = Request { exptime: 2, ..Request::new(Command::Delete, b"k") };
    let (got, _) = answers(&[held], &response(code::NOOP, 0, 0, b"", b"", b""));
    assert_eq!(outcomes(&got), [(0, client)]);
}

#[test]
fn gets_returns_the_unique_and_gat_its_key() {
    let (got, _) = answers(&[Request::new(Command::Gets, b"a")], &hit(code::GETK, 0, b"a", b"x"));
    let reply = &got[0].1;
    assert_eq!(
        (&reply.key[..], reply.number, reply.flags, &reply.value[..]),
        (&b"a"[..], 7, 5, &b"x"[..])
    );
    let gat = Request { exptime: 60, ..Request::new(Command::Gat, b"a") };
    let (got, _) = answers(&[gat], &hit(code::GAT, 0, b"", b"x"));
    assert_eq!((&got[0].1.key[..], got[0].1.number), (&b"a"[..], 0));
}

/// Meta commands with a packet are sent as one, and answered as by a server that speaks meta.
#[test]
fn plain_meta_commands_are_sent_as_binary_requests() {
    let store = |words| Request { value: b"v", words, ..Request::new(Command::MetaSet, b"k") };
    let other = |op, words| Request { words, ..Request::new(op, b"k") };
    let number = &12_u64.to_be_bytes()[..];
    let flags = &5_u32.to_be_bytes()[..];
    type Case<'a> = (Request<'a>, u8, u16, &'a [u8], &'a [u8], &'a str);
    let cases: [Case<'_>; 19] = [
        (store(b"c F5 T60 MS"), code::SET, 0, b"", b"", "Hd c7"),
        (store(b"c F5 T60 MS C9"), code::SET, 2, b"", b"", "Ex c7"),
        (store(b"T60 ME Oabc"), code::ADD, 2, b"", b"", "Ns Oabc"),
        (store(b"MR"), code::REPLACE, 1, b"", b"", "Ns"),
        (store(b"c MA C9"), code::APPEND, 0, b"", b"", "Hd c7"),
        (store(b"MP k"), code::PREPEND, 5, b"", b"", "Ns kk"),
        (store(b"I MS"), code::NOOP, 0, b"", b"", "client"),
        (store(b"MR C9"), code::NOOP, 0, b"", b"", "client"),
        (other(Command::MetaGet, b"v f c k"), code::GET, 0, flags, b"x", "Va f5 c7 kk x"),
        (other(Command::MetaGet, b"s O1"), code::GET, 0, flags, b"xyz", "Hd s3 O1"),
        (other(Command::MetaGet, b"v T60"), code::GAT, 1, b"", b"", "En"),
        (other(Command::MetaGet, b"v f k c s O123"), code::GET, 1, b"", b"", "En kk O123"),
        (other(Command::MetaGet, b"t"), code::NOOP, 0, b"", b"", "client"),
        (other(Command::MetaDelete, b"C9 O1"), code::DELETE, 1, b"", b"", "Nf O1"),
        (other(Command::MetaDelete, b"H2"), code::NOOP, 0, b"", b"", "client"),
        (other(Command::MetaArithmetic, b"v c D2 MI"), code::INCREMENT, 0, b"", number, "Va c7 12"),
        (other(Command::MetaArithmetic, b"N60 J5 MD"), code::DECREMENT, 1, b"", b"", "Nf"),
        (other(Command::MetaArithmetic, b"v c k"), code::INCREMENT, 1, b"", b"", "Nf kk"),
        (other(Command::MetaArithmetic, b"MX"), code::NOOP, 0, b"", b"", "client"),
    ];
    for (request, opcode, status, extras, value, told) in cases {
        let words = String::from_utf8_lossy(request.words).into_owned();
        assert_eq!(heads(&asked(&[request]).1), [(opcode, 0)], "{words}");
        let (got, broken) = answers(&[request], &response(opcode, 0, status, extras, b"", value));
        assert_eq!(broken, None, "{words}");
        let reply = &got[0].1;
        let text = match reply.outcome {
            Outcome::Failed(Failure::ClientError) => "client".to_owned(),
            Outcome::Meta(code) => {
                let value = String::from_utf8_lossy(&reply.value);
                let value = if value.is_empty() { String::new() } else { format!(" {value}") };
                format!("{code:?}{}{value}", String::from_utf8_lossy(&reply.words))
            }
            other => format!("{other:?}"),
        };
        assert_eq!(text, told, "{words}");
    }
    let encoded = Request { base64: true, ..other(Command::MetaGet, b"k b") };
    let (got, _) = answers(&[Request { key: b"a b", ..encoded }], &hit(code::GET, 0, b"", b"x"));
    assert_eq!(&got[0].1.words[..], b" kYSBi b");
}

#[test]
fn requests_are_encoded_with_all_their_fields() {
    let base = Request {
        flags: 5,
        exptime: 60,
        number: 9,
        value: b"ab",
        ..Request::new(Command::Get, b"k")
    };
    let body = |op, exptime| {
        let (_, sent) = asked(&[Request { op, exptime, ..base }]);
        (u64::from_be_bytes(sent[16..24].try_into().unwrap()), sent[24..].to_vec())
    };
    let long_ago = [0, 0x27, 0x8d, 0x01];
    assert_eq!(body(Command::Set, 60), (0, [&[0, 0, 0, 5, 0, 0, 0, 60][..], b"kab"].concat()));
    assert_eq!(body(Command::Set, -1), (0, [&[0, 0, 0, 5][..], &long_ago, b"kab"].concat()));
    assert_eq!(body(Command::Cas, 60), (9, [&[0, 0, 0, 5, 0, 0, 0, 60][..], b"kab"].concat()));
    assert_eq!(body(Command::Append, 60), (0, b"kab".to_vec()));
    assert_eq!(body(Command::Touch, 60), (0, b"\0\0\0\x3ck".to_vec()));
    assert_eq!(body(Command::Gat, 1 << 40), (0, b"\xff\xff\xff\xffk".to_vec()));
    let count = [&9_u64.to_be_bytes()[..], &[0; 8], &[0xff; 4], b"k"].concat();
    assert_eq!(body(Command::Decr, 0), (0, count));
    // No unique is 0: as a condition it would be none.
    let (_, sent) = asked(&[Request { op: Command::Cas, number: 0, ..base }]);
    assert_eq!(sent[16..24], [0xff; 8]);
    let flush = |exptime| asked(&[Request { exptime, ..Request::new(Command::FlushAll, b"") }]).1;
    assert_eq!((flush(-1).len(), &flush(9)[24..]), (24, &[0, 0, 0, 9][..]));
}

#[test]
fn a_pipeline_stays_binary_after_a_failure() {
    let (mut pipeline, _) = asked(&[get(b"a"), get(b"b")]);
    let mut got = Got::default();
    pipeline.fail(50, Failure::Timeout, Failure::RemoteError, b"", &mut got);
    assert_eq!(got.0.len(), 2);
    pipeline.ask(&get(b"a"), 3, 0, 1);
    assert_eq!(heads(pipeline.outgoing()), [(code::GETK, 0)]);
}
