//! A limit on the large replies that a worker awaits, for all of its clients together.
//!
//! All clients of a worker share its connection to a server, so a small reply arrives after the
//! large ones requested before it. The size of a reply is unknown before it arrives, so it is
//! estimated from the client's last ones. A client with at least as many consecutive small replies
//! as outstanding requests sends at once. Every other client sends while fewer than
//! [`ON_THEIR_WAY_MAX`] bytes are expected, and waits for its turn otherwise (decision 114).
//!
//! ```text
//!     request of a client without small replies -> room? -> expected, until its reply is there
//!                                                   no  -> waiting -> admitted when there is room
//! ```

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Maximum bytes of expected replies to clients without a record of small ones. One reply may
/// exceed it.
const ON_THEIR_WAY_MAX: usize = 4 << 20;

/// A reply that has not arrived for one to two of these no longer counts, so that a silent server
/// delays no other requests.
const PERIOD: Duration = Duration::from_millis(250);

/// The minimum estimate for an unknown client.
const GUESS_MIN: usize = 1024;

/// A smaller reply lowers the estimate by this part of the difference; a larger one by half.
const SLOWNESS: usize = 64;

/// A queue's part of the expected bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Expected {
    /// Bytes of expected replies.
    bytes: usize,
    /// The period in which they were counted.
    period: u32,
    /// It waits for its turn.
    is_waiting: bool,
    /// It may send once.
    is_admitted: bool,
}

impl Expected {
    /// The part that stays when its connection has gone: replies are still expected.
    pub(super) fn closed(self) -> Self {
        Self { is_waiting: false, is_admitted: false, ..self }
    }

    pub(super) const fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    pub(super) const fn is_any(&self) -> bool {
        self.bytes > 0
    }
}

/// One worker's limit.
#[derive(Debug)]
pub(super) struct Admission {
    /// Expected bytes: requested in this period, and in the previous one.
    recent: usize,
    older: usize,
    period: u32,
    period_end: Instant,
    /// The estimated size of a reply to an unknown client.
    guess: usize,
    /// Waiting queues, oldest first; some of them have gone.
    waiting: VecDeque<u32>,
    gone: usize,
    /// The newest has the next turn.
    takes_newest: bool,
}

impl Admission {
    pub(super) fn new(now: Instant) -> Self {
        let period_end = now + PERIOD;
        let (recent, older, period, gone) = Default::default();
        let (waiting, takes_newest, guess) = (VecDeque::new(), false, GUESS_MIN);
        Self { recent, older, period, period_end, guess, waiting, gone, takes_newest }
    }

    /// Starts a turn of the worker.
    #[inline]
    pub(super) fn turn(&mut self, now: Instant) {
        if now >= self.period_end {
            (self.older, self.recent) = (self.recent, 0);
            self.period = self.period.wrapping_add(1);
            self.period_end = now + PERIOD;
        }
    }

    /// The time at which there is room again, whatever servers do; `None` if no queue waits.
    pub(super) fn deadline(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then_some(self.period_end)
    }

    const fn has_room(&self, promised: usize) -> bool {
        self.recent + self.older + promised < ON_THEIR_WAY_MAX
    }

    /// Returns true if a queue whose client has no record of small replies may send. Otherwise it
    /// waits, and [`Self::next`] returns it later.
    pub(super) fn admits(&mut self, number: u32, expected: &mut Expected) -> bool {
        if expected.is_admitted || self.waiting.is_empty() && self.has_room(0) {
            return true;
        }
        if !expected.is_waiting {
            if self.waiting.try_reserve(1).is_err() {
                return true;
            }
            expected.is_waiting = true;
            self.waiting.push_back(number);
        }
        false
    }

    /// The estimated size of a reply; `known` is that of the client's last large ones.
    pub(super) fn guess(&self, known: usize) -> usize {
        if known > 0 { known } else { self.guess }
    }

    /// Records a request for a reply of about this many bytes.
    pub(super) fn ask(&mut self, expected: &mut Expected, bytes: usize) {
        expected.is_admitted = false;
        let before = self.forget(expected, expected.bytes);
        expected.bytes = before + bytes;
        expected.period = self.period;
        self.recent += expected.bytes;
    }

    /// Records one of a queue's `outstanding` replies.
    pub(super) fn answered(&mut self, expected: &mut Expected, outstanding: u32) {
        let part = expected.bytes / outstanding.max(1) as usize;
        self.forget(expected, part);
        expected.bytes -= part;
    }

    /// Records the size of a reply to an unknown client.
    pub(super) fn learn(&mut self, len: usize) {
        self.guess = if len > self.guess {
            self.guess + (len - self.guess) / 2
        } else {
            (self.guess - (self.guess - len).div_ceil(SLOWNESS)).max(GUESS_MIN)
        };
    }

    /// Subtracts `bytes` of a queue from the expected ones. Returns how many were still counted.
    fn forget(&mut self, expected: &Expected, bytes: usize) -> usize {
        let counted = match self.period.wrapping_sub(expected.period) {
            0 => &mut self.recent,
            1 => &mut self.older,
            _ => return 0,
        };
        *counted = counted.saturating_sub(bytes);
        bytes
    }

