//! Files as after an accident, and requests as from a broken client.

use crate::generate::{self, binary, meta, text};
use testkit::Rng;

/// Cuts, repeats or changes a part of the bytes, which must not be empty.
#[must_use]
pub fn mutated(mut bytes: Vec<u8>, rng: &mut Rng) -> Vec<u8> {
    let at = rng.below(bytes.len());
    let end = (at + 1 + rng.below(20)).min(bytes.len());
    match rng.below(6) {
        0 => bytes.truncate(at),
        1 => drop(bytes.drain(at..end)),
        2 => bytes[at] ^= 1 << rng.below(7),
        3 => bytes.splice(at..at, b"{[\"%@(".repeat(rng.below(2000))).for_each(drop),
        // Another number, another name: the parser may accept well-formed input.
        4 => {
            let digit = bytes.iter().skip(at).position(u8::is_ascii_digit);
            bytes[at + digit.unwrap_or(0)] = b'1';
        }
        _ => {
            let part = bytes[at..end].to_vec();
            bytes.splice(at..at, part).for_each(drop);
        }
    }
    bytes
}

/// Ten commands of one protocol, for their own keys, with bytes flipped, removed, doubled and cut.
#[must_use]
pub fn stream(rng: &mut Rng) -> Vec<u8> {
    let keys = generate::keys(rng);
    let make = [text::valid, text::edge, meta::valid, meta::edge, binary::valid][rng.below(5)];
    let mut stream: Vec<u8> = (0..10).flat_map(|_| make(rng, &keys).bytes).collect();
    for _ in 0..=rng.below(8) {
        let at = rng.below(stream.len());
        match rng.below(5) {
            0 => stream[at] ^= 1 << rng.below(8),
            1 => stream[at] = *rng.pick(&[0, 0x80, 0xff, b' ', b'\r', b'\n', b'-', b'9']),
            2 => stream.truncate(at.max(1)),
            3 => {
                let piece = stream[at..(at + rng.below(40)).min(stream.len())].to_vec();
                stream.splice(at..at, piece);
            }
            _ => {
                stream.remove(at);
                stream.push(b'\n');
            }
        }
    }
    stream
}
