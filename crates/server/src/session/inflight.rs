//! Memory that connections hold while a large value comes or goes, and what happens when it gets
//! too much.
//!
//! The rule: a worker's connections together may hold a share of the memory limit in values being
//! received and in values being sent. Above it
//!
//! * a new large value is refused as "out of memory", its data is swallowed and the connection goes
//!   on; and so that one who stopped half-way cannot keep others out, the receiver that has made no
//!   progress for longest, if that is at least [`STUCK_SECS`], is closed;
//! * a value to append, which is collected outside of the store's memory, is refused even while it
//!   is coming;
//! * large sends leave a quarter of it to values that come, so that nobody who does not read keeps
//!   others from storing;
//! * a new large send waits its turn, in the order of arrival, for [`SEND_PATIENCE`] at most; then
//!   it is refused. Who waits holds nothing: the key is looked up again. Senders that stopped
//!   taking bytes are closed by the event loop's stall timeout.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use net::{ConnId, Waker};

/// A receiver that was silent for so long may be closed in favour of others.
const STUCK_SECS: u32 = 5;

/// The longest wait of a large value for its turn to be sent.
const SEND_PATIENCE: Duration = Duration::from_secs(2);

/// The account of one worker.
#[derive(Debug)]
pub(crate) struct Inflight {
    limit: usize,
    used: Cell<usize>,
    receivers: BTreeMap<u64, Receiver>,
    /// Connections that wait to send, oldest first.
    senders: VecDeque<Sender>,
    /// The connection whose turn it is, taken from the queue.
    called: Option<u64>,
}

/// One that waits to send.
#[derive(Debug)]
struct Sender {
    id: u64,
    conn: ConnId,
    bytes: usize,
    until: Instant,
}

#[derive(Debug)]
struct Receiver {
    bytes: usize,
    moved_at_secs: u32,
    is_cancelled: bool,
    waker: Option<Waker>,
}

