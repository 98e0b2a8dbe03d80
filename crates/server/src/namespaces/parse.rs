//! The lines of the file of namespaces.
//!
//! ```text
//!     # whose       limits
//!     prefix app:   max-bytes=512m default-ttl=3600 max-ttl=86400
//!     prefix *      max-requests-per-second=50000
//!     user   batch  max-requests-per-second=1000
//! ```
//!
//! As a prefix, `*` means every key without a longer prefix; as a user, every user without a line.

use std::collections::BTreeSet;

use engine::{Limits, RATE_MAX, Rule, Subject};
use options::{number_in, size_in};
use thiserror::Error;

/// The faulty line, counted from 1, and its fault.
#[derive(Debug, Error)]
#[error("line {line}: {mistake}")]
pub(super) struct MistakeAt {
    line: usize,
    mistake: Mistake,
}

#[derive(Debug, Error)]
enum Mistake {
    #[error("'{0}' is neither prefix nor user; write 'prefix app: LIMITS' or 'user app LIMITS'")]
    Kind(String),
    #[error("says nothing after {0}; write a name, or * for all others")]
    NoName(&'static str),
    #[error("'{0}' has more bytes than a key may have, 250")]
    LongPrefix(String),
    #[error("`user` lines need logins: set -Y or -S")]
    NoLogins,
    #[error("'{0}' has a line already; write its limits there")]
    Twice(String),
    #[error(
        "'{0}' is no limit; write max-bytes=, default-ttl=, max-ttl= or max-requests-per-second="
    )]
    UnknownLimit(String),
    #[error("'{0}' limits keys; for a user write max-requests-per-second=")]
    LimitOfKeys(String),
    #[error("{0} stands twice; write it once")]
    LimitTwice(&'static str),
    #[error("'{0}': write a number of bytes, such as 64m, with k, m or g for units of 1024")]
    Bytes(String),
    #[error("'{0}': write a number of seconds from 1 to {max}", max = u32::MAX)]
    Seconds(String),
    #[error("'{0}': write a number of requests from 1 to {RATE_MAX}")]
    Requests(String),
    #[error("default-ttl is over max-ttl; write at most {0}")]
    DefaultOverMax(u32),
}

/// Reads the file's text.
pub(super) fn rules(text: &str, has_users: bool) -> Result<Vec<Rule>, MistakeAt> {
    let (mut rules, mut seen) = (Vec::new(), BTreeSet::new());
    for (line, text) in (1..).zip(text.lines()) {
        let rule = rule(files::without_comment(text), has_users)
            .map_err(|mistake| MistakeAt { line, mistake })?;
        let Some((name, rule)) = rule else { continue };
        if !seen.insert(rule.subject.clone()) {
            return Err(MistakeAt { line, mistake: Mistake::Twice(name.to_owned()) });
        }
        rules.push(rule);
    }
    Ok(rules)
}

/// One line's name and rule; `None` for an empty line.
fn rule(line: &str, has_users: bool) -> Result<Option<(&str, Rule)>, Mistake> {
    let mut words = line.split_ascii_whitespace();
    let Some(kind) = words.next() else { return Ok(None) };
    let is_prefix = match kind {
        "prefix" => true,
        "user" if has_users => false,
        "user" => return Err(Mistake::NoLogins),
        _ => return Err(Mistake::Kind(kind.to_owned())),
    };
    let name = words.next().ok_or(Mistake::NoName(if is_prefix { "prefix" } else { "user" }))?;
    let bytes: Box<[u8]> = if name == "*" { Box::default() } else { name.as_bytes().into() };
    if is_prefix && bytes.len() > store::KEY_BYTES_MAX {
        return Err(Mistake::LongPrefix(name.to_owned()));
    }
    let mut limits = Limits::default();
    for word in words {
        add_limit(&mut limits, word, is_prefix)?;
    }
    if let (Some(default), Some(most)) = (limits.default_ttl_secs, limits.ttl_secs_max)
        && default > most
    {
        return Err(Mistake::DefaultOverMax(most));
    }
    let subject = if is_prefix { Subject::Prefix(bytes) } else { Subject::User(bytes) };
    Ok(Some((name, Rule { subject, limits })))
}

fn add_limit(limits: &mut Limits, word: &str, is_prefix: bool) -> Result<(), Mistake> {
    let unknown = || Mistake::UnknownLimit(word.to_owned());
    let (limit, value) = word.split_once('=').ok_or_else(unknown)?;
    let seconds = || {
        number_in(value, 1..=u64::from(u32::MAX)).ok_or_else(|| Mistake::Seconds(word.to_owned()))
    };
    match limit {
        "max-requests-per-second" => {
            let rate = number_in(value, 1..=u64::from(RATE_MAX))
                .ok_or_else(|| Mistake::Requests(word.to_owned()))?;
            put(&mut limits.requests_per_second_max, rate, "max-requests-per-second")
        }
        "max-bytes" | "default-ttl" | "max-ttl" if !is_prefix => {
            Err(Mistake::LimitOfKeys(limit.to_owned()))
        }
        "max-bytes" => {
            let bytes =
                size_in(value, 1..=u64::MAX).ok_or_else(|| Mistake::Bytes(word.to_owned()))?;
            put(&mut limits.bytes_max, bytes, "max-bytes")
        }
        "default-ttl" => put(&mut limits.default_ttl_secs, seconds()?, "default-ttl"),
        "max-ttl" => put(&mut limits.ttl_secs_max, seconds()?, "max-ttl"),
        _ => Err(unknown()),
    }
}

