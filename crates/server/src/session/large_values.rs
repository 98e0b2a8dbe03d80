//! Memory that connections hold while a large value is received or sent, and the limits on it.
//!
//! A worker's connections together may hold a share of the memory limit in values being received
//! and in values being sent. A value that is sent to several connections is counted once, since its
//! memory exists once. Small values, which take no more room than a buffer, always pass. Above the
//! share
//!
//! * a new large value waits for its turn, in the order of arrival, for at most [`PATIENCE`]; then
//!   it is refused as "out of memory". A waiting sender holds nothing: the key is looked up again.
//!   A waiting receiver holds the head of its item, and reads nothing from its socket;
//! * a connection that holds much for long makes room: of those that were silent for
//!   [`SILENT_PATIENCE`] or hold for [`HOLD_PATIENCE`], the one with most bytes times age is
//!   closed, then the next, until there is room. A client that sends an occasional byte is not
//!   spared;
//! * a value to append, which is collected outside of the store's memory, is refused even during
//!   its reception;
//! * large sends leave a quarter to received values, so that clients which do not read cannot keep
//!   others from storing.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use net::ConnId;

/// While others wait, a connection may hold a large value for this time without moving a byte.
const SILENT_PATIENCE: Duration = Duration::from_millis(500);

/// While others wait, a connection may hold a large value for this time.
const HOLD_PATIENCE: Duration = Duration::from_secs(2);

/// The longest wait of a large value for its turn.
const PATIENCE: Duration = Duration::from_secs(5);

/// Values up to this many bytes are always received, regardless of other connections.
pub(super) const SMALL_BYTES: usize = 16 * 1024;

/// One worker's large values in transfer. Requests change the account while they hold items.
#[derive(Debug)]
pub(crate) struct LargeValues {
    account: RefCell<Account>,
    is_tight: Cell<bool>,
}

/// The memory that connections hold, and the waiting connections.
#[derive(Debug)]
pub(super) struct Account {
    limit: usize,
    used: usize,
    /// By session.
    holders: HashMap<u64, Holder>,
    /// Values being sent, by the address of their first byte: each counts once.
    sent: HashMap<usize, Sent>,
    /// Connections that wait for room, oldest first.
    waiting: VecDeque<Waiting>,
    /// The connection whose turn it is, taken from the queue.
    called: Option<u64>,
    /// Before this time no connection has held for long enough to be closed.
    none_due_before: Option<Instant>,
    /// The connections to close.
    revoked: Vec<ConnId>,
}

/// A connection in the middle of a large value.
#[derive(Debug)]
struct Holder {
    /// Known once the session was served as a holder.
    conn: Option<ConnId>,
    bytes: usize,
    /// The address of the value that is being sent; `None` for one being received.
    value: Option<usize>,
    since: Instant,
    moved_at: Instant,
    is_revoked: bool,
}

/// A value that is being sent.
#[derive(Debug)]
struct Sent {
    bytes: usize,
    connections: usize,
}

/// A connection that waits for room.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: u64,
    conn: ConnId,
    need: Need,
    until: Instant,
}

/// The kind of room that a large value needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Receive(usize),
    Send(usize),
}

impl Need {
    fn bytes(self) -> usize {
        match self {
            Self::Receive(bytes) | Self::Send(bytes) => bytes,
        }
    }
}

impl LargeValues {
    /// An account with room for `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self { account: RefCell::new(Account::new(limit)), is_tight: Cell::new(false) }
    }

    /// Changes or queries the account.
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut Account) -> R) -> R {
        let mut account = self.account.borrow_mut();
        let result = act(&mut account);
        let is_idle = account.used == 0 && account.waiting.is_empty() && account.revoked.is_empty();
        self.is_tight.set(!is_idle);
        result
    }

    /// The next waiting connection, if there is room for it or its patience has ended.
    pub(super) fn take_due(&self, now: Instant) -> Option<ConnId> {
        if self.is_tight() { self.with(|account| account.take_due(now)) } else { None }
    }

    /// Adds the connections that have to make room.
    pub(super) fn take_revoked(&self, dropped: &mut Vec<ConnId>) {
        if self.is_tight() {
            self.with(|account| dropped.append(&mut account.revoked));
        }
    }

    /// The time of the next check on waiting connections.
    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.is_tight() { self.with(|account| account.deadline()) } else { None }
    }

    /// True if a large value may have to wait before it is sent. Checked for each key that is read.
    #[inline]
    pub(super) fn is_tight(&self) -> bool {
        self.is_tight.get()
    }
}

