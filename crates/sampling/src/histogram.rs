//! Counts by value, in buckets three percent wide.
//!
//! ```text
//!     0 1 2 .. 31 | 32 33 .. 63 | 64 66 .. 126 | 128 132 .. 252 | ...
//! ```
//!
//! Below 32 each value has a bucket; above, each power of two is split into 32. Counts are floats,
//! so that they can fade and be weighted; `hdrhistogram` counts in whole numbers.

use narrow::to_usize;

/// Bits of a value that distinguish buckets of one power of two.
const SUB_BITS: u32 = 5;

/// Buckets of one power of two.
const SUB: usize = 1 << SUB_BITS;

/// Buckets for every 64-bit value.
const BUCKETS: usize = (64 - SUB_BITS as usize + 1) * SUB;

/// Weighted counts of values.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[f64]>,
    total: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0.0; BUCKETS].into_boxed_slice(), total: 0.0 }
    }
}

impl Histogram {
    /// Memory of one, in bytes.
    pub const BYTES: usize = BUCKETS * size_of::<f64>();

    /// Counts `value`, `weight` times.
    pub fn add(&mut self, value: u64, weight: f64) {
        self.counts[bucket(value)] += weight;
        self.total += weight;
    }

    /// The total count.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.total
    }

    /// The share of counted values up to `value`, as if each bucket were evenly filled.
    #[must_use]
    pub fn up_to(&self, value: u64) -> f64 {
        let last = bucket(value);
        let (low, width) = bounds(last);
        let whole: f64 = self.counts[..last].iter().sum();
        whole + self.counts[last] * ratio(value - low + 1, width)
    }

    /// The value that the share `quantile` (0 to 1) of the counts does not exceed; `None` if
    /// nothing was counted.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        if self.total <= 0.0 {
            return None;
        }
        let (target, mut sum, mut last) = (quantile * self.total, 0.0, 0);
        for (index, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0.0) {
            sum += count;
            last = index;
            if sum >= target {
                break;
            }
        }
        let (low, width) = bounds(last);
        Some(low + (width - 1) / 2)
    }

    /// Multiplies every count.
    pub fn scale(&mut self, factor: f64) {
        self.counts.iter_mut().for_each(|count| *count *= factor);
        self.total *= factor;
    }
}

fn bucket(value: u64) -> usize {
    let bits = 64 - value.leading_zeros();
    let shift = bits.saturating_sub(SUB_BITS + 1);
    // `shift` leaves six bits.
    shift as usize * SUB + to_usize(value >> shift)
}

/// The lowest value of a bucket, and its number of values.
fn bounds(bucket: usize) -> (u64, u64) {
    let shift = (bucket / SUB).saturating_sub(1);
    let sub = bucket - shift * SUB;
    ((sub as u64) << shift, 1 << shift)
}

#[expect(clippy::cast_precision_loss, reason = "a bucket is no finer than three percent")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_contiguous() {
        let mut next = 0;
        for index in 0..BUCKETS {
            let (low, width) = bounds(index);
            assert_eq!(low, next);
            assert_eq!((bucket(low), bucket(low + (width - 1))), (index, index));
            next = low.wrapping_add(width);
        }
        assert_eq!(next, 0, "the last bucket ends with the last value");
    }

    #[test]
    fn quantiles_and_sums_are_within_three_percent() {
        let mut histogram = Histogram::default();
        for value in 1..=100_000 {
            histogram.add(value, 1.0);
        }
        for (quantile, want) in [(0.5, 50_000.0), (0.99, 99_000.0), (1.0, 100_000.0)] {
            let got = histogram.quantile(quantile).unwrap() as f64;
            assert!((got / want - 1.0).abs() < 0.03, "{quantile}: {got}");
        }
        for value in [10, 1000, 33_333] {
            let got = histogram.up_to(value);
            assert!((got / value as f64 - 1.0).abs() < 0.01, "{value}: {got}");
        }
        assert_eq!(Histogram::default().quantile(0.5), None);
    }
}
