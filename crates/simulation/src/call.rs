//! Calls of a simulation, whose replies show the call that they belong to.
//!
//! Each call has a number. The call stores it, counts by it, or expires at it, and the server makes
//! the reply from the key and that number. So no reply of one call is right for another.

/// The part of a value stored by one call: `key=number;`, letters whose count depends on the
/// number, and a line end.
pub fn unit(key: &[u8], number: u64) -> Vec<u8> {
    let mut unit = key.to_vec();
    unit.extend_from_slice(format!("={number};").as_bytes());
    unit.extend(std::iter::repeat_n(b'x', letters(number)));
    unit.push(b'\n');
    unit
}

/// Usually a few, occasionally more than a socket holds.
fn letters(number: u64) -> usize {
    let most = match number % 64 {
        0 => 140_000,
        1..4 => 6000,
        _ => 100,
    };
    usize::try_from(number.wrapping_mul(7919) % most).unwrap_or(0)
}

/// True if a value consists of complete units that calls stored under this key.
pub fn is_of(key: &[u8], value: &[u8]) -> bool {
    !value.is_empty() && value.split_inclusive(|byte| *byte == b'\n').all(|one| is_unit(key, one))
}

fn is_unit(key: &[u8], one: &[u8]) -> bool {
    numbers(one).is_some_and(|number| unit(key, number) == one)
}

/// The number of the call that stored this.
fn numbers(unit: &[u8]) -> Option<u64> {
    let from = unit.iter().position(|byte| *byte == b'=')? + 1;
    let len = unit.get(from..)?.iter().position(|byte| *byte == b';')?;
    str::from_utf8(unit.get(from..from + len)?).ok()?.parse().ok()
}

/// The number of the call that stored the last unit of a value.
pub(crate) fn number_of(value: &[u8]) -> Option<u64> {
    let mut lines = value.split_inclusive(|byte| *byte == b'\n');
    numbers(lines.next_back()?)
}

/// The server's reply to the counting call of this number; with number 0, the cas unique of a key.
pub fn mark(key: &[u8], number: u64) -> u64 {
    let seed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    key.iter().fold(seed, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)) >> 1
}
