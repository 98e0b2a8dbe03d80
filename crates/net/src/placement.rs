//! Chooses the worker that serves a connection: an even spread, or as few workers as can carry the
//! load.
//!
//! A service that collects the requests of many connections before it sends them on (a proxy)
//! spends less on each if one worker has more of them: one write to a server carries more, and
//! wakes it once. So connections are *gathered*: a new one goes to the first worker that is not
//! busy; a busy worker gives some of its connections to the one with the least load; two that one
//! could carry are joined again.
//!
//! Load is processor time, not time without rest: if other threads keep a worker from its
//! processor, a second worker, which they also keep from it, does not help.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The spread of connections over the workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// A new connection goes to the worker with the fewest, and stays there.
    #[default]
    Even,
    /// On as few workers as can carry them. Only connections with [`crate::Service::may_move`]
    /// move.
    Consolidated(Consolidation),
}

/// The rule by which connections move between workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consolidation {
    busy: u32,
}

/// Milliseconds over which a load is measured.
pub(crate) const WINDOW_MS: u64 = 100;

/// A worker joins another only after it could have done so for this many windows in a row.
const CALM_WINDOWS: u32 = 10;

/// An older load means that the worker has been idle since, in milliseconds.
const STALE_MS: u64 = 3 * WINDOW_MS;

/// A worker's step towards fewer workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Keep them.
    Keep,
    /// Give `share` thousandths of those in use to another worker.
    Give { to: usize, share: u32 },
}

impl Consolidation {
    /// A worker is busy when it uses more than `percent` of a processor; 1 to 100.
    #[must_use]
    pub fn below(percent: u8) -> Self {
        Self { busy: u32::from(percent.clamp(1, 100)) * 10 }
    }

    /// Two workers that use at most this together are joined: far enough below for them to stay
    /// joined.
    fn calm(self) -> u32 {
        self.busy * 6 / 10
    }

    /// The worker for a new connection.
    pub(crate) fn place(self, loads: &[u32]) -> usize {
        loads.iter().position(|&load| load < self.busy).unwrap_or_else(|| least(loads, usize::MAX))
    }

    /// The step of the worker `own`. `calm` counts windows in which it could have joined another.
    pub(crate) fn step(self, loads: &[u32], own: usize, calm: &mut u32) -> Step {
        let mine = loads[own];
        let to = least(loads, own);
        if mine > self.busy && loads[to] + self.busy * 3 / 10 <= mine {
            *calm = 0;
            return Step::Give { to, share: (mine - loads[to]) * 500 / mine };
        }
        match loads[..own].iter().position(|&load| load + mine <= self.calm()) {
            Some(to) => {
                *calm += 1;
                if *calm < CALM_WINDOWS { Step::Keep } else { Step::Give { to, share: 1000 } }
            }
            None => {
                *calm = 0;
                Step::Keep
            }
        }
    }
}

/// The first worker with the least load, other than `own`.
fn least(loads: &[u32], own: usize) -> usize {
    let others = loads.iter().enumerate().filter(|&(index, _)| index != own);
    others.min_by_key(|&(_, &load)| load).map_or(0, |(index, _)| index)
}

/// A worker's load for the others; the worker writes it once per window.
#[derive(Debug, Default)]
pub(crate) struct Load {
    /// Thousandths of a processor.
    permille: AtomicU32,
    at_ms: AtomicU64,
}

impl Load {
    pub(crate) fn set(&self, permille: u32, now_ms: u64) {
        // Relaxed: an old load with a new time misleads for one window.
        self.permille.store(permille, Ordering::Relaxed);
        self.at_ms.store(now_ms, Ordering::Relaxed);
    }

    pub(crate) fn get(&self, now_ms: u64) -> u32 {
        let is_stale = now_ms.saturating_sub(self.at_ms.load(Ordering::Relaxed)) > STALE_MS;
        if is_stale { 0 } else { self.permille.load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: Consolidation = Consolidation { busy: 500 };

    #[test]
    fn a_new_connection_goes_to_the_first_that_is_not_busy() {
        assert_eq!(HALF.place(&[0, 0, 0]), 0);
        assert_eq!(HALF.place(&[499, 0, 0]), 0);
        assert_eq!(HALF.place(&[500, 100, 0]), 1);
        assert_eq!(HALF.place(&[900, 600, 700]), 1);
        assert_eq!(HALF.place(&[900]), 0);
    }

    #[test]
    fn a_busy_worker_gives_half_of_the_difference() {
        let mut calm = 0;
        assert_eq!(HALF.step(&[800, 0], 0, &mut calm), Step::Give { to: 1, share: 500 });
        assert_eq!(HALF.step(&[900, 450, 450], 0, &mut calm), Step::Give { to: 1, share: 250 });
        assert_eq!(
            HALF.step(&[800, 700], 0, &mut calm),
            Step::Keep,
            "as busy as the other, nearly"
        );
        assert_eq!(HALF.step(&[500, 0], 0, &mut calm), Step::Keep, "not busy");
        assert_eq!(HALF.step(&[800], 0, &mut calm), Step::Keep, "there is no other");
    }

    #[test]
    fn two_lightly_loaded_workers_are_merged_after_a_while() {
        let mut calm = 0;
        for _ in 1..CALM_WINDOWS {
            assert_eq!(HALF.step(&[200, 100], 1, &mut calm), Step::Keep);
        }
        let join = Step::Give { to: 0, share: 1000 };
        assert_eq!(HALF.step(&[200, 100], 1, &mut calm), join);
        assert_eq!(HALF.step(&[250, 100], 1, &mut calm), Step::Keep, "too much for one");
        assert_eq!(HALF.step(&[200, 100], 1, &mut calm), Step::Keep, "counts anew");
        assert_eq!(HALF.step(&[100, 0], 0, &mut calm), Step::Keep, "the first joins nobody");
    }

    #[test]
    fn an_outdated_load_counts_as_zero() {
        let load = Load::default();
        load.set(300, 1000);
        assert_eq!((load.get(1000), load.get(1000 + STALE_MS)), (300, 300));
        assert_eq!(load.get(1001 + STALE_MS), 0);
    }
}
