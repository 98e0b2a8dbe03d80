//! The position of a change in the log of its database, as text and as a value.
//!
//! A position covers everything up to and including a committed transaction. The checkpoint file,
//! the log lines and `--since` use its text:
//!
//! ```text
//! mariadb-gtid:0-1-4711,1-2-9        domain-server-sequence, one for each domain
//! mysql-gtid:3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:8
//! mysql-gtid:3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:8:tag:1-3     with tags (MySQL 8.3)
//! file:mariadb-bin.000012:4711       the next event's place in a binary log
//! lsn:0/16B3748@2                    PostgreSQL's log sequence number, and its timeline
//! lsn:7297183216544391206:0/16B3748@2     the same with the identifier of the database system
//! lsn:0/16B3748                      the same where neither is known
//! stream:orders/0=41,orders/1=7      the last message of each part of an input of lines
//! stream:=41                         the same where it has no parts
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::gtid::{GtidSet, number};

/// A place in a database's log, after a committed transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Position {
    /// The next event's file and byte in a binary log. Valid only on one server.
    File {
        /// The binary log's name.
        name: String,
        /// Bytes from its start.
        offset: u64,
    },
    /// PostgreSQL's log sequence number, of the end of a commit.
    Lsn {
        /// The number.
        lsn: u64,
        /// The timeline of the log that has the commit; `None` in positions from a person or an
        /// earlier version.
        timeline: Option<u32>,
        /// The identifier of the database system, which a server and its standbys share; `None` as
        /// above.
        system: Option<u64>,
    },
    /// MariaDB: the last server id and sequence number of every domain.
    MariaGtid(BTreeMap<u32, (u32, u64)>),
    /// MySQL: the set of transactions seen.
    MysqlGtid(GtidSet),
    /// An input of lines: the last place of each of its parts, in the sender's text.
    Stream(BTreeMap<String, String>),
}

/// Text that is not a position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no position: expected mariadb-gtid:0-1-5, mysql-gtid:UUID:1-5, file:NAME:OFFSET, lsn:0/16B3748 or stream:=41"
)]
pub struct InvalidPosition(pub String);

impl Position {
    /// A place in PostgreSQL's log of any system and timeline.
    #[must_use]
    pub const fn of_lsn(lsn: u64) -> Self {
        Self::Lsn { lsn, timeline: None, system: None }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { name, offset } => write!(f, "file:{name}:{offset}"),
            Self::Lsn { lsn, timeline, system } => {
                f.write_str("lsn:")?;
                system.map_or(Ok(()), |system| write!(f, "{system}:"))?;
                write!(f, "{:X}/{:X}", lsn >> 32, lsn & 0xffff_ffff)?;
                timeline.map_or(Ok(()), |timeline| write!(f, "@{timeline}"))
            }
            Self::MariaGtid(domains) => write!(f, "mariadb-gtid:{}", maria_text(domains)),
            Self::MysqlGtid(set) => write!(f, "mysql-gtid:{set}"),
            Self::Stream(places) => write!(f, "stream:{}", stream_text(places)),
        }
    }
}

/// The form of MariaDB's own variables: `0-1-5,1-1-3`.
#[must_use]
pub fn maria_text(domains: &BTreeMap<u32, (u32, u64)>) -> String {
    let one =
        |(domain, (server, sequence)): (&u32, &(u32, u64))| format!("{domain}-{server}-{sequence}");
    domains.iter().map(one).collect::<Vec<_>>().join(",")
}

/// The reverse of [`maria_text`]; none for any other form. Empty text is the start.
#[must_use]
pub fn maria_domains(text: &str) -> Option<BTreeMap<u32, (u32, u64)>> {
    let mut domains = BTreeMap::new();
    for one in text.split(',').map(str::trim).filter(|one| !one.is_empty()) {
        let mut numbers = one.split('-');
        let domain = number(numbers.next()?)?;
        let server = number(numbers.next()?)?;
        let sequence = number(numbers.next()?)?;
        if numbers.next().is_some() || domains.insert(domain, (server, sequence)).is_some() {
            return None;
        }
    }
    Some(domains)
}

fn stream_text(places: &BTreeMap<String, String>) -> String {
    let one = |(part, place): (&String, &String)| format!("{}={}", escaped(part), escaped(place));
    places.iter().map(one).collect::<Vec<_>>().join(",")
}

