//! A permutation of the numbers below a count, computed without a table.

/// Maps each number below a count to a different one.
///
/// A bijection of the numbers below the next power of two is applied until the result is below the
/// count: a walk along a cycle of the bijection, which returns below the count because it started
/// there. It takes less than two steps on average.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permutation {
    count: u64,
    mask: u64,
    shift: u32,
}

/// Odd factors, so that multiplication modulo a power of two loses nothing: splitmix64's.
const FACTORS: [u64; 3] = [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb, 0x9e37_79b9_7f4a_7c15];

impl Permutation {
    /// A permutation of the numbers below `count`, which is not 0.
    pub(crate) fn of(count: u64) -> Self {
        let bits = u64::BITS - (count - 1).leading_zeros();
        let mask = if bits == 0 { 0 } else { u64::MAX >> (u64::BITS - bits) };
        Self { count, mask, shift: bits.div_ceil(2).max(1) }
    }

    /// The number to which `number`, below the count, is mapped.
    #[inline]
    pub(crate) fn at(self, number: u64) -> u64 {
        let mut at = number;
        loop {
            at = self.step(at);
            if at < self.count {
                return at;
            }
        }
    }

    /// Each operation has an inverse among the numbers up to the mask.
    #[inline]
    fn step(self, number: u64) -> u64 {
        FACTORS.iter().fold(number, |x, factor| {
            let x = x.wrapping_add(FACTORS[2]).wrapping_mul(*factor) & self.mask;
            x ^ (x >> self.shift)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_occurs_once() {
        for count in (1..300).chain([1000, 1024, 1025, 65_537, 100_000]) {
            let permutation = Permutation::of(count);
            let mut met: Vec<u64> = (0..count).map(|number| permutation.at(number)).collect();
            met.sort_unstable();
            assert!(met.into_iter().eq(0..count), "of {count}");
        }
        for count in [1 << 40, (1 << 40) + 1, u64::MAX] {
            let permutation = Permutation::of(count);
            assert!((0..1000).all(|number| permutation.at(number) < count), "of {count}");
        }
    }

    #[test]
    fn neighbours_do_not_stay_neighbours() {
        for count in [1000, 100_000, 200_000] {
            let permutation = Permutation::of(count);
            let near = (1..1000)
                .filter(|rank| permutation.at(*rank).abs_diff(permutation.at(*rank - 1)) < 10)
                .count();
            assert!(near < 60, "{near} of 1000 ranks of {count} keys");
            let low = (0..1000.min(count / 2)).filter(|rank| permutation.at(*rank) < count / 2);
            let (low, of) = (low.count() as u64, 1000.min(count / 2));
            assert!((of * 2 / 5..=of * 3 / 5).contains(&low), "{low} of {of} in the lower half");
        }
    }
}
