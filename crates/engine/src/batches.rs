//! Chooses the batches of requests that a worker samples by time, and their weights.
//!
//! Each batch is chosen with the probability `1/period`, independently of all others, and a chosen
//! one has the weight `period`. The period follows the load, and may depend on everything before a
//! batch but not on the batch. So the expected sum of weights is the number of batches, however the
//! period changes. For this, a chosen batch keeps the period that it was chosen with.
//!
//! A random number for each batch would cost every request, so the gap to the next chosen batch is
//! drawn instead: it has a geometric distribution. That has no memory: drawing a new gap whenever
//! the period changes chooses the batches ahead with their new probability. Without it, a gap drawn
//! under a heavy load would last for minutes under a light one.

use std::cell::{Cell, RefCell};

use narrow::saturating_u32;

/// A worker's choice.
pub(crate) struct Batches {
    /// Batches until the next chosen one, itself included.
    left: Cell<u32>,
    /// One batch in this number is chosen, on average.
    period: Cell<u32>,
    /// The number of batches that the last chosen one stands for.
    weight: Cell<u32>,
    /// Keys noted since the period was last adapted, and that moment.
    noted: Cell<u32>,
    adapted_ms: Cell<u64>,
    random: RefCell<fastrand::Rng>,
}

/// Milliseconds between two collections of the logs, after each of which the period is adapted.
pub(crate) const INTERVAL_MS: u64 = 100;

/// Keys to note by time in [`INTERVAL_MS`].
const NOTED_WANTED: u32 = 256;

/// Maximum average number of batches between two chosen ones.
const PERIOD_MAX: u32 = 1 << 20;

impl Batches {
    /// At first, every batch is chosen.
    pub(crate) fn new(random: fastrand::Rng) -> Self {
        Self {
            left: Cell::new(1),
            period: Cell::new(1),
            weight: Cell::new(1),
            noted: Cell::new(0),
            adapted_ms: Cell::new(0),
            random: RefCell::new(random),
        }
    }

    /// Counts a batch; `true` if it is chosen. Then the caller calls [`Self::choose`] or
    /// [`Self::choose_none`].
    #[inline]
    pub(crate) fn is_next(&self) -> bool {
        let left = self.left.get() - 1;
        self.left.set(left);
        left == 0
    }

    /// Starts the chosen batch.
    pub(crate) fn choose(&self) {
        self.weight.set(self.period.get());
        if self.noted.get() > 4 * NOTED_WANTED {
            self.adapt(INTERVAL_MS);
        }
        self.draw();
    }

    /// Chooses no batch for a long time.
    pub(crate) fn choose_none(&self) {
        self.left.set(u32::MAX);
    }

    /// Chooses batches again.
    pub(crate) fn restart(&self) {
        self.draw();
    }

    /// The number of batches that the chosen one stands for.
    pub(crate) fn weight(&self) -> u32 {
        self.weight.get()
    }

    /// Counts a key of the chosen batch.
    pub(crate) fn note_key(&self) {
        self.noted.set(self.noted.get() + 1);
    }

    /// Starts a turn at `now_ms`.
    pub(crate) fn begin_turn(&self, now_ms: u64) {
        let since_ms = now_ms.saturating_sub(self.adapted_ms.get());
        if since_ms >= INTERVAL_MS {
            let period = self.period.get();
            self.adapt(since_ms);
            self.adapted_ms.set(now_ms);
            if self.period.get() != period {
                self.draw();
            }
        }
    }

    /// Chooses the period by the number of keys noted in the last `since_ms` milliseconds.
    fn adapt(&self, since_ms: u64) {
        let intervals = since_ms / INTERVAL_MS;
        let wanted = u64::from(NOTED_WANTED) * since_ms / INTERVAL_MS;
        let period = self.period.get();
        let next = u64::from(period) * u64::from(self.noted.get()) / wanted.max(1);
        // A quarter for each interval: a load of one request per second has one turn per second.
        let least = period >> (2 * intervals).min(u64::from(u32::BITS) - 1);
        let next = saturating_u32(next).clamp(least, period.saturating_mul(4));
        self.period.set(next.clamp(1, PERIOD_MAX));
        self.noted.set(0);
    }

    /// Draws the gap to the next chosen batch.
    fn draw(&self) {
        let chance = 1.0 / f64::from(self.period.get());
        // The share of gaps that are longer: over 0 and at most 1.
        let longer = 1.0 - self.random.borrow_mut().f64();
        // A period of 1 divides by minus infinity.
        let passed = longer.ln() / (-chance).ln_1p();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, and below 2^26: the logarithms are over -37 and the period's"
        )]
        let passed = passed as u32;
        self.left.set(passed + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batches(seed: u64) -> Batches {
        Batches::new(fastrand::Rng::with_seed(seed))
    }

    /// One batch with this many keys; its weight if it is chosen, or 0.
    fn batch(batches: &Batches, keys: u32) -> u64 {
        if !batches.is_next() {
            return 0;
        }
        batches.choose();
        (0..keys).for_each(|_| batches.note_key());
        batches.weight().into()
    }

    /// Raises the period by a heavy load; returns the time of its end.
    fn load(batches: &Batches) -> u64 {
        for turn in 0..100_000_u64 {
            batches.begin_turn(turn / 100);
            batch(batches, 100);
        }
        assert!(batches.period.get() > 1000, "{}", batches.period.get());
        1000
    }

    #[test]
    fn a_light_load_after_a_heavy_one_is_sampled_soon() {
        for (run, gap_ms) in (0..100).flat_map(|run| [(run, 100), (run, 1000)]) {
            let batches = batches(run);
            let end_ms = load(&batches);
            let mut requests = 0;
            let mut seen = 0;
            for turn in 1..=100 {
                batches.begin_turn(end_ms + turn * gap_ms);
                requests += 1;
                seen += u64::from(batch(&batches, 1) == 1);
            }
            assert!(seen >= requests - 15, "{seen} of {requests} every {gap_ms} ms, run {run}");
        }
    }

    #[test]
    fn weights_sum_to_the_number_of_batches_while_the_load_changes() {
        const RUNS: u64 = 300;
        let (mut before, mut after, mut batches_before, mut batches_after) = (0.0, 0.0, 0.0, 0.0);
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        for seed in 0..RUNS {
            let batches = batches(seed);
            for turn in 0..20_000_u64 {
                // Nothing but the time differs between a heavy second and a light one.
                let (now_ms, is_heavy) = (turn / 10, turn / 10_000 == 0);
                batches.begin_turn(now_ms);
                if is_heavy || turn.is_multiple_of(50) {
                    let weight = batch(&batches, 5) as f64;
                    let sum = if is_heavy { &mut before } else { &mut after };
                    *sum += weight;
                    *(if is_heavy { &mut batches_before } else { &mut batches_after }) += 1.0;
                }
            }
        }
        for (weights, count) in [(before, batches_before), (after, batches_after)] {
            let ratio: f64 = weights / count;
            assert!((ratio - 1.0).abs() < 0.02, "{ratio}");
        }
    }

    #[test]
    fn the_mean_gap_is_the_period() {
        let batches = batches(1);
        for period in [1, 2, 10, PERIOD_MAX] {
            batches.period.set(period);
            let gap = || {
                batches.draw();
                f64::from(batches.left.get())
            };
            let mean = (0..100_000).map(|_| gap()).sum::<f64>() / 100_000.0;
            assert!((mean / f64::from(period) - 1.0).abs() < 0.02, "{period}: {mean}");
        }
    }
}
