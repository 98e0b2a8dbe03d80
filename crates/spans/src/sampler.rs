//! The selection of one request in N, with the worker's own count.

/// Selects sampled requests: one in N on average, at random gaps, so that a pattern of requests is
/// not sampled at the same place each time.
#[derive(Clone, Debug)]
pub struct Sampler {
    /// Requests up to and including the next sampled one.
    left: u64,
    /// N; 0: none is sampled.
    one_in: u32,
}

impl Sampler {
    /// Samples one request in `one_in`; none if it is 0.
    #[must_use]
    pub fn new(one_in: u32) -> Self {
        let mut sampler = Self { left: u64::MAX, one_in };
        sampler.draw();
        sampler
    }

    /// Counts a request. True if it is sampled.
    #[inline]
    pub fn is_due(&mut self) -> bool {
        self.left -= 1;
        self.left == 0 && self.is_drawn()
    }

    #[cold]
    fn is_drawn(&mut self) -> bool {
        self.draw();
        self.one_in > 0
    }

    /// Draws the next gap: 1 to 2N - 1, so N on average.
    fn draw(&mut self) {
        self.left = match u64::from(self.one_in) {
            0 => u64::MAX,
            one_in => fastrand::u64(1..2 * one_in),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_n_is_sampled_on_average() {
        let mut sampler = Sampler::new(100);
        let sampled = (0..1_000_000).filter(|_| sampler.is_due()).count();
        assert!((9_000..11_000).contains(&sampled), "{sampled}");
    }

    #[test]
    fn one_in_one_samples_every_request_and_zero_none() {
        let (mut all, mut none) = (Sampler::new(1), Sampler::new(0));
        assert!((0..1000).all(|_| all.is_due()));
        assert!(!(0..1000).any(|_| none.is_due()));
    }
}