fn put<T>(limit: &mut Option<T>, value: T, name: &'static str) -> Result<(), Mistake> {
    match limit.replace(value) {
        None => Ok(()),
        Some(_) => Err(Mistake::LimitTwice(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed_as_rules_in_order() {
        let text = "# whose      limits\n\
             prefix app:  max-bytes=512m default-ttl=60 max-ttl=3600 # some\n\
             \n\
             prefix *\n\
             prefix t#1: max-requests-per-second=7 # not t\n\
             user   batch max-requests-per-second=1000\n\
             user * max-requests-per-second=5\n";
        let rule = |subject, limits| Rule { subject, limits };
        let rate = |rate| Limits { requests_per_second_max: Some(rate), ..Limits::default() };
        let app = Limits {
            bytes_max: Some(512 << 20),
            default_ttl_secs: Some(60),
            ttl_secs_max: Some(3600),
            requests_per_second_max: None,
        };
        let want = [
            rule(Subject::Prefix(b"app:"[..].into()), app),
            rule(Subject::Prefix(Box::default()), Limits::default()),
            rule(Subject::Prefix(b"t#1:"[..].into()), rate(7)),
            rule(Subject::User(b"batch"[..].into()), rate(1000)),
            rule(Subject::User(Box::default()), rate(5)),
        ];
        assert_eq!(rules(text, true).unwrap(), want);
        assert_eq!(rules("", false).unwrap(), []);
        for (text, want) in
            [("1", 1), ("3k", 3 << 10), ("2M", 2 << 20), ("8589934592", 8 << 30), ("9g", 9 << 30)]
        {
            let limits = Limits { bytes_max: Some(want), ..Limits::default() };
            let read = rules(&format!("prefix * max-bytes={text}"), false).unwrap();
            assert_eq!(read, [rule(Subject::Prefix(Box::default()), limits)], "{text}");
        }
    }

    #[test]
    fn mistakes_are_reported_with_line_and_correction() {
        let long = format!("prefix {}", "k".repeat(251));
        for (text, want) in [
            ("app: max-ttl=1", "line 1: 'app:' is neither prefix nor user; write 'prefix app: "),
            ("\nprefix", "line 2: says nothing after prefix; write a name"),
            ("user # x", "line 1: says nothing after user"),
            (&long, "line 1: 'kkk"),
            ("prefix a\nprefix b\nprefix a max-ttl=1", "line 3: 'a' has a line already"),
            ("user a\nprefix a\nuser a", "line 3: 'a' has a line already"),
            ("prefix a max-byte=1", "line 1: 'max-byte=1' is no limit; write max-bytes=, "),
            ("prefix a max-bytes", "line 1: 'max-bytes' is no limit"),
            ("user a max-ttl=1", "line 1: 'max-ttl' limits keys; for a user write "),
            ("prefix a max-ttl=1 max-ttl=2", "line 1: max-ttl stands twice"),
            ("prefix a max-bytes=0", "line 1: 'max-bytes=0': write a number of bytes"),
            ("prefix a max-bytes=m", "line 1: 'max-bytes=m': write a number of bytes"),
            ("prefix a max-bytes=17179869184g", "line 1: 'max-bytes=17179869184g': write"),
            ("prefix a max-bytes=1t", "line 1: 'max-bytes=1t': write a number of bytes"),
            ("prefix a max-bytes=\u{fc}", "line 1: 'max-bytes=\u{fc}': write"),
            ("prefix a max-ttl=0", "line 1: 'max-ttl=0': write a number of seconds from 1 to 4"),
            ("prefix a default-ttl=+1", "line 1: 'default-ttl=+1': write a number of seconds"),
            (
                "prefix a max-requests-per-second=1e3",
                "line 1: 'max-requests-per-second=1e3': write a number of requests from 1 to 1",
            ),
            (
                "prefix a default-ttl=2 max-ttl=1",
                "line 1: default-ttl is over max-ttl; write at most 1",
            ),
        ] {
            let refusal = rules(text, true).unwrap_err().to_string();
            assert!(refusal.starts_with(want), "{refusal}");
        }
        let refusal = rules("user a", false).unwrap_err().to_string();
        assert_eq!(refusal, "line 1: `user` lines need logins: set -Y or -S");
    }
}
