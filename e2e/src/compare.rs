//! Sends the same case to two servers and compares the replies to each command.
//!
//! A fence (`mn`, or a binary no-op) follows every command, so that the replies can be separated
//! however the stream is cut in transit. The whole case is still one stream.

use crate::differences::Release;
use crate::generate::binary::{LAST_CAS, Packet};
use crate::generate::{CAS_MARK, Command};
use crate::replies::{Ranks, alike, binary_parts, split_packet, text_parts};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;
use testkit::wire::{End, find, show};
use testkit::{Rng, Server, Wire};

const PATIENCE: Duration = Duration::from_secs(10);
const TEXT_FENCE: &[u8] = b"mn\r\n";
const TEXT_FENCE_REPLY: &[u8] = b"MN\r\n";
const FENCE_OPAQUE: u32 = 0xfe4c_e0fe;

/// The protocol of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wording {
    /// Classic and meta commands.
    Text,
    /// Binary packets.
    Binary,
}

/// The reply to each command as parts, in order; then the end of the connection.
#[derive(Debug)]
pub struct Answers {
    replies: Vec<Vec<String>>,
    end: End,
}

/// Sends `case` to `server`, cut at random places, and collects the replies.
#[must_use]
pub fn answers(server: &Server, wording: Wording, case: &[Command], rng: &mut Rng) -> Answers {
    let mut wire = server.connect();
    let mut ranks = Ranks::default();
    let mut replies = Vec::new();
    let mut own = BTreeMap::new();
    let mut from = 0;
    while from < case.len() {
        // A command that needs an earlier reply starts a new batch. So does one that closes the
        // connection, because a reset would discard replies that are in flight.
        let starts_batch = |at: &usize| case[*at].closes || needs_cas(&case[*at].bytes);
        let next = (from + 1..case.len()).find(starts_batch).unwrap_or(case.len());
        let batch = &case[from..next];
        let unique = match invalidated(&batch[0].bytes) {
            // The unique of another key means nothing here; see "Meta" in docs/protocol.md.
            Some(key) => own.get(key).copied().unwrap_or(1),
            None => ranks.last(),
        };
        let stream = stream(wording, batch, unique);
        let closes = batch.iter().any(|command| command.closes);
        let pause = Duration::from_micros(if rng.one_in(3) { 300 } else { 0 });
        let sent = wire.send_cut(&stream, &cuts(rng, stream.len()), pause);
        for command in batch {
            let (bytes, end) = if command.closes {
                wire.read_to_end(PATIENCE)
            } else {
                read_to_fence(&mut wire, wording)
            };
            let told = ranks.told();
            replies.push(match wording {
                Wording::Text => text_parts(&bytes, &mut ranks),
                Wording::Binary => binary_parts(&bytes, &mut ranks),
            });
            if ranks.told() > told
                && let Some(key) = meta_key(&command.bytes)
            {
                own.insert(key, ranks.last());
            }
            if end != End::Found {
                return Answers { replies, end };
            }
        }
        assert!(sent.is_ok() || closes, "sending failed: {sent:?}");
        from = next;
    }
    Answers { replies, end: End::Found }
}

/// Describes the first difference that no intended one explains. Adds the explained ones to `met`.
#[must_use]
pub fn first_difference(
    release: Release,
    case: &[Command],
    theirs: &Answers,
    ours: &Answers,
    met: &mut BTreeSet<&'static str>,
) -> Option<String> {
    for (at, command) in case.iter().enumerate() {
        if command.closes && (theirs.end == End::Reset || ours.end == End::Reset) {
            break;
        }
        let (left, right) = (theirs.replies.get(at), ours.replies.get(at));
        let (Some(left), Some(right)) = (left, right) else {
            if left.is_none() && right.is_none() {
                break;
            }
            let text = describe(case, at, left, right);
            return Some(format!("{text}connections: {:?} and {:?}", theirs.end, ours.end));
        };
        if left.len() == right.len() && left.iter().zip(right).all(|(a, b)| alike(a, b)) {
            continue;
        }
        match release.explain(command.may_differ, left, right) {
            Some(id) => met.insert(id),
            None => return Some(describe(case, at, Some(left), Some(right))),
        };
    }
    let open = |end| end == End::Found || end == End::TimedOut;
    (open(theirs.end) != open(ours.end))
        .then(|| format!("memcached's connection: {:?}, ours: {:?}", theirs.end, ours.end))
}

