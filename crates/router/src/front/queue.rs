//! The replies owed to a client connection, in the order of its requests.
//!
//! ```text
//!     request -> slot at the back -> ticket to the core
//!     answer with the ticket -> bytes in the heap, slot ready
//!     ready slots at the front -> output
//! ```
//!
//! Every key of a multiget has its own slot, followed by one for the line's END. Answers may arrive
//! in any order; they leave in the order of the slots.
//!
//! # Laws
//!
//! 1. A queue's number is reused only when all of its tickets are answered. So an answer never goes
//!    to another client than the requester.
//! 2. Replies leave only from the front of a queue.
//! 3. Only slots refer to places in the heap. It is cleared, or given away, as soon as there are
//!    none, possibly during a request with outstanding keys. Before it grows, it is replaced if no
//!    slot refers to half of it.
//! 4. A place in a heap and the number of slots or queues fit 32 bits: twice the sum of
//!    [`HEAP_BYTES_CUT`] and one reply limits a heap, and the number of connections limits the
//!    others.
//!
//! The memory of a queue is counted where it changes, and reported to all workers' account
//! ([`super::account`]) at the end of the turn. The list of queues is not a ready-made slab,
//! because a closed queue keeps its number until its tickets are answered.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Instant;

use narrow::to_u32;
use net::{ConnId, Output};
use upstream::{
    Command, CommandClass, Count, Event, Exchange, Failure, Reply, Sink, Ticket, Traffic,
};

use super::account::{Account, Holding};
use super::admission::{Admission, Expected};
use super::format;
use super::slot::{Kind, Slot};
use super::spares::Spares;
use super::trace::Open;
use super::watch::Reporter;

/// Maximum slots of one connection; no further requests are read until there are fewer.
pub(crate) const SLOTS_MAX: usize = 1024;

/// Bytes of answers that one connection may keep waiting; no further requests are read until all
/// have left.
pub(crate) const HEAP_BYTES_MAX: usize = 256 * 1024;

/// Maximum bytes of waiting replies; later values become errors. Requests sent before the limit
/// above was reached may ask for many large values. Small replies never become errors: a client
/// must learn whether its stores and deletes were executed, and they take little memory.
const HEAP_BYTES_CUT: usize = 32 << 20;

/// The error for them.
static TOO_MUCH: Reply<'static> = Reply::failed(Failure::Busy, b"out of memory writing reply");

/// Maximum bytes of values that one connection has on their way to servers, plus expected replies;
/// no further requests are read until there are fewer.
const ASKED_BYTES_MAX: usize = 4 << 20;
const EXPECTED_BYTES_MAX: usize = 8 << 20;

/// Maximum count of consecutive small replies.
const SMALL_REPLIES_MAX: u16 = 4096;

/// Maximum bytes of one reply in addition to its value, words and key.
const REPLY_REST_BYTES: usize = 512;

/// The size from which a reply is written without a copy: a write costs less than the copy.
const UNCOPIED_BYTES: usize = 32 * 1024;

/// Capacity that an idle connection keeps, in bytes of answers and in slots.
const HEAP_KEPT: usize = 4096;
const SLOTS_KEPT: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Queue {
    conn: Option<ConnId>,
    slots: VecDeque<Slot>,
    /// The number of the first slot.
    base: u32,
    heap: Vec<u8>,
    /// Bytes of the heap to which no slot refers any more.
    unused_bytes: usize,
    /// Unanswered tickets.
    outstanding: u32,
    /// Bytes of their requests' values.
    asked_bytes: usize,
    /// Capacity of the request that is being received.
    pub(super) receiving_bytes: usize,
    /// Bytes of the first slot's reply that have left.
    sent: u32,
    /// The recent size of large replies.
    reply_bytes: usize,
    /// Small replies since the last large one.
    small_replies: u16,
    /// Large replies on their way, by estimate.
    expected: Expected,
    holding: Holding,
    is_resumed: bool,
    /// No further request is read until all are answered: it could overtake one in several steps.
    is_input_held: bool,
    /// There was no memory for a reply, so the connection must be closed.
    is_broken: bool,
    /// The first error on the retrieval line at the front. It is a copy, since everything in the
    /// heap may leave, and the heap be reused, before the line's end comes.
    line_error: Option<Box<[u8]>>,
}

