//! Every request gets one reply, whatever resources the server has. Each generated request is
//! followed by one with an unmistakable reply, and the replies in between are counted.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test stops where it fails, and its numbers are small"
)]

use proto::answer::{self, Answer, MetaCode};
use testkit::Rng;

use super::large_values::Account;
use super::tests::{Client, worker};
use super::{State, Worker};

/// The number of a session that is not served.
const OTHER: u64 = u64::MAX;

/// More than one chunk holds, so that it is sent from its place.
const LARGE_BYTES: usize = 40_000;

/// The reply in place of END when no memory is left for sending.
const REFUSED: &[u8] = b"SERVER_ERROR out of memory writing get response\r\n";

/// A worker that holds a large and a small value, and may send no large one.
fn worker_without_room() -> Worker {
    let mut worker = worker(&[]);
    let mut client = Client::new(&mut worker);
    let head = format!("set large 0 0 {LARGE_BYTES}\r\n").into_bytes();
    let set = [head, vec![b'x'; LARGE_BYTES], b"\r\nset small 0 0 1\r\ns\r\n".to_vec()].concat();
    assert_eq!(client.send(&mut worker, &set), b"STORED\r\nSTORED\r\n");
    take_all_room(&worker);
    worker
}

/// As if a large value were being sent to another client. It is so new that it need not make room.
pub(super) fn take_all_room(worker: &Worker) {
    let bytes = worker.context.shared.large_values_bytes_max;
    let now = worker.context.now;
    let begin = |account: &mut Account| account.begin_sending(OTHER, 0, bytes, now);
    assert!(worker.context.large_values.with(begin), "nothing was being sent");
}

/// The other client has left.
fn give_room(worker: &Worker) {
    worker.context.large_values.with(|account| account.end(OTHER));
}

#[test]
fn a_refused_large_value_has_one_reply() {
    let mut worker = worker_without_room();
    let small: &[u8] = b"VALUE small 0 1\r\ns\r\n";
    for (request, values) in [
        (&b"get large\r\n"[..], &b""[..]),
        (b"gets large\r\n", b""),
        (b"gat 0 large\r\n", b""),
        (b"get large small small\r\n", b""),
        (b"get small large small\r\n", small),
        (b"lease-get large\r\n", b""),
        (b"mg large v\r\n", b""),
        (b"mg large t v q\r\n", b""),
    ] {
        let mut client = Client::new(&mut worker);
        // The line that follows gets its own reply, not the end of this one's.
        let sent = [request, b"get small\r\n"].concat();
        let want = [values, REFUSED, small, b"END\r\n"].concat();
        let got = client.send(&mut worker, &sent);
        assert_eq!(got.escape_ascii().to_string(), want.escape_ascii().to_string());
        assert!(matches!(client.session.state, State::Commands));
    }
}

#[test]
fn a_refused_large_value_has_one_binary_reply() {
    let mut worker = worker_without_room();
    for (opcode, is_quiet) in [(0x00, false), (0x09, true), (0x0c, false), (0x0d, true)] {
        let mut client = Client::new(&mut worker);
        let sent = [packet(opcode, 7, b"", b"large", b""), packet(0x0a, 8, b"", b"", b"")].concat();
        let got = packets(&client.send(&mut worker, &sent));
        let want: &[(u32, u16)] = if is_quiet { &[(8, 0)] } else { &[(7, 0x82), (8, 0)] };
        assert_eq!(got, want, "opcode {opcode:#x}: (opaque, status)");
    }
}

#[test]
fn every_text_request_has_one_reply() {
    for seed in 1..=40 {
        let mut rng = Rng::new(seed);
        let mut worker = worker_without_room();
        let mut is_taken = true;
        let mut client = Client::new(&mut worker);
        for step in 0..250 {
            if rng.one_in(8) {
                if is_taken {
                    give_room(&worker);
                } else {
                    take_all_room(&worker);
                }
                is_taken = !is_taken;
            }
            let Text { bytes, is_silent } = text_request(&mut rng);
            let mut replies = Vec::new();
            let sent = [&bytes[..], b"mn\r\n"].concat();
            let (first, second) = sent.split_at(rng.below(sent.len() + 1));
            replies.extend(client.send(&mut worker, first));
            replies.extend(client.send(&mut worker, second));
            let line = bytes.split(|byte| *byte == b'\n').next().unwrap().escape_ascii();
            let context = format!("seed {seed} step {step}: {line}");
            let count = count_before_noop(&replies, &context);
            let least = usize::from(!is_silent);
            assert!((least..=1).contains(&count), "{context}: {count} replies: {}", show(&replies));
            assert!(!client.is_closed, "{context}: closed");
        }
    }
}

