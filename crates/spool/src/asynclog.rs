//! mcrouter's files of failed deletes ("asynclog"): lines of JSON, with a new file every 15
//! minutes.
//!
//! ```text
//!     FOLDER/YYYYMMDDTHH-SECS/YYYYMMDDTHHMMSS-SECS-SERVICE-ROUTER-tTHREAD-POINTER
//!     ["AS1.0",SECS,"C",["HOST",PORT,"delete KEY\r\n"]]
//!     ["AS2.0",SECS,"C",{"s":SERVICE,"f":FLAVOR,"r":REGION,"h":"[HOST]:PORT","p":POOL,
//!                        "k":KEY,"a":{..}}]                                          (one line)
//! ```
//!
//! Source: mcrouter's `AsyncLog.cpp` and `awriter` formats, as of 2026-08. Bytes of keys that are
//! not text become U+FFFD.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// The format of a line, one of two.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Version {
    /// AS1.0: the whole command.
    One,
    /// AS2.0: the key, and its origin (`--use-asynclog-version2`).
    Two,
}

/// One failed delete.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// The time at which it failed, in seconds since 1970.
    pub secs: u64,
    /// The server as `host:port`, an IPv6 host in brackets.
    pub destination: String,
    /// The pool's name; empty in AS1.0, which has none.
    pub pool: String,
    /// The key.
    pub key: String,
}

/// A line, without its end.
#[must_use]
pub fn line(entry: &Entry, version: Version) -> String {
    let (host, port) = entry.destination.rsplit_once(':').unwrap_or((&entry.destination, "0"));
    let host = host.trim_matches(['[', ']']);
    let port: u64 = port.parse().unwrap_or(0);
    let value = match version {
        Version::One => {
            json!(["AS1.0", entry.secs, "C", [host, port, format!("delete {}\r\n", entry.key)]])
        }
        Version::Two => {
            let (server, pool, key) = (format!("[{host}]:{port}"), &entry.pool, &entry.key);
            let about =
                json!({"s": "", "f": "", "r": "", "h": server, "p": pool, "k": key, "a": {}});
            json!(["AS2.0", entry.secs, "C", about])
        }
    };
    value.to_string()
}

/// The fault of a line.
#[derive(Debug, thiserror::Error)]
pub enum NotAnEntry {
    /// It is not JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// It is a different value.
    #[error("a line is a list of four")]
    NotFour,
    /// The time cannot be read.
    #[error("the time is no number of seconds")]
    Time,
    /// It is not a command.
    #[error("the third part is not \"C\"")]
    Kind,
    /// It is of an unknown version.
    #[error("neither AS1.0 nor AS2.0")]
    Version,
    /// It lacks a part of version 1.
    #[error("AS1.0 has host, port and command")]
    VersionOne,
    /// Its command is not a delete.
    #[error("no delete")]
    NoDelete,
    /// It names no server.
    #[error("no server")]
    NoServer,
    /// It names no key.
    #[error("no key")]
    NoKey,
    /// Its server has no port.
    #[error("the server has no port")]
    NoPort,
    /// No server accepts its key.
    #[error("the key is empty, longer than 250 bytes, or has a space in it")]
    Key,
}

/// Reads a line.
///
/// # Errors
///
/// Returns the fault of the line.
pub fn parse(line: &str) -> Result<Entry, NotAnEntry> {
    let value: Value = serde_json::from_str(line)?;
    let [format, secs, kind, about] = value.as_array().map(Vec::as_slice).unwrap_or_default()
    else {
        return Err(NotAnEntry::NotFour);
    };
    // Seconds with or without a fraction.
    let secs = secs.to_string().split('.').next().and_then(|secs| secs.parse().ok());
    let secs = secs.ok_or(NotAnEntry::Time)?;
    if kind != "C" {
        return Err(NotAnEntry::Kind);
    }
    match format.as_str() {
        Some("AS1.0") => version_one(secs, about),
        Some("AS2.0") => version_two(secs, about),
        _ => Err(NotAnEntry::Version),
    }
}

fn version_one(secs: u64, about: &Value) -> Result<Entry, NotAnEntry> {
    let [host, port, command] = about.as_array().map(Vec::as_slice).unwrap_or_default() else {
        return Err(NotAnEntry::VersionOne);
    };
    let (Some(host), Some(port), Some(command)) = (host.as_str(), port.as_u64(), command.as_str())
    else {
        return Err(NotAnEntry::VersionOne);
    };
    let key = command.strip_prefix("delete ").map(str::trim_end).ok_or(NotAnEntry::NoDelete)?;
    let key = key.split(' ').next().unwrap_or_default();
    entry(secs, &destination(host, port), "", key)
}