/// The queues of one worker's connections.
#[derive(Debug)]
pub(crate) struct Queues {
    queues: Vec<Queue>,
    free: Vec<u32>,
    spares: Spares,
    /// Connections whose first slot has become ready.
    pub(crate) resumed: Vec<ConnId>,
    pub(super) reporter: Reporter,
    pub(super) account: Account,
    pub(super) admission: Admission,
    /// Counts requests and their replies.
    traffic: Arc<Traffic>,
    /// Spans of traced requests.
    pub(super) open: Open,
}

impl Queues {
    pub(super) fn new(reporter: Reporter, account: Account, traffic: Arc<Traffic>) -> Self {
        let (queues, free, spares, resumed) = Default::default();
        let admission = Admission::new(Instant::now());
        let open = Open::default();
        Self { queues, free, spares, resumed, reporter, account, admission, traffic, open }
    }

    /// Returns true if this queue owes no reply.
    pub(crate) fn is_empty(&self, number: u32) -> bool {
        self.queues.get(number as usize).is_none_or(Queue::is_empty)
    }

    pub(crate) fn open(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.queues.push(Queue::default());
            to_u32(self.queues.len() - 1)
        })
    }

    /// Records that the connection has gone. The number is free after the last answer.
    pub(crate) fn close(&mut self, number: u32) {
        let queue = &mut self.queues[number as usize];
        self.account.closed(number, &queue.holding);
        let (outstanding, expected) = (queue.outstanding, queue.expected);
        let (base, expected_left) = (queue.base, expected.closed());
        *queue = Queue { outstanding, base, expected: expected_left, ..Queue::default() };
        if outstanding == 0 {
            self.free.push(number);
        }
        if expected.is_waiting() && self.admission.leave() {
            let queues = &self.queues;
            self.admission.retain(|number| queues[number as usize].expected.is_waiting());
        }
    }

    #[inline]
    pub(crate) fn get(&mut self, number: u32) -> &mut Queue {
        &mut self.queues[number as usize]
    }

    /// Returns true if there is no place for another request of this queue.
    #[inline]
    pub(crate) fn is_full(&mut self, number: u32) -> bool {
        let is_pressed = self.account.is_pressed();
        let queue = self.get(number);
        queue.is_full() || is_pressed && queue.expects_replies_of_unknown_size()
    }

    /// Lets no further request of the ticket's client overtake this one.
    #[cold]
    pub(crate) fn hold_input(&mut self, ticket: Ticket) {
        self.get((ticket >> 32) as u32).is_input_held = true;
    }

    /// Returns true if the queue's client may send: its reply is likely small, or there is room for
    /// a large one. Otherwise, [`Self::admit_waiting`] resumes it.
    #[inline]
    pub(crate) fn admits(&mut self, number: u32) -> bool {
        let queue = &mut self.queues[number as usize];
        queue.expects_small_replies() || self.admission.admits(number, &mut queue.expected)
    }

    /// Resumes connections that wait for room, as far as there is some.
    pub(super) fn admit_waiting(&mut self) {
        let mut promised = 0;
        while let Some(number) = self.admission.next(promised) {
            let queue = &mut self.queues[number as usize];
            if self.admission.admit(&mut queue.expected) {
                promised += self.admission.guess(queue.reply_bytes);
                if let Some(conn) = queue.conn
                    && !queue.is_resumed
                {
                    queue.is_resumed = true;
                    self.resumed.push(conn);
                }
            }
        }
    }

    /// Sends ready replies. Returns false if the output is full.
    #[inline]
    pub(super) fn drain(&mut self, number: u32, output: &mut Output<'_>) -> bool {
        let queue = &mut self.queues[number as usize];
        if queue.is_awaiting() {
            return true;
        }
        let has_room = queue.drain(output);
        if queue.slots.is_empty() {
            self.rest(number);
        }
        has_room
    }

    /// Frees unused spare memory.
    #[cold]
    pub(super) fn give_back_spares(&mut self) {
        self.spares.clear();
    }

    /// Frees used memory after everything has left.
    fn rest(&mut self, number: u32) {
        let queue = &mut self.queues[number as usize];
        queue.reply_bytes /= 2;
        queue.unused_bytes = 0;
        if queue.heap.capacity() <= HEAP_KEPT {
            queue.heap.clear();
        } else {
            self.spares.keep_heap(std::mem::take(&mut queue.heap));
        }
        if queue.slots.capacity() > SLOTS_KEPT {
            self.spares.keep_slots(std::mem::take(&mut queue.slots));
        }
        if self.account.is_tight() {
            self.spares.clear();
        }
    }

    /// Counts the queue's memory.
    #[inline]
    pub(super) fn recount(&mut self, number: u32) {
        let queue = &mut self.queues[number as usize];
        if self.account.is_tight() {
            queue.give_back_kept();
        }
        let held = queue.held();
        if held != queue.holding.charged {
            self.account.count(number, &mut queue.holding, held);
        }
    }

    /// Counts all queues again, after a change of tightness.
    #[cold]
    fn recount_all(&mut self) {
        for (number, queue) in (0..).zip(&mut self.queues).filter(|(_, queue)| queue.conn.is_some())
        {
            if self.account.is_tight() {
                queue.give_back_kept();
            }
            let held = queue.held();
            self.account.count(number, &mut queue.holding, held);
        }
    }

    /// Reports to the account at a turn's end. Returns true if any worker must close clients.
    pub(super) fn settle(&mut self) -> bool {
        if self.account.is_changed() {
            self.recount_all();
        }
        let is_told = self.account.tell();
        while let Some(number) = self.account.next() {
            self.account.name(number, &mut self.queues[number as usize].holding);
        }
        let is_relieved = is_told && self.account.relieve();
        for number in self.account.chosen() {
            self.account.dropped.extend(self.queues[number as usize].conn);
        }
        is_relieved
    }

    /// Adds a slot whose answer comes later; returns its ticket. `client_key` is set if servers see
    /// another key.
    #[inline]
    pub(crate) fn push(&mut self, number: u32, mut slot: Slot, client_key: &[u8]) -> Ticket {
        self.traffic.count(Count::Asked(slot.op));
        let queue = &mut self.queues[number as usize];
        if !client_key.is_empty() {
            (slot.start, slot.len) = queue.append(client_key);
        }
        if queue.slots.capacity() == 0 {
            queue.slots = self.spares.slots();
        }
        if slot.op.class() == CommandClass::Get && !queue.expects_small_replies() {
            let bytes = self.admission.guess(queue.reply_bytes);
            self.admission.ask(&mut queue.expected, bytes);
        }
        let seq = queue.base.wrapping_add(to_u32(queue.slots.len()));
        queue.asked_bytes += slot.asked_bytes as usize;
        queue.slots.push_back(slot);
        queue.outstanding += 1;
        u64::from(number) << 32 | u64::from(seq)
    }
}