#[test]
fn every_binary_request_has_one_reply() {
    for seed in 1..=40 {
        let mut rng = Rng::new(seed);
        let mut worker = worker_without_room();
        let mut is_taken = true;
        let mut client = Client::new(&mut worker);
        for opaque in (0..500).step_by(2) {
            if rng.one_in(8) {
                if is_taken {
                    give_room(&worker);
                } else {
                    take_all_room(&worker);
                }
                is_taken = !is_taken;
            }
            let (bytes, is_quiet) = binary_request(&mut rng, opaque);
            let sent = [bytes, packet(0x0a, opaque + 1, b"", b"", b"")].concat();
            let (first, second) = sent.split_at(rng.below(sent.len() + 1));
            let mut replies = client.send(&mut worker, first);
            replies.extend(client.send(&mut worker, second));
            let opaques: Vec<u32> =
                packets(&replies).into_iter().map(|(opaque, _)| opaque).collect();
            let both = [opaque, opaque + 1];
            let is_right = opaques == both || is_quiet && opaques == both[1..];
            assert!(is_right, "seed {seed}: opcode {:#x}: {opaques:?}", sent[1]);
        }
    }
}

/// Counts the replies before the `MN` that ends them.
fn count_before_noop(mut replies: &[u8], context: &str) -> usize {
    let mut count = 0;
    loop {
        // Only cache_memlimit gives these answers, and no client library knows them.
        if replies.starts_with(b"MEMLIMIT_") {
            let end = replies.iter().position(|byte| *byte == b'\n').unwrap();
            replies = &replies[end + 1..];
            count += 1;
            continue;
        }
        let answer::Parsed::Answer { answer, consumed } = answer::parse(replies, 1 << 21) else {
            panic!("{context}: no whole reply in {}", show(replies));
        };
        replies = &replies[consumed..];
        match answer {
            Answer::Meta(meta) if meta.code == MetaCode::Mn => {
                assert!(replies.is_empty(), "{context}: behind the end: {}", show(replies));
                return count;
            }
            // Parts of a retrieval's reply, which ends with END or an error.
            Answer::Value(_) | Answer::Lease { .. } => {}
            _ => count += 1,
        }
    }
}

fn show(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(300)].escape_ascii().to_string()
}

/// A request; true if it may have no reply.
struct Text {
    bytes: Vec<u8>,
    is_silent: bool,
}

fn text_request(rng: &mut Rng) -> Text {
    let long = "k".repeat(251);
    let keys = ["small", "large", "number", "none", long.as_str()];
    let key = rng.pick(&keys);
    let silent = rng.pick(&["", "", " noreply"]);
    let line = match rng.below(12) {
        0 => return storage_request(rng, key),
        1 => return meta_storage_request(rng, key),
        2 => {
            let word = rng.pick(&["get", "gets", "gat 0", "gats 5", "lease-get", "gat x"]);
            let more = rng.pick(&["", " small", " large none", " number small small"]);
            return Text { bytes: format!("{word} {key}{more}\r\n").into(), is_silent: false };
        }
        3 => {
            let flags = rng.pick(&["v", "v k t", "v q", "s", "N30 v", "G v", "Q", "v v", "T5 v"]);
            let is_silent = flags.contains('q');
            return Text { bytes: format!("mg {key} {flags}\r\n").into(), is_silent };
        }
        4 => {
            let word = rng.pick(&["ma", "md", "me"]);
            let flags = rng.pick(&["", "q", "N30 J5 v", "x", "MZ", "D9", "I T3"]);
            let is_silent = flags.contains('q');
            return Text { bytes: format!("{word} {key} {flags}\r\n").into(), is_silent };
        }
        5 => format!("{} {key} {}{silent}", rng.pick(&["incr", "decr"]), rng.pick(&["1", "x"])),
        6 => format!("touch {key} {}{silent}", rng.pick(&["0", "100", "x"])),
        7 => format!("delete {key}{}{silent}", rng.pick(&["", " 0", " x", " 5"])),
        8 => format!("flush_prefix {}{silent}", rng.pick(&["none:", long.as_str()])),
        9 => format!("verbosity {}{silent}", rng.pick(&["0", "", "x"])),
        10 => format!("cache_memlimit {}{silent}", rng.pick(&["64", "1", "x"])),
        _ => rng.pick(&["nothing", "get", "set", "mg", "version", "set a b", "incr x"]).to_string(),
    };
    Text { is_silent: line.contains("noreply"), bytes: format!("{line}\r\n").into() }
}

