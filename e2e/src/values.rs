//! Values that describe themselves: every 32 bytes contain the key and the version, so that a
//! reader detects a mixture of two versions or keys.

use testkit::Wire;
use testkit::wire::show;
use thiserror::Error;

const BLOCK: usize = 32;

/// A value that is incomplete, or belongs to another key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadValue {
    /// It has too few bytes for a key and a version.
    #[error("only {len} bytes")]
    Short {
        /// The number of its bytes.
        len: usize,
    },
    /// A block differs from the first one.
    #[error("{key}: at byte {at}: {block} after {head}")]
    Torn {
        /// The requested key.
        key: String,
        /// The offset of the block, in bytes.
        at: usize,
        /// The block, printable.
        block: String,
        /// The first block, printable.
        head: String,
    },
    /// The first block names another key.
    #[error("{key}: a value of another key: {head}")]
    OtherKey {
        /// The requested key.
        key: String,
        /// The first block.
        head: String,
    },
    /// The first block names no version.
    #[error("{key}: no version in {head}")]
    NoVersion {
        /// The requested key.
        key: String,
        /// The first block.
        head: String,
    },
}

/// The `SERVER_ERROR` line by which a server refused to store a value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// A value of `len` bytes for `key`, different from that of any other key or version.
#[must_use]
pub fn make(key: &str, version: u64, len: usize) -> Vec<u8> {
    let block = format!("{key:.>14}|{version:016x}|");
    assert_eq!(block.len(), BLOCK, "a key of 14 bytes at most");
    block.into_bytes().into_iter().cycle().take(len).collect()
}

/// The version in `value`, if it is complete and belongs to `key`.
///
/// # Errors
///
/// [`BadValue`] otherwise.
pub fn version(key: &str, value: &[u8]) -> Result<u64, BadValue> {
    let head = value.get(..BLOCK).ok_or(BadValue::Short { len: value.len() })?;
    for (at, block) in value.chunks(BLOCK).enumerate() {
        if block != &head[..block.len()] {
            let (block, head) = (show(block), show(head));
            return Err(BadValue::Torn { key: key.to_owned(), at: at * BLOCK, block, head });
        }
    }
    let (key, text) = (key.to_owned(), String::from_utf8_lossy(head).into_owned());
    if text[..14].trim_start_matches('.') != key {
        return Err(BadValue::OtherKey { key, head: text });
    }
    match u64::from_str_radix(&text[15..31], 16) {
        Ok(version) => Ok(version),
        Err(_) => Err(BadValue::NoVersion { key, head: text }),
    }
}

/// Stores a value. Panics on a reply other than success or a refusal.
///
/// # Errors
///
/// [`Refused`], with the server's line.
pub fn store(wire: &mut Wire, key: &str, value: &[u8]) -> Result<(), Refused> {
    wire.send(&[format!("set {key} 0 0 {}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat());
    match wire.line().as_str() {
        "STORED" => Ok(()),
        refusal if refusal.starts_with("SERVER_ERROR") => Err(Refused(refusal.to_owned())),
        other => panic!("set {key}: {other}"),
    }
}

/// Fetches a value; None is a miss.
pub fn fetch(wire: &mut Wire, key: &str) -> Option<Vec<u8>> {
    wire.send(format!("get {key}\r\n").as_bytes());
    let mut values = read_values(wire);
    let (found, value) = values.pop()?;
    assert!(values.is_empty() && found == key, "get {key}: {found}");
    Some(value)
}

/// Reads the reply to a `get`: keys and values.
pub fn read_values(wire: &mut Wire) -> Vec<(String, Vec<u8>)> {
    let mut values = Vec::new();
    loop {
        let line = wire.line();
        if line == "END" {
            return values;
        }
        let words: Vec<&str> = line.split(' ').collect();
        let (["VALUE", key, "0"], Ok(len)) = (&words[..3], words[3].parse::<usize>()) else {
            panic!("in a reply to get: {line}");
        };
        let mut data = wire.read_exact(len + 2);
        assert_eq!(&data[len..], b"\r\n", "{key}: the end of the data");
        data.truncate(len);
        values.push(((*key).to_owned(), data));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_value_contains_its_version() {
        for len in [32, 33, 1000, 1_000_000] {
            assert_eq!(version("k1", &make("k1", 77, len)), Ok(77));
        }
    }

    #[test]
    fn torn_and_foreign_values_are_detected() {
        let (old, new) = (make("k1", 1, 4096), make("k1", 2, 4096));
        let torn = [&old[..2048], &new[2048..]].concat();
        assert!(version("k1", &torn).is_err());
        assert!(version("k2", &old).is_err());
        let mut flipped = old;
        flipped[4095] ^= 1;
        assert!(version("k1", &flipped).is_err());
    }
}
