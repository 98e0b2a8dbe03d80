//! Replies as packets of the binary protocol.

use narrow::to_u32;
use proto::answer::MetaCode;
use proto::binary::{Header, Status, reply};
use proto::number::parse_u64;
use upstream::{Failure, Outcome, Reply};

use super::slot::{Packet, Slot, Want};

/// Appends the packet for `slot`; `key` is the client's key, if the reply repeats it.
pub(super) fn write(heap: &mut Vec<u8>, slot: &Slot, packet: Packet, key: &[u8], got: &Reply<'_>) {
    let header = Header { opcode: packet.opcode, opaque: packet.opaque, ..Header::default() };
    let key = (packet.want == Want::GetWithKey).then_some(key);
    let is_get = packet.want.is_get();
    let (flags, cas) = match got.outcome {
        Outcome::Meta(_) => (number(got.words, b'f'), number(got.words, b'c')),
        _ => (u64::from(got.flags), got.number),
    };
    // A server keeps flags of 32 bits.
    let flags = u32::try_from(flags).unwrap_or(0);
    match got.outcome {
        Outcome::Found | Outcome::Meta(MetaCode::Va) if is_get => {
            // No server sends more than `proto::VALUE_BYTES_MAX`.
            let len = to_u32(got.value.len());
            reply::write_hit(heap, &header, flags, cas, key, len);
            heap.extend_from_slice(got.value);
        }
        Outcome::NotFound | Outcome::Meta(MetaCode::En) if is_get => {
            reply::write_miss(heap, &header, key);
        }
        Outcome::Failed(failure) => failed(heap, &header, failure, got.value),
        outcome => match refusal(outcome, packet.want) {
            Some(status) => reply::write_error(heap, &header, status),
            None if slot.is_quiet => {}
            None => match packet.want {
                Want::Number => {
                    let number = parse_u64(got.value).unwrap_or(0);
                    reply::write_number(heap, &header, cas, number);
                }
                Want::Touch => reply::write_touched(heap, &header, flags, cas),
                _ => reply::write_done(heap, &header, cas),
            },
        },
    }
}

/// The status of a command that was not executed, or only in part; `None`: it was.
const fn refusal(outcome: Outcome, want: Want) -> Option<Status> {
    match outcome {
        Outcome::Exists | Outcome::Meta(MetaCode::Ex) => Some(Status::Exists),
        Outcome::NotStored | Outcome::Meta(MetaCode::Ns) => Some(match want {
            Want::Add => Status::Exists,
            Want::Concat => Status::NotStored,
            _ => Status::NotFound,
        }),
        Outcome::OnlyDeleted => Some(Status::OutOfMemory),
        Outcome::NotFound | Outcome::Meta(MetaCode::Nf | MetaCode::En) => Some(match want {
            Want::Concat => Status::NotStored,
            _ => Status::NotFound,
        }),
        _ => None,
    }
}

fn failed(heap: &mut Vec<u8>, header: &Header, failure: Failure, words: &[u8]) {
    let says = |text: &str| memchr::memmem::find(words, text.as_bytes()).is_some();
    let status = match failure {
        _ if says("too large") => Status::TooLarge,
        _ if says("out of memory") => Status::OutOfMemory,
        _ if says("non-numeric") => Status::NonNumeric,
        Failure::ClientError => Status::InvalidArguments,
        Failure::Busy => Status::Busy,
        _ => Status::TemporaryFailure,
    };
    match status {
        Status::Busy | Status::TemporaryFailure => {
            let words = if words.is_empty() { failure.sentence().as_bytes() } else { words };
            reply::write_refusal(heap, header, status, words);
        }
        _ => reply::write_error(heap, header, status),
    }
}

/// The number behind a letter of a meta reply; 0 if there is none.
fn number(words: &[u8], letter: u8) -> u64 {
    let mut words = words.split(|byte| *byte == b' ');
    let found = words.find_map(|word| word.split_first().filter(|(first, _)| **first == letter));
    found.and_then(|(_, digits)| parse_u64(digits)).unwrap_or(0)
}