fn version_two(secs: u64, about: &Value) -> Result<Entry, NotAnEntry> {
    let text = |name: &str| about.get(name).and_then(Value::as_str);
    let (server, key) =
        (text("h").ok_or(NotAnEntry::NoServer)?, text("k").ok_or(NotAnEntry::NoKey)?);
    let (host, port) = server.rsplit_once(':').ok_or(NotAnEntry::NoPort)?;
    let port = port.parse().map_err(|_| NotAnEntry::NoPort)?;
    let host = host.trim_matches(['[', ']']);
    entry(secs, &destination(host, port), text("p").unwrap_or_default(), key)
}

/// Refuses a key that a server could not read as one word.
fn entry(secs: u64, destination: &str, pool: &str, key: &str) -> Result<Entry, NotAnEntry> {
    let is_key =
        (1..=250).contains(&key.len()) && key.bytes().all(|byte| byte > b' ' && byte != 127);
    if !is_key {
        return Err(NotAnEntry::Key);
    }
    let (destination, pool, key) = (destination.to_owned(), pool.to_owned(), key.to_owned());
    Ok(Entry { secs, destination, pool, key })
}

fn destination(host: &str, port: u64) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// mcrouter's files in `folder` created before `begun_before` seconds since 1970, oldest first.
///
/// # Errors
///
/// When the folder cannot be read.
pub fn files(folder: &Path, begun_before: u64) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for hour in fs::read_dir(folder)? {
        let hour = hour?;
        if stamp(&hour.file_name().to_string_lossy(), 11).is_none() || !hour.file_type()?.is_dir() {
            continue;
        }
        for file in fs::read_dir(hour.path())? {
            let file = file?;
            let begun = stamp(&file.file_name().to_string_lossy(), 15);
            if let Some(begun) = begun.filter(|begun| *begun < begun_before) {
                found.push((begun, file.path()));
            }
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// The seconds since 1970 in a name of `date_len` characters of date and time, `-`, seconds.
fn stamp(name: &str, date_len: usize) -> Option<u64> {
    let (date, rest) = name.split_once('-')?;
    let is_date = date.len() == date_len
        && date.bytes().enumerate().all(
            |(at, byte)| {
                if at == 8 { byte == b'T' } else { byte.is_ascii_digit() }
            },
        );
    let secs = rest.split('-').next()?;
    secs.parse().ok().filter(|_| is_date)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_round_trip() {
        for (destination, key) in [("10.0.0.1:11211", "k"), ("[::1]:5", "a\"b\\ü"), ("host:1", "x")]
        {
            let entry = Entry {
                secs: 1_700_000_000,
                destination: destination.into(),
                pool: "A".into(),
                key: key.into(),
            };
            assert_eq!(parse(&line(&entry, Version::Two)).unwrap(), entry);
            let without = Entry { pool: String::new(), ..entry.clone() };
            assert_eq!(parse(&line(&entry, Version::One)).unwrap(), without);
        }
    }

    #[test]
    fn mcrouter_lines_are_parsed_and_written() {
        let one = r#"["AS1.0",1289416829,"C",["10.0.0.1",11302,"delete foo\r\n"]]"#;
        let read = parse(one).unwrap();
        assert_eq!((read.destination.as_str(), read.key.as_str()), ("10.0.0.1:11302", "foo"));
        assert_eq!(line(&read, Version::One), one);
        let two = r#"["AS2.0",1289416829.836,"C",{"f":"flavor","h":"[127.0.0.1]:5001","p":"A","k":"key","r":"us","s":"mcr","a":{"al":1}}]"#;
        let read = parse(two).unwrap();
        assert_eq!((read.destination.as_str(), read.pool.as_str()), ("127.0.0.1:5001", "A"));
        for bad in [
            "",
            "[]",
            "{}",
            r#"["AS3.0",1,"C",[]]"#,
            r#"["AS1.0",1,"C",["h",1,"set k\r\n"]]"#,
            r#"["AS1.0",1,"C",["h",1,"delete \r\n"]]"#,
            r#"["AS1.0",-1,"C",["h",1,"delete k\r\n"]]"#,
            r#"["AS2.0",1,"C",{"h":"[h]:1","k":"a\r\nflush_all"}]"#,
            r#"["AS1.0",1,"D",["h",1,"delete k\r\n"]]"#,
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn file_names_contain_their_time() {
        assert_eq!(stamp("20261121T13-1795266000", 11), Some(1_795_266_000));
        assert_eq!(
            stamp("20261121T134500-1795268700-libmcrouter-5000-t1-0x7f", 15),
            Some(1_795_268_700)
        );
        for other in ["lost+found", "20261121T13-", "20261121-1", "holdall-5000", ""] {
            assert_eq!(stamp(other, 11), None, "{other}");
        }
    }
}
