//! A random number in a nanosecond, so that choosing keys does not slow the generator. It is not
//! from a library, because the recorded instruction counts depend on this exact sequence.

/// xorshift64*: good enough for choosing keys, and reproducible.
///
/// Source: Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled"
/// (2016).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A different sequence for each seed; 0 is a valid seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `bound`, which must not be 0.
    #[inline]
    pub fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        // The high half of a 32 by 32 bit product is below `bound`.
        u32::try_from((high * u64::from(bound)) >> 32).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_below_the_bound_are_evenly_distributed() {
        let (mut rng, mut counts) = (Rng::new(7), [0u32; 10]);
        for _ in 0..100_000 {
            counts[rng.below(10) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }
}
