//! Refusals of logins that are sent later.

use std::collections::VecDeque;
use std::time::Instant;

use net::ConnId;

/// Connections whose refusals are due later, with the times, in the order of time.
#[derive(Debug, Default)]
pub struct Refusals {
    held: VecDeque<(Instant, ConnId)>,
}

impl Refusals {
    /// Schedules the connection to be served again at `until`.
    pub fn hold(&mut self, until: Instant, id: ConnId) {
        self.held.insert(place(&self.held, until), (until, id));
    }

    /// The time at which the first is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.held.front().map(|(until, _)| *until)
    }

    /// Adds the due connections to `resumed`.
    pub fn take_due(&mut self, resumed: &mut Vec<ConnId>) {
        if self.held.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some((_, id)) = self.held.pop_front_if(|(until, _)| *until <= now) {
            resumed.push(id);
        }
    }
}

/// The place among the held ones, in the order of time. Most come last. One whose check took long
/// comes before others, or its refusal would be sent after theirs.
fn place<T>(held: &VecDeque<(Instant, T)>, until: Instant) -> usize {
    held.len() - held.iter().rev().take_while(|(other, _)| *other > until).count()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn refusals_are_ordered_by_due_time() {
        let at = |ms: u64, since: Instant| since + Duration::from_millis(ms);
        let now = Instant::now();
        let held: VecDeque<_> = [(at(5, now), 'a'), (at(9, now), 'b')].into();
        let places = [4, 5, 6, 9, 10].map(|ms| place(&held, at(ms, now)));
        assert_eq!(places, [0, 1, 1, 2, 2]);
    }
}