/// Escapes bytes that a checkpoint line cannot carry, or that separate places, as `%` and two
/// digits.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && !b"%=,".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

/// The reverse of [`escaped`]; none for any other form.
fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                let digits = std::str::from_utf8(&digits).ok().filter(|it| !it.starts_with('+'))?;
                u8::from_str_radix(digits, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// The reverse of [`stream_text`]; none for any other form. Empty text is the start.
fn stream_places(text: &str) -> Option<BTreeMap<String, String>> {
    let mut places = BTreeMap::new();
    for one in text.split(',').filter(|_| !text.is_empty()) {
        let (part, place) = one.split_once('=')?;
        if places.insert(unescaped(part)?, unescaped(place)?).is_some() {
            return None;
        }
    }
    Some(places)
}

/// The number that PostgreSQL writes as two hexadecimal halves.
#[must_use]
pub fn lsn(text: &str) -> Option<u64> {
    let (high, low) = text.split_once('/')?;
    let half = |digits: &str| {
        let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_plain { u32::from_str_radix(digits, 16).ok() } else { None }
    };
    Some(u64::from(half(high)?) << 32 | u64::from(half(low)?))
}

fn log_place(text: &str) -> Option<Position> {
    let (system, place) = match text.split_once(':') {
        Some((system, place)) => (Some(number(system)?), place),
        None => (None, text),
    };
    let (place, timeline) = match place.split_once('@') {
        Some((place, timeline)) => (place, Some(number(timeline).filter(|it: &u32| *it > 0)?)),
        None => (place, None),
    };
    Some(Position::Lsn { lsn: lsn(place)?, timeline, system })
}

impl FromStr for Position {
    type Err = InvalidPosition;

    fn from_str(text: &str) -> Result<Self, InvalidPosition> {
        let refuse = || InvalidPosition(text.to_owned());
        let (kind, rest) = text.split_once(':').ok_or_else(refuse)?;
        let found = match kind {
            "file" => rest.rsplit_once(':').and_then(|(name, offset)| {
                let offset = number(offset)?;
                (!name.is_empty()).then(|| Self::File { name: name.to_owned(), offset })
            }),
            "lsn" => log_place(rest),
            "mariadb-gtid" => maria_domains(rest).map(Self::MariaGtid),
            "mysql-gtid" => rest.parse().ok().map(Self::MysqlGtid),
            "stream" => stream_places(rest).map(Self::Stream),
            _ => None,
        };
        found.ok_or_else(refuse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_round_trip_through_text() {
        for text in [
            "mariadb-gtid:0-1-4711,3-7-18446744073709551615",
            "mariadb-gtid:",
            "mysql-gtid:3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:8",
            "mysql-gtid:3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:a_tag:1-3:9:b:7",
            "mysql-gtid:3e11fa47-71ca-11e1-9e33-c80aa9429562:a_tag:1",
            "file:mariadb-bin.000012:4711",
            "lsn:0/16B3748",
            "lsn:FF/FFFFFFFF",
            "lsn:0/16B3748@1",
            "lsn:0/16B3748@4294967295",
            "lsn:18446744073709551615:0/16B3748@2",
            "lsn:0:0/16B3748",
            "stream:",
            "stream:=41",
            "stream:a%20b%3D%2C%C3%A9/0=41,b/1=",
        ] {
            let position: Position = text.parse().unwrap();
            assert_eq!(position.to_string(), text);
        }
    }

    #[test]
    fn invalid_positions_are_refused() {
        for text in [
            "",
            "0-1-5",
            "mariadb-gtid:0-1",
            "mariadb-gtid:0-1-+5",
            "mariadb-gtid:0-1-5,0-1-6",
            "file::4",
            "file:a",
            "file:a:-4",
            "lsn:0",
            "lsn:0/100000000",
            "lsn:+0/1",
            "lsn:0/1@",
            "lsn:0/1@0",
            "lsn:0/1@+1",
            "lsn:0/1@4294967296",
            "lsn::0/1",
            "lsn:+1:0/1",
            "lsn:1:1:0/1",
            "lsn:18446744073709551616:0/1",
            "mysql-gtid:xyz:1",
            "oracle:5",
            "stream:41",
            "stream:a=1,a=2",
            "stream:a=%4",
            "stream:a=%+4",
            "stream:a=%FF",
        ] {
            assert!(text.parse::<Position>().is_err(), "{text}");
        }
    }
}