impl Inflight {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            used: Cell::new(0),
            receivers: BTreeMap::new(),
            senders: VecDeque::new(),
            called: None,
        }
    }

    /// Begins to account for a receiver that holds `bytes` from the start. False: there is no room.
    pub(crate) fn begin(
        &mut self,
        id: u64,
        bytes: usize,
        now_secs: u32,
        waker: Option<Waker>,
    ) -> bool {
        if !self.has_room(bytes) {
            self.cancel_the_stuck(now_secs);
            return false;
        }
        self.used.set(self.used.get() + bytes);
        let receiver = Receiver { bytes, moved_at_secs: now_secs, is_cancelled: false, waker };
        self.receivers.insert(id, receiver);
        true
    }

    /// The receiver got bytes, and holds `bytes` now. False: it is to be closed.
    pub(crate) fn moved(&mut self, id: u64, bytes: usize, now_secs: u32) -> bool {
        let Some(receiver) = self.receivers.get_mut(&id) else { return true };
        if bytes > receiver.bytes {
            self.used.set(self.used.get() + bytes - receiver.bytes);
            receiver.bytes = bytes;
        }
        receiver.moved_at_secs = now_secs;
        if self.used.get() > self.limit {
            self.cancel_the_stuck(now_secs);
        }
        !self.is_cancelled(id)
    }

    /// Whether this number of bytes more stays within the limit.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.used.get().saturating_add(bytes) <= self.limit
    }

    /// Whether this receiver is to be closed.
    pub(crate) fn is_cancelled(&self, id: u64) -> bool {
        self.receivers.get(&id).is_some_and(|receiver| receiver.is_cancelled)
    }

    /// The receiver holds nothing any more.
    pub(crate) fn end(&mut self, id: u64) {
        if let Some(receiver) = self.receivers.remove(&id) {
            self.used.set(self.used.get() - receiver.bytes);
        }
    }

    /// Whether a large value may have to wait before it is sent.
    #[inline]
    pub(crate) fn is_tight(&self) -> bool {
        self.used.get() > 0 || !self.senders.is_empty()
    }

    /// Whether connection `id` has to wait before it sends `bytes`; it is queued then. `until` is
    /// the connection's own: the end of its patience, kept from its first question to the answer
    /// that it need not wait.
    pub(crate) fn must_wait(
        &mut self,
        id: u64,
        conn: ConnId,
        bytes: usize,
        now: Instant,
        until: &mut Option<Instant>,
    ) -> bool {
        let end = *until.get_or_insert(now + SEND_PATIENCE);
        let first = self.called.or_else(|| self.senders.front().map(|sender| sender.id));
        let has_turn = first.is_none_or(|first| first == id) && self.fits(bytes);
        if has_turn || now >= end {
            self.forget_sender(id);
            *until = None;
            return false;
        }
        if self.called == Some(id) {
            self.called = None;
        }
        if !self.senders.iter().any(|sender| sender.id == id) {
            self.senders.push_back(Sender { id, conn, bytes, until: end });
        }
        true
    }

    /// The next to be served again: there is room for it, or its patience has ended.
    pub(crate) fn call_sender(&mut self, now: Instant) -> Option<ConnId> {
        self.called = None;
        let first = self.senders.front()?;
        if !self.fits(first.bytes) && now < first.until {
            return None;
        }
        let first = self.senders.pop_front()?;
        self.called = Some(first.id);
        Some(first.conn)
    }

    /// When the patience of the first who waits ends.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.senders.front().map(|sender| sender.until)
    }

    /// The connection does not wait any more.
    pub(crate) fn forget_sender(&mut self, id: u64) {
        self.senders.retain(|sender| sender.id != id);
        if self.called == Some(id) {
            self.called = None;
        }
    }

    /// Whether a value of this size may be sent: the first always.
    fn fits(&self, bytes: usize) -> bool {
        let limit = self.limit / 4 * 3;
        self.used.get() == 0 || self.used.get().saturating_add(bytes) <= limit
    }

    /// Accounts for a value about to be sent. False: there is no room.
    pub(crate) fn begin_send(&self, bytes: usize) -> bool {
        let fits = self.fits(bytes);
        if fits {
            self.used.set(self.used.get() + bytes);
        }
        fits
    }

    /// A value was sent, or its connection is gone.
    pub(crate) fn end_send(&self, bytes: usize) {
        self.used.set(self.used.get() - bytes);
    }

    /// Wakes the receiver that was silent for longest, so that its session closes it.
    fn cancel_the_stuck(&mut self, now_secs: u32) {
        let receivers = self.receivers.values_mut().filter(|receiver| !receiver.is_cancelled);
        if let Some(receiver) = receivers.min_by_key(|receiver| receiver.moved_at_secs)
            && now_secs.saturating_sub(receiver.moved_at_secs) >= STUCK_SECS
        {
            receiver.is_cancelled = true;
            if let Some(waker) = &receiver.waker {
                waker.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_was_silent_for_longest_makes_room() {
        let mut inflight = Inflight::new(100);
        assert!(inflight.begin(1, 40, 0, None));
        assert!(inflight.begin(2, 40, 3, None));
        assert!(!inflight.begin(3, 40, 4, None), "over the limit");
        assert!(!inflight.is_cancelled(1), "silent for less than the patience");
        assert!(!inflight.begin(3, 40, 6, None));
        assert!(inflight.is_cancelled(1) && !inflight.is_cancelled(2));
        inflight.end(1);
        assert!(inflight.begin(3, 40, 6, None));
        assert!(!inflight.begin_send(40));
        inflight.end(2);
        assert!(inflight.begin_send(35));
    }

    #[test]
    fn senders_leave_room_for_receivers() {
        let mut inflight = Inflight::new(100);
        assert!(inflight.begin_send(90), "the first is sent, however large");
        inflight.end_send(90);
        assert!(inflight.begin_send(40) && inflight.begin_send(35) && !inflight.begin_send(1));
        assert!(inflight.begin(1, 25, 0, None) && !inflight.begin(2, 1, 0, None));
    }
}
