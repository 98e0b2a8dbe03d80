//! Places in a database's log, which a replica may have reached or not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

/// A place in a database's log, behind a write: a replica that has reached it shows the write.
///
/// Texts are those of the invalidator's `--since`, without a timeline:
///
/// | database | text | where a writer finds it after its commit |
/// | --- | --- | --- |
/// | MariaDB | `mariadb-gtid:0-1-4711` | `SELECT @@last_gtid`, in the same session |
/// | MySQL | `mysql-gtid:UUID:23` | `SELECT @@global.gtid_executed` |
/// | PostgreSQL | `lsn:0/16B3748` | `SELECT pg_current_wal_insert_lsn()` |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Position(Kind);

#[derive(Clone, Debug, Eq, PartialEq)]
enum Kind {
    Lsn(u64),
    /// The server and the number of the last transaction of each domain.
    MariaDb(BTreeMap<u32, (u32, u64)>),
    /// Sets of transactions, in their written form.
    MySql(BTreeSet<String>),
}

/// A text that is not a position.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NotAPosition(String);

impl fmt::Display for NotAPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.0;
        write!(f, "{text:?} is none of mariadb-gtid:0-1-2, mysql-gtid:UUID:3, lsn:0/16B3748")
    }
}

impl std::error::Error for NotAPosition {}

impl Position {
    /// The place in the database's form, for queries beyond [`Self::reached_query`]. It contains
    /// only letters, digits, and `-:,/_`.
    #[must_use]
    pub fn in_database(&self) -> String {
        match &self.0 {
            Kind::Lsn(lsn) => format!("{:X}/{:X}", lsn >> 32, lsn & 0xffff_ffff),
            Kind::MariaDb(domains) => {
                let parts = domains
                    .iter()
                    .map(|(domain, (server, number))| format!("{domain}-{server}-{number}"));
                parts.collect::<Vec<_>>().join(",")
            }
            Kind::MySql(sets) => sets.iter().cloned().collect::<Vec<_>>().join(","),
        }
    }

    /// The query that shows whether a replica has reached the place: one row with one column, true
    /// or 1 if it has. It does not wait.
    #[must_use]
    pub fn reached_query(&self) -> String {
        let place = self.in_database();
        match &self.0 {
            Kind::Lsn(_) => {
                format!("SELECT coalesce(pg_last_wal_replay_lsn() >= '{place}', false)")
            }
            Kind::MariaDb(_) => format!("SELECT MASTER_GTID_WAIT('{place}', 0) = 0"),
            Kind::MySql(_) => format!("SELECT GTID_SUBSET('{place}', @@global.gtid_executed)"),
        }
    }

