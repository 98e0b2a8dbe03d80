//! The proxy memory that clients hold: one account for all workers (decision 72).
//!
//! ```text
//!     a worker's queues -> charge (bytes), hold (who) -> Budget
//!     a worker's queues <- chosen: who must go       <- Budget
//! ```
//!
//! When the account is full, it closes the clients with the largest product of bytes and time held.
//! It does not track clients with [`SMALL_BYTES`] or fewer. If it is full although no client holds
//! more, it is tight: then it tracks clients with more than [`LEAST_BYTES`].

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use routes::AsideBudget;

/// Bytes that a client may hold while others hold more.
pub(crate) const SMALL_BYTES: usize = 16 * 1024;

/// Bytes that every client may always hold.
pub(crate) const LEAST_BYTES: usize = 1024;

/// Routes may hold one part in this number of the account behind the replies of clients.
const ASIDE_SHARE: usize = 4;

/// A client: its worker, and the number of its queue there.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Client {
    pub(crate) worker: usize,
    pub(crate) queue: u32,
}

/// The account of all clients of the process.
#[derive(Debug)]
pub(crate) struct Budget {
    max: usize,
    /// Relaxed, like the other counts: a thread that sees one late acts a turn later.
    held: AtomicUsize,
    /// The memory of routes' work behind replies: part of the account, but not of any client.
    asides: Arc<AsideBudget>,
    /// Clients that must be closed, and whose workers do not know it yet.
    untold: AtomicUsize,
    /// The account is full, and no client holds more than [`SMALL_BYTES`].
    is_tight: AtomicBool,
    clients: Mutex<Clients>,
}

