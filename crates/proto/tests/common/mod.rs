//! Connections without sockets: converts bytes, in any pieces, to the parsers' events.
//!
//! The events contain no positions, so the same bytes must give the same events for every split.
//! The fuzz targets and the replay of their seeds also use these drivers.
#![allow(dead_code, reason = "each test file, and each fuzz target, uses its own part")]
#![allow(unreachable_pub, reason = "shared by path with the fuzz targets")]

use proto::KeyBuf;
use proto::binary::{self, Then};
use proto::text::{self, GetLine, KeyToken};

/// The current state of a connection.
enum State {
    Line,
    Keys(GetLine),
    /// A data block that belongs to the last request.
    Data(u64),
    /// A data block of a refused request.
    Swallow(u64),
    Closed,
}

/// Feeds `chunks` to a text connection and returns its events.
pub fn text_events(chunks: &[&[u8]]) -> Vec<String> {
    let (mut events, mut pending, mut state) = (Vec::new(), Vec::new(), State::Line);
    for chunk in chunks {
        pending.extend_from_slice(chunk);
        let mut consumed = 0;
        while let Some(used) = text_step(&mut state, &pending[consumed..], &mut events) {
            consumed += used;
        }
        pending.drain(..consumed);
    }
    events
}

/// Takes one step; `None` if more input is needed.
fn text_step(state: &mut State, input: &[u8], events: &mut Vec<String>) -> Option<usize> {
    match state {
        State::Closed => return None,
        State::Data(len) => {
            let block = input.get(..usize::try_from(*len).ok()?)?;
            events.push(format!("data {}", block.escape_ascii()));
            *state = State::Line;
            return Some(block.len());
        }
        State::Swallow(0) => *state = State::Line,
        State::Swallow(left) => {
            let used = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
            *left -= used as u64;
            return (used > 0).then_some(used);
        }
        State::Keys(line) => {
            let (event, next, used) = match line.next_key(input) {
                KeyToken::Key { key, consumed } => {
                    assert!((1..=proto::KEY_BYTES_MAX).contains(&key.len()));
                    (format!("key {}", key.escape_ascii()), None, consumed)
                }
                KeyToken::End { consumed } => ("end".into(), Some(State::Line), consumed),
                KeyToken::Bad { error, consumed } => {
                    (format!("bad {error:?}"), Some(State::Line), consumed)
                }
                KeyToken::Incomplete { consumed } => {
                    assert!(input.len() - consumed <= proto::KEY_BYTES_MAX + 1);
                    return (consumed > 0).then_some(consumed);
                }
            };
            assert!(used > 0 && used <= input.len());
            events.push(event);
            if let Some(next) = next {
                *state = next;
            }
            return Some(used);
        }
        State::Line => {}
    }
    text_line(state, input, events)
}

fn text_line(state: &mut State, input: &[u8], events: &mut Vec<String>) -> Option<usize> {
    let mut key_buf = KeyBuf::new();
    let (event, used) = match text::parse(input, &mut key_buf) {
        text::Parsed::Incomplete => {
            assert!(input.len() <= text::LINE_BYTES_MAX);
            return None;
        }
        closing @ (text::Parsed::LineTooLong | text::Parsed::Http) => {
            *state = State::Closed;
            (format!("{closing:?}"), 0)
        }
        text::Parsed::Bad(bad) => {
            *state = State::Swallow(bad.swallow);
            let line = bad.error.line().escape_ascii();
            let (silent, swallow) = (bad.silent, bad.swallow);
            (format!("{line} silent={silent} swallow={swallow}"), bad.consumed)
        }
        text::Parsed::Request { request, consumed } => {
            let event = format!("{request:?}");
            match request {
                text::Request::Get(line) => *state = State::Keys(line),
                text::Request::Store(store) => *state = State::Data(u64::from(store.len) + 2),
                text::Request::Quit => *state = State::Closed,
                text::Request::Meta(meta) => {
                    if let proto::meta::Command::Set { len, .. } = meta.command {
                        *state = State::Data(u64::from(len) + 2);
                    }
                    meta_replies_are_lines(&meta);
                }
                _ => {}
            }
            (event, consumed)
        }
    };
    assert!(used <= input.len() && (used > 0 || matches!(state, State::Closed)));
    events.push(event);
    Some(used)
}

/// For any request, a reply is one line: a key or an opaque cannot break it.
fn meta_replies_are_lines(request: &proto::meta::Request<'_>) {
    use proto::meta::reply;
    let facts = reply::ItemFacts { ttl_secs: Some(1), stale: true, ..Default::default() };
    let mut out = Vec::new();
    reply::write_status(&mut out, request, reply::Status::NotFound);
    reply::write_item(&mut out, request, reply::Status::Done, &facts);
    reply::write_value_header(&mut out, request, 7, &facts);
    reply::write_debug(&mut out, request, &reply::DebugFacts::default());
    assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 4, "{}", out.escape_ascii());
}

/// Feeds `chunks` to a binary connection and returns its events.
pub fn binary_events(chunks: &[&[u8]]) -> Vec<String> {
    let (mut events, mut pending, mut state) = (Vec::new(), Vec::new(), State::Line);
    for chunk in chunks {
        pending.extend_from_slice(chunk);
        let mut consumed = 0;
        while let Some(used) = binary_step(&mut state, &pending[consumed..], &mut events) {
            consumed += used;
        }
        pending.drain(..consumed);
    }
    events
}