    /// The place behind both; `None` for places of different kinds of databases.
    #[must_use]
    pub fn behind_both(self, other: Self) -> Option<Self> {
        match (self.0, other.0) {
            (Kind::Lsn(one), Kind::Lsn(other)) => Some(Self(Kind::Lsn(one.max(other)))),
            (Kind::MariaDb(mut domains), Kind::MariaDb(others)) => {
                for (domain, place) in others {
                    let last = domains.entry(domain).or_insert(place);
                    if place.1 > last.1 {
                        *last = place;
                    }
                }
                Some(Self(Kind::MariaDb(domains)))
            }
            (Kind::MySql(mut sets), Kind::MySql(others)) => {
                sets.extend(others);
                Some(Self(Kind::MySql(sets)))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = match &self.0 {
            Kind::Lsn(_) => "lsn:",
            Kind::MariaDb(_) => "mariadb-gtid:",
            Kind::MySql(_) => "mysql-gtid:",
        };
        write!(f, "{prefix}{}", self.in_database())
    }
}

impl FromStr for Position {
    type Err = NotAPosition;

    fn from_str(text: &str) -> Result<Self, NotAPosition> {
        let (kind, place) = text.split_once(':').unwrap_or((text, ""));
        let parsed = match kind {
            "lsn" => lsn(place),
            "mariadb-gtid" => maria_db(place),
            "mysql-gtid" => mysql(place),
            _ => None,
        };
        parsed.map(Self).ok_or_else(|| NotAPosition(text.chars().take(100).collect()))
    }
}

fn lsn(place: &str) -> Option<Kind> {
    let (high, low) = place.split_once('/')?;
    let half = |digits: &str| {
        let is_half = digits.len() <= 8 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_half.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
    };
    Some(Kind::Lsn(u64::from(half(high)?) << 32 | u64::from(half(low)?)))
}

fn maria_db(place: &str) -> Option<Kind> {
    let is_number = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_whitespace();
    if !place.bytes().all(|byte| is_number(byte) || matches!(byte, b'-' | b',')) {
        return None;
    }
    let domain = |part: &str| {
        let mut numbers = part.trim().splitn(3, '-');
        let domain = numbers.next()?.parse().ok()?;
        Some((domain, (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?)))
    };
    Some(Kind::MariaDb(place.split(',').map(domain).collect::<Option<_>>()?))
}

/// `UUID:1-5:7`, several separated by commas with line ends after them, as MySQL prints them; with
/// tags from 8.3 on.
fn mysql(place: &str) -> Option<Kind> {
    let set = |part: &str| {
        let part = part.trim();
        let (server, rest) = part.split_once(':')?;
        let is_server =
            server.len() == 36 && server.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
        let is_rest = !rest.is_empty()
            && rest.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b':' | b'_'));
        (is_server && is_rest).then(|| part.to_owned())
    };
    Some(Kind::MySql(place.split(',').map(set).collect::<Option<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

    fn position(text: &str) -> Position {
        text.parse().expect("a position")
    }

    #[test]
    fn positions_round_trip_through_text() {
        let mysql = format!("mysql-gtid:{UUID}:1-5:7,{UUID}:tag:3");
        for text in ["lsn:0/16B3748", "lsn:1F/0", "mariadb-gtid:0-1-4711,7-2-3", &mysql] {
            assert_eq!(position(text).to_string(), text);
        }
        let lines = format!("mysql-gtid:{UUID}:1-5,\n{UUID}:7");
        assert_eq!(position(&lines).in_database(), format!("{UUID}:1-5,{UUID}:7"));
    }

    #[test]
    fn other_texts_are_not_positions() {
        for text in [
            "",
            "1",
            "lsn:",
            "lsn:0",
            "lsn:0/1/2",
            "lsn:+1/0",
            "lsn:100000000/0",
            "lsn:000000001/0",
            "mariadb-gtid:",
            "mariadb-gtid:0-1",
            "mariadb-gtid:0-1-2-3",
            "mariadb-gtid:0-1-2,",
            "mariadb-gtid:+0-1-2",
            "mysql-gtid:x:1",
            "mysql-gtid:3e11fa47-71ca-11e1-9e33-c80aa9429562",
            "file:bin.1:4",
            "mysql-gtid:3e11fa47-71ca-11e1-9e33-c80aa9429562:1'); DROP TABLE users; --",
        ] {
            assert!(text.parse::<Position>().is_err(), "{text}");
        }
    }

    #[test]
    fn two_positions_combine_to_the_later_one() {
        let both = |one: &str, other: &str| {
            let there = position(one).behind_both(position(other));
            let back = position(other).behind_both(position(one));
            assert_eq!(there, back);
            there.map(|both| both.to_string())
        };
        assert_eq!(both("lsn:1/0", "lsn:0/FF").as_deref(), Some("lsn:1/0"));
        assert_eq!(
            both("mariadb-gtid:0-1-10,1-1-3", "mariadb-gtid:0-2-9,2-1-1").as_deref(),
            Some("mariadb-gtid:0-1-10,1-1-3,2-1-1")
        );
        let (one, other) = (format!("mysql-gtid:{UUID}:8"), format!("mysql-gtid:{UUID}:7"));
        assert_eq!(both(&one, &other), Some(format!("mysql-gtid:{UUID}:7,{UUID}:8")));
        assert_eq!(both("lsn:0/1", "mariadb-gtid:0-1-1"), None);
    }
}
