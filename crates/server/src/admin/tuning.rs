//! Switches of the engine that may be thrown while it runs: `lru`.
//!
//! What they mean here and in memcached is in docs/protocol.md. A switch for which this engine has nothing to switch is checked
//! as memcached checks it, answered as it answers, and changes nothing.

use proto::text::Words;
use proto::{number, reply};

use super::{Answer, ERROR};
use crate::session::Worker;

impl Worker {
    /// `lru tune|mode|temp_ttl`. There is one kind of list here, so only the last has anything to set.
    pub(super) fn lru(&self, mut words: Words<'_>) -> Answer {
        match (words.next(), words.next()) {
            (Some(b"tune"), Some(hot)) => lru_tune(hot, words).unwrap_or(ERROR),
            (Some(b"mode"), Some(b"flat" | b"segmented")) => reply::OK,
            (Some(b"temp_ttl"), Some(secs)) => match number::parse_i64(secs) {
                Some(secs) if i32::try_from(secs).is_ok() => {
                    let secs = u32::try_from(secs).unwrap_or(0);
                    self.shared.engine.store().set_transient_secs(secs);
                    reply::OK
                }
                _ => ERROR,
            },
            _ => ERROR,
        }
    }
}

/// Shares of the hot and the warm list, in percent, and their ages as parts of the cold list's.
fn lru_tune(hot: &[u8], mut words: Words<'_>) -> Option<Answer> {
    let hot = number::parse_u32(hot)?;
    let warm = number::parse_u32(words.next()?)?;
    let (hot_age, warm_age) = (fraction(words.next()?)?, fraction(words.next()?)?);
    if u64::from(hot) + u64::from(warm) > 80 {
        return Some(b"ERROR hot and warm pcts must not exceed 80\r\n");
    }
    if !(hot_age > 0.0 && warm_age > 0.0) {
        return Some(b"ERROR hot/warm age factors must be greater than 0\r\n");
    }
    Some(reply::OK)
}

/// A finite decimal number.
fn fraction(word: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(word).ok()?.parse().ok()?;
    number.is_finite().then_some(number)
}
