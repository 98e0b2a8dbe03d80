//! The check of the fuzz target `pgoutput_messages`.

use bytes::Bytes;

use super::decode::Decoder;
use crate::position::Position;
use crate::source::fuzzing;

/// Follows a log: messages, each behind its length in two bytes.
///
/// # Panics
///
/// When a key or a position is one that nobody can use.
pub fn check(bytes: &[u8]) {
    keys(bytes);
}

/// The keys of a log.
pub(in crate::source) fn keys(bytes: &[u8]) -> Vec<Bytes> {
    let mut decoder = Decoder::new(&fuzzing::rules(), 0);
    let (mut events, mut rest) = (Vec::new(), bytes);
    while let Some((len, after)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes(*len)).min(after.len());
        let (message, next) = after.split_at(len);
        rest = next;
        decoder.push(message);
        events.extend(std::iter::from_fn(|| decoder.pop()));
    }
    fuzzing::keys(Position::of_lsn(0), events)
}
