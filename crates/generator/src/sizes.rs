//! Distributions of the lengths of keys and values.
//!
//! The ETC pool's distributions are those of Atikoglu et al., "Workload Analysis of a Large-Scale
//! Key-Value Store" (SIGMETRICS 2012), table 4 and section 3: key sizes follow a generalised
//! extreme value distribution, value sizes of 15 bytes and more a generalised Pareto one; smaller
//! values have the paper's listed probabilities.

use std::fmt;
use std::str::FromStr;

use super::scatter::scatter;
use crate::parse_error::ParseError;
use crate::serde_text;

/// Lengths of keys, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeySize {
    /// Prefix and number, the number with 12 digits or as many as needed.
    Shortest,
    /// Prefix and number, as long as they are.
    Plain,
    /// All equal.
    Fixed(usize),
    /// Facebook's ETC pool.
    Etc,
}

/// Lengths of values, in bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueSize {
    /// All equal.
    Fixed(usize),
    /// Every length in this range equally often.
    Range(usize, usize),
    /// Lengths with weights.
    List(Vec<(usize, u32)>),
    /// Facebook's ETC pool.
    Etc,
}

/// The longest generated value, in bytes: memcached's default limit, less room for its key.
pub const VALUE_BYTES_MAX: usize = (1 << 20) - 1024;

/// Probabilities of values of 0 to 14 bytes in ETC (Atikoglu et al., section 3).
const ETC_SMALL: [f64; 15] = [
    0.00536, 0.00047, 0.17820, 0.09239, 0.00018, 0.02740, 0.00065, 0.00606, 0.00023, 0.00837,
    0.00837, 0.08989, 0.00092, 0.00326, 0.01980,
];

/// A number from 0 to 1 derived from a key, so that the key always has the same lengths.
#[must_use]
pub fn uniform_of(key: u64) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "53 bits")]
    let number = (scatter(key ^ 0x5151_5151) >> 11) as f64;
    number / 9_007_199_254_740_992.0
}

impl KeySize {
    /// The length at `u`, from 0 to 1, of the distribution.
    #[must_use]
    pub fn of(self, u: f64) -> usize {
        match self {
            Self::Shortest | Self::Plain => 0,
            Self::Fixed(bytes) => bytes,
            Self::Etc => {
                let (location, scale, shape) = (30.7984, 8.20449, 0.078_688);
                let u = u.clamp(1e-9, 1.0 - 1e-9);
                whole(location + scale * ((-u.ln()).powf(-shape) - 1.0) / shape).clamp(1, 250)
            }
        }
    }
}

impl ValueSize {
    /// The length of a key's value.
    #[inline]
    #[must_use]
    pub fn of_key(&self, key: u64) -> usize {
        match self {
            Self::Fixed(bytes) => *bytes,
            _ => self.of(uniform_of(key ^ 0xa5a5)),
        }
    }

    /// The length at `u`, from 0 to 1, of the distribution.
    #[must_use]
    pub fn of(&self, u: f64) -> usize {
        match self {
            Self::Fixed(bytes) => *bytes,
            Self::Range(least, most) => {
                #[allow(clippy::cast_precision_loss, reason = "sizes are small")]
                let span = (most - least + 1) as f64;
                (least + whole(u * span)).min(*most)
            }
            Self::List(list) => {
                let total: u64 = list.iter().map(|(_, weight)| u64::from(*weight)).sum();
                #[allow(clippy::cast_precision_loss, reason = "weights are small")]
                let mut rest = u * total as f64;
                for (bytes, weight) in list {
                    rest -= f64::from(*weight);
                    if rest < 0.0 {
                        return *bytes;
                    }
                }
                list.last().map_or(0, |(bytes, _)| *bytes)
            }
            Self::Etc => etc_value(u),
        }
    }

    /// The mean length, in bytes, of values of uniformly drawn keys.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let steps = 20_000;
        let at = |step: u32| (f64::from(step) + 0.5) / f64::from(steps);
        #[allow(clippy::cast_precision_loss, reason = "sizes are small")]
        let sum: f64 = (0..steps).map(|step| self.of(at(step)) as f64).sum();
        sum / f64::from(steps)
    }
}