impl Sink for Queues {
    fn exchanged(&mut self, exchange: &Exchange<'_>, reply: &Reply<'_>) {
        self.reporter.exchanged(exchange, reply);
    }

    #[inline]
    fn answer(&mut self, ticket: Ticket, reply: &Reply<'_>) {
        self.traffic.replied(reply.outcome);
        self.open.answered(ticket, reply.outcome);
        let (number, seq) = ((ticket >> 32) as u32, (ticket & 0xffff_ffff) as u32);
        let Some(queue) = self.queues.get_mut(number as usize) else { return };
        let value_bytes = reply.words.len() + reply.value.len();
        if queue.expected.is_any() {
            self.admission.answered(&mut queue.expected, queue.outstanding);
            if queue.reply_bytes == 0 {
                self.admission.learn(value_bytes);
            }
        }
        queue.outstanding -= 1;
        queue.is_input_held &= queue.outstanding > 0;
        let Some(conn) = queue.conn else {
            if queue.outstanding == 0 {
                self.free.push(number);
            }
            return;
        };
        let index = seq.wrapping_sub(queue.base) as usize;
        let Some(mut slot) = queue.slots.get_mut(index) else { return };
        queue.asked_bytes -= slot.asked_bytes as usize;
        slot.asked_bytes = 0;
        let waiting_bytes = queue.heap.len() - queue.unused_bytes;
        let is_cut = value_bytes > HEAP_KEPT && waiting_bytes > HEAP_BYTES_CUT;
        let (reply, value_bytes) =
            if is_cut { (&TOO_MUCH, TOO_MUCH.value.len()) } else { (reply, value_bytes) };
        let needed = REPLY_REST_BYTES + slot.len as usize + value_bytes;
        let is_small = value_bytes <= HEAP_KEPT;
        queue.small_replies =
            if is_small { (queue.small_replies + 1).min(SMALL_REPLIES_MAX) } else { 0 };
        let lacks_room = queue.heap.capacity() - queue.heap.len() < needed;
        if lacks_room {
            if !queue.make_room(needed, &mut self.spares) {
                queue.give_up();
                self.account.dropped.push(conn);
                return;
            }
            let Some(moved) = queue.slots.get_mut(index) else { return };
            slot = moved;
        }
        let start = queue.heap.len();
        let client_key = (slot.start as usize, slot.len as usize);
        let grows = lacks_room && value_bytes.max(start) > HEAP_KEPT;
        if grows {
            queue.reply_bytes = needed.max(queue.reply_bytes / 2);
        }
        self.traffic.answered(slot.op, reply.outcome);
        if let Some(failure) = reply.outcome.failure() {
            count_error(&self.traffic, slot.op, failure);
        }
        slot.is_error = format::reply(&mut queue.heap, slot, client_key, reply);
        if slot.kind == Kind::OnlyKey && !slot.is_error {
            queue.heap.extend_from_slice(proto::reply::END);
        }
        queue.unused_bytes += client_key.1;
        slot.is_ready = true;
        (slot.start, slot.len) = (to_u32(start), to_u32(queue.heap.len() - start));
        if index == 0 && !queue.is_resumed {
            queue.is_resumed = true;
            self.resumed.push(conn);
        }
        // Small changes are counted when the connection is served.
        if grows {
            self.recount(number);
        }
    }
}

