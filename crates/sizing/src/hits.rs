//! Hit ratio by memory: a measured curve, or a power law.
//!
//! The guide's law (section 4.3.1) is that four times the memory halves the misses, so the miss
//! ratio falls with the square root of memory. Here the exponent is fitted if a curve is known.

use serde::Serialize;

/// The guide's exponent.
pub(crate) const GUIDES_EXPONENT: f64 = 0.5;

/// Hit ratio by bytes of memory for items in the whole tier.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    shape: Shape,
    /// Memory at which every item fits.
    all_bytes: f64,
}

#[derive(Clone, Debug, PartialEq)]
enum Shape {
    /// Points in the order of memory; a power law outside of them.
    Measured { points: Vec<(f64, f64)>, law: PowerLaw },
    /// A power law.
    Law(PowerLaw),
    /// Nothing is known: every item is requested as often as every other.
    Even,
}

/// `miss ratio = miss * (bytes / memory)^-exponent`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PowerLaw {
    /// Memory at which the miss ratio is `miss`, in bytes.
    pub memory_bytes: f64,
    /// Miss ratio at `memory_bytes`.
    pub miss: f64,
    /// Fall of the miss ratio with memory.
    pub exponent: f64,
    /// Greatest distance between law and curve, as hit ratio; absent if the law was given.
    pub error: Option<f64>,
}

impl PowerLaw {
    fn miss(&self, bytes: f64) -> f64 {
        self.miss * (bytes / self.memory_bytes).powf(-self.exponent)
    }

    /// The law nearest to the curve, by least squares of the logarithms. A curve with fewer than
    /// two points with misses gets the guide's exponent.
    fn fitted(points: &[(f64, f64)]) -> Self {
        let logs: Vec<(f64, f64)> = points
            .iter()
            .filter(|(_, hit)| *hit < 1.0)
            .map(|(bytes, hit)| (bytes.ln(), (1.0 - hit).ln()))
            .collect();
        let count = logs.len().max(1) as f64;
        let mean = |value: fn(&(f64, f64)) -> f64| logs.iter().map(value).sum::<f64>() / count;
        let (mean_x, mean_y) = (mean(|log| log.0), mean(|log| log.1));
        let spread: f64 = logs.iter().map(|log| (log.0 - mean_x).powi(2)).sum();
        let common: f64 = logs.iter().map(|log| (log.0 - mean_x) * (log.1 - mean_y)).sum();
        let exponent = if spread > 0.0 { (-common / spread).max(0.0) } else { GUIDES_EXPONENT };
        let law = match points.last() {
            // Nothing misses, so nothing will.
            Some(&(bytes, _)) if logs.is_empty() => {
                Self { memory_bytes: bytes, miss: 0.0, exponent, error: None }
            }
            _ => Self { memory_bytes: mean_x.exp(), miss: mean_y.exp(), exponent, error: None },
        };
        let distance = |&(bytes, hit): &(f64, f64)| (1.0 - law.miss(bytes).min(1.0) - hit).abs();
        let error = points.iter().map(distance).fold(0.0, f64::max);
        Self { error: Some(error), ..law }
    }
}

impl Curve {
    /// A curve through points of bytes and hit ratio, in the order of bytes.
    #[must_use]
    pub fn measured(points: Vec<(f64, f64)>, all_bytes: f64) -> Self {
        let law = PowerLaw::fitted(&points);
        Self { shape: Shape::Measured { points, law }, all_bytes }
    }

    /// A power law through one point.
    #[must_use]
    pub fn law(memory_bytes: f64, hit_ratio: f64, exponent: f64, all_bytes: f64) -> Self {
        let law = PowerLaw { memory_bytes, miss: 1.0 - hit_ratio, exponent, error: None };
        Self { shape: Shape::Law(law), all_bytes }
    }

    /// All keys are equally popular: the minimum that memory can achieve.
    #[must_use]
    pub fn even(all_bytes: f64) -> Self {
        Self { shape: Shape::Even, all_bytes }
    }

    /// The law behind the curve.
    #[must_use]
    pub fn power_law(&self) -> Option<PowerLaw> {
        match &self.shape {
            Shape::Measured { law, .. } | Shape::Law(law) => Some(*law),
            Shape::Even => None,
        }
    }

    /// Hit ratio with `bytes` of memory, 0 to 1.
    #[must_use]
    pub fn hit_ratio(&self, bytes: f64) -> f64 {
        if bytes <= 0.0 {
            return 0.0;
        }
        let ratio = match &self.shape {
            Shape::Measured { points, law } => {
                inside(points, bytes).unwrap_or_else(|| beyond(points, law, bytes))
            }
            // If everything fits, only first reads miss.
            Shape::Law(_) | Shape::Even if bytes >= self.all_bytes => 1.0,
            Shape::Law(law) => 1.0 - law.miss(bytes),
            Shape::Even => bytes / self.all_bytes,
        };
        ratio.clamp(0.0, 1.0)
    }

