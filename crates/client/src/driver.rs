//! Drives a [`Core`]: takes callers' requests and puts replies into their slots. The driving thread
//! changes: see [`crate::driver_handoff`].
//!
//! A turn follows a sleep until the eventfd is written, a server sends, or a timer expires. It
//! reads from servers, takes the inbox, and sends.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Instant;

use crate::job::Job;
use crate::slot::{Slot, token_of};
use routes::{Core, Submitted};
use upstream::system::now;
use upstream::{Command, Failure, Outcome, OwnedReply, Reply, Request, Sink, Ticket};

/// The core of the routes with its waiting calls; one thread at a time drives it.
pub(crate) struct Driver {
    core: Core,
    tickets: Tickets,
    expiries: BinaryHeap<Reverse<Expiry>>,
    /// Callers that wait until everything is answered.
    resting: Vec<Arc<Slot>>,
    /// Empty, kept for its memory.
    jobs: Vec<Job>,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("live", &self.tickets.live).finish_non_exhaustive()
    }
}

impl Driver {
    pub(crate) fn new(core: Core) -> Self {
        let (tickets, expiries, resting, jobs) = Default::default();
        Self { core, tickets, expiries, resting, jobs }
    }

    /// The number of answers since the last call.
    pub(crate) const fn answered(&mut self) -> usize {
        std::mem::replace(&mut self.tickets.answered, 0)
    }

    /// Returns true if no caller waits for an answer.
    pub(crate) const fn is_idle(&self) -> bool {
        self.tickets.live == 0
    }

    /// Readable when a server has sent data.
    pub(crate) fn poller(&self) -> BorrowedFd<'_> {
        self.core.poller()
    }

    /// Does the pending work. `take_jobs` moves new jobs into the vector, and returns whether no
    /// more will come. Returns true if that was the last.
    pub(crate) fn turn(&mut self, take_jobs: impl FnOnce(&mut Vec<Job>) -> bool) -> bool {
        self.core.turn(now());
        self.core.on_events(&mut self.tickets);
        self.give_back();
        self.wake_unless_idle();
        let is_closed = take_jobs(&mut self.jobs);
        let mut jobs = std::mem::take(&mut self.jobs);
        jobs.drain(..).for_each(|job| self.take(job));
        self.jobs = jobs;
        self.core.settle(&mut self.tickets);
        // The replies of routes that are tasks came just now, and this may be the last turn.
        while self.give_back() {
            self.core.settle(&mut self.tickets);
        }
        self.expire();
        self.wake_unless_idle();
        if !self.is_idle() {
            return false;
        }
        let rested = self.resting.drain(..);
        let rested = rested.filter_map(|slot| slot.answer(0, OwnedReply::of(Outcome::Ok)));
        self.tickets.wakers.extend(rested);
        is_closed
    }

    /// Wakes the answered callers, if more answers are outstanding. Otherwise [`Self::take_wakers`]
    /// does it when the driver is free: a lone caller woken earlier, on the same processor, would
    /// find it taken each time.
    fn wake_unless_idle(&mut self) {
        if !self.is_idle() {
            self.wake();
        }
    }

    /// Wakes the answered callers.
    pub(crate) fn wake(&mut self) {
        self.tickets.wakers.drain(..).for_each(Waker::wake);
    }

    /// The answered callers, to be woken.
    pub(crate) fn take_wakers(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.tickets.wakers)
    }

    /// The time of the next work if no event comes.
    pub(crate) fn due(&self) -> Option<Instant> {
        let next = self.expiries.peek().map(|Reverse(expiry)| expiry.at);
        next.into_iter().chain(self.core.deadline()).min()
    }

    /// Returns the leases of departed callers, because no other client would get one for a lease's
    /// lifetime. Returns true if there were any.
    fn give_back(&mut self) -> bool {
        let orphans = std::mem::take(&mut self.tickets.orphans);
        let had_orphans = !orphans.is_empty();
        for (key, token) in orphans {
            let (exptime, number) = (-1, token);
            let request = Request { exptime, number, ..Request::new(Command::LeaseSet, &key) };
            let ticket = self.tickets.add(Slot::new(0), OWN);
            if let Submitted::Done(reply) = self.core.submit(&request, ticket) {
                self.tickets.close(ticket, reply);
            }
        }
        had_orphans
    }

    fn take(&mut self, job: Job) {
        match job {
            Job::Ask { request, slot, index } => {
                let ticket = self.tickets.add(slot, index);
                if let Submitted::Done(reply) = self.core.submit(&request.get(), ticket) {
                    self.tickets.close(ticket, reply);
                }
            }
            Job::AskAll { request, slot } => {
                let ticket = self.tickets.add(slot, 0);
                self.core.submit_to_all(&request.get(), ticket);
            }
            Job::Expire { at, slot } => self.expiries.push(Reverse(Expiry { at, slot })),
            Job::Replace(plan) => self.core.replace(|upstream| plan.tree(upstream)),
            Job::AwaitIdle(slot) => self.resting.push(slot),
        }
    }

    /// Fails the calls whose deadline has passed.
    fn expire(&mut self) {
        let now = now();
        while let Some(Reverse(expiry)) = self.expiries.peek()
            && (expiry.at <= now || expiry.slot.strong_count() == 0)
        {
            if let Some(slot) = expiry.slot.upgrade() {
                slot.fail(Failure::DeadlineExceeded);
            }
            self.expiries.pop();
        }
    }
}

