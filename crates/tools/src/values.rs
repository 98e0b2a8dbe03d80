//! Values of items, each with its metadata from the same reply.
//!
//! A list of keys is older than the values requested with it: by then, an item may be another, with
//! another lifetime. Only data of one reply belongs together.

use std::borrow::Cow;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::connection::{Connection, Error};

/// The longest word that names a key, in bytes.
const KEY_WORD_BYTES_MAX: usize = 250;

/// The largest value in a dump or restore, in bytes: a server's maximum.
pub(crate) const VALUE_BYTES_MAX: usize = 1 << 30;

/// A server's state of a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// No longer there.
    Gone,
    /// A value that must be renewed: marked stale, or an empty one created for the client that
    /// fills it.
    Stale,
    /// A value.
    Item {
        value: Vec<u8>,
        flags: u32,
        /// Unix time of its expiry; `None`: never.
        expires: Option<u64>,
    },
}

/// A key as a word of a meta command, and the flag for its encoding: base64 only if needed, because
/// the word may have at most 250 bytes. `None` for a key that no word can name.
pub(crate) fn key_word(key: &[u8]) -> Option<(Cow<'_, [u8]>, &'static str)> {
    let (word, flag): (Cow<'_, [u8]>, _) =
        match key.iter().all(|byte| *byte > b' ' && *byte != 0x7f) {
            true => (key.into(), ""),
            false => (STANDARD.encode(key).into_bytes().into(), " b"),
        };
    (1..=KEY_WORD_BYTES_MAX).contains(&word.len()).then_some((word, flag))
}

/// The form in which clients name a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyForm {
    /// As it is.
    Plain,
    /// In base64, by meta commands.
    Base64,
    /// None: the key is empty or too long.
    None,
}

/// The form of a key; `dump` and `cp` leave out keys without one.
#[must_use]
pub fn key_form(key: &[u8]) -> KeyForm {
    match key_word(key) {
        Some((_, "")) => KeyForm::Plain,
        Some(_) => KeyForm::Base64,
        None => KeyForm::None,
    }
}

/// Requests values and passes each on, in the order of the keys. `u` leaves the eviction order
/// unchanged.
///
/// A server gives the right to renew a stale value to its first reader. This reader does not renew,
/// so it gives the right back.
pub(crate) fn read(
    keys: &[Vec<u8>],
    server: &mut Connection,
    mut each: impl FnMut(&[u8], Answer) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut requests = Vec::new();
    for key in keys {
        write_request(b"mg", key, " v f t u", &mut requests);
    }
    // Lifetimes count from here: for a slow reader, a value expires early rather than late.
    let asked_at = now_unix();
    server.send(&requests)?;
    let mut won = Vec::new();
    for key in keys {
        let line = server.line()?;
        if line == "EN" {
            each(key, Answer::Gone)?;
            continue;
        }
        let head = Head::parse(&line).ok_or_else(|| server.unexpected("mg", &line))?;
        let value = server.block(head.bytes)?;
        if head.is_won {
            won.push(key.as_slice());
        }
        let is_to_be_filled = head.is_won_by_another && value.is_empty();
        let expires = head.seconds_left.map(|left| asked_at.saturating_add(left));
        let answer = match head.is_stale || is_to_be_filled {
            true => Answer::Stale,
            false => Answer::Item { value, flags: head.flags, expires },
        };
        each(key, answer)?;
    }
    give_back(&won, server)
}

/// Gives back the right to renew values that are still stale: marked stale again, a value is the
/// next reader's to renew. The cas unique is requested only here: a server may not store one for an
/// item until it is requested, and would need room for one for each.
fn give_back(won: &[&[u8]], server: &mut Connection) -> Result<(), Error> {
    let mut requests = Vec::new();
    won.iter().for_each(|key| write_request(b"mg", key, " c u", &mut requests));
    server.send(&requests)?;
    requests.clear();
    let mut marked = 0;
    for key in won {
        let line = server.line()?;
        // The item has changed, or is gone.
        if let Some(cas) = cas_of_stale(&line) {
            // Without T, the lifetime stays.
            write_request(b"md", key, &format!(" I C{cas}"), &mut requests);
            marked += 1;
        } else if line != "EN" && !line.starts_with("HD") {
            return Err(server.unexpected("mg", &line));
        }
    }
    server.send(&requests)?;
    for _ in 0..marked {
        let line = server.line()?;
        if !matches!(line.as_str(), "HD" | "EX" | "NF") {
            return Err(server.unexpected("md", &line));
        }
    }
    Ok(())
}

