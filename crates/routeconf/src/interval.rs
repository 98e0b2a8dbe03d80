//! The exact confidence interval of a share (Clopper and Pearson, 1934).

use statrs::function::beta::inv_beta_reg;

/// The interval that contains the true share with 95 % certainty, given `hits` of `draws`.
pub(crate) fn exact_interval(hits: u32, draws: u32) -> (f64, f64) {
    let (hits, draws) = (f64::from(hits), f64::from(draws.max(1)));
    let quantile = |probability, a, b| inv_beta_reg(a, b, probability);
    let low = if hits == 0.0 { 0.0 } else { quantile(0.025, hits, draws - hits + 1.0) };
    let high = if hits >= draws { 1.0 } else { quantile(0.975, hits + 1.0, draws - hits) };
    (low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of R's `binom.test`, and limits with a simple formula.
    #[test]
    fn intervals_are_exact() {
        for (hits, draws, low, high) in [
            (0, 10, 0.0, 0.308_497_1),
            (10, 10, 0.691_502_9, 1.0),
            (5, 10, 0.187_086, 0.812_914),
            (1, 100, 0.000_253_146, 0.054_459_4),
            (682, 925, 0.707_668_3, 0.765_406_6),
        ] {
            let got = exact_interval(hits, draws);
            assert!(
                (got.0 - low).abs() < 2e-6 && (got.1 - high).abs() < 2e-6,
                "{hits} of {draws}: {got:?}"
            );
        }
        let (low, high) = exact_interval(50_000, 100_000);
        assert!((low - 0.496_9).abs() < 1e-4 && (high - 0.503_1).abs() < 1e-4, "{low} {high}");
    }
}