/// Counts an error answer to a client.
#[cold]
fn count_error(traffic: &Traffic, op: Command, failure: Failure) {
    let is_here = failure == Failure::LocalError;
    traffic.event(Event::RepliedError);
    traffic.count(if is_here { Count::FailedHere(op) } else { Count::FailedThere(op) });
}

impl Queue {
    /// Makes answers resume this connection from now on.
    pub(crate) fn serve(&mut self, conn: Option<ConnId>) {
        self.conn = conn;
        self.is_resumed = false;
    }

    /// The connection that answers resume.
    pub(super) const fn conn(&self) -> Option<ConnId> {
        self.conn
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns true if the next reply to leave is outstanding.
    #[inline]
    fn is_awaiting(&self) -> bool {
        self.slots.front().is_some_and(|slot| !slot.is_ready)
    }

    /// Returns true if there is no place for another request.
    #[inline]
    fn is_full(&self) -> bool {
        self.is_input_held
            || self.slots.len() >= SLOTS_MAX
            || self.heap.len() >= HEAP_BYTES_MAX
            || self.asked_bytes >= ASKED_BYTES_MAX
            || self.reply_bytes.saturating_mul(self.outstanding as usize) >= EXPECTED_BYTES_MAX
    }

    /// True if its last replies were small, at least as many as outstanding with the next one.
    #[inline]
    fn expects_small_replies(&self) -> bool {
        self.outstanding < u32::from(self.small_replies)
    }

    /// True if more replies are outstanding than small ones came in a row: the next may be large,
    /// and another request would be sent before that is known.
    fn expects_replies_of_unknown_size(&self) -> bool {
        self.outstanding > u32::from(self.small_replies)
    }

    /// Returns true if there was no memory for a reply, so that the connection must be closed.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Frees everything; the connection is closed at the end of the turn.
    #[cold]
    fn give_up(&mut self) {
        (self.heap, self.slots) = (Vec::new(), VecDeque::new());
        (self.asked_bytes, self.unused_bytes, self.is_broken) = (0, 0, true);
    }

    /// Makes room for `needed` more bytes of replies. If no slot refers to most of a large heap,
    /// only the rest is kept, in another heap. Returns false without memory.
    #[inline(never)]
    fn make_room(&mut self, needed: usize, spares: &mut Spares) -> bool {
        let waiting_bytes = self.heap.len() - self.unused_bytes;
        if self.unused_bytes < HEAP_BYTES_MAX.max(waiting_bytes) {
            return spares.grow(&mut self.heap, needed);
        }
        let mut heap = Vec::new();
        if !spares.grow(&mut heap, waiting_bytes + needed) {
            return false;
        }
        for slot in &mut self.slots {
            let place = slot.start as usize..slot.start as usize + slot.len as usize;
            slot.start = to_u32(heap.len());
            heap.extend_from_slice(self.heap.get(place).unwrap_or_default());
        }
        self.heap = heap;
        self.unused_bytes = 0;
        true
    }

    /// The proxy memory that the client holds, in bytes.
    #[inline]
    fn held(&self) -> usize {
        let slots = self.slots.capacity() * size_of::<Slot>();
        let line_error = self.line_error.as_ref().map_or(0, |error| error.len());
        self.heap.capacity() + slots + line_error + self.asked_bytes + self.receiving_bytes
    }

    /// Adds a reply that is already known.
    pub(crate) fn push_ready(&mut self, bytes: &[u8]) {
        let (start, len) = self.append(bytes);
        self.slots.push_back(Slot {
            is_ready: true,
            start,
            len,
            ..Slot::new(Command::Get, Kind::Whole)
        });
    }

    /// Adds a reply that is already known, written by `write`.
    pub(crate) fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.push_written(Slot::new(Command::Get, Kind::Whole), |heap| {
            write(heap);
            false
        });
    }