fn binary_step(state: &mut State, input: &[u8], events: &mut Vec<String>) -> Option<usize> {
    if matches!(state, State::Swallow(0)) {
        *state = State::Line;
    }
    if !matches!(state, State::Line) {
        return text_step(state, input, events);
    }
    let (event, used) = match binary::parse(input) {
        binary::Parsed::Incomplete => return None,
        binary::Parsed::BadMagic => {
            *state = State::Closed;
            ("bad magic".into(), 0)
        }
        binary::Parsed::Bad(bad) => {
            *state = match bad.then {
                Then::Close => State::Closed,
                Then::Swallow(0) => State::Line,
                Then::Swallow(len) => State::Swallow(u64::from(len)),
            };
            let (status, opcode) = (bad.status, bad.header.opcode);
            (format!("bad {opcode:#x} {status:?} {:?}", bad.then), bad.consumed)
        }
        binary::Parsed::Request { request, consumed } => {
            if let binary::Command::Store { value_len, .. }
            | binary::Command::Concat { value_len, .. } = request.command
            {
                *state = State::Data(u64::from(value_len));
            }
            (format!("quiet={} {:?}", request.quiet, request.command), consumed)
        }
    };
    assert!(used <= input.len() && (used > 0 || matches!(state, State::Closed)));
    events.push(event);
    Some(used)
}

/// The checks of `bytes` in the fuzz targets `parse_text` and `parse_meta`.
pub fn check_text(bytes: &[u8]) {
    let whole = text_events(&[bytes]);
    for cut in some_cuts(bytes) {
        let (first, second) = bytes.split_at(cut);
        assert_eq!(text_events(&[first, second]), whole, "cut at {cut}");
    }
}

/// The checks of the fuzz target `parse_meta`: `bytes` as the words of every meta command, or of
/// one for the fuzzer.
pub fn check_meta(bytes: &[u8]) {
    let all = ["mg ", "ms ", "md ", "ma ", "me "];
    let commands = if cfg!(fuzzing) { &all[sum(bytes) % all.len()..][..1] } else { &all[..] };
    for command in commands {
        check_text(&[command.as_bytes(), bytes, b"\r\n"].concat());
    }
}

/// The checks of `bytes` in the fuzz target `parse_binary`.
pub fn check_binary(bytes: &[u8]) {
    let whole = binary_events(&[bytes]);
    for cut in some_cuts(bytes) {
        let (first, second) = bytes.split_at(cut);
        assert_eq!(binary_events(&[first, second]), whole, "cut at {cut}");
    }
}

/// The checks of `bytes` in the fuzz target `parse_udp`: a frame survives a round trip, and its
/// payload is checked in either protocol.
pub fn check_udp(bytes: &[u8]) {
    if let Some((frame, payload)) = proto::udp::parse(bytes) {
        let again = [proto::udp::encode(frame).as_slice(), payload].concat();
        assert_eq!(proto::udp::parse(&again), Some((frame, payload)));
        match payload.first().map(|first| proto::Wire::of(*first)) {
            Some(proto::Wire::Binary) => check_binary(payload),
            Some(proto::Wire::Text) => check_text(payload),
            None => {}
        }
    }
}

/// The places to split: all in short inputs, some in longer ones. For the fuzzer, which varies the
/// bytes, it is one place.
fn some_cuts(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let len = bytes.len();
    let (first, step) =
        if cfg!(fuzzing) { (sum(bytes) % (len + 1), len + 1) } else { (0, len / 64) };
    (first..=len).step_by(step.max(1))
}

/// A number that depends on each of the bytes.
fn sum(bytes: &[u8]) -> usize {
    bytes.iter().map(|byte| usize::from(*byte)).sum()
}

/// Splits into single bytes: the hardest split.
pub fn single_bytes(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.chunks(1).collect()
}

/// Reads replies until the bytes end or are refused: consumed bytes exist, bytes reported as
/// missing are missing, and a reply does not change when more follows it.
pub fn check_answer(bytes: &[u8]) {
    use proto::answer::{Parsed, parse};
    check_response(bytes);
    let mut rest = bytes;
    loop {
        match parse(rest, 1 << 16) {
            Parsed::Bad => return,
            Parsed::Incomplete { total } => {
                assert!(total == 0 || total > rest.len());
                return;
            }
            Parsed::Answer { answer, consumed } => {
                let (whole, after) = rest.split_at(consumed);
                assert!(!whole.is_empty());
                assert_eq!(parse(whole, 1 << 16), Parsed::Answer { answer, consumed });
                rest = after;
            }
        }
    }
}

/// The same for a binary server.
fn check_response(bytes: &[u8]) {
    use proto::binary::answer::{Parsed, parse};
    let mut rest = bytes;
    loop {
        match parse(rest, 1 << 16) {
            Parsed::Bad => return,
            Parsed::Incomplete { total } => {
                assert!(total > rest.len());
                return;
            }
            Parsed::Response { response, consumed } => {
                let (whole, after) = rest.split_at(consumed);
                let said = response.extras.len() + response.key.len() + response.value.len();
                assert_eq!(whole.len(), binary::HEADER_BYTES + said);
                assert_eq!(parse(whole, 1 << 16), Parsed::Response { response, consumed });
                rest = after;
            }
        }
    }
}
