//! Tests whether two sets of measurements differ by more than chance.
//!
//! *Mann and Whitney's U*: how often a value of one set is above one of the other, which requires
//! no assumption about the distributions. For up to twenty values per side without ties, its
//! probability is counted exactly; otherwise it is the normal approximation with corrections for
//! ties and continuity. *Bootstrap*: the interval that holds 95 % of the ratios of medians when
//! both sets are resampled from themselves.
//!
//! Sources: Mann and Whitney 1947; Efron and Tibshirani, "An Introduction to the Bootstrap" (1993),
//! chapter 13.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use statrs::function::erf::erfc;

/// The comparison of two sets of values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Median of the first.
    pub base: f64,
    /// Median of the second.
    pub other: f64,
    /// The second median divided by the first.
    pub ratio: f64,
    /// 95 % interval of that ratio.
    pub interval: (f64, f64),
    /// Probability of a difference as large by chance only (two-sided).
    pub p: f64,
    /// Number of values of the first and the second.
    pub values: (usize, usize),
}

/// Minimum number of values per side; with fewer, no difference could be called significant: of
/// four and four values, one order in 35 is as extreme as the most extreme.
pub const LEAST: usize = 5;

/// Maximum number of values per side for which probabilities are counted.
const EXACT: usize = 20;

/// Resamples of the bootstrap.
const DRAWS: usize = 2_000;

impl Verdict {
    /// Compares two sets; `None` if one has fewer than [`LEAST`] values, which show nothing.
    #[must_use]
    pub fn of(base: &[f64], other: &[f64]) -> Option<Self> {
        if base.len() < LEAST || other.len() < LEAST {
            return None;
        }
        let (first, second) = (median(&mut base.to_vec()), median(&mut other.to_vec()));
        Some(Self {
            base: first,
            other: second,
            ratio: second / first,
            interval: bootstrap(base, other),
            p: mann_whitney(base, other),
            values: (base.len(), other.len()),
        })
    }

    /// True if chance is an unlikely reason: by the test, at one in a hundred, and by the interval.
    #[must_use]
    pub fn is_significant(&self) -> bool {
        self.p < 0.01 && !(self.interval.0..=self.interval.1).contains(&1.0)
    }
}

/// The middle value; 0 for an empty set.
#[must_use]
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => values[odd / 2],
        even => f64::midpoint(values[even / 2 - 1], values[even / 2]),
    }
}

/// Two-sided probability that two sets of one distribution are as far apart as these.
#[must_use]
pub fn mann_whitney(a: &[f64], b: &[f64]) -> f64 {
    let mut all: Vec<(f64, bool)> =
        a.iter().map(|x| (*x, true)).chain(b.iter().map(|x| (*x, false))).collect();
    all.sort_by(|x, y| x.0.total_cmp(&y.0));
    let (n, m) = (number(a.len()), number(b.len()));
    let (mut ranks, mut ties, mut at) = (0.0, 0.0, 0);
    while at < all.len() {
        let equal = all[at..].iter().take_while(|(x, _)| *x == all[at].0).count();
        // Equal values share the mean of their ranks.
        let rank = number(at) + f64::midpoint(1.0, number(equal));
        ranks += rank * number(all[at..at + equal].iter().filter(|(_, is_a)| *is_a).count());
        ties += number(equal).powi(3) - number(equal);
        at += equal;
    }
    let u = ranks - n * (n + 1.0) / 2.0;
    if ties == 0.0 && a.len() <= EXACT && b.len() <= EXACT {
        return exact(a.len(), b.len(), u.min(n * m - u));
    }
    let total = n + m;
    let variance = n * m / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let z = ((u - n * m / 2.0).abs() - 0.5).max(0.0) / variance.sqrt();
    (2.0 * upper_tail(z)).min(1.0)
}