#[derive(Debug, Default)]
struct Clients {
    holders: HashMap<Client, Holder>,
    leaving: HashMap<Client, Leaving>,
    /// The sum of the bytes that they hold.
    leaving_bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct Holder {
    bytes: usize,
    since: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Leaving {
    bytes: usize,
    is_told: bool,
}

impl Budget {
    /// An account of `max` bytes.
    pub(crate) fn new(max: usize) -> Self {
        let (held, untold) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (asides, is_tight) =
            (Arc::new(AsideBudget::new(max / ASIDE_SHARE)), AtomicBool::new(false));
        Self { max, held, asides, untold, is_tight, clients: Mutex::default() }
    }

    /// Bytes held by clients, and by copies behind their replies.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed) + self.asides.held()
    }

    /// The budget for routes' work behind replies.
    pub(crate) const fn asides(&self) -> &Arc<AsideBudget> {
        &self.asides
    }

    /// Adds `delta` bytes to the clients' sum.
    pub(crate) fn charge(&self, delta: isize) {
        self.held.fetch_add(delta.cast_unsigned(), Ordering::Relaxed);
    }

    /// Returns true if clients hold more than half of the limit.
    pub(crate) fn is_pressed(&self) -> bool {
        self.held() > self.max / 2
    }

    /// Returns true if clients with more than [`LEAST_BYTES`] are to be tracked.
    pub(crate) fn is_tight(&self) -> bool {
        self.is_tight.load(Ordering::Relaxed)
    }

    /// Tracks a client that holds enough.
    pub(crate) fn hold(&self, client: Client, bytes: usize, now: Instant) {
        let mut clients = self.clients.lock();
        if !clients.leaving.contains_key(&client) {
            let holder = clients.holders.entry(client).or_insert(Holder { bytes, since: now });
            holder.bytes = bytes;
        }
    }

    /// Stops tracking a client that holds little, or has gone.
    pub(crate) fn release(&self, client: Client) {
        let mut clients = self.clients.lock();
        clients.holders.remove(&client);
        if let Some(leaving) = clients.leaving.remove(&client) {
            clients.leaving_bytes -= leaving.bytes;
            self.untold.fetch_sub(usize::from(!leaving.is_told), Ordering::Relaxed);
        }
    }

    /// Chooses clients to close if the account is full. Returns true if there are any, or if it has
    /// become tight: then every worker calls [`Self::chosen`], and reports the clients to track.
    pub(crate) fn relieve(&self, now: Instant) -> bool {
        if self.held() <= self.max {
            if self.held() < self.max / 4 * 3 {
                self.is_tight.store(false, Ordering::Relaxed);
            }
            return false;
        }
        let mut clients = self.clients.lock();
        let stays = |clients: &Clients| self.held().saturating_sub(clients.leaving_bytes);
        if stays(&clients) <= self.max {
            return false;
        }
        // Frees some room at once, so that this does not run for each byte.
        let surplus = stays(&clients).saturating_sub(self.max / 8 * 7);
        let chosen = clients.choose(surplus, now);
        self.untold.fetch_add(chosen, Ordering::Relaxed);
        let is_full = stays(&clients) > self.max;
        chosen > 0 || is_full && !self.is_tight.swap(true, Ordering::Relaxed)
    }

    /// The queues of a worker's clients that must be closed; each is returned once.
    pub(crate) fn chosen(&self, worker: usize) -> Vec<u32> {
        if self.untold.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let mut clients = self.clients.lock();
        let mut queues = Vec::new();
        for (client, leaving) in &mut clients.leaving {
            if client.worker == worker && !leaving.is_told {
                leaving.is_told = true;
                queues.push(client.queue);
            }
        }
        self.untold.fetch_sub(queues.len(), Ordering::Relaxed);
        queues
    }
}

impl Clients {
    /// Chooses the clients with the largest product of bytes and time, until they hold `surplus`
    /// bytes together. Returns their number. It examines and sorts each holder once: it runs for an
    /// eighth of the account at a time, however many clients share it.
    fn choose(&mut self, surplus: usize, now: Instant) -> usize {
        let weight = |holder: &Holder| {
            let ms = now.saturating_duration_since(holder.since).as_millis();
            (ms + 1).saturating_mul(holder.bytes as u128)
        };
        let mut by_weight: Vec<(u128, Client, usize)> = Vec::new();
        if by_weight.try_reserve_exact(self.holders.len()).is_err() {
            return 0;
        }
        let holders = self.holders.iter();
        by_weight.extend(holders.map(|(client, holder)| (weight(holder), *client, holder.bytes)));
        by_weight.sort_unstable_by_key(|(weight, ..)| Reverse(*weight));
        let (mut chosen, mut bytes_chosen) = (0, 0);
        for (_, client, bytes) in by_weight {
            if bytes_chosen >= surplus {
                break;
            }
            self.holders.remove(&client);
            self.leaving.insert(client, Leaving { bytes, is_told: false });
            (chosen, bytes_chosen) = (chosen + 1, bytes_chosen + bytes);
        }
        self.leaving_bytes += bytes_chosen;
        chosen
    }
}

impl net::BufferBudget for Budget {
    fn charge(&self, delta: isize) {
        Self::charge(self, delta);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MB: usize = 1 << 20;

    fn client(queue: u32) -> Client {
        Client { worker: 0, queue }
    }

    fn hold(budget: &Budget, queue: u32, bytes: usize, now: Instant) {
        budget.charge(bytes.cast_signed());
        budget.hold(client(queue), bytes, now);
    }

    #[test]
    fn the_longest_and_largest_holder_is_chosen_first() {
        let (budget, start) = (Budget::new(100 * MB), Instant::now());
        let at = |secs| start + Duration::from_secs(secs);
        hold(&budget, 1, 20 * MB, start);
        hold(&budget, 2, 19 * MB, at(9));
        hold(&budget, 3, 60 * MB, at(10));
        assert!(!budget.relieve(at(10)), "there is room");
        hold(&budget, 4, 2 * MB, at(10));
        assert!(budget.relieve(at(10)));
        assert_eq!(budget.chosen(0), [1], "the newest holds more, but has only come");
        assert!(budget.chosen(0).is_empty() && !budget.relieve(at(10)), "once is enough");
        assert!(budget.chosen(1).is_empty());
    }

    #[test]
    fn a_closed_client_is_not_chosen() {
        let (budget, now) = (Budget::new(10 * MB), Instant::now());
        hold(&budget, 1, 20 * MB, now);
        assert!(budget.relieve(now));
        budget.release(client(1));
        budget.charge(-(20 * MB).cast_signed());
        assert!(budget.chosen(0).is_empty());
        assert_eq!(budget.held(), 0);
        hold(&budget, 1, MB, now);
        assert!(!budget.relieve(now), "the number is another client's");
    }

    #[test]
    fn a_full_account_of_small_holders_is_tight_until_relieved() {
        let (budget, now) = (Budget::new(MB), Instant::now());
        budget.charge((2 * MB).cast_signed());
        assert!(budget.relieve(now) && budget.is_tight(), "the workers are to name more");
        assert!(!budget.relieve(now), "they are told once");
        budget.hold(client(1), SMALL_BYTES / 2, now);
        assert!(budget.relieve(now));
        assert_eq!(budget.chosen(0), [1]);
        budget.charge(-(MB + MB / 8).cast_signed());
        assert!(!budget.relieve(now) && budget.is_tight(), "there is little room");
        budget.charge(-(MB / 4).cast_signed());
        assert!(!budget.relieve(now) && !budget.is_tight());
    }
}