    /// Adds the reply to `slot`, written by `write`, which returns whether it is an error.
    pub(crate) fn push_written(&mut self, slot: Slot, write: impl FnOnce(&mut Vec<u8>) -> bool) {
        let start = self.heap.len();
        let is_error = write(&mut self.heap);
        let len = to_u32(self.heap.len() - start);
        self.slots.push_back(Slot { is_ready: true, is_error, start: to_u32(start), len, ..slot });
    }

    /// Adds the end of a retrieval line.
    #[inline]
    pub(crate) fn push_end(&mut self) {
        self.slots.push_back(Slot { is_ready: true, ..Slot::new(Command::Get, Kind::End) });
    }

    fn append(&mut self, bytes: &[u8]) -> (u32, u32) {
        let start = self.heap.len();
        self.heap.extend_from_slice(bytes);
        (to_u32(start), to_u32(bytes.len()))
    }

    /// Sends ready replies at the front: large ones without a copy, small ones together. Returns
    /// false if the output is full.
    fn drain(&mut self, output: &mut Output<'_>) -> bool {
        if self.is_broken {
            // The client would take the next reply for the lost one.
            return false;
        }
        while let Some(slot) = self.slots.front()
            && slot.is_ready
        {
            let (slot, end) = (*slot, slot.start as usize + slot.len as usize);
            let reply = self.heap.get(slot.start as usize..end).unwrap_or_default();
            let bytes = match slot.kind {
                Kind::Key if slot.is_error => {
                    self.line_error.get_or_insert_with(|| reply.into());
                    b""
                }
                Kind::Key => reply,
                Kind::OnlyKey | Kind::Whole => {
                    // The error of a line that was refused later precedes those of its keys.
                    self.line_error = None;
                    reply
                }
                Kind::End => self.line_error.as_deref().unwrap_or(proto::reply::END),
            };
            if bytes.len() >= UNCOPIED_BYTES {
                let left = bytes.get(self.sent as usize..).unwrap_or_default();
                let taken = output.write_through(&[IoSlice::new(left)]).unwrap_or(0);
                if taken < left.len() {
                    self.sent += to_u32(taken);
                    return false;
                }
                self.sent = 0;
            } else {
                output.buf().extend_from_slice(bytes);
            }
            if slot.kind == Kind::End {
                self.line_error = None;
            }
            self.slots.pop_front();
            self.unused_bytes += slot.len as usize;
            self.base = self.base.wrapping_add(1);
            if output.is_full() && !output.flush() {
                return false;
            }
        }
        true
    }

    /// Frees memory kept for further requests, if there are none now.
    #[cold]
    fn give_back_kept(&mut self) {
        if self.slots.is_empty() {
            (self.heap, self.slots) = (Vec::new(), VecDeque::new());
        }
    }
}