fn storage_request(rng: &mut Rng, key: &str) -> Text {
    let words = ["set", "add", "replace", "append", "prepend", "cas", "lease-set"];
    let word = *rng.pick(&words);
    let silent = rng.pick(&["", "", " noreply"]);
    let len = value_bytes(rng);
    let token = if word == "lease-set" { " 5" } else { "" };
    let unique = if word == "cas" { " 1" } else { "" };
    let exptime = rng.pick(&["0", "0", "x"]);
    let head = format!("{word} {key}{token} 0 {exptime} {len}{unique}{silent}\r\n");
    let is_silent = !silent.is_empty();
    Text { bytes: with_data(rng, head, len), is_silent }
}

fn meta_storage_request(rng: &mut Rng, key: &str) -> Text {
    let flags = rng.pick(&["", "q", "c", "MZ", "C1", "ME", "x", "T5 F2", "I", "G9"]);
    let len = value_bytes(rng);
    let head = format!("ms {key} {len} {flags}\r\n");
    Text { bytes: with_data(rng, head, len), is_silent: flags.contains('q') }
}

/// Mostly small; sometimes more than a chunk, or more than an item may have.
fn value_bytes(rng: &mut Rng) -> usize {
    match rng.below(12) {
        0 => LARGE_BYTES,
        1 => 1_300_000,
        _ => rng.below(20),
    }
}

/// A data block with a correct end, or a wrong one of the same length.
fn with_data(rng: &mut Rng, head: String, len: usize) -> Vec<u8> {
    let end: &[u8] = if rng.one_in(8) { b"!!" } else { b"\r\n" };
    [head.into_bytes(), vec![b'7'; len], end.to_vec()].concat()
}

/// Opcode, extras, key, value, and true if the command is quiet.
type Choice<'a> = (u8, &'a [u8], &'a [u8], &'a [u8], bool);

fn binary_request(rng: &mut Rng, opaque: u32) -> (Vec<u8>, bool) {
    let key = *rng.pick(&[&b"small"[..], b"large", b"number", b"none"]);
    let value = vec![b'7'; value_bytes(rng).min(LARGE_BYTES)];
    let store = [0u8; 8];
    let count = [0u8; 20];
    let choices: [Choice<'_>; 16] = [
        (0x00, b"", key, b"", false),
        (0x09, b"", key, b"", true),
        (0x0c, b"", key, b"", false),
        (0x0d, b"", key, b"", true),
        (0x01, &store, key, &value, false),
        (0x11, &store, key, &value, true),
        (0x02, &store, key, &value, false),
        (0x03, &store, key, &value, false),
        (0x0e, b"", key, &value, false),
        (0x0f, b"", key, &value, false),
        (0x04, b"", key, b"", false),
        (0x05, &count, key, b"", false),
        (0x1c, &store[..4], key, b"", false),
        (0x1d, &store[..4], key, b"", false),
        (0x0b, b"", b"", b"", false),
        (0x20, b"", b"", b"", false),
    ];
    let (opcode, extras, key, value, is_quiet) = *rng.pick(&choices);
    (packet(opcode, opaque, extras, key, value), is_quiet)
}

pub(super) fn packet(opcode: u8, opaque: u32, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x80, opcode];
    packet.extend((key.len() as u16).to_be_bytes());
    packet.extend([extras.len() as u8, 0, 0, 0]);
    packet.extend(((extras.len() + key.len() + value.len()) as u32).to_be_bytes());
    packet.extend(opaque.to_be_bytes());
    packet.extend([0; 8]);
    [&packet, extras, key, value].concat()
}

/// Opaque and status of each packet.
pub(super) fn packets(mut replies: &[u8]) -> Vec<(u32, u16)> {
    let mut found = Vec::new();
    while !replies.is_empty() {
        let body = u32::from_be_bytes(replies[8..12].try_into().unwrap()) as usize;
        let opaque = u32::from_be_bytes(replies[12..16].try_into().unwrap());
        found.push((opaque, u16::from_be_bytes(replies[6..8].try_into().unwrap())));
        replies = &replies[24 + body..];
    }
    found
}
