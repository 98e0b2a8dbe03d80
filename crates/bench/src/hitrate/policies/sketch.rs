//! Approximate frequencies of keys: a count-min sketch whose counts are halved periodically, so
//! that the past is forgotten.

/// Rows, of which the minimum count is used.
const ROWS: usize = 4;

/// Maximum of a count.
const COUNT_MAX: u8 = 15;

/// Minimum and maximum number of counters in a row.
const WIDTH: std::ops::RangeInclusive<u64> = 1 << 10..=1 << 24;

/// Multipliers, one per row: odd, with bits set everywhere.
const MULTIPLIERS: [u64; ROWS] =
    [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f, 0xff51_afd7_ed55_8ccd, 0x1656_67b1_9e37_79f9];

pub(super) struct Sketch {
    counts: Vec<u8>,
    /// Bits of an index in a row.
    bits: u32,
    added: u64,
}

impl Sketch {
    /// A sketch for about this number of keys.
    pub(super) fn new(keys: u64) -> Self {
        let width = keys.clamp(*WIDTH.start(), *WIDTH.end()).next_power_of_two();
        let bits = width.trailing_zeros();
        Self { counts: vec![0; ROWS << bits], bits, added: 0 }
    }

    /// Counts a key. After `period` keys, all counts are halved.
    pub(super) fn add(&mut self, id: u64, period: u64) {
        for place in self.places(id) {
            self.counts[place] = (self.counts[place] + 1).min(COUNT_MAX);
        }
        self.added += 1;
        if self.added >= period {
            self.added /= 2;
            self.counts.iter_mut().for_each(|count| *count /= 2);
        }
    }

    /// Approximate number of times that the key was counted: never too low, except for the halving.
    pub(super) fn count(&self, id: u64) -> u8 {
        let counts = self.places(id).map(|place| self.counts[place]);
        counts.into_iter().fold(COUNT_MAX, u8::min)
    }

    fn places(&self, id: u64) -> [usize; ROWS] {
        let mixed = id ^ id >> 32;
        std::array::from_fn(|row| {
            let hash = mixed.wrapping_mul(MULTIPLIERS[row]).rotate_left(32);
            let place = hash.wrapping_mul(MULTIPLIERS[row]) >> (64 - self.bits);
            #[allow(clippy::cast_possible_truncation, reason = "fewer bits than a row has")]
            let place = place as usize;
            row << self.bits | place
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_not_too_low_and_mostly_right() {
        let mut sketch = Sketch::new(10_000);
        for id in 0..10_000u64 {
            (0..id % 8).for_each(|_| sketch.add(id, u64::MAX));
        }
        let above = |id: u64| u64::from(sketch.count(id)) - id % 8;
        let wrong = (0..10_000).filter(|&id| above(id) > 0).count();
        assert!(wrong < 1500, "{wrong} of 10,000 are too high");
    }

    #[test]
    fn counts_are_halved_after_a_period() {
        let mut sketch = Sketch::new(1000);
        (0..9).for_each(|_| sketch.add(7, 10));
        assert_eq!(sketch.count(7), 9);
        sketch.add(7, 10);
        assert_eq!(sketch.count(7), 5);
    }
}
