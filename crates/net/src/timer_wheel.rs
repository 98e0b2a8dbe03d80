//! Timeouts of many connections for a few writes each: a wheel of slot numbers that is checked
//! lazily.
//!
//! A connection that moves bytes only notes the time. When the wheel reaches its slot, the loop
//! checks that note and either closes the connection or puts the slot back at its real deadline. So
//! each connection costs one visit per shortest timeout, however busy it is.

use std::time::Duration;

/// Times are milliseconds since the server's start.
#[derive(Debug)]
pub(crate) struct TimerWheel {
    tick_ms: u64,
    /// Ticks up to this one have been visited.
    visited: u64,
    buckets: Vec<Vec<u32>>,
    /// A tick not after the first non-empty bucket; `None` when all are empty.
    next: Option<u64>,
}

const TICKS: u64 = 64;

impl TimerWheel {
    /// A wheel whose visits are at most `shortest` apart; deadlines are met at most 1/64 of that
    /// too late.
    pub(crate) fn new(shortest: Duration, now_ms: u64) -> Self {
        let tick_ms =
            u64::try_from(shortest.as_millis()).unwrap_or(u64::MAX).div_ceil(TICKS).max(1);
        let buckets = (0..TICKS + 2).map(|_| Vec::new()).collect();
        Self { tick_ms, visited: now_ms / tick_ms, buckets, next: None }
    }

    /// Schedules a visit of `slot` at `deadline_ms`, or earlier if that is beyond the reach.
    pub(crate) fn insert(&mut self, slot: u32, deadline_ms: u64) {
        let tick =
            deadline_ms.div_ceil(self.tick_ms).clamp(self.visited + 1, self.visited + TICKS + 1);
        self.bucket(tick).push(slot);
        self.next = Some(self.next.map_or(tick, |next| next.min(tick)));
    }

    /// Milliseconds until something may be due; `None` when the wheel is empty.
    pub(crate) fn wait_ms(&self, now_ms: u64) -> Option<u64> {
        self.next.map(|tick| (tick * self.tick_ms).saturating_sub(now_ms))
    }

    /// Moves every due slot into `due`.
    pub(crate) fn advance(&mut self, now_ms: u64, due: &mut Vec<u32>) {
        let now = now_ms / self.tick_ms;
        if self.next.is_none_or(|next| next > now) {
            self.visited = now;
            return;
        }
        let last = now.min(self.visited + TICKS + 1);
        for tick in self.visited + 1..=last {
            due.append(self.bucket(tick));
        }
        self.visited = now;
        self.next = (now + 1..=now + TICKS + 1).find(|&tick| !self.bucket(tick).is_empty());
    }

    fn bucket(&mut self, tick: u64) -> &mut Vec<u32> {
        let index = usize::try_from(tick % (TICKS + 2)).unwrap_or(0);
        &mut self.buckets[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_due_at_its_deadline_and_not_before() {
        let mut wheel = TimerWheel::new(Duration::from_millis(640), 1000);
        wheel.insert(7, 1300);
        wheel.insert(8, 999_999);
        let mut due = Vec::new();
        assert_eq!(wheel.wait_ms(1000), Some(300));
        wheel.advance(1299, &mut due);
        assert_eq!(due, []);
        wheel.advance(1305, &mut due);
        assert_eq!(due, [7]);
        // The far one comes early, at the wheel's reach, to be checked and put back.
        wheel.advance(1660, &mut due);
        assert_eq!(due, [7, 8]);
        assert_eq!(wheel.wait_ms(1660), None);
    }

    #[test]
    fn a_long_sleep_loses_no_slot() {
        let mut wheel = TimerWheel::new(Duration::from_millis(64), 0);
        for slot in 0..60 {
            wheel.insert(slot, u64::from(slot));
        }
        let mut due = Vec::new();
        wheel.advance(1_000_000, &mut due);
        assert_eq!(due.len(), 60);
        wheel.insert(1, 1_000_010);
        assert_eq!(wheel.wait_ms(1_000_000), Some(10));
    }
}
