//! Synthetic workloads: keys by a pattern, values by a distribution, and scans of keys that are not
//! requested again.

use std::fmt;
use std::str::FromStr;

use anyhow::Result;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde::{Deserialize, Serialize};

use super::trace::{Action, Request};
use generator::keys::{Keys, Pattern};
use generator::number::fits;
use generator::parse_error::ParseError;
use generator::serde_text;
use generator::sizes::{KeySize, ValueSize, uniform_of};

/// The workload to draw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Synthetic {
    /// Number of keys, without those of scans.
    pub keys: u64,
    /// The pattern of keys.
    pub pattern: Pattern,
    /// The lengths of keys.
    pub key_size: KeySize,
    /// The lengths of values.
    pub value_size: ValueSize,
    /// Scans between the others.
    pub scan: Option<Scan>,
    /// Requests.
    pub requests: u64,
    /// Determines the order.
    pub seed: u64,
}

/// After each `every` requests, `length` new keys are requested once, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Requests between scans.
    pub every: u64,
    /// Keys of a scan.
    pub length: u64,
}

/// The default length of a key: sixteen digits.
const KEY_BYTES: u16 = super::trace::KEY_BYTES;

impl Synthetic {
    /// Its requests, from the first; the same each time.
    ///
    /// # Errors
    ///
    /// When the pattern's parameter is invalid for its distribution.
    pub fn requests(&self) -> Result<impl Iterator<Item = Request> + use<>> {
        let mut keys = Keys::new(self.pattern, self.keys, 0)?;
        let mut rng = SmallRng::seed_from_u64(self.seed);
        let (this, mut scanned) = (self.clone(), 0);
        Ok((0..self.requests).map(move |at| {
            let is_scan =
                this.scan.is_some_and(|scan| at % (scan.every + scan.length) >= scan.every);
            let id = if is_scan {
                scanned += 1;
                this.keys + scanned
            } else {
                keys.next(&mut rng)
            };
            this.request(id)
        }))
    }

    fn request(&self, id: u64) -> Request {
        let key_bytes = match self.key_size {
            KeySize::Shortest | KeySize::Plain => KEY_BYTES,
            size => u16::try_from(size.of(uniform_of(id))).unwrap_or(KEY_BYTES),
        };
        let value_bytes = fits(self.value_size.of_key(id));
        Request { id, key_bytes, value_bytes, lifetime_secs: 0, action: Action::Get }
    }

    /// A short description.
    #[must_use]
    pub fn describe(&self) -> String {
        let scan = self.scan.map(|scan| format!(", scans {scan}")).unwrap_or_default();
        format!(
            "{} requests of {} keys ({}), values {} bytes{scan}",
            self.requests, self.keys, self.pattern, self.value_size
        )
    }
}

impl FromStr for Scan {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let numbers = text.split_once(':').map(|(every, length)| (every.parse(), length.parse()));
        match numbers {
            Some((Ok(every @ 1..=1_000_000_000_000), Ok(length @ 1..=1_000_000_000_000))) => {
                Ok(Self { every, length })
            }
            _ => Err(ParseError::form(text, "EVERY:LENGTH, for example 100000:20000")),
        }
    }
}

impl fmt::Display for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.every, self.length)
    }
}

serde_text!(Scan);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scans_are_interleaved_with_unique_keys() {
        let synthetic = Synthetic {
            keys: 10,
            pattern: Pattern::Sequential,
            key_size: KeySize::Shortest,
            value_size: ValueSize::Fixed(5),
            scan: Some(Scan { every: 3, length: 2 }),
            requests: 10,
            seed: 1,
        };
        let ids: Vec<u64> = synthetic.requests().unwrap().map(|request| request.id).collect();
        assert_eq!(ids, [0, 1, 2, 11, 12, 3, 4, 5, 13, 14]);
        assert_eq!("100:5".parse::<Scan>().unwrap().to_string(), "100:5");
        for wrong in ["", "5", "0:1", "1:0", "a:b"] {
            assert!(wrong.parse::<Scan>().is_err(), "{wrong}");
        }
    }
}
