//! Delay of a busy worker's requests to the next turn, so that more leave in one write.
//!
//! A write costs the kernel some microseconds, and the server that it wakes some more, whether it
//! contains one request or ten. A turn with several requests is likely to be followed by another at
//! once, since clients continued to send during it. So the worker polls without waiting, and sends
//! the requests of both turns together. If it finds no more, it sends at once. After a turn with
//! few requests it does not poll, so without load no request waits.
//!
//! mcrouter has the same idea (`--max-no-flush-event-loops`).

/// A turn with at least this number of requests is followed by a poll for more.
const BUSY: u32 = 3;

/// This number of requests suffices for a write.
const ENOUGH: u32 = 24;

/// Maximum number of consecutive held turns.
const TURNS: u32 = 3;

/// One worker's requests that are not sent yet.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Requests in this turn.
    asked: u32,
    /// Requests of held turns.
    held: u32,
    /// The number of held turns.
    turns: u32,
    is_held: bool,
}

impl Batch {
    /// Starts a turn.
    pub(super) fn turn(&mut self) {
        if self.is_held {
            self.held += self.asked;
            self.turns += 1;
        } else {
            (self.held, self.turns) = (0, 0);
        }
        (self.asked, self.is_held) = (0, false);
    }

    /// Counts a request.
    #[inline]
    pub(super) fn asked(&mut self) {
        self.asked += 1;
    }

    /// Returns true if the turn, whose input has all been read, waits for the next one.
    pub(super) fn is_held(&mut self) -> bool {
        self.is_held = self.asked >= BUSY && self.held + self.asked < ENOUGH && self.turns < TURNS;
        self.is_held
    }

    /// Returns true if requests wait for the next turn, which must follow at once.
    pub(super) fn has_held(&self) -> bool {
        self.is_held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a turn with `requests` requests. Returns whether they are held back.
    fn turn(batch: &mut Batch, requests: u32) -> bool {
        batch.turn();
        (0..requests).for_each(|_| batch.asked());
        assert_eq!(batch.is_held(), batch.has_held());
        batch.has_held()
    }

    #[test]
    fn few_requests_are_sent_at_once() {
        let mut batch = Batch::default();
        assert!(!turn(&mut batch, 0) && !turn(&mut batch, BUSY - 1));
    }

    #[test]
    fn a_turn_without_requests_sends_the_held_ones() {
        let mut batch = Batch::default();
        assert!(turn(&mut batch, BUSY));
        assert!(!turn(&mut batch, 0));
    }

    #[test]
    fn held_requests_and_turns_are_bounded() {
        let mut batch = Batch::default();
        assert!(!turn(&mut batch, ENOUGH));
        assert!(turn(&mut batch, ENOUGH - BUSY - 1));
        assert!(!turn(&mut batch, BUSY + 1), "as many as are enough, together");
        for _ in 0..TURNS {
            assert!(turn(&mut batch, BUSY));
        }
        assert!(!turn(&mut batch, BUSY));
        assert!(turn(&mut batch, BUSY), "the next turns begin anew");
    }
}