/// Twice the share of all orders of `n` and `m` values in which U is at most `u`.
fn exact(n: usize, m: usize, u: f64) -> f64 {
    // ways[i][j][u]: orders of i and j values with that U; the last value is of one set or the
    // other.
    let most = n * m;
    let mut ways = vec![vec![vec![0.0f64; most + 1]; m + 1]; n + 1];
    for i in 0..=n {
        for j in 0..=m {
            for at in 0..=i * j {
                ways[i][j][at] = match (i, j) {
                    (0, _) | (_, 0) => f64::from(u8::from(at == 0)),
                    _ => {
                        let of_first = if at >= j { ways[i - 1][j][at - j] } else { 0.0 };
                        of_first + ways[i][j - 1][at]
                    }
                };
            }
        }
    }
    let all: f64 = ways[n][m].iter().sum();
    let below = ways[n][m].iter().enumerate().take_while(|(at, _)| number(*at) <= u);
    (2.0 * below.map(|(_, ways)| ways).sum::<f64>() / all).min(1.0)
}

/// The standard normal distribution above `z`.
fn upper_tail(z: f64) -> f64 {
    erfc(z / std::f64::consts::SQRT_2) / 2.0
}

/// 2.5 % and 97.5 % of the ratios of resampled sets' medians. Equal values give equal results.
fn bootstrap(base: &[f64], other: &[f64]) -> (f64, f64) {
    let mut rng = SmallRng::seed_from_u64(1);
    let mut draw = |from: &[f64]| {
        let mut drawn: Vec<f64> =
            from.iter().map(|_| from[rng.random_range(0..from.len())]).collect();
        median(&mut drawn)
    };
    let mut ratios: Vec<f64> = (0..DRAWS).map(|_| draw(other) / draw(base)).collect();
    ratios.sort_by(f64::total_cmp);
    (ratios[DRAWS / 40], ratios[DRAWS - 1 - DRAWS / 40])
}

fn number(count: usize) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "counts of values")]
    let number = count as f64;
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_samples_have_the_exact_probabilities() {
        // Of the C(6,3) = 20 orders of three and three, one has U = 0, and one the other extreme.
        assert!((mann_whitney(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]) - 0.1).abs() < 1e-12);
        // Five against five, U = 2: the 5 % critical value of the published tables; 4 of 252
        // orders, twice.
        let p = mann_whitney(&[1.0, 2.0, 3.0, 4.0, 7.5], &[5.0, 6.0, 7.0, 8.0, 9.0]);
        assert!((p - 14.0 / 252.0).abs() < 1e-12, "{p}");
        assert!((mann_whitney(&[1.0, 4.0, 5.0], &[2.0, 3.0, 6.0]) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn large_samples_and_ties_use_the_normal_approximation() {
        assert!((2.0 * upper_tail(1.959_964) - 0.05).abs() < 1e-6);
        assert!((mann_whitney(&[1.0; 30], &[1.0; 30]) - 1.0).abs() < 1e-12);
        let rising: Vec<f64> = (0..30).map(f64::from).collect();
        let above: Vec<f64> = rising.iter().map(|x| x + 15.5).collect();
        // The exact probability and the approximation agree where both are available.
        let near = mann_whitney(&rising[..20], &above[..20]);
        assert!(near < 1e-4, "{near}");
        assert!(mann_whitney(&rising, &above) < 1e-4);
    }

    #[test]
    fn only_shifted_samples_differ_significantly() {
        let mut rng = SmallRng::seed_from_u64(3);
        let mut noisy = |mean: f64| -> Vec<f64> {
            (0..30).map(|_| mean * (0.95 + rng.random::<f64>() / 10.0)).collect()
        };
        let found = (0..200)
            .filter(|_| {
                let (a, b) = (noisy(100.0), noisy(100.0));
                Verdict::of(&a, &b).unwrap().is_significant()
            })
            .count();
        assert!(found <= 6, "{found} of 200 equal pairs");
        for _ in 0..20 {
            let verdict = Verdict::of(&noisy(100.0), &noisy(112.0)).unwrap();
            assert!(verdict.is_significant(), "{verdict:?}");
            assert!(verdict.interval.0 <= verdict.ratio && verdict.ratio <= verdict.interval.1);
        }
        assert_eq!(Verdict::of(&[1.0; 4], &[1.0; 9]), None);
    }
}