fn etc_value(u: f64) -> usize {
    let mut below = 0.0;
    for (bytes, probability) in ETC_SMALL.iter().enumerate() {
        below += probability;
        if u < below {
            return bytes;
        }
    }
    let (scale, shape) = (214.476, 0.348_238);
    let tail = ((u - below) / (1.0 - below)).clamp(0.0, 1.0 - 1e-9);
    (15 + whole(scale * ((1.0 - tail).powf(-shape) - 1.0) / shape)).min(VALUE_BYTES_MAX)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes, clamped")]
fn whole(number: f64) -> usize {
    number.max(0.0) as usize
}

impl FromStr for KeySize {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match (text, text.parse()) {
            ("shortest", _) => Ok(Self::Shortest),
            ("plain", _) => Ok(Self::Plain),
            ("etc", _) => Ok(Self::Etc),
            (_, Ok(bytes @ 1..=250)) => Ok(Self::Fixed(bytes)),
            _ => Err(ParseError::form(text, "one of shortest, plain, etc, 1 to 250")),
        }
    }
}

impl FromStr for ValueSize {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let form = "one of BYTES, LEAST-MOST, BYTES:WEIGHT,BYTES:WEIGHT.., etc";
        let refused = || ParseError::form(text, form);
        let bytes = |text: &str| match text.parse() {
            Ok(bytes) if bytes <= VALUE_BYTES_MAX => Ok(bytes),
            _ => Err(refused()),
        };
        if text == "etc" {
            return Ok(Self::Etc);
        }
        if text.contains(':') {
            let pairs = text.split(',').map(|pair| {
                let (size, weight) = pair.split_once(':').ok_or_else(refused)?;
                match weight.parse() {
                    Ok(weight @ 1..) => Ok((bytes(size)?, weight)),
                    _ => Err(refused()),
                }
            });
            return Ok(Self::List(pairs.collect::<Result<_, ParseError>>()?));
        }
        match text.split_once('-') {
            Some((least, most)) => match (bytes(least)?, bytes(most)?) {
                (least, most) if least <= most => Ok(Self::Range(least, most)),
                _ => Err(refused()),
            },
            None => Ok(Self::Fixed(bytes(text)?)),
        }
    }
}

impl fmt::Display for KeySize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shortest => f.write_str("shortest"),
            Self::Plain => f.write_str("plain"),
            Self::Fixed(bytes) => write!(f, "{bytes}"),
            Self::Etc => f.write_str("etc"),
        }
    }
}

impl fmt::Display for ValueSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(bytes) => write!(f, "{bytes}"),
            Self::Range(least, most) => write!(f, "{least}-{most}"),
            Self::List(list) => {
                for (index, (bytes, weight)) in list.iter().enumerate() {
                    write!(f, "{}{bytes}:{weight}", if index > 0 { "," } else { "" })?;
                }
                Ok(())
            }
            Self::Etc => f.write_str("etc"),
        }
    }
}

serde_text!(KeySize, ValueSize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_round_trip_through_text() {
        for text in ["0", "64", "10-20", "1:2,3:4", "etc"] {
            assert_eq!(text.parse::<ValueSize>().unwrap().to_string(), text);
        }
        for wrong in ["", "x", "20-10", "1:0", "1:2,", "-5", "2000000"] {
            assert!(wrong.parse::<ValueSize>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_list_has_its_weights() {
        let list: ValueSize = "10:1,20:3".parse().unwrap();
        let tens = (0..10_000u64).filter(|key| list.of_key(*key) == 10).count();
        assert!((2_350..2_650).contains(&tens), "{tens}");
    }

    #[test]
    fn etc_sizes_match_the_quantiles_of_the_paper() {
        // The Pareto part, F(x) = 1 - (1 + k x / s)^(-1/k), at its own median: s (2^k - 1) / k.
        let small: f64 = ETC_SMALL.iter().sum();
        let median = 214.476 * (2f64.powf(0.348_238) - 1.0) / 0.348_238;
        let got = ValueSize::Etc.of(small + (1.0 - small) / 2.0);
        assert!(got.abs_diff(15 + whole(median)) <= 1, "{got}");
        assert_eq!(ValueSize::Etc.of(0.1), 2, "the most frequent small value");
        // Keys: the distribution's mode is near 30 bytes, and few keys are longer than 100.
        let sizes: Vec<usize> =
            (0..10_000u64).map(|key| KeySize::Etc.of(uniform_of(key))).collect();
        let near = sizes.iter().filter(|bytes| (20..45).contains(*bytes)).count();
        assert!(near > 7_000 && sizes.iter().all(|bytes| (1..=250).contains(bytes)), "{near}");
    }
}
