//! The keys of a server: `lru_crawler metadump all`, one line per item.

use std::fmt::Write as _;

use crate::connection::{Connection, Error};

/// One item, as described by a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Vec<u8>,
    /// Unix time of its expiry; `None`: never.
    pub expires: Option<u64>,
    /// Bytes of the item including its header.
    pub size: u64,
}

/// The entries of a server, in order of arrival. The server keeps working while they are read.
#[derive(Debug)]
pub struct KeyDump {
    connection: Connection,
    is_over: bool,
}

impl KeyDump {
    /// Requests all keys.
    ///
    /// # Errors
    ///
    /// When the server does not know the command, or is busy with another dump.
    pub fn begin(mut connection: Connection) -> Result<Self, Error> {
        connection.send(b"lru_crawler metadump all\r\n")?;
        Ok(Self { connection, is_over: false })
    }

    fn entry(&mut self) -> Result<Option<Entry>, Error> {
        loop {
            let line = self.connection.line()?;
            match line.as_str() {
                "END" => return Ok(None),
                // 1.6.45 sends this before the first line.
                "OK" => {}
                line => match parsed(line) {
                    Some(entry) => return Ok(Some(entry)),
                    None => return Err(self.connection.unexpected("lru_crawler metadump", line)),
                },
            }
        }
    }
}

impl Iterator for KeyDump {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let next = self.entry().transpose();
        self.is_over = !matches!(next, Some(Ok(_)));
        next
    }
}

/// `key=a%20b exp=-1 la=1 cas=2 fetch=no cls=1 size=63`.
pub(crate) fn parsed(line: &str) -> Option<Entry> {
    let words = line.split_ascii_whitespace();
    let (mut key, mut expires, mut size) = (None, None, 0);
    for word in words {
        let (name, value) = word.split_once('=')?;
        match name {
            "key" => key = Some(decoded(value)?),
            "exp" if value != "-1" => expires = Some(value.parse().ok()?),
            "size" => size = value.parse().ok()?,
            _ => {}
        }
    }
    let key = key.filter(|key| !key.is_empty() && key.len() <= 250)?;
    Some(Entry { key, expires, size })
}

/// Decodes a key with `%20` and the like into bytes.
pub(crate) fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut key = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        key.push(match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    Some(key)
}

/// A key for a line of a file: bytes other than letters, digits and `-._~` as `%20`.
pub(crate) fn encoded(key: &[u8]) -> String {
    let mut text = String::new();
    for byte in key {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            text.push(char::from(*byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// A key for a terminal: anything but visible ASCII is shown as `\x1b`.
#[must_use]
pub fn shown(key: &[u8]) -> String {
    let mut text = String::new();
    for byte in key {
        if byte.is_ascii_graphic() && *byte != b'\\' {
            text.push(char::from(*byte));
        } else {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dump_lines_of_both_servers_are_parsed() {
        let ours = "key=a%3Ab exp=1700000000 la=1 cas=2 fetch=no cls=1 size=63 flags=0 ";
        let entry = Entry { key: b"a:b".to_vec(), expires: Some(1_700_000_000), size: 63 };
        assert_eq!(parsed(ours), Some(entry));
        let theirs = "key=a exp=-1 la=1 cas=2 fetch=yes cls=1 size=63";
        let entry = Entry { key: b"a".to_vec(), expires: None, size: 63 };
        assert_eq!(parsed(theirs), Some(entry));
        for bad in ["", "BUSY", "ERROR", "key=%2 exp=1", "key= exp=1", "key=a exp=x", "exp=1"] {
            assert_eq!(parsed(bad), None, "{bad}");
        }
        assert_eq!(parsed(&format!("key={} exp=-1", "k".repeat(251))), None);
    }

    #[test]
    fn every_key_byte_round_trips() {
        let key: Vec<u8> = (1..=250).collect();
        assert_eq!(decoded(&encoded(&key)), Some(key.clone()));
        assert!(shown(&key).bytes().all(|byte| byte.is_ascii_graphic()));
    }
}