    /// The minimum memory with this hit ratio; `None` if no memory has it.
    #[must_use]
    pub fn memory_for(&self, hit_ratio: f64) -> Option<f64> {
        let (mut low, mut high) = (1.0, self.all_bytes.max(1.0));
        if self.hit_ratio(high) < hit_ratio {
            return None;
        }
        for _ in 0..200 {
            let middle = f64::midpoint(low, high);
            if self.hit_ratio(middle) < hit_ratio { low = middle } else { high = middle }
        }
        Some(high)
    }

    /// The same tier with more items: the effect of memory shrinks by this factor.
    #[must_use]
    pub fn grown(self, factor: f64) -> Self {
        let shape = match self.shape {
            Shape::Measured { points, .. } => {
                let points: Vec<(f64, f64)> =
                    points.into_iter().map(|(bytes, hit)| (bytes * factor, hit)).collect();
                let law = PowerLaw::fitted(&points);
                Shape::Measured { points, law }
            }
            Shape::Law(law) => {
                Shape::Law(PowerLaw { memory_bytes: law.memory_bytes * factor, ..law })
            }
            Shape::Even => Shape::Even,
        };
        Self { shape, all_bytes: self.all_bytes * factor }
    }
}

/// Between two points the ratio is linear in the logarithm of memory.
fn inside(points: &[(f64, f64)], bytes: f64) -> Option<f64> {
    let after = points.partition_point(|point| point.0 < bytes);
    let (high, low) = (points.get(after)?, points.get(after.checked_sub(1)?)?);
    let part = (bytes / low.0).ln() / (high.0 / low.0).ln();
    Some(low.1 + (high.1 - low.1) * part)
}

/// Outside of the points the law continues from the nearest one.
fn beyond(points: &[(f64, f64)], law: &PowerLaw, bytes: f64) -> f64 {
    let nearest = points.iter().find(|point| point.0 >= bytes).or_else(|| points.last());
    nearest.map_or(0.0, |(at, hit)| 1.0 - (1.0 - hit) * (bytes / at).powf(-law.exponent))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-9
    }

    /// Section 4.3.1 of the guide says that the *hit rate* improves by half; in fact the miss rate
    /// halves.
    #[test]
    fn four_times_the_memory_halve_the_misses() {
        let curve = Curve::law(1e9, 0.8, GUIDES_EXPONENT, 1e12);
        assert!(near(curve.hit_ratio(4e9), 0.9));
        assert!(near(curve.hit_ratio(16e9), 0.95));
        let wanted = curve.memory_for(0.9);
        assert!(wanted.is_some_and(|bytes| (bytes / 4e9 - 1.0).abs() < 1e-9), "{wanted:?}");
    }

    #[test]
    fn the_power_law_is_recovered_from_its_own_points() {
        let points: Vec<(f64, f64)> = [1.0_f64, 2.0, 4.0, 8.0]
            .iter()
            .map(|at| (at * 1e9, 1.0 - 0.4 * at.powf(-0.7)))
            .collect();
        let curve = Curve::measured(points.clone(), 1e12);
        let law = curve.power_law().unwrap_or_else(|| panic!("no law"));
        assert!(near(law.exponent, 0.7) && law.error.is_some_and(|error| error < 1e-9), "{law:?}");
        for (bytes, hit) in points {
            assert!(near(curve.hit_ratio(bytes), hit), "{bytes}");
        }
        assert!(near(curve.hit_ratio(16e9), 1.0 - 0.4 * 16_f64.powf(-0.7)), "beyond the points");
        assert!(near(curve.hit_ratio(0.5e9), 1.0 - 0.4 * 0.5_f64.powf(-0.7)), "before the points");
    }

    #[test]
    fn a_curve_is_monotonic_and_within_0_and_1() {
        let curves = [
            Curve::measured(vec![(1e6, 0.0), (2e6, 0.5), (4e6, 0.5), (8e6, 1.0)], 8e6),
            Curve::measured(vec![(1e6, 1.0)], 1e6),
            Curve::measured(vec![(1e6, 0.3)], 1e9),
            Curve::law(1e6, 0.0, 2.0, 1e9),
            Curve::even(1e9),
        ];
        for curve in curves {
            let mut before = 0.0;
            for step in 0..4000 {
                let ratio = curve.hit_ratio(f64::from(step) * 1e6);
                assert!((before..=1.0).contains(&ratio), "{curve:?} at {step}: {ratio}, {before}");
                before = ratio;
            }
        }
    }

    #[test]
    fn unreachable_hit_ratios_have_no_memory_size() {
        let flat = Curve::measured(vec![(1e6, 0.5), (2e6, 0.5)], 2e6);
        assert_eq!(flat.memory_for(0.6), None);
        assert_eq!(Curve::law(1e9, 0.5, 0.5, 2e9).memory_for(0.99).map(f64::round), Some(2e9));
    }

    #[test]
    fn growth_scales_the_memory_needed() {
        let curve = Curve::law(1e9, 0.8, 0.5, 1e12);
        let grown = curve.clone().grown(1.3);
        assert!(near(grown.hit_ratio(1.3e9), curve.hit_ratio(1e9)));
    }
}
