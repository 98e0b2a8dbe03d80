//! Refresh of a value shortly before its end, so that no client misses it (XFetch: Vattani,
//! Chierichetti and Lowenstein, *Optimal Probabilistic Cache Stampede Prevention*, 2015).
//!
//! A reader draws how many seconds before the end it would load, and sends the number with the read
//! (`mg`'s flag `R`). The server chooses one of the readers within that time, so one process
//! refreshes, however many draw early.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::client::{Client, Lease};
use crate::error::Error;
use crate::slot::HOT_MISS;
use crate::value::Value;
use proto::answer::MetaCode;
use proto::number::{parse_u32, parse_u64};
use upstream::{Command, Outcome, OwnedReply, Request};

/// The mean time of loads: each new one counts for an eighth.
#[derive(Debug, Default)]
pub(crate) struct LoadTimes(AtomicU64);

impl LoadTimes {
    pub(crate) fn note(&self, took: Duration) {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        // Relaxed, here and below: of two that end together, one may be lost.
        let mean_us = self.0.load(Ordering::Relaxed);
        let mean_us = if mean_us == 0 { took_us } else { mean_us - mean_us / 8 + took_us / 8 };
        self.0.store(mean_us, Ordering::Relaxed);
    }

    /// How many seconds before a value's end this reader would load it: the mean time of a load
    /// times `beta` times an exponential variable, at least a second, the resolution of expiry
    /// times. `random` is from 0 (not included) to 1.
    pub(crate) fn draw_secs(&self, beta: f64, random: f64) -> u32 {
        let mean = Duration::from_micros(self.0.load(Ordering::Relaxed)).as_secs_f64();
        let early = Duration::try_from_secs_f64(mean * beta * -random.ln()).unwrap_or_default();
        u32::try_from(early.as_secs().saturating_add(1)).unwrap_or(u32::MAX)
    }
}

/// The answer to a read with an early refresh.
#[derive(Debug)]
pub(crate) enum Read {
    /// As of lease-get.
    Lease(Lease),
    /// A value that this reader must reload, with the cas unique.
    Refresh(Value),
}

/// The flags of a reply to `mg`.
#[derive(Default)]
struct Facts {
    flags: u32,
    cas: u64,
    token: Option<u64>,
    is_stale: bool,
    is_won: bool,
}

impl Facts {
    fn of(words: &[u8]) -> Self {
        let mut facts = Self::default();
        for word in words.split(|byte| *byte == b' ') {
            match word.split_first() {
                Some((b'f', number)) => facts.flags = parse_u32(number).unwrap_or(0),
                Some((b'c', number)) => facts.cas = parse_u64(number).unwrap_or(0),
                Some((b'G', number)) => facts.token = parse_u64(number),
                Some((b'X', _)) => facts.is_stale = true,
                Some((b'W', _)) => facts.is_won = true,
                _ => {}
            }
        }
        facts
    }
}

impl Client {
    /// As [`Self::lease_get`], or the request to reload a value that ends within `early_secs`.
    pub(crate) async fn lease_get_early(&self, key: &[u8], early_secs: u32) -> Result<Read, Error> {
        let words = format!("v f c G R{early_secs}");
        let request = Request { words: words.as_bytes(), ..Request::new(Command::MetaGet, key) };
        self.read(self.ask_lease(request).await?)
    }

    fn read(&self, reply: OwnedReply) -> Result<Read, Error> {
        if reply.outcome != Outcome::Meta(MetaCode::Va) {
            return Err(Error::Unexpected(reply.outcome));
        }
        let facts = Facts::of(&reply.words);
        let is_there = facts.token.is_none() && facts.cas != 0;
        let value = if is_there || facts.is_stale {
            match self.inner.codec.unpack(reply.value, facts.flags) {
                Ok((bytes, flags)) => Some(Value { bytes, flags, cas: facts.cas }),
                Err(error) if is_there => return Err(error),
                // An unreadable stale value is ignored; the token counts.
                Err(_) => None,
            }
        } else {
            None
        };
        Ok(match (value, facts.token) {
            (Some(value), None) if is_there && facts.is_won => Read::Refresh(value),
            (Some(value), None) if is_there => Read::Lease(Lease::Hit(value)),
            (stale, Some(token)) if token != HOT_MISS => Read::Lease(Lease::Fill { token, stale }),
            (stale, _) => Read::Lease(Lease::Wait { stale }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_refresh_times_are_exponential_in_the_mean_load_time() {
        let times = LoadTimes::default();
        assert_eq!(times.draw_secs(1.0, 0.5), 1, "nothing is known yet");
        (0..100).for_each(|_| times.note(Duration::from_secs(8)));
        assert_eq!(times.draw_secs(1.0, 1.0), 1);
        // 8 s times ln 2, and ln 16 for twice that of 1/4.
        assert_eq!((times.draw_secs(1.0, 0.5), times.draw_secs(2.0, 0.25)), (6, 23));
        let draws = (1..=1000).map(|draw| times.draw_secs(1.0, f64::from(draw) / 1000.0));
        let mean = draws.map(f64::from).sum::<f64>() / 1000.0;
        assert!((8.0..9.0).contains(&mean), "{mean}");
    }

    #[test]
    fn response_flags_distinguish_a_hit_from_a_lease() {
        let facts = Facts::of(b"f7 c12 W");
        assert_eq!((facts.flags, facts.cas, facts.token), (7, 12, None));
        assert!(facts.is_won && !facts.is_stale);
        let facts = Facts::of(b"f7 c0 X W G99");
        assert_eq!((facts.cas, facts.token, facts.is_stale), (0, Some(99), true));
    }
}