fn describe(
    case: &[Command],
    at: usize,
    theirs: Option<&Vec<String>>,
    ours: Option<&Vec<String>>,
) -> String {
    let mut text = String::from("the last commands, oldest first:\n");
    for command in &case[at.saturating_sub(12)..=at] {
        let _ = writeln!(text, "  {}", show(&command.bytes));
    }
    let _ = writeln!(text, "memcached: {theirs:?}\nours:      {ours:?}");
    text
}

/// The words of a text command's line.
fn words(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let line = find(bytes, b"\r\n").map_or(bytes, |end| &bytes[..end]);
    line.split(|byte| *byte == b' ').filter(|word| !word.is_empty())
}

/// The key of a meta command that has one.
fn meta_key(bytes: &[u8]) -> Option<&[u8]> {
    let mut words = words(bytes);
    let is_meta = words.next().is_some_and(|word| word.len() == 2 && word[0] == b'm');
    words.next().filter(|_| is_meta)
}

/// The key of a meta command that compares by age (`I`): whether a unique is older than the item.
fn invalidated(bytes: &[u8]) -> Option<&[u8]> {
    meta_key(bytes).filter(|_| words(bytes).any(|word| word == b"I"))
}

fn needs_cas(bytes: &[u8]) -> bool {
    find(bytes, CAS_MARK).is_some() || bytes.get(16..24) == Some(&LAST_CAS.to_be_bytes())
}

fn stream(wording: Wording, batch: &[Command], cas: u64) -> Vec<u8> {
    let mut stream = Vec::new();
    for command in batch {
        let mut bytes = command.bytes.clone();
        match wording {
            Wording::Text => {
                while let Some(at) = find(&bytes, CAS_MARK) {
                    bytes.splice(at..at + CAS_MARK.len(), cas.to_string().into_bytes());
                }
                stream.extend(bytes);
                if !command.closes {
                    stream.extend_from_slice(TEXT_FENCE);
                }
            }
            Wording::Binary => {
                if needs_cas(&bytes) {
                    bytes[16..24].copy_from_slice(&cas.to_be_bytes());
                }
                stream.extend(bytes);
                if !command.closes {
                    stream.extend(
                        Packet { opcode: 0x0a, opaque: FENCE_OPAQUE, ..Packet::default() }.bytes(),
                    );
                }
            }
        }
    }
    stream
}

fn cuts(rng: &mut Rng, len: usize) -> Vec<usize> {
    let mut cuts: Vec<usize> = (0..rng.below(6)).map(|_| rng.below(len + 1)).collect();
    cuts.sort_unstable();
    cuts
}

/// The bytes before the next fence's reply.
fn read_to_fence(wire: &mut Wire, wording: Wording) -> (Vec<u8>, End) {
    if wording == Wording::Binary {
        return read_to_noop(wire);
    }
    let (mut bytes, end) = wire.read_until_or_end(TEXT_FENCE_REPLY, PATIENCE);
    if end == End::Found {
        bytes.truncate(bytes.len() - TEXT_FENCE_REPLY.len());
    }
    (bytes, end)
}

fn read_to_noop(wire: &mut Wire) -> (Vec<u8>, End) {
    let mut bytes = Vec::new();
    loop {
        let (header, end) = wire.read_some_exact(24, PATIENCE);
        if end != End::Found {
            bytes.extend(header);
            return (bytes, end);
        }
        let body = u32::from_be_bytes(header[8..12].try_into().expect("four bytes"));
        let (rest, end) =
            wire.read_some_exact(usize::try_from(body).expect("a short body"), PATIENCE);
        let packet = [header, rest].concat();
        let fence = packet[1] == 0x0a && packet[12..16] == FENCE_OPAQUE.to_be_bytes();
        if fence && split_packet(&packet).is_some() {
            return (bytes, End::Found);
        }
        bytes.extend(packet);
        if end != End::Found {
            return (bytes, end);
        }
    }
}