impl Drop for Driver {
    /// At the end no caller waits any more; after a panic, all calls fail.
    fn drop(&mut self) {
        self.wake();
        let waiting = self.tickets.places.drain(..).filter_map(|place| place.waits);
        waiting.for_each(|(slot, _)| slot.fail(Failure::Shutdown));
        self.resting.iter().for_each(|slot| slot.fail(Failure::Shutdown));
    }
}

struct Expiry {
    at: Instant,
    slot: Weak<Slot>,
}

impl PartialEq for Expiry {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Expiry {}

impl PartialOrd for Expiry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Expiry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

/// Slots by ticket. A ticket is a place and the place's generation, so the ticket of an answered
/// call names no slot; the keys of a ready-made slab have no generations.
#[derive(Default)]
struct Tickets {
    places: Vec<Place>,
    free: Vec<u32>,
    live: usize,
    /// Answers since the last report.
    answered: usize,
    /// Wakers of calls whose last answer has come.
    wakers: Vec<Waker>,
    /// Keys and tokens of leases that came for departed callers.
    orphans: Vec<(Vec<u8>, u64)>,
}

struct Place {
    generation: u32,
    waits: Option<(Arc<Slot>, usize)>,
}

/// The place in its slot of a request by the driver itself.
const OWN: usize = usize::MAX;

/// Generations are 31 bits, since the highest bit of a ticket is the core's.
const GENERATION_MASK: u32 = u32::MAX >> 1;

impl Tickets {
    #[expect(clippy::expect_used, reason = "the memory ends before the numbers do")]
    fn add(&mut self, slot: Arc<Slot>, index: usize) -> Ticket {
        self.live += 1;
        let number = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { generation: 0, waits: None });
            let number = u32::try_from(self.places.len() - 1);
            number.expect("the inbox takes fewer requests at once than 4 billion")
        });
        let place = &mut self.places[number as usize];
        place.generation = place.generation.wrapping_add(1) & GENERATION_MASK;
        place.waits = Some((slot, index));
        u64::from(place.generation) << 32 | u64::from(number)
    }

    /// The ticket's place and its number, unless it was answered.
    fn place(&mut self, ticket: Ticket) -> Option<(&mut Place, u32)> {
        let (number, generation) = ((ticket & 0xffff_ffff) as u32, (ticket >> 32) as u32);
        let place = self.places.get_mut(number as usize)?;
        (place.generation == generation).then_some((place, number))
    }

    fn slot(&mut self, ticket: Ticket) -> Option<Arc<Slot>> {
        let (place, _) = self.place(ticket)?;
        place.waits.as_ref().map(|(slot, _)| Arc::clone(slot))
    }

    fn close(&mut self, ticket: Ticket, reply: OwnedReply) {
        let Some((place, number)) = self.place(ticket) else { return };
        let Some((slot, index)) = place.waits.take() else { return };
        self.free.push(number);
        self.live -= 1;
        // The inbox counts the requests that it received.
        self.answered += usize::from(index != OWN);
        self.wakers.extend(slot.answer(index, reply));
    }
}

impl Sink for Tickets {
    fn answer(&mut self, ticket: Ticket, reply: &Reply<'_>) {
        let lease = token_of(reply).and_then(|token| Some((token, self.slot(ticket)?)));
        // The caller knows the key, and the pipeline has compared it.
        self.close(ticket, Reply { key: b"", ..*reply }.to_owned());
        // A caller that gives up now finds the reply.
        if let Some((token, slot)) = lease
            && let Some(key) = slot.abandoned_lease()
        {
            self.orphans.push((key, token));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::answer::MetaCode;

    /// With each command that may request it.
    #[test]
    fn an_unclaimed_lease_is_returned() {
        let mut tickets = Tickets::default();
        let lease = Reply { number: 7, ..Reply::of(Outcome::Lease) };
        let meta = Reply { words: b" f0 c0 G8", ..Reply::of(Outcome::Meta(MetaCode::Va)) };
        for reply in [lease, meta] {
            let (waits, late, gone) =
                (Slot::for_lease(b"waits"), Slot::for_lease(b"late"), Slot::for_lease(b"gone"));
            late.fail(Failure::DeadlineExceeded);
            assert_eq!(gone.abandon(), None);
            for slot in [waits, late, gone] {
                let ticket = tickets.add(slot, 0);
                tickets.answer(ticket, &reply);
            }
        }
        let keys = |token| [(b"late".to_vec(), token), (b"gone".to_vec(), token)];
        assert_eq!(tickets.orphans, [keys(7), keys(8)].concat());
    }

    #[test]
    fn an_answered_ticket_ignores_later_replies() {
        let mut tickets = Tickets::default();
        let (first, second) = (Slot::new(1), Slot::new(1));
        let old = tickets.add(Arc::clone(&first), 0);
        tickets.answer(old, &Reply::of(Outcome::Stored));
        let new = tickets.add(Arc::clone(&second), 0);
        assert_eq!(old & 0xffff_ffff, new & 0xffff_ffff);
        tickets.answer(old, &Reply::of(Outcome::Found));
        assert_eq!((tickets.live, tickets.answered, Arc::strong_count(&second)), (1, 1, 2));
        tickets.answer(new, &Reply::of(Outcome::Deleted));
        assert_eq!((tickets.live, tickets.answered, Arc::strong_count(&second)), (0, 2, 1));
    }
}
