//! The order of the authentication worker's jobs: addresses take turns.
//!
//! Checking a password kept as a verifier takes milliseconds. A client that guesses from one
//! address waits behind its own guesses; a client of another address waits for at most one guess.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// The sender of a job. Addresses of one IPv6 network (64 bits) count as one, since one client may
/// have all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The operator, by a signal or a command.
    Operator,
    /// A client of a unix socket.
    Unix,
    /// A client's network.
    Network(u64),
}

impl Source {
    /// The source of a client at this address; `None` is a unix socket.
    #[must_use]
    pub fn of(address: Option<IpAddr>) -> Self {
        let network = match address.map(|address| address.to_canonical()) {
            None => return Self::Unix,
            Some(IpAddr::V4(address)) => u64::from(address.to_bits()),
            Some(IpAddr::V6(address)) => (address.to_bits() >> 64) as u64,
        };
        Self::Network(network)
    }
}

/// A bounded queue that serves its sources in turn.
#[derive(Debug)]
pub(crate) struct FairQueue<T> {
    waiting: HashMap<Source, VecDeque<T>>,
    /// The waiting sources, each once, the next first.
    turns: VecDeque<Source>,
    len: usize,
    limit: usize,
}

impl<T> FairQueue<T> {
    /// A queue for `limit` entries, at least 1.
    pub(crate) fn new(limit: usize) -> Self {
        Self { waiting: HashMap::new(), turns: VecDeque::new(), len: 0, limit }
    }

    /// Adds an entry. When the queue is full, returns the newest entry of the source with most
    /// entries, which may be this one. The operator's are always accepted.
    pub(crate) fn push(&mut self, source: Source, entry: T) -> Option<T> {
        let own = self.waiting.get(&source).map_or(0, VecDeque::len);
        let mut dropped = None;
        if self.len >= self.limit && source != Source::Operator {
            let longest = self.waiting.iter_mut().max_by_key(|(_, entries)| entries.len());
            match longest {
                Some((_, entries)) if entries.len() > own + 1 => dropped = entries.pop_back(),
                _ => return Some(entry),
            }
            self.len -= 1;
        }
        if own == 0 {
            self.turns.push_back(source);
        }
        self.waiting.entry(source).or_default().push_back(entry);
        self.len += 1;
        dropped
    }

    /// The next entry.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let source = self.turns.pop_front()?;
        let entries = self.waiting.get_mut(&source)?;
        let entry = entries.pop_front();
        if entries.is_empty() {
            self.waiting.remove(&source);
        } else {
            self.turns.push_back(source);
        }
        self.len -= usize::from(entry.is_some());
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUESSER: Source = Source::Network(1);
    const OWNER: Source = Source::Network(2);

    #[test]
    fn sources_take_turns() {
        let mut queue = FairQueue::new(100);
        for number in 0..50 {
            assert_eq!(queue.push(GUESSER, number), None);
        }
        assert_eq!(queue.push(OWNER, 1000), None);
        assert_eq!(queue.push(OWNER, 1001), None);
        let order: Vec<i32> = std::iter::from_fn(|| queue.pop()).take(5).collect();
        assert_eq!(order, [0, 1000, 1, 1001, 2]);
    }

    #[test]
    fn a_full_queue_drops_the_newest_entry_of_the_largest_source() {
        let mut queue = FairQueue::new(3);
        for number in 0..3 {
            assert_eq!(queue.push(GUESSER, number), None);
        }
        assert_eq!(queue.push(GUESSER, 3), Some(3), "its own");
        assert_eq!(queue.push(OWNER, 1000), Some(2));
        assert_eq!(queue.push(OWNER, 1001), Some(1001), "neither has more than the other would");
        let order: Vec<i32> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [0, 1000, 1]);
        assert_eq!(queue.pop(), None);
        assert!(queue.waiting.is_empty() && queue.turns.is_empty() && queue.len == 0);
    }

    #[test]
    fn an_ipv6_network_is_one_source() {
        let of = |text: &str| Source::of(Some(text.parse().unwrap()));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_eq!(Source::of(None), Source::Unix);
    }
}