    /// The next queue in turn, if there is room in addition to `promised`: the oldest and the
    /// newest alternate, so that a newcomer need not wait for a crowd.
    pub(super) fn next(&mut self, promised: usize) -> Option<u32> {
        if !self.has_room(promised) {
            return None;
        }
        self.takes_newest = !self.takes_newest;
        if self.takes_newest { self.waiting.pop_back() } else { self.waiting.pop_front() }
    }

    /// Lets the chosen queue send once, if it still waits.
    pub(super) fn admit(&mut self, expected: &mut Expected) -> bool {
        let waited = std::mem::take(&mut expected.is_waiting);
        expected.is_admitted = waited;
        self.gone = self.gone.saturating_sub(usize::from(!waited));
        waited
    }

    /// Records that a waiting queue has gone. True if most have: then call [`Self::retain`].
    pub(super) fn leave(&mut self) -> bool {
        self.gone += 1;
        self.gone > self.waiting.len() / 2
    }

    /// Keeps the queues that still wait.
    pub(super) fn retain(&mut self, waits: impl Fn(u32) -> bool) {
        self.waiting.retain(|number| waits(*number));
        self.gone = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: usize = 1 << 20;

    fn admission() -> (Admission, Instant) {
        let now = Instant::now();
        (Admission::new(now), now)
    }

    /// Requests as many replies of `bytes` as there is room for.
    fn fill(admission: &mut Admission, bytes: usize) -> Vec<Expected> {
        let mut all = Vec::new();
        loop {
            let mut expected = Expected::default();
            if !admission.admits(1000, &mut expected) {
                admission.retain(|_| false);
                return all;
            }
            admission.ask(&mut expected, bytes);
            all.push(expected);
        }
    }

    #[test]
    fn outstanding_large_replies_are_bounded() {
        let (mut admission, _) = admission();
        let mut all = fill(&mut admission, MB);
        assert_eq!(all.len(), 4);
        admission.answered(&mut all[0], 1);
        assert!(!all[0].is_any());
        assert_eq!(fill(&mut admission, MB).len(), 1);
    }

    #[test]
    fn the_oldest_and_newest_waiters_are_admitted_alternately() {
        let (mut admission, _) = admission();
        let mut all = fill(&mut admission, 4 * MB);
        let mut queues = [Expected::default(); 4];
        for (number, queue) in (0..).zip(&mut queues) {
            assert!(!admission.admits(number, queue) && queue.is_waiting());
        }
        assert_eq!(admission.next(0), None, "there is no room");
        admission.answered(&mut all[0], 1);
        assert_eq!(admission.next(4 * MB), None, "the room is promised");
        let named: Vec<_> = std::iter::from_fn(|| admission.next(0)).collect();
        assert_eq!(named, [3, 0, 2, 1]);
        assert!(admission.admit(&mut queues[3]) && admission.admits(3, &mut queues[3]));
        assert!(!admission.admit(&mut queues[3]), "once");
    }

    #[test]
    fn later_requests_do_not_overtake_waiting_ones() {
        let (mut admission, _) = admission();
        let mut all = fill(&mut admission, 4 * MB);
        let mut queues = [Expected::default(); 2];
        assert!(!admission.admits(0, &mut queues[0]));
        admission.answered(&mut all[0], 1);
        assert!(!admission.admits(1, &mut queues[1]));
    }

    #[test]
    fn a_silent_server_delays_waiters_only_briefly() {
        let (mut admission, start) = admission();
        let mut all = fill(&mut admission, 4 * MB);
        assert!(!admission.admits(0, &mut Expected::default()));
        admission.turn(start + PERIOD);
        assert_eq!(admission.next(0), None);
        admission.turn(start + 3 * PERIOD);
        assert_eq!(admission.next(0), Some(0));
        fill(&mut admission, 4 * MB);
        admission.answered(&mut all[0], 1);
        assert_eq!(admission.next(0), None, "a late reply takes off nothing of others'");
    }

    #[test]
    fn the_size_estimate_rises_fast_and_falls_slowly() {
        let (mut admission, _) = admission();
        assert_eq!(admission.guess(0), GUESS_MIN);
        assert_eq!(admission.guess(5), 5);
        admission.learn(MB);
        let large = admission.guess(0);
        assert!(large > MB / 2);
        admission.learn(0);
        assert!(admission.guess(0) > large / 64 * 62);
        (0..2000).for_each(|_| admission.learn(0));
        assert_eq!(admission.guess(0), GUESS_MIN);
    }

    #[test]
    fn closed_clients_are_removed_from_the_waiting_list() {
        let (mut admission, _) = admission();
        fill(&mut admission, 4 * MB);
        let mut queues = vec![Expected::default(); 10];
        for (number, queue) in (0..).zip(&mut queues) {
            admission.admits(number, queue);
        }
        let is_most = (0..6).map(|number| {
            queues[number] = queues[number].closed();
            admission.leave()
        });
        assert_eq!(is_most.collect::<Vec<_>>(), [false, false, false, false, false, true]);
        admission.retain(|number| queues[number as usize].is_waiting());
        assert_eq!(admission.waiting, [6, 7, 8, 9]);
    }
}