impl Account {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            used: 0,
            holders: HashMap::new(),
            sent: HashMap::new(),
            waiting: VecDeque::new(),
            called: None,
            none_due_before: None,
            revoked: Vec::new(),
        }
    }

    /// Accounts for a value whose reception on this connection starts and that holds `bytes` from
    /// the start.
    pub(super) fn begin_receiving(
        &mut self,
        id: u64,
        conn: Option<ConnId>,
        bytes: usize,
        now: Instant,
    ) {
        self.used += bytes;
        self.hold(id, (conn, None), bytes, now);
        if self.used > self.limit {
            self.make_room(Need::Receive(0), now);
        }
    }

    fn hold(
        &mut self,
        id: u64,
        (conn, value): (Option<ConnId>, Option<usize>),
        bytes: usize,
        now: Instant,
    ) {
        let (since, moved_at) = (now, now);
        let holder = Holder { conn, bytes, value, since, moved_at, is_revoked: false };
        self.holders.insert(id, holder);
    }

    /// Notes that the session is served over this connection. False: it has to make room, and the
    /// caller closes it.
    pub(super) fn go_on(&mut self, id: u64, conn: Option<ConnId>) -> bool {
        let Some(holder) = self.holders.get_mut(&id) else { return true };
        holder.conn = conn;
        !holder.is_revoked
    }

    /// Notes that the receiver holds `bytes` after more have arrived.
    pub(super) fn received(&mut self, id: u64, bytes: usize, now: Instant) {
        let Some(holder) = self.holders.get_mut(&id).filter(|holder| !holder.is_revoked) else {
            return;
        };
        holder.moved_at = now;
        let more = bytes.saturating_sub(holder.bytes);
        holder.bytes += more;
        self.used += more;
        if self.used > self.limit {
            self.make_room(Need::Receive(0), now);
        }
    }

    /// Accounts for a value that is about to be sent to connection `id`; `address` is that of its
    /// first byte. False: there is no room.
    pub(super) fn begin_sending(
        &mut self,
        id: u64,
        address: usize,
        bytes: usize,
        now: Instant,
    ) -> bool {
        if !self.sent.contains_key(&address) && !self.make_room(Need::Send(bytes), now) {
            return false;
        }
        let sent = self.sent.entry(address).or_insert(Sent { bytes, connections: 0 });
        if sent.connections == 0 {
            self.used += bytes;
        }
        sent.connections += 1;
        self.hold(id, (None, Some(address)), bytes, now);
        true
    }

    /// The sender's socket took bytes.
    pub(super) fn moved(&mut self, id: u64, now: Instant) {
        if let Some(holder) = self.holders.get_mut(&id) {
            holder.moved_at = now;
        }
    }

    /// Notes that the connection no longer holds anything.
    pub(super) fn end(&mut self, id: u64) {
        if let Some(holder) = self.holders.remove(&id).filter(|holder| !holder.is_revoked) {
            self.release(&holder);
        }
    }

    /// True if there is room for this now, after revoking the slowest connections.
    pub(super) fn make_room(&mut self, need: Need, now: Instant) -> bool {
        while !self.fits(need) {
            if self.none_due_before.is_some_and(|due| now < due) {
                return false;
            }
            let Some(id) = self.slowest(now) else {
                self.none_due_before = Some(self.next_due(now));
                return false;
            };
            self.revoke(id);
        }
        true
    }

    /// True if this worker is sending the value that starts at this address.
    pub(super) fn is_sent(&self, address: usize) -> bool {
        self.sent.contains_key(&address)
    }

    /// True if connection `id` has to wait for room; it is queued then. `until` is the connection's
    /// own: the end of its patience, kept from its first call until it need not wait.
    pub(super) fn must_wait(
        &mut self,
        id: u64,
        conn: ConnId,
        need: Need,
        now: Instant,
        until: &mut Option<Instant>,
    ) -> bool {
        let first = self.called.or_else(|| self.waiting.front().map(|waiting| waiting.id));
        let has_turn = first.is_none_or(|first| first == id) && self.make_room(need, now);
        let end = *until.get_or_insert(now + PATIENCE);
        if has_turn || now >= end {
            self.forget_waiting(id);
            *until = None;
            return false;
        }
        if self.called == Some(id) {
            self.called = None;
        }
        if !self.waiting.iter().any(|waiting| waiting.id == id) {
            self.waiting.push_back(Waiting { id, conn, need, until: end });
        }
        true
    }

    fn take_due(&mut self, now: Instant) -> Option<ConnId> {
        self.called = None;
        let &Waiting { id, conn, need, until } = self.waiting.front()?;
        if now < until && !self.make_room(need, now) {
            return None;
        }
        self.waiting.pop_front();
        self.called = Some(id);
        Some(conn)
    }

    fn deadline(&self) -> Option<Instant> {
        let first = self.waiting.front()?;
        Some(self.none_due_before.map_or(first.until, |due| due.min(first.until)))
    }

    /// Removes the connection from the waiting ones.
    pub(super) fn forget_waiting(&mut self, id: u64) {
        self.waiting.retain(|waiting| waiting.id != id);
        if self.called == Some(id) {
            self.called = None;
        }
    }

    /// True if there is room. If nothing else is held, a value of any size is sent.
    fn fits(&self, need: Need) -> bool {
        let all = self.used.saturating_add(need.bytes());
        match need {
            Need::Receive(_) => all <= self.limit,
            Need::Send(_) => self.used == 0 || all <= self.limit / 4 * 3,
        }
    }

    /// The connection that has held most for longest, of those that may be closed.
    fn slowest(&self, now: Instant) -> Option<u64> {
        // Closing one that holds nothing yet would make no room.
        let is_due =
            |holder: &Holder| holder.bytes > 0 && holder.due().is_some_and(|due| due <= now);
        let due = self.holders.iter().filter(|(_, holder)| is_due(holder));
        let cost = |holder: &Holder| {
            let age_ms = now.saturating_duration_since(holder.since).as_millis();
            (holder.bytes as u128).saturating_mul(age_ms)
        };
        due.max_by_key(|(_, holder)| cost(holder)).map(|(id, _)| *id)
    }

    /// The time when the next connection may be closed; later ones are not due before it.
    fn next_due(&self, now: Instant) -> Instant {
        let later = now + SILENT_PATIENCE;
        let holders = self.holders.values().filter(|holder| holder.bytes > 0);
        holders.filter_map(Holder::due).min().map_or(later, |due| due.min(later))
    }

    /// Revokes a connection. Its memory counts as free from now on, though it is freed only when
    /// the connection is closed at the end of this turn.
    fn revoke(&mut self, id: u64) {
        let Some(mut holder) = self.holders.remove(&id) else { return };
        self.release(&holder);
        self.revoked.extend(holder.conn);
        holder.is_revoked = true;
        self.holders.insert(id, holder);
    }

    fn release(&mut self, holder: &Holder) {
        let Some(address) = holder.value else {
            self.used -= holder.bytes;
            return;
        };
        let Some(sent) = self.sent.get_mut(&address) else { return };
        sent.connections -= 1;
        if sent.connections == 0 {
            self.used -= sent.bytes;
            self.sent.remove(&address);
        }
    }
}

