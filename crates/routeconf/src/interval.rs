//! The exact confidence interval of a share (Clopper and Pearson, 1934).

/// The interval that holds the true share with 95 % certainty, `hits` of `draws` being seen.
pub(crate) fn exact_interval(hits: u32, draws: u32) -> (f64, f64) {
    let (hits, draws) = (f64::from(hits), f64::from(draws.max(1)));
    let low = if hits == 0.0 { 0.0 } else { quantile(0.025, hits, draws - hits + 1.0) };
    let high = if hits >= draws { 1.0 } else { quantile(0.975, hits + 1.0, draws - hits) };
    (low, high)
}

/// Where the beta distribution reaches a probability.
fn quantile(probability: f64, a: f64, b: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if beta(middle, a, b) < probability { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

/// The regularized incomplete beta function, by its continued fraction (modified Lentz).
fn beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta(1.0 - x, b, a);
    }
    let front = ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p();
    let tiny = |value: f64| if value.abs() < 1e-300 { 1e-300 } else { value };
    let (mut c, mut d) = (1.0, 1.0 / tiny(1.0 - (a + b) * x / (a + 1.0)));
    let mut result = d;
    for step in 1..2000_u32 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for term in [even, odd] {
            d = 1.0 / tiny(1.0 + term * d);
            c = tiny(1.0 + term / c);
            change = c * d;
            result *= change;
        }
        if (change - 1.0).abs() < 1e-13 {
            break;
        }
    }
    front.exp() * result / a
}

/// The logarithm of the gamma function, by Stirling's series after shifting the argument up.
fn ln_gamma(mut x: f64) -> f64 {
    let mut shift = 0.0;
    while x < 12.0 {
        shift -= x.ln();
        x += 1.0;
    }
    let inverse = 1.0 / (x * x);
    let series =
        (1.0 / 12.0 - inverse * (1.0 / 360.0 - inverse * (1.0 / 1260.0 - inverse / 1680.0))) / x;
    shift + (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + series
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of R's `binom.test`, and the ends where the formula is simple.
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
