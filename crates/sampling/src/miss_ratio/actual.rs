//! The server's real hit ratio, which corrects a curve from samples.
//!
//! Chance affects neighbouring points of the curve alike. So this is a ratio estimator, whose error
//! is small if the two points count much the same reads. It also corrects a part of the difference
//! between an LRU and the server's own order of eviction.

/// Hits and misses of all keys, which fade as the samples do.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Actual {
    hits: f64,
    misses: f64,
}

/// Hit ratios by the sample: at the memory in question, and at the present one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) hits: f64,
    pub(super) present: f64,
}

/// The greatest factor, and its inverse the smallest, that corrects misses of evicted keys.
const FACTOR_MAX: f64 = 4.0;

impl Actual {
    pub(super) fn add(&mut self, hits: f64, misses: f64) {
        self.hits += hits;
        self.misses += misses;
    }

    pub(super) fn scale(&mut self, factor: f64) {
        self.hits *= factor;
        self.misses *= factor;
    }

    /// The hit ratio at a point, where the share `cold` misses at every size.
    ///
    /// Below the present memory hits are corrected, above it the misses of evicted keys. If these
    /// do not explain the difference, the others are corrected.
    pub(super) fn correct(&self, Point { hits, present }: Point, cold: f64) -> f64 {
        let reads = self.hits + self.misses;
        if reads <= 0.0 {
            return hits;
        }
        let actual = self.hits / reads;
        if hits <= present {
            return if present > 0.0 { hits * actual / present } else { actual };
        }
        let (missed, far) = (1.0 - actual, 1.0 - present - cold);
        let factor = if far > 0.0 {
            ((missed - cold) / far).clamp(FACTOR_MAX.recip(), FACTOR_MAX)
        } else {
            1.0
        };
        let misses = |hits: f64| cold + factor * (1.0 - hits - cold).max(0.0);
        let before = misses(present);
        if before > 0.0 { 1.0 - misses(hits) * missed / before } else { actual }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-9
    }

    fn actual(hits: f64) -> Actual {
        Actual { hits, misses: 1.0 - hits }
    }

    #[test]
    fn the_present_point_is_corrected_and_cold_misses_remain() {
        let (actual, cold) = (actual(0.6), 0.2);
        let at = |hits| actual.correct(Point { hits, present: 0.5 }, cold);
        assert!(near(at(0.5), 0.6));
        // 0.2 of 0.3 misses of evicted keys are real: two thirds of 0.1.
        assert!(near(at(0.7), 0.8 - 0.1 * 2.0 / 3.0));
        assert!(near(at(0.8), 0.8));
        assert!(near(at(0.25), 0.3));
        assert!(near(at(0.0), 0.0));
    }

    #[test]
    fn a_corrected_curve_is_a_ratio_and_never_falls() {
        for (real, present, cold) in [
            (0.0, 0.5, 0.1),
            (1.0, 0.5, 0.1),
            (0.5, 0.0, 0.0),
            (0.5, 1.0, 0.0),
            (0.9, 0.5, 0.5),
            (0.2, 0.6, 0.4),
        ] {
            let mut before = 0.0;
            for step in 0..=100 {
                let hits = f64::from(step) / 100.0 * (1.0 - cold);
                let ratio = actual(real).correct(Point { hits, present }, cold);
                assert!((before - 1e-9..=1.0 + 1e-9).contains(&ratio), "{real}: {ratio}, {before}");
                before = ratio;
            }
        }
    }

    #[test]
    fn nothing_is_corrected_without_reads() {
        let point = Point { hits: 0.7, present: 0.5 };
        assert!(near(Actual::default().correct(point, 0.1), 0.7));
    }
}
