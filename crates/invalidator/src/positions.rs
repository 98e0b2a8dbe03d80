//! The positions that the checkpoint may move to, each with the last delivery before it.
//!
//! While one delivery waits, reading continues, so the number is bounded: of two positions with no
//! delivery between them, only the later one counts, and when there are very many, every second one
//! is dropped. The checkpoint then moves in larger steps, and a restart repeats slightly more.

use std::collections::VecDeque;
use std::sync::Arc;

use changes::position::Position;
use parking_lot::Mutex;

/// Maximum number of positions held.
const HELD_MAX: usize = 4096;

/// Positions in the order of the log. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Positions(Arc<Mutex<Held>>);

#[derive(Debug, Default)]
struct Held {
    positions: VecDeque<(u64, Position)>,
    /// Minimum number of deliveries between positions; the last may be nearer.
    step: u64,
}

impl Positions {
    /// Adds the position after delivery `seq` and everything before it.
    pub(crate) fn push(&self, seq: u64, position: Position) {
        let mut held = self.0.lock();
        let Held { positions, step } = &mut *held;
        if positions.is_empty() {
            *step = 1;
        }
        let before_last = positions.len().checked_sub(2).and_then(|at| positions.get(at));
        let is_near = before_last.is_some_and(|(before, _)| seq - before < *step);
        positions.pop_back_if(|(last, _)| is_near || *last == seq);
        if positions.len() >= HELD_MAX {
            let mut is_kept = false;
            positions.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
            *step *= 2;
        }
        positions.push_back((seq, position));
    }

    /// Takes the positions up to delivery `acked`, and returns the last one.
    pub(crate) fn take(&self, acked: u64) -> Option<(u64, Position)> {
        let positions = &mut self.0.lock().positions;
        let done = positions.partition_point(|(seq, _)| *seq <= acked);
        positions.drain(..done).next_back()
    }

    /// Returns a taken position.
    pub(crate) fn give_back(&self, seq: u64, position: Position) {
        let positions = &mut self.0.lock().positions;
        if positions.front().is_none_or(|(first, _)| *first != seq) {
            positions.push_front((seq, position));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(lsn: u64) -> Position {
        Position::of_lsn(lsn)
    }

    #[test]
    fn only_the_last_position_between_deliveries_is_held() {
        let positions = Positions::default();
        positions.push(1, at(10));
        (0..100_000).for_each(|lsn| positions.push(2, at(20 + lsn)));
        assert_eq!(positions.0.lock().positions.len(), 2);
        assert_eq!(positions.take(0), None);
        assert_eq!(positions.take(1), Some((1, at(10))));
        assert_eq!(positions.take(9), Some((2, at(100_019))));
        assert_eq!(positions.take(9), None);
        positions.push(2, at(100_020));
        positions.give_back(2, at(100_019));
        assert_eq!(positions.take(9), Some((2, at(100_020))), "an older one is not needed");
    }

    #[test]
    fn held_positions_are_bounded_and_include_the_newest() {
        let positions = Positions::default();
        for seq in 1..=1_000_000 {
            positions.push(seq, at(seq));
            assert!(positions.0.lock().positions.len() <= HELD_MAX);
        }
        assert_eq!(positions.take(1), Some((1, at(1))));
        let (seq, _) = positions.take(500_000).unwrap();
        assert!(seq > 499_000, "{seq}");
        assert_eq!(positions.take(1_000_000), Some((1_000_000, at(1_000_000))));
    }
}
