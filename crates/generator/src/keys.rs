//! Key patterns: the choice of the next key, and its bytes.

use std::fmt;
use std::str::FromStr;

use super::permutation::Permutation;
use super::sizes::{KeySize, uniform_of};
use crate::parse_error::ParseError;
use crate::serde_text;
use rand::rngs::SmallRng;
use rand::{Rng, RngExt};
use rand_distr::{Distribution, Normal, Zipf};

/// The order in which keys are requested.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// Every key equally often.
    Uniform,
    /// One after the other, and again from the first after the last; each connection continues
    /// where it stopped.
    Sequential,
    /// Around the middle of the keys, with a standard deviation of a sixth of them by default.
    Gaussian {
        /// Standard deviation, in keys; 0 for a sixth of the keys.
        deviation: f64,
    },
    /// The nth most popular key 1/n^exponent as often as the first. Popular keys are spread over
    /// the key space.
    Zipf {
        /// The exponent; 0.99 is YCSB's.
        exponent: f64,
    },
    /// A share of requests goes to one key; the others are uniform.
    Hot {
        /// Share of requests, 0 to 1.
        share: f64,
    },
}

/// Draws keys.
#[derive(Clone, Debug)]
pub struct Keys {
    count: u64,
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    Uniform,
    Sequential {
        next: u64,
    },
    Gaussian(Normal<f64>),
    /// Ranks, and the key of each.
    Zipf(Zipf<f64>, Permutation),
    Hot {
        share: f64,
    },
}

/// Standard deviations of more than this multiple of the keys are uniform.
const WIDE: f64 = 10.0;

