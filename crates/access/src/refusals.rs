//! Refusals of logins that are sent later.

use std::collections::VecDeque;
use std::time::Instant;

use net::ConnId;

/// Connections whose refusals are due later, and when: nearly in the order of time.
#[derive(Debug, Default)]
pub struct Refusals {
    held: VecDeque<(Instant, ConnId)>,
}

impl Refusals {
    /// The connection is to be served again at `until`.
    pub fn hold(&mut self, until: Instant, id: ConnId) {
        self.held.push_back((until, id));
    }

    /// The time at which the first is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.held.front().map(|(until, _)| *until)
    }

    /// Adds the connections that are due to `resumed`.
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