impl Holder {
    /// The time when the connection may be closed for others; `None` if it was already revoked.
    fn due(&self) -> Option<Instant> {
        let due = (self.moved_at + SILENT_PATIENCE).min(self.since + HOLD_PATIENCE);
        (!self.is_revoked).then_some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Account {
        pub(in super::super) fn is_revoked(&self, id: u64) -> bool {
            self.holders.get(&id).is_some_and(|holder| holder.is_revoked)
        }
    }

    /// An account of 100 bytes, and a clock that starts at 0 ms.
    fn account() -> (Account, impl Fn(u64) -> Instant) {
        let start = Instant::now();
        (Account::new(100), move |ms| start + Duration::from_millis(ms))
    }

    #[test]
    fn silent_senders_are_revoked_to_make_room() {
        let (mut account, at) = account();
        account.begin_receiving(1, None, 40, at(0));
        account.begin_receiving(2, None, 40, at(300));
        assert!(!account.make_room(Need::Receive(40), at(400)), "nobody is due");
        assert!(account.make_room(Need::Receive(40), at(500)));
        assert!(account.is_revoked(1) && !account.is_revoked(2));
        account.begin_receiving(3, None, 40, at(500));
        account.end(1);
        assert_eq!(account.used, 80, "what was revoked is not given back twice");
    }

    #[test]
    fn clients_holding_nothing_are_spared() {
        let (mut account, at) = account();
        account.begin_receiving(1, None, 0, at(0));
        account.begin_receiving(2, None, 100, at(100));
        assert!(!account.make_room(Need::Receive(101), at(2000)), "more than there is");
        assert!(account.is_revoked(2) && !account.is_revoked(1));
    }

    #[test]
    fn slow_transfers_do_not_prevent_revocation() {
        let (mut account, at) = account();
        account.begin_receiving(1, None, 80, at(0));
        for ms in (100..=2000).step_by(100) {
            account.received(1, 90 + ms / 100, at(ms as u64));
        }
        assert!(account.is_revoked(1), "over the limit for more than two seconds");
        assert_eq!(account.used, 0);
    }

    #[test]
    fn the_largest_and_longest_holder_is_revoked_first() {
        let (mut account, at) = account();
        account.begin_receiving(1, None, 10, at(0));
        account.begin_receiving(2, None, 50, at(500));
        account.begin_receiving(3, None, 40, at(700));
        assert!(account.make_room(Need::Receive(1), at(3000)));
        assert!(account.is_revoked(2) && !account.is_revoked(1) && !account.is_revoked(3));
    }

    #[test]
    fn a_value_sent_to_many_clients_counts_once() {
        let (mut account, at) = account();
        for id in 0..10 {
            assert!(account.begin_sending(id, 0x1000, 70, at(0)));
        }
        assert_eq!(account.used, 70);
        assert!(!account.begin_sending(10, 0x2000, 70, at(0)), "another value");
        (0..10).for_each(|id| account.end(id));
        assert_eq!(account.used, 0);
        assert!(account.sent.is_empty() && account.holders.is_empty());
    }

    #[test]
    fn senders_leave_room_for_receivers() {
        let (mut account, at) = account();
        assert!(account.begin_sending(1, 0x1000, 90, at(0)), "the first, however large");
        account.end(1);
        assert!(account.begin_sending(1, 0x1000, 40, at(0)));
        assert!(account.begin_sending(2, 0x2000, 35, at(0)));
        assert!(!account.begin_sending(3, 0x3000, 1, at(0)));
        assert!(account.make_room(Need::Receive(25), at(0)));
    }

    #[test]
    fn an_active_receiver_is_spared_for_two_seconds() {
        let (mut account, at) = account();
        assert!(account.begin_sending(1, 0x1000, 70, at(0)));
        for ms in [400, 800, 1200, 1600] {
            account.moved(1, at(ms));
            assert!(!account.make_room(Need::Send(70), at(ms + 300)));
        }
        assert!(account.make_room(Need::Send(70), at(2000)));
        assert!(account.is_revoked(1));
    }

    #[test]
    fn no_search_happens_before_a_transfer_is_due() {
        let (mut account, at) = account();
        account.begin_receiving(1, None, 100, at(0));
        assert!(!account.make_room(Need::Receive(1), at(100)));
        assert_eq!(account.none_due_before, Some(at(500)));
        assert!(account.make_room(Need::Receive(1), at(500)));
    }
}
