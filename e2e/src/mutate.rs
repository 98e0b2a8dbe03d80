//! Files as an accident may leave them.

use testkit::Rng;

/// Cuts, repeats or changes a part of the bytes, which are not empty.
#[must_use]
pub fn mutated(mut bytes: Vec<u8>, rng: &mut Rng) -> Vec<u8> {
    let at = rng.below(bytes.len());
    let end = (at + 1 + rng.below(20)).min(bytes.len());
    match rng.below(6) {
        0 => bytes.truncate(at),
        1 => drop(bytes.drain(at..end)),
        2 => bytes[at] ^= 1 << rng.below(7),
        3 => bytes.splice(at..at, b"{[\"%@(".repeat(rng.below(2000))).for_each(drop),
        // Another number, another name: what is well-formed may be taken.
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