/// The cas unique of a stale item: `HD c17 X Z`.
fn cas_of_stale(line: &str) -> Option<u64> {
    let words = line.strip_prefix("HD ")?;
    let mut cas = words.split(' ').filter_map(|word| word.strip_prefix('c')?.parse().ok());
    words.split(' ').any(|word| word == "X").then(|| cas.next())?
}

pub(crate) fn now_unix() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Adds a request; keys that no word names were left out before.
fn write_request(command: &[u8], key: &[u8], flags: &str, out: &mut Vec<u8>) {
    let (word, flag) = key_word(key).unwrap_or_default();
    out.extend_from_slice(command);
    out.push(b' ');
    out.extend_from_slice(&word);
    out.extend_from_slice(flag.as_bytes());
    out.extend_from_slice(flags.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// The line before a value.
#[derive(Debug, Default, PartialEq, Eq)]
struct Head {
    bytes: usize,
    flags: u32,
    /// `None`: it does not expire.
    seconds_left: Option<u64>,
    is_stale: bool,
    is_won: bool,
    is_won_by_another: bool,
}

impl Head {
    /// `VA 5 f0 t299 W X`.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("VA ")?.split(' ');
        let bytes = words.next()?.parse().ok().filter(|bytes| *bytes <= VALUE_BYTES_MAX)?;
        let mut head = Self { bytes, ..Self::default() };
        let mut is_timed = false;
        for word in words {
            match word.split_at_checked(1)? {
                ("f", flags) => head.flags = flags.parse().ok()?,
                ("t", left) => {
                    is_timed = true;
                    head.seconds_left = match left {
                        "-1" => None,
                        left => Some(left.parse().ok()?),
                    };
                }
                ("X", "") => head.is_stale = true,
                ("W", "") => head.is_won = true,
                ("Z", "") => head.is_won_by_another = true,
                _ => {}
            }
        }
        is_timed.then_some(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_parsed_with_its_ttl_and_marks() {
        let head = Head { bytes: 3, flags: 7, ..Head::default() };
        assert_eq!(Head::parse("VA 3 f7 t-1"), Some(head));
        let stale = Head::parse("VA 0 f0 t299 W X").unwrap();
        assert!(stale.is_stale && stale.is_won && !stale.is_won_by_another);
        assert_eq!(stale.seconds_left, Some(299));
        assert!(Head::parse("VA 0 f0 t1 X Z").unwrap().is_won_by_another);
        for wrong in ["HD", "VA", "VA x t1", "VA 1", "VA 1 f0", "VA 1 tx", "VA 99999999999 t1"] {
            assert_eq!(Head::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn cas_of_stale_ignores_fresh_items() {
        assert_eq!(cas_of_stale("HD c17 X Z"), Some(17));
        for other in ["EN", "HD", "HD c17", "HD X Z", "HD c17 Z", "VA 1 c17 X"] {
            assert_eq!(cas_of_stale(other), None, "{other}");
        }
    }

    #[test]
    fn only_keys_that_fit_in_250_bytes_have_a_word() {
        assert_eq!(key_word(&[b'k'; 250]), Some(([b'k'; 250][..].into(), "")));
        assert_eq!(key_word(&[b'k'; 251]), None);
        assert_eq!(key_word(b""), None);
        assert_eq!(key_word(b"a b"), Some((b"YSBi"[..].into(), " b")));
        assert_eq!(key_word(&[b' '; 186]).unwrap().0.len(), 248);
        assert_eq!(key_form(&[0xff; 250]), KeyForm::Plain);
        assert_eq!(key_form(&[b' '; 186]), KeyForm::Base64);
        assert_eq!(key_form(&[b' '; 187]), KeyForm::None);
        assert_eq!(key_word(&[b' '; 187]), None);
    }
}