/// A pattern has a parameter that is invalid for its distribution.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub enum BadParameter {
    /// Of the normal distribution.
    #[error("gaussian: {0}")]
    Normal(#[from] rand_distr::NormalError),
    /// Of Zipf's distribution.
    #[error("zipf: {0}")]
    Zipf(#[from] rand_distr::ZipfError),
}

impl Keys {
    /// Draws of `count` keys (not 0); a sequence begins at `first`.
    ///
    /// # Errors
    ///
    /// When the pattern's parameter is invalid for its distribution.
    pub fn new(pattern: Pattern, count: u64, first: u64) -> Result<Self, BadParameter> {
        #[allow(clippy::cast_precision_loss, reason = "key counts are far below 2^52")]
        let n = count as f64;
        let source = match pattern {
            Pattern::Uniform => Source::Uniform,
            Pattern::Sequential => Source::Sequential { next: first % count },
            // Nearly all draws would miss the keys; the others are uniform to a thousandth.
            Pattern::Gaussian { deviation } if deviation > WIDE * n => Source::Uniform,
            Pattern::Gaussian { deviation } => {
                let deviation = if deviation == 0.0 { n / 6.0 } else { deviation };
                Source::Gaussian(Normal::new(n / 2.0, deviation)?)
            }
            Pattern::Zipf { exponent } => {
                Source::Zipf(Zipf::new(n, exponent)?, Permutation::of(count))
            }
            Pattern::Hot { share } => Source::Hot { share },
        };
        Ok(Self { count, source })
    }

    /// The number of the next key, below the count.
    #[inline]
    pub fn next(&mut self, rng: &mut SmallRng) -> u64 {
        match &mut self.source {
            Source::Uniform => below(rng, self.count),
            Source::Sequential { next } => {
                let key = *next;
                *next = if key + 1 == self.count { 0 } else { key + 1 };
                key
            }
            Source::Gaussian(normal) => loop {
                let key = normal.sample(rng);
                #[allow(clippy::cast_precision_loss, reason = "key counts are far below 2^52")]
                let end = self.count as f64;
                if (0.0..end).contains(&key) {
                    break whole(key);
                }
            },
            // Ranks are permuted, so that neighbours in the key space differ in popularity, and no
            // two ranks share a key.
            Source::Zipf(zipf, keys) => keys.at(whole(zipf.sample(rng)) - 1),
            Source::Hot { share } => {
                if rng.random::<f64>() < *share {
                    0
                } else {
                    below(rng, self.count)
                }
            }
        }
    }
}

/// A number below `bound`, by the high half of a product.
#[inline]
fn below(rng: &mut SmallRng, bound: u64) -> u64 {
    let product = u128::from(rng.next_u64()) * u128::from(bound);
    u64::try_from(product >> 64).unwrap_or(0)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked by callers")]
fn whole(number: f64) -> u64 {
    number as u64
}

/// Writes keys: a prefix, the number, and padding with `x` for longer keys.
#[derive(Clone, Debug)]
pub struct KeyNames {
    /// The prefix and as many zeros as a number has digits.
    zero: Vec<u8>,
    digits: usize,
    size: KeySize,
    first: u64,
}

impl KeyNames {
    /// Names of keys numbered below `count`.
    #[must_use]
    pub fn new(prefix: &str, count: u64, size: KeySize) -> Self {
        let digits = count.saturating_sub(1).checked_ilog10().unwrap_or(0) as usize + 1;
        let digits = match size {
            KeySize::Shortest => digits.max(12),
            KeySize::Plain => 1,
            _ => digits,
        };
        let zero = [prefix.as_bytes(), &b"0".repeat(digits)].concat();
        Self { zero, digits, size, first: 0 }
    }

    /// These names, with `first` instead of 0 as the first key's number.
    #[must_use]
    pub fn beginning_at(self, first: u64) -> Self {
        Self { first, ..self }
    }

    /// The length of every key in bytes, if all are equal.
    #[must_use]
    pub fn one_length(&self) -> Option<usize> {
        match self.size {
            KeySize::Shortest => Some(self.least_bytes()),
            KeySize::Fixed(bytes) => Some(bytes.max(self.least_bytes())),
            KeySize::Plain | KeySize::Etc => None,
        }
    }

    /// Bytes of the shortest key.
    #[must_use]
    pub fn least_bytes(&self) -> usize {
        self.zero.len()
    }

    /// Appends the name of key `number`.
    #[inline]
    pub fn write(&self, number: u64, out: &mut Vec<u8>) {
        let from = out.len();
        out.extend_from_slice(&self.zero);
        let mut rest = number + self.first;
        let mut digits = out.len() - self.digits..out.len();
        while rest > 0 && digits.len() >= 2 {
            digits.end -= 2;
            out[digits.end..digits.end + 2].copy_from_slice(&PAIRS[(rest % 100) as usize]);
            rest /= 100;
        }
        if rest > 0 && digits.len() == 1 {
            out[digits.start] = PAIRS[(rest % 10) as usize][1];
            rest /= 10;
        }
        if rest > 0 {
            out.truncate(out.len() - self.digits);
            out.extend_from_slice(itoa::Buffer::new().format(number + self.first).as_bytes());
        }
        if !matches!(self.size, KeySize::Shortest | KeySize::Plain) {
            let want = self.size.of(uniform_of(number)).clamp(self.least_bytes(), 250);
            out.resize(from + want, b'x');
        }
    }
}

/// The two digits of each number below 100.
const PAIRS: [[u8; 2]; 100] = {
    let (mut pairs, mut number) = ([[b'0'; 2]; 100], 0_u8);
    while number < 100 {
        pairs[number as usize] = [b'0' + number / 10, b'0' + number % 10];
        number += 1;
    }
    pairs
};

impl FromStr for Pattern {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (name, parameter) = text.split_once(':').unwrap_or((text, ""));
        let number = |default: f64, least: f64, most: f64| match parameter {
            "" => Ok(default),
            text => match text.parse::<f64>() {
                Ok(number) if (least..=most).contains(&number) => Ok(number),
                _ => Err(ParseError::Number {
                    name: name.to_owned(),
                    text: text.to_owned(),
                    least,
                    most,
                }),
            },
        };
        match name {
            "uniform" | "random" => Ok(Self::Uniform),
            "sequential" => Ok(Self::Sequential),
            "gaussian" => Ok(Self::Gaussian { deviation: number(0.0, 0.0, 1e15)? }),
            "zipf" => Ok(Self::Zipf { exponent: number(0.99, 0.0, 10.0)? }),
            "hot" => Ok(Self::Hot { share: number(1.0, 0.0, 1.0)? }),
            _ => Err(ParseError::form(
                text,
                "one of uniform, sequential, gaussian[:DEVIATION], zipf[:EXPONENT], hot[:SHARE]",
            )),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Sequential => f.write_str("sequential"),
            Self::Gaussian { deviation } => write!(f, "gaussian:{deviation}"),
            Self::Zipf { exponent } => write!(f, "zipf:{exponent}"),
            Self::Hot { share } => write!(f, "hot:{share}"),
        }
    }
}

serde_text!(Pattern);

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn draws(pattern: &str, count: u64, n: usize) -> Vec<u64> {
        let mut keys = Keys::new(pattern.parse().unwrap(), count, 0).unwrap();
        let mut rng = SmallRng::seed_from_u64(7);
        (0..n).map(|_| keys.next(&mut rng)).collect()
    }

    fn share(draws: &[u64], is_in: impl Fn(u64) -> bool) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "small counts")]
        let share = draws.iter().filter(|key| is_in(**key)).count() as f64 / draws.len() as f64;
        share
    }

    #[test]
    fn every_pattern_stays_below_the_count() {
        for pattern in
            ["uniform", "sequential", "gaussian", "gaussian:500", "zipf", "zipf:1.2", "hot:0.5"]
        {
            assert!(draws(pattern, 1000, 10_000).iter().all(|key| *key < 1000), "{pattern}");
            assert!(draws(pattern, 1, 100).iter().all(|key| *key == 0), "{pattern} of one key");
        }
    }

    #[test]
    fn a_wide_gaussian_pattern_is_uniform() {
        for deviation in ["gaussian:10001", "gaussian:1e15"] {
            let low = share(&draws(deviation, 1000, 100_000), |key| key < 500);
            assert!((0.49..0.51).contains(&low), "{deviation}: {low}");
        }
    }

    #[test]
    fn patterns_have_their_shape() {
        assert_eq!(draws("sequential", 3, 5), [0, 1, 2, 0, 1]);
        let hot = share(&draws("hot:0.2", 1000, 100_000), |key| key == 0);
        assert!((0.195..0.208).contains(&hot), "{hot}");
        let middle = share(&draws("gaussian", 6000, 100_000), |key| (2000..4000).contains(&key));
        assert!((0.67..0.70).contains(&middle), "one deviation around the middle: {middle}");
        // Of 1000 keys with exponent 1, the first has 1/H(1000) = 0.1336 of the draws.
        let first = Permutation::of(1000).at(0);
        let top = share(&draws("zipf:1", 1000, 200_000), |key| key == first);
        assert!((0.128..0.139).contains(&top), "{top}");
    }

    /// Chi-square of the draws against Zipf's law, with a cell for each rank expected at least ten
    /// times, and one for all others; and the degrees of freedom.
    fn chi_square_of_zipf(exponent: f64, count: u64, n: usize) -> (f64, f64) {
        let mut seen = vec![0.0; usize::try_from(count).unwrap()];
        for key in draws(&format!("zipf:{exponent}"), count, n) {
            seen[usize::try_from(key).unwrap()] += 1.0;
        }
        #[allow(clippy::cast_precision_loss, reason = "small counts")]
        let (weight, n) = (|rank: u64| ((rank + 1) as f64).powf(-exponent), n as f64);
        let sum: f64 = (0..count).map(weight).sum();
        let keys = Permutation::of(count);
        let (mut square, mut cells, mut rest) = (0.0, 0.0, (0.0, 0.0));
        for rank in 0..count {
            let expected = n * weight(rank) / sum;
            let met: f64 = seen[usize::try_from(keys.at(rank)).unwrap()];
            if expected < 10.0 {
                rest = (rest.0 + expected, rest.1 + met);
                continue;
            }
            square += (met - expected).powi(2) / expected;
            cells += 1.0;
        }
        if rest.0 > 0.0 {
            (square, cells) = (square + (rest.1 - rest.0).powi(2) / rest.0, cells + 1.0);
        }
        (square, cells - 1.0)
    }

    #[test]
    fn zipf_draws_follow_the_zipf_distribution() {
        for (exponent, count, n) in [
            (0.0, 1000, 200_000),
            (0.99, 1000, 200_000),
            (1.0, 10, 100_000),
            (0.99, 100_000, 300_000),
            (2.0, 1000, 100_000),
        ] {
            let (square, freedom) = chi_square_of_zipf(exponent, count, n);
            // Four standard deviations above the mean: chance exceeds it for one in ten thousand
            // seeds.
            let most = freedom + 4.0 * (2.0 * freedom).sqrt();
            assert!(square < most, "zipf:{exponent} of {count}: {square} of {freedom}");
        }
    }

    #[test]
    fn a_seed_repeats_the_keys() {
        assert_eq!(draws("zipf", 1000, 100), draws("zipf", 1000, 100));
    }

    #[test]
    fn names_have_the_length_that_was_asked_for() {
        let mut name = Vec::new();
        KeyNames::new("key:", 1000, KeySize::Shortest).write(42, &mut name);
        assert_eq!(name, b"key:000000000042");
        name.clear();
        KeyNames::new("k", 1000, KeySize::Fixed(10)).write(42, &mut name);
        assert_eq!(name, b"k042xxxxxx");
        name.clear();
        KeyNames::new("memtier-", 9901, KeySize::Plain).beginning_at(100).write(5, &mut name);
        assert_eq!(name, b"memtier-105");
        for number in [0, 7, 10, 99, 100, 909, 1000, 65_535, 99_999, 100_000] {
            for (size, width) in
                [(KeySize::Plain, 1), (KeySize::Fixed(7), 5), (KeySize::Shortest, 12)]
            {
                name.clear();
                KeyNames::new("k", 99_999, size).beginning_at(0).write(number, &mut name);
                let digits = format!("k{number:0width$}");
                assert!(name.starts_with(digits.as_bytes()), "{number}: {}", name.escape_ascii());
            }
        }
    }
}
